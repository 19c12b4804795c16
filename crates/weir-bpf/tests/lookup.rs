//! Other people's programs beside the loaded gate, packet by packet: such as choose sockets (`BPF_SK_LOOKUP`), and filters.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use common::{FAR_IP4, NEAR_IP4, NEAR_IP6, Network, wait_until};
use etherparse::TcpHeader;
use libbpf_rs::libbpf_sys;
use rustix::net::sockopt;
use weir_bpf::attach::AttachMode;
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
/// Bytes of a datagram, more than it has.
const KEPT: i32 = 65535;

/// The kernel runs it once more, so that one that takes turns would choose otherwise.
#[test]
fn packets_pass_and_the_gate_does_not_run_them() {
    let network = Network::new();
    let (mut gate, _probe) = network.gate(AttachMode::Native, &[NEAR_IP4, NEAR_IP6], &[]);
    let [from, to] = [FAR_IP4, NEAR_IP4].map(|ip| ip.parse().unwrap());
    let segment = |syn: bool| {
        let mut header = TcpHeader::new(4000, PORT, 1, 1024);
        (header.syn, header.ack) = (syn, !syn);
        network.segment(from, to, header)
    };
    let datagram = network.datagram(NEAR_IP4, PORT, b"fourteen bytes");
    let packets = [segment(true), segment(false), datagram];
    let judge = || {
        gate.stand_for(network.near_ifindex).unwrap();
        let _listener = TcpListener::bind((NEAR_IP4, PORT)).unwrap();
        let _socket = UdpSocket::bind((NEAR_IP4, PORT)).unwrap();
        // Within a poll, what has been found is remembered for as many packets.
        let judged = || {
            let judge = || packets.each_ref().map(|packet| network.judge(&gate, packet));
            for _ in 0..64 {
                judge();
            }
            judge()
        };
        let found = [Reason::TcpSyn, Reason::TcpStray, Reason::UdpRoom];
        assert_eq!(judged(), found);
        let steering = Steering::begin();
        assert_eq!(judged(), [Reason::Diverted; 3]);
        // Whether a listener that was found before is still there is looked at once more.
        let before = steering.runs();
        assert!(before <= 1, "{before}");
        assert_eq!(judged(), [Reason::Diverted; 3]);
        assert_eq!(steering.runs(), before);
        network.sender().send(&packets[2]).unwrap();
        wait_until("the kernel runs it", || steering.runs() > before);
        drop(steering);
        assert_eq!(judged(), found);
    };
    network.near.run(judge).unwrap();
}

/// One that bans who sends much is to see what a full queue would refuse: it makes room.
#[test]
fn a_filter_that_may_keep_count_sees_every_packet() {
    let network = Network::new();
    let (mut gate, _probe) = network.gate(AttachMode::Native, &[NEAR_IP4, NEAR_IP6], &[]);
    let datagram = network.datagram(NEAR_IP4, PORT, b"fourteen bytes");
    let judge = || {
        gate.stand_for(network.near_ifindex).unwrap();
        let socket = UdpSocket::bind((NEAR_IP4, PORT)).unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        let sender = network.sender();
        wait_until("the queue is full", || {
            sender.send(&datagram).unwrap();
            network.judge(&gate, &datagram) == Reason::UdpFull
        });
        let map = map();
        // Outlasts what is remembered within a poll.
        let judged = || {
            for _ in 0..64 {
                network.judge(&gate, &datagram);
            }
            network.judge(&gate, &datagram)
        };
        for (filter, reason) in [
            (exit_with(KEPT).to_vec(), Reason::UdpFull),
            ([naming(&map), exit_with(KEPT)].concat(), Reason::UdpRoom),
        ] {
            let program = load(libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER, 0, &filter);
            attach(&socket, &program);
            assert_eq!(judged(), reason);
        }
    };
    network.near.run(judge).unwrap();
}

/// A program that chooses nothing, in this network namespace; how often it runs is counted.
struct Steering {
    program: OwnedFd,
    _link: OwnedFd,
    _counting: OwnedFd,
}

impl Steering {
    #[allow(unsafe_code)]
    fn begin() -> Self {
        let netns = File::open("/proc/thread-self/ns/net").unwrap();
        let place = libbpf_sys::BPF_SK_LOOKUP;
        let program = load(libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP, place, &exit_with(1));
        let (number, netns) = (program.as_raw_fd(), netns.as_raw_fd());
        // SAFETY: the calls take numbers alone.
        let (counting, link) = unsafe {
            (
                libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME),
                libbpf_sys::bpf_link_create(number, netns, place, std::ptr::null()),
            )
        };
        Self { program, _link: owned(link), _counting: owned(counting) }
    }

    #[allow(unsafe_code)]
    fn runs(&self) -> u64 {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut size = size_of_val(&info) as u32;
        let at = (&raw mut info).cast();
        let fd = self.program.as_raw_fd();
        // SAFETY: the kernel writes no more than `size` bytes.
        let failed = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, at, &raw mut size) };
        assert_eq!(failed, 0);
        info.run_cnt
    }
}

const LOAD_LONG: u8 = 0x18;
const SET: u8 = 0xb7;
const EXIT: u8 = 0x95;

/// With the destination and the source register.
fn instruction(code: u8, registers: (u8, u8), imm: i32) -> libbpf_sys::bpf_insn {
    let mut it = libbpf_sys::bpf_insn { code, imm, ..Default::default() };
    it.set_dst_reg(registers.0);
    it.set_src_reg(registers.1);
    it
}

fn exit_with(value: i32) -> [libbpf_sys::bpf_insn; 2] {
    [instruction(SET, (0, 0), value), instruction(EXIT, (0, 0), 0)]
}

fn naming(map: &OwnedFd) -> [libbpf_sys::bpf_insn; 2] {
    let number = instruction(LOAD_LONG, (1, libbpf_sys::BPF_PSEUDO_MAP_FD as u8), map.as_raw_fd());
    [number, instruction(0, (0, 0), 0)]
}

#[allow(unsafe_code)]
fn map() -> OwnedFd {
    let (kind, name) = (libbpf_sys::BPF_MAP_TYPE_ARRAY, c"counts".as_ptr());
    // SAFETY: the name outlives the call.
    owned(unsafe { libbpf_sys::bpf_map_create(kind, name, 4, 8, 1, std::ptr::null()) })
}

#[allow(unsafe_code)]
fn load(
    kind: libbpf_sys::bpf_prog_type,
    place: libbpf_sys::bpf_attach_type,
    instructions: &[libbpf_sys::bpf_insn],
) -> OwnedFd {
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: place,
        ..Default::default()
    };
    let (name, license) = (c"theirs".as_ptr(), c"GPL".as_ptr());
    let (first, count) = (instructions.as_ptr(), instructions.len() as libbpf_sys::size_t);
    // SAFETY: all of it outlives the call.
    owned(unsafe { libbpf_sys::bpf_prog_load(kind, name, license, first, count, &raw mut options) })
}

#[allow(unsafe_code)]
fn attach(socket: &UdpSocket, filter: &OwnedFd) {
    let number = filter.as_raw_fd();
    let (at, len) = ((&raw const number).cast(), size_of_val(&number) as libc::socklen_t);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF);
    // SAFETY: the option is a number, which outlives the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, len) };
    assert_eq!(set, 0);
}

#[allow(unsafe_code)]
fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{fd}");
    // SAFETY: whoever gets the descriptor owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

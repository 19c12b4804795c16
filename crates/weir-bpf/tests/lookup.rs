//! Programs that choose sockets (`BPF_SK_LOOKUP`), beside the loaded gate, packet by packet.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use common::{FAR_IP4, NEAR_IP4, NEAR_IP6, Network, wait_until};
use etherparse::TcpHeader;
use libbpf_rs::libbpf_sys;
use weir_bpf::attach::AttachMode;
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;

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

/// A program that chooses nothing, in this network namespace; how often it runs is counted.
struct Steering {
    program: OwnedFd,
    _link: OwnedFd,
    _counting: OwnedFd,
}

impl Steering {
    #[allow(unsafe_code)]
    fn begin() -> Self {
        const SET: u8 = 0xb7;
        const EXIT: u8 = 0x95;
        let instruction =
            |code, imm| libbpf_sys::bpf_insn { code, imm, ..libbpf_sys::bpf_insn::default() };
        let instructions = [instruction(SET, 1), instruction(EXIT, 0)];
        let netns = File::open("/proc/thread-self/ns/net").unwrap();
        let place = libbpf_sys::BPF_SK_LOOKUP;
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            expected_attach_type: place,
            ..Default::default()
        };
        let (name, license) = (c"chooses".as_ptr(), c"GPL".as_ptr());
        let (first, count) = (instructions.as_ptr(), instructions.len() as libbpf_sys::size_t);
        let kind = libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP;
        let owned = |fd| {
            assert!(fd >= 0, "{fd}");
            // SAFETY: whoever gets the descriptor owns it.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        // SAFETY: all of it outlives the calls.
        unsafe {
            let counting = owned(libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME));
            let program =
                libbpf_sys::bpf_prog_load(kind, name, license, first, count, &raw mut options);
            let program = owned(program);
            let (number, netns) = (program.as_raw_fd(), netns.as_raw_fd());
            let link = libbpf_sys::bpf_link_create(number, netns, place, std::ptr::null());
            Self { program, _link: owned(link), _counting: counting }
        }
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

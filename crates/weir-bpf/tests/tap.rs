//! The gate on a tap device, whose driver has no NAPI, and on a bridge over one: no poll ever ends there, so nothing
//! that was found out for one packet may answer for the next. And packets come one by one, so it can be told to the
//! packet how many a queue takes.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;

use common::{FAR_IP4, NEAR_IP4};
use etherparse::PacketBuilder;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::sys::ipv6::disable_ipv6;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::{sched, snmp};
use weir_bpf::units::{IfIndex, MacAddr};
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
const TAP: &str = "tap0";
const BRIDGE: &str = "bridge0";
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// What a socket's queue takes is several hundred of the test's packets, at the usual limits.
const FLOOD: u64 = 4000;
/// Fewer than fit into an empty queue, and than a memory of what was found would answer for.
const FEW: u64 = 16;
const ROUNDS: u32 = 10;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TAP: i16 = 0x2;
const IFF_NO_PI: i16 = 0x1000;

/// `struct ifreq` as the driver uses it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest_of_union: [u8; 22],
}

/// A tap device in the calling thread's network namespace. It goes with the file.
#[allow(unsafe_code)]
fn open_tap() -> File {
    let tap = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    let mut request = Request { name: [0; 16], flags: IFF_TAP | IFF_NO_PI, rest_of_union: [0; 22] };
    request.name[..TAP.len()].copy_from_slice(TAP.as_bytes());
    // SAFETY: the driver reads and writes one `struct ifreq`, which outlives the call.
    let done = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    tap
}

/// A bridge whose only port is the tap device, which is up.
fn bridge() {
    let script = format!(
        "ip link add {BRIDGE} type bridge; ip link set {TAP} master {BRIDGE}; ip link set {TAP} up"
    );
    assert!(Command::new("sh").args(["-e", "-c", &script]).status().unwrap().success());
}

/// Brings the device up, with an address.
fn set_up(ifname: &str) -> (IfIndex, MacAddr) {
    let links = Links::open().unwrap();
    let ifindex = links.index(ifname).unwrap();
    disable_ipv6(ifname).unwrap();
    links.set_up(ifindex).unwrap();
    links.add_address(ifindex, NEAR_IP4.parse().unwrap(), 24).unwrap();
    links.add_neighbour(ifindex, FAR_IP4.parse().unwrap(), MacAddr(FAR_MAC)).unwrap();
    (ifindex, links.mac(ifindex).unwrap())
}

fn frame(to: MacAddr) -> Vec<u8> {
    let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(FAR_MAC, to.0)
        .ipv4(ip(FAR_IP4), ip(NEAR_IP4), 64)
        .udp(40_000, PORT)
        .write(&mut frame, b"fourteen bytes")
        .unwrap();
    frame
}

/// Reads all that there is.
fn drain(socket: &UdpSocket) -> u64 {
    let mut received = 0;
    loop {
        match socket.recv(&mut [0; 64]) {
            Ok(_) => received += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return received,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Fills the queue of a socket and drains it, time and again: it takes as many packets as the kernel alone
/// lets in.
fn fill_and_drain(ifname: &str, mode: AttachMode) {
    // Also the thread that receives: without NAPI, the one that writes.
    sched::pin_current_thread(*sched::online_cpus().unwrap().last().unwrap()).unwrap();
    let tap = open_tap();
    if ifname == BRIDGE {
        bridge();
    }
    let (ifindex, mac) = set_up(ifname);
    let probe = QueueProbe::load().expect("the tests need root");
    let mut gate = Gate::load(&probe, mode).unwrap();
    gate.configure(mac, Policy::Off);
    gate.set_local(&common::local(&[NEAR_IP4])).unwrap();
    gate.attach(ifindex, ifname, mode).unwrap();
    let socket = UdpSocket::bind((NEAR_IP4, PORT)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let frame = frame(mac);
    let send = |packets| (0..packets).for_each(|_| (&tap).write_all(&frame).unwrap());
    let fill = || {
        send(FLOOD);
        drain(&socket)
    };
    // With XDP, a packet is charged what happened to be left of a page.
    let fit: BTreeSet<u64> = (0..ROUNDS).map(|_| fill()).collect();
    let (least, most) = (*fit.first().unwrap(), *fit.last().unwrap());
    assert!(FEW < least && most < FLOOD && most - least <= 1, "{mode:?}: {fit:?} packets fit");

    gate.configure(mac, Policy::On);
    let discarded = || gate.counters().unwrap().get(Reason::UdpFull).packets;
    let late = || snmp::udp_stats().unwrap().rcvbuf_errors;

    for round in 0..ROUNDS {
        let (discarded_before, late_before) = (discarded(), late());
        let queued = fill();
        let in_vain = discarded() - discarded_before;
        let refused = late() - late_before;
        assert_eq!(in_vain + queued + refused, FLOOD, "{mode:?}, round {round}");
        assert!(fit.contains(&queued), "{mode:?}, round {round}: {queued} instead of {fit:?}");
        // A busy machine may take the CPU for longer than a charge is believed.
        assert!(
            in_vain > FLOOD / 2,
            "{mode:?}, round {round}: {in_vain} discarded, {refused} late"
        );

        send(FEW);
        assert_eq!(
            discarded() - discarded_before,
            in_vain,
            "{mode:?}, round {round}: it was drained"
        );
        assert_eq!(drain(&socket), FEW, "{mode:?}, round {round}");
    }
}

fn in_a_namespace(test: impl FnOnce() + Send) {
    NetNs::create().expect("the tests need root").run(test).unwrap();
}

#[test]
fn without_napi_polls_a_queue_takes_what_fits_and_is_seen_drained() {
    for mode in [AttachMode::Generic, AttachMode::Native, AttachMode::Clsact] {
        in_a_namespace(|| fill_and_drain(TAP, mode));
    }
}

#[test]
fn behind_a_bridge_whose_port_has_no_napi_polls_it_is_the_same() {
    for mode in [AttachMode::Generic, AttachMode::Clsact] {
        in_a_namespace(|| fill_and_drain(BRIDGE, mode));
    }
}

//! At tc, what GRO has merged, or a sender has never cut up, counts as the packets that it stands for.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use common::{FAR_IP6, NEAR_IP4, NEAR_IP6, Network};
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::Gate;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::verdict::{Reason, Verdict};

const PORT: u16 = 5000;
const STREAM_BYTES: u64 = 4 << 20;
/// The most that a packet of 1,500 bytes carries beside IPv4 and TCP with timestamps.
const SEGMENT_BYTES: u64 = 1448;
/// Ethernet, IPv4, and TCP with timestamps; the SYN has 8 bytes of options more.
const HEADER_BYTES: u64 = 14 + 20 + 32;
const SYN_EXTRA_BYTES: u64 = 8;

#[test]
fn a_tcp_stream_is_counted_packet_by_packet() {
    for mode in [AttachMode::Tcx, AttachMode::Clsact] {
        let network = Network::new();
        network.make_far_a_host();
        let (mut gate, _probe) = network.gate(mode, &[NEAR_IP4, NEAR_IP6], &[]);
        let merged = stream(&network, &mut gate, mode, NEAR_IP4);
        let seen = gate.counters().unwrap().verdict(Verdict::Pass);
        assert!(seen.packets >= STREAM_BYTES / SEGMENT_BYTES, "{seen:?}");
        let once = STREAM_BYTES + HEADER_BYTES * seen.packets + SYN_EXTRA_BYTES;
        // On a busy machine a backlog overflows, and some of it is sent again.
        assert!((once..once + STREAM_BYTES / 10).contains(&seen.bytes), "{seen:?}, {once} bytes");
        // Otherwise nothing was tested.
        assert!(merged < seen.packets / 2, "{merged} skbs for {} packets", seen.packets);
    }
}

/// Over 64 KiB, an IP header cannot say how long a packet is.
#[test]
fn so_is_big_tcp() {
    let network = Network::new();
    network.make_far_a_host();
    let sh = |netns: &NetNs, line: &str| {
        let done = netns.run(|| Command::new("sh").args(["-c", line]).status().unwrap());
        assert!(done.unwrap().success(), "{line}");
    };
    sh(&network.near, "ip link set near gso_max_size 185000 gro_max_size 185000");
    sh(&network.far, "ip link set far gso_max_size 185000 gro_max_size 185000");
    sh(&network.far, "echo 0 > /proc/sys/net/ipv6/conf/far/disable_ipv6");
    sh(&network.far, &format!("ip addr add {FAR_IP6}/64 dev far nodad"));
    let (mut gate, _probe) = network.gate(AttachMode::Tcx, &[NEAR_IP4, NEAR_IP6], &[]);
    let merged = stream(&network, &mut gate, AttachMode::Tcx, NEAR_IP6);
    let counters = gate.counters().unwrap();
    let segments = counters.get(Reason::TcpSegment);
    assert!(segments.packets >= STREAM_BYTES / SEGMENT_BYTES, "{counters:?}");
    assert!(merged < segments.packets / 2, "{merged} skbs");
    assert_eq!(counters.get(Reason::Malformed).packets, 0);
}

/// Sends a stream to the near end; in how many skbs it came.
fn stream(network: &Network, gate: &mut Gate, mode: AttachMode, to: &str) -> u64 {
    let skbs = || network.near.run(|| received(network)).unwrap();
    let listener = network.near.run(|| TcpListener::bind((to, PORT)).unwrap()).unwrap();
    network.attach(gate, mode);
    let before = skbs();
    let mut stream = network.far.run(|| TcpStream::connect((to, PORT)).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
        });
        stream.write_all(&vec![0; STREAM_BYTES as usize]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Until the other end has read everything and closed.
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(reader.join().unwrap(), STREAM_BYTES);
    });
    let merged = skbs() - before;
    network.near.run(|| gate.detach()).unwrap();
    merged
}

/// What the driver counts: one for each skb.
fn received(network: &Network) -> u64 {
    let links = weir_bpf::sys::link::Links::open().unwrap();
    links.stats(network.near_ifindex).unwrap().rx_packets
}

//! At tc, what GRO has merged, or a sender has never cut up, counts as the packets that it stands for.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use common::{FAR_IP4, NEAR_IP4, NEAR_IP6, Network};
use weir_bpf::attach::AttachMode;
use weir_bpf::verdict::Verdict;

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
        let skbs = || network.near.run(|| received(&network)).unwrap();
        let listener = network.near.run(|| TcpListener::bind((NEAR_IP4, PORT)).unwrap()).unwrap();
        network.attach(&mut gate, mode);

        let before = skbs();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut stream, from) = listener.accept().unwrap();
                assert_eq!(from.ip().to_string(), FAR_IP4);
                std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
            });
            let mut stream =
                network.far.run(|| TcpStream::connect((NEAR_IP4, PORT)).unwrap()).unwrap();
            stream.write_all(&vec![0; STREAM_BYTES as usize]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the other end has read everything and closed.
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
            assert_eq!(reader.join().unwrap(), STREAM_BYTES);
        });
        let merged = skbs() - before;
        network.near.run(|| gate.detach()).unwrap();

        let seen = gate.counters().unwrap().verdict(Verdict::Pass);
        assert!(seen.packets >= STREAM_BYTES / SEGMENT_BYTES, "{seen:?}");
        let once = STREAM_BYTES + HEADER_BYTES * seen.packets + SYN_EXTRA_BYTES;
        // On a busy machine a backlog overflows, and some of it is sent again.
        assert!((once..once + STREAM_BYTES / 10).contains(&seen.bytes), "{seen:?}, {once} bytes");
        // Otherwise nothing was tested.
        assert!(merged < seen.packets / 2, "{merged} skbs for {} packets", seen.packets);
    }
}

/// What the driver counts: one for each skb.
fn received(network: &Network) -> u64 {
    let links = weir_bpf::sys::link::Links::open().unwrap();
    links.stats(network.near_ifindex).unwrap().rx_packets
}

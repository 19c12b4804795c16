//! The load generator: what it says it sent arrives, intact and with valid checksums, at real
//! sockets.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::{NonZeroU16, NonZeroU32};
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::{FAR_IP4, FAR_IP6, NEAR_IP4, NEAR_IP6, Network, wait_until};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, sockopt};
use weir_bpf::abi;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::snmp;
use weir_bpf::traffic::{Flaw, FlowSpec, Generator, Lengths, STAMP_LEN, Sources, Stamp, Transport};
use weir_bpf::units::{MacAddr, PacketsPerSec};

const PORT: u16 = 6000;

fn flow(network: &Network, transport: Transport, (far, near): (&str, &str)) -> FlowSpec {
    let mac = (network.far_mac, network.near_mac);
    let address = (far.parse().unwrap(), near.parse().unwrap());
    FlowSpec {
        transport,
        sources: Sources::Random { address_bits: 4, port_bits: 8 },
        lengths: Lengths::One(100),
        rate: Some(PacketsPerSec(5_000.0)),
        ..FlowSpec::udp(mac, address, (4096, PORT))
    }
}

/// Sends flows until `enough`, and returns how many packets each sent.
fn send(network: &Network, flows: &[FlowSpec], enough: impl Fn(&Generator) -> bool) -> Vec<u64> {
    network.send(&mut network.generator(), flows, enough)
}

/// A packet socket of the calling thread's namespace that gets all frames of one type.
fn every_frame(ethertype: u16) -> OwnedFd {
    let protocol =
        Protocol::from_raw(NonZeroU32::from(NonZeroU16::new(ethertype.to_be()).unwrap()));
    let socket =
        rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, Some(protocol)).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
    let patience = Duration::from_millis(200);
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience)).unwrap();
    socket
}

fn udp_packets_arrive((far, near): (&str, &str)) {
    let network = Network::new();
    let socket = network.bind(near, PORT);
    // Nothing is read while packets come; a default buffer holds no more than fifty.
    sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
    let flow = flow(&network, Transport::Udp, (far, near));
    let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 20)[0];

    let mut buffer = [0; 256];
    let mut sources = BTreeSet::<SocketAddr>::new();
    for sequence in 0..sent {
        let (len, source) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(len, 100);
        let stamp = Stamp::parse(&buffer[..len]).unwrap();
        assert_eq!(u64::from(stamp.sequence), sequence, "none lost, none twice, in order");
        assert!(stamp.sent_ns > 0);
        sources.insert(source);
    }
    assert!(socket.recv(&mut buffer).is_err(), "one more packet than was sent");
    let addresses: BTreeSet<_> = sources.iter().map(SocketAddr::ip).collect();
    let ports: BTreeSet<_> = sources.iter().map(SocketAddr::port).collect();
    assert!(addresses.len() > 4 && ports.len() > 8, "sources are random: {sources:?}");
    assert!(ports.iter().all(|port| (4096..4096 + 256).contains(port)), "{ports:?}");
    let udp = network.near.run(|| snmp::udp_stats().unwrap()).unwrap();
    assert_eq!(udp.in_errors, 0, "{udp:?}");
}

#[test]
fn udp_over_ipv4_arrives_intact() {
    udp_packets_arrive((FAR_IP4, NEAR_IP4));
}

#[test]
fn udp_over_ipv6_arrives_intact() {
    udp_packets_arrive((FAR_IP6, NEAR_IP6));
}

/// A SYN with a valid checksum makes a connection request, which the host lists as `SYN_RECV`.
fn syns_are_taken((far, near): (&str, &str), table: &str) {
    const SYN_RECV: &str = " 03 ";
    let network = Network::new();
    let address = SocketAddr::new(near.parse().unwrap(), PORT);
    let _listener = network.near.run(|| TcpListener::bind(address).unwrap()).unwrap();
    let flow = flow(&network, Transport::TcpSyn, (far, near));
    let requests = || {
        let path = format!("/proc/thread-self/net/{table}");
        let text = network.near.run(|| std::fs::read_to_string(path).unwrap()).unwrap();
        text.lines().filter(|line| line.contains(SYN_RECV)).count()
    };
    send(&network, &[flow], |_| requests() >= 10);
}

#[test]
fn syns_over_ipv4_are_taken() {
    syns_are_taken((FAR_IP4, NEAR_IP4), "tcp");
}

#[test]
fn syns_over_ipv6_are_taken() {
    syns_are_taken((FAR_IP6, NEAR_IP6), "tcp6");
}

/// The host's own count of something, from `/proc/net/snmp`, `netstat` (`Ip InReceives`: protocol and
/// name) or `snmp6` (`Ip6InReceives`).
fn counted(network: &Network, name: &str) -> u64 {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let text = network.near.run(|| ["snmp", "netstat", "snmp6"].map(read)).unwrap();
    let Some((protocol, field)) = name.split_once(' ') else {
        let mut lines = text[2].lines().map(|line| line.split_ascii_whitespace());
        return lines
            .find_map(|mut line| (line.next()? == name).then(|| line.next()))
            .unwrap()
            .unwrap()
            .parse()
            .unwrap();
    };
    let of_it = |line: &&str| line.split_once(": ").is_some_and(|(of, _)| of == protocol);
    let lines: Vec<&str> = text[..2].iter().flat_map(|text| text.lines()).filter(of_it).collect();
    let (names, numbers) = (lines[0].split(' '), lines[1].split(' '));
    names
        .zip(numbers)
        .find_map(|(name, number)| (name == field).then_some(number))
        .unwrap()
        .parse()
        .unwrap()
}

/// Sends packets of a kind, and holds the host's counters to their number.
fn are_counted_as(transport: Transport, ends: (&str, &str), names: &[&str]) {
    // The checksum of a short packet is checked on arrival, that of a long one when it is read.
    are_counted(transport, Lengths::One(14), ends, names);
}

fn are_counted(transport: Transport, lengths: Lengths, (far, near): (&str, &str), names: &[&str]) {
    let network = Network::new();
    let socket = network.bind(near, PORT);
    let flow = FlowSpec { lengths, ..flow(&network, transport, (far, near)) };
    let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 20)[0];
    for name in names {
        wait_until(name, || counted(&network, name) == sent);
    }
    for never in ["Ip ReasmOKs", "Ip6ReasmOKs", "Icmp InCsumErrors", "Icmp6InCsumErrors"] {
        assert_eq!(counted(&network, never), 0, "{never}");
    }
    assert!(socket.recv(&mut [0; 256]).is_err(), "nothing is for an application");
}

#[test]
fn a_bad_checksum_is_bad_in_every_packet() {
    let names = ["Ip InReceives", "Udp InCsumErrors"];
    // The far end's random sources meet all values that a checksum can have near a carry.
    are_counted_as(Transport::UdpBadChecksum, (FAR_IP4, NEAR_IP4), &names);
    let names = ["Ip6InReceives", "Udp6InCsumErrors"];
    are_counted_as(Transport::UdpBadChecksum, (FAR_IP6, NEAR_IP6), &names);
}

#[test]
fn echo_requests_are_taken_for_such() {
    are_counted_as(Transport::Echo, (FAR_IP4, NEAR_IP4), &["Icmp InEchos"]);
    are_counted_as(Transport::Echo, (FAR_IP6, NEAR_IP6), &["Icmp6InEchos"]);
}

#[test]
fn solicitations_are_answered_if_nobody_can_have_forwarded_them() {
    for (hop_limit, answered) in [(255, true), (64, false)] {
        let network = Network::new();
        let flow = FlowSpec {
            transport: Transport::Solicitation { hop_limit },
            sources: Sources::Random { address_bits: 4, port_bits: 0 },
            port: (0, 0),
            ..flow(&network, Transport::Udp, (FAR_IP6, NEAR_IP6))
        };
        let before = counted(&network, "Icmp6OutNeighborAdvertisements");
        let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 20)[0];
        wait_until("all are seen", || counted(&network, "Icmp6InNeighborSolicits") == sent);
        assert_eq!(counted(&network, "Icmp6InCsumErrors"), 0);
        let answers = counted(&network, "Icmp6OutNeighborAdvertisements") - before;
        assert_eq!(answers > 0, answered, "{answers} answers to {sent} of hop limit {hop_limit}");
    }
}

#[test]
fn fragments_never_become_whole() {
    for transport in [Transport::FirstFragment, Transport::LastFragment] {
        are_counted_as(transport, (FAR_IP4, NEAR_IP4), &["Ip ReasmReqds"]);
        are_counted_as(transport, (FAR_IP6, NEAR_IP6), &["Ip6ReasmReqds"]);
    }
}

#[test]
fn malformed_packets_are_so_in_the_way_that_they_should() {
    for (flaw, v4, v6) in [
        (Flaw::IpHeader, "Ip InHdrErrors", "Ip6InHdrErrors"),
        (Flaw::IpLength, "IpExt InTruncatedPkts", "Ip6InTruncatedPkts"),
        (Flaw::UdpLength, "Udp InErrors", "Udp6InErrors"),
    ] {
        are_counted_as(Transport::Malformed(flaw), (FAR_IP4, NEAR_IP4), &["Ip InReceives", v4]);
        are_counted_as(Transport::Malformed(flaw), (FAR_IP6, NEAR_IP6), &["Ip6InReceives", v6]);
    }
}

/// Its clock is read, and its schedule set, on two CPUs.
#[test]
fn a_generator_that_is_started_again_and_again_sends_each_time() {
    let network = Network::new();
    let flow = flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4));
    network.while_sent(&mut network.generator(), &[flow], None, |generator| {
        for _ in 0..5_000 {
            let before = generator.counts(0).sent;
            wait_until("it sends", || generator.counts(0).sent > before);
            generator.stop();
            // It may be about to send one.
            std::thread::sleep(Duration::from_micros(100));
            generator.start();
        }
    });
}

#[test]
fn a_group_and_a_broadcast_address_reach_those_who_listen() {
    const GROUP: [u8; 4] = [233, 252, 0, 1]; // MCAST-TEST-NET (RFC 6676)
    const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 0x7c, 0, 1];
    let broadcast = [198, 18, 0, 255];
    for (destination, mac) in [(GROUP, GROUP_MAC), (broadcast, [0xff; 6])] {
        let network = Network::new();
        let socket = network.bind("0.0.0.0", PORT);
        sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
        let near: Ipv4Addr = NEAR_IP4.parse().unwrap();
        network.near.run(|| socket.join_multicast_v4(&GROUP.into(), &near).unwrap()).unwrap();
        let flow = FlowSpec {
            mac: (network.far_mac, MacAddr(mac)),
            address: (FAR_IP4.parse().unwrap(), IpAddr::from(destination)),
            ..flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4))
        };
        let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 20)[0];
        let mut buffer = [0; 256];
        for _ in 0..sent {
            assert_eq!(socket.recv(&mut buffer).unwrap(), 100);
        }
    }
}

#[test]
fn a_light_flow_keeps_its_rate_beside_a_flood() {
    let network = Network::new();
    let light = FlowSpec {
        rate: Some(PacketsPerSec(1_000.0)),
        ..flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4))
    };
    let flood = FlowSpec { rate: None, ..light.clone() };
    // Long enough that it may stand still for a while, after which what is late of the light flow goes first.
    let sent = send(&network, &[light, flood], |generator| generator.counts(0).sent >= 1_000);
    assert!(sent[1] > 20 * sent[0], "{sent:?}");
}

/// One packet as a socket got it.
struct Received {
    len: usize,
    source: SocketAddr,
    stamp: Option<Stamp>,
}

/// A socket of the host's that keeps all that comes: nothing is read before all is sent.
fn keeper(network: &Network, near: &str, port: u16) -> UdpSocket {
    let socket = network.bind(near, port);
    sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
    socket
}

/// What a socket got: exactly as many packets as were sent, each with a valid checksum (a socket gets
/// no other), its stamp in order and zeros behind it.
fn all(socket: &UdpSocket, sent: u64) -> Vec<Received> {
    let mut buffer = [0; 2048];
    let mut next = |sequence| {
        let (len, source) = socket.recv_from(&mut buffer).unwrap();
        let stamp = Stamp::parse(&buffer[..len]);
        assert_eq!(stamp.is_some(), len >= STAMP_LEN);
        assert!(stamp.is_none_or(|stamp| u64::from(stamp.sequence) == sequence));
        let rest = if stamp.is_some() { &buffer[STAMP_LEN..len] } else { &buffer[..len] };
        assert!(rest.iter().all(|byte| *byte == 0), "what another packet left: {rest:?}");
        Received { len, source, stamp }
    };
    let received = (0..sent).map(&mut next).collect();
    assert!(socket.recv(&mut [0; 8]).is_err(), "one more packet than was sent");
    received
}

fn lens(received: &[Received]) -> Vec<usize> {
    received.iter().map(|packet| packet.len).collect()
}

#[test]
fn uniform_lengths_cover_their_range() {
    for ((far, near), longest) in [((FAR_IP4, NEAR_IP4), 1472), ((FAR_IP6, NEAR_IP6), 1452)] {
        let network = Network::new();
        let socket = keeper(&network, near, PORT);
        let flow = FlowSpec {
            lengths: Lengths::Uniform { from: 0, to: longest },
            ..flow(&network, Transport::Udp, (far, near))
        };
        let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 5_000)[0];
        let lens = lens(&all(&socket, sent));
        let distinct = BTreeSet::from_iter(&lens);
        assert!(distinct.len() > 1_300, "{} lengths", distinct.len());
        assert!(lens.iter().all(|len| *len <= longest.into()));
        let below_half = lens.iter().filter(|len| **len <= usize::from(longest) / 2).count();
        assert!(
            (0.45..0.55).contains(&(below_half as f64 / sent as f64)),
            "{below_half} of {sent}"
        );
    }
}

#[test]
fn lengths_have_the_shares_of_their_table() {
    let network = Network::new();
    let socket = keeper(&network, NEAR_IP4, PORT);
    let base = flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4));
    let flow = FlowSpec { lengths: Lengths::dns(), ..base };
    let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 10_000)[0];
    let lens = lens(&all(&socket, sent));
    let share = |of: &dyn Fn(usize) -> bool| {
        lens.iter().filter(|len| of(**len)).count() as f64 / sent as f64
    };
    assert_eq!(BTreeSet::from_iter(&lens).len(), 14);
    assert!((0.47..0.53).contains(&share(&|len| len <= 60)));
    assert!((0.010..0.022).contains(&share(&|len| len == 1232)));
}

#[test]
fn flows_of_all_sorts_share_a_generator() {
    let network = Network::new();
    let sockets = [(NEAR_IP4, PORT), (NEAR_IP6, PORT), (NEAR_IP4, PORT + 1)]
        .map(|(near, port)| keeper(&network, near, port));
    let mut frame = vec![0xee; abi::TRAFFIC_START_LEN];
    frame[..6].copy_from_slice(&network.near_mac.0);
    let v4 = flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4));
    let pace = |flow| FlowSpec { rate: Some(PacketsPerSec(2_000.0)), ..flow };
    let flows = [
        FlowSpec { lengths: Lengths::One(3), ..v4.clone() },
        FlowSpec {
            lengths: Lengths::Table(vec![0, 13, 14, 15, 100]),
            ..flow(&network, Transport::Udp, (FAR_IP6, NEAR_IP6))
        },
        FlowSpec { port: (4096, PORT + 1), options: vec![1; 40], ..v4 },
        FlowSpec::raw(frame),
    ]
    .map(pace);
    let sent = send(&network, &flows, |generator| generator.counts(3).sent >= 500);
    let received: Vec<_> =
        sockets.iter().zip(&sent).map(|(socket, sent)| all(socket, *sent)).collect();
    assert_eq!(BTreeSet::from_iter(lens(&received[0])), [3].into());
    assert_eq!(BTreeSet::from_iter(lens(&received[1])), [0, 13, 14, 15, 100].into());
    assert_eq!(BTreeSet::from_iter(lens(&received[2])), [100].into());
}

/// Fragments, echoes and flawed packets of many lengths are as good or bad as those of one.
#[test]
fn other_packets_have_many_lengths_too() {
    let of = |transport, ends, names: &[&str]| {
        let lengths = Lengths::Uniform { from: 1, to: 600 };
        are_counted(transport, lengths, ends, names);
    };
    let (v4, v6) = ((FAR_IP4, NEAR_IP4), (FAR_IP6, NEAR_IP6));
    of(Transport::Echo, v4, &["Icmp InEchos"]);
    of(Transport::Echo, v6, &["Icmp6InEchos"]);
    for transport in [Transport::FirstFragment, Transport::LastFragment] {
        of(transport, v4, &["Ip ReasmReqds"]);
        of(transport, v6, &["Ip6ReasmReqds"]);
    }
    of(Transport::Malformed(Flaw::IpLength), v4, &["IpExt InTruncatedPkts"]);
    of(Transport::Malformed(Flaw::IpLength), v6, &["Ip6InTruncatedPkts"]);
    of(Transport::Malformed(Flaw::UdpLength), v4, &["Udp InErrors"]);
}

#[test]
fn sources_are_as_many_as_they_should() {
    for (far, near) in [(FAR_IP4, NEAR_IP4), (FAR_IP6, NEAR_IP6)] {
        let network = Network::new();
        let socket = keeper(&network, near, PORT);
        let flow =
            FlowSpec { sources: Sources::Some(100), ..flow(&network, Transport::Udp, (far, near)) };
        let sent = send(&network, &[flow], |generator| generator.counts(0).sent >= 3_000)[0];
        let received = all(&socket, sent);
        let sources: BTreeSet<_> = received.iter().map(|packet| packet.source).collect();
        assert_eq!(sources.len(), 100);
        let first = SocketAddr::new(far.parse().unwrap(), 4096);
        assert_eq!(sources.first(), Some(&first), "they go up from the flow's own");
        assert!(sources.iter().all(|source| source.port() == 4096));
    }
}

/// Sent are the packets that were handed over: nearly all of them have been taken from the ring.
#[test]
fn what_finds_the_ring_full_is_not_handed_over() {
    let network = Network::new();
    network.set_threaded("1");
    let before = network.ring_full();
    let flow = network.flow(PORT, None);
    let mut generator = network.generator();
    let enough = |generator: &Generator| generator.counts(0).refused >= 100_000;
    network.send(&mut generator, &[flow], enough);
    let (counts, late) = (generator.counts(0), network.ring_full() - before);
    assert!(late < counts.refused / 100, "the veth refused {late} more: {counts:?}");
    let taken = || Links::open().unwrap().stats(network.near_ifindex).unwrap().rx_packets;
    let is_taken = || network.near.run(taken).unwrap() == counts.sent - late;
    wait_until("what was sent is taken", is_taken);
}

#[test]
fn bursts_come_back_to_back_at_the_mean_rate() {
    const BURST: u16 = 32;
    let network = Network::new();
    let socket = keeper(&network, NEAR_IP4, PORT);
    let flow = FlowSpec {
        burst: BURST,
        rate: Some(PacketsPerSec(10_000.0)),
        ..flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4))
    };
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let mut generator = network.generator();
    let mut seen = Vec::new();
    // The CPU may be elsewhere during some, or be another test's for half of the time.
    let found = (0..5).any(|_| {
        let enough = |generator: &Generator| generator.counts(0).sent >= 3_200;
        network.send(&mut generator, std::slice::from_ref(&flow), enough);
        let received = all(&socket, generator.counts(0).sent);
        let times: Vec<u64> = received.iter().map(|packet| packet.stamp.unwrap().sent_ns).collect();
        let bursts: Vec<&[u64]> = times.chunks_exact(BURST.into()).collect();
        let lasted = median(bursts.iter().map(|burst| burst[31] - burst[0]).collect());
        let apart = median(bursts.windows(2).map(|pair| pair[1][0] - pair[0][0]).collect());
        seen.push((lasted, apart));
        // Evenly they would take 3.1 ms.
        lasted < 300_000 && (3_100_000..3_300_000).contains(&apart)
    });
    assert!(found, "half of the bursts lasted longer, or began further apart, in ns: {seen:?}");
}

#[test]
fn options_come_before_a_datagram() {
    let network = Network::new();
    let socket = keeper(&network, NEAR_IP4, PORT);
    let flow = FlowSpec {
        // Of a kind that is for experiments (RFC 4727); a byte in it is as that of a source route.
        options: vec![0x1e, 4, 0x83, 0],
        lengths: Lengths::Uniform { from: 0, to: 1468 },
        ..flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4))
    };
    let alone = FlowSpec { lengths: Lengths::One(100), ..flow.clone() };
    let bad = FlowSpec {
        transport: Transport::UdpBadChecksum,
        lengths: Lengths::One(14),
        ..flow.clone()
    };
    let mut generator = network.generator();
    let enough = |generator: &Generator| generator.counts(0).sent >= 500;
    for flow in [flow, alone] {
        let before = counted(&network, "Ip InReceives");
        let sent = network.send(&mut generator, &[flow], enough)[0];
        assert_eq!(all(&socket, sent).len() as u64, sent);
        assert_eq!(counted(&network, "Ip InReceives") - before, sent);
    }
    let sent = network.send(&mut generator, &[bad], enough)[0];
    wait_until("all are seen", || counted(&network, "Udp InCsumErrors") == sent);
}

#[test]
fn a_raw_frame_arrives_byte_for_byte() {
    const EXPERIMENTAL: u16 = 0x88b5; // IEEE 802: for local experiments
    let network = Network::new();
    let socket = network.near.run(|| every_frame(EXPERIMENTAL)).unwrap();
    let frame = |len: usize| {
        let mut frame: Vec<u8> = (0..len).map(|at| at as u8).collect();
        frame[..6].copy_from_slice(&network.near_mac.0);
        frame[6..12].copy_from_slice(&network.far_mac.0);
        frame[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
        frame
    };
    let frames = [abi::TRAFFIC_START_LEN, 14, 61].map(frame);
    let pace = |frame: &Vec<u8>| FlowSpec {
        rate: Some(PacketsPerSec(1_000.0)),
        ..FlowSpec::raw(frame.clone())
    };
    let sent =
        send(&network, &frames.each_ref().map(pace), |generator| generator.counts(2).sent >= 20);
    let mut buffer = [0; 2048];
    let mut seen = [0; 3];
    for _ in 0..sent.iter().sum() {
        let (len, _) = rustix::net::recv(&socket, &mut buffer, RecvFlags::empty()).unwrap();
        let which = frames.iter().position(|frame| frame[..] == buffer[..len]);
        seen[which.expect("a frame as it was given")] += 1;
    }
    assert_eq!(seen[..], sent[..]);
}

#[test]
fn contradictory_flows_are_refused() {
    let network = Network::new();
    let mut generator = network.generator();
    let good = flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4));
    let random = |address_bits, port_bits| FlowSpec {
        sources: Sources::Random { address_bits, port_bits },
        ..good.clone()
    };
    let of = |transport| FlowSpec { transport, ..good.clone() };
    let lengths = |lengths| FlowSpec { lengths, ..good.clone() };
    let options = |len| FlowSpec { options: vec![1; len], ..good.clone() };
    let bad = [
        FlowSpec { address: (FAR_IP4.parse().unwrap(), NEAR_IP6.parse().unwrap()), ..good.clone() },
        FlowSpec { rate: Some(PacketsPerSec(0.0)), ..good.clone() },
        FlowSpec { rate: Some(PacketsPerSec(f64::NAN)), ..good.clone() },
        FlowSpec { burst: 0, ..good.clone() },
        random(4, 17),
        random(4, 16),
        random(33, 8),
        FlowSpec { sources: Sources::Some(0), ..good.clone() },
        FlowSpec { sources: Sources::Some(u32::MAX), ..good.clone() },
        FlowSpec { sources: Sources::Some(2), ..of(Transport::FirstFragment) },
        FlowSpec { destination_port_bits: 16, ..good.clone() },
        FlowSpec { destination_port_bits: 1, ..of(Transport::Echo) },
        lengths(Lengths::Uniform { from: 2, to: 1 }),
        lengths(Lengths::Table(vec![])),
        lengths(Lengths::One(1473)),
        lengths(Lengths::One(u16::MAX)),
        options(3),
        options(44),
        FlowSpec { transport: Transport::TcpSyn, ..options(4) },
        FlowSpec { port: (0, 0), ..of(Transport::Solicitation { hop_limit: 255 }) },
        FlowSpec { frame: vec![0; 60], ..good.clone() },
        FlowSpec::raw(vec![0; 13]),
        FlowSpec::raw(vec![0; abi::TRAFFIC_START_LEN + 1]),
    ];
    for spec in bad {
        assert!(generator.set_flows(std::slice::from_ref(&spec)).is_err(), "{spec:?}");
    }
    assert!(generator.set_flows(&vec![good.clone(); 5]).is_err());
    generator.set_flows(&[good]).unwrap();
}

//! The load generator: what it says it sent arrives, intact and with valid checksums, at real
//! sockets.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use common::{FAR_IP4, FAR_IP6, NEAR_IP4, NEAR_IP6, Network, wait_until};
use rustix::net::sockopt;
use weir_bpf::sys::snmp;
use weir_bpf::traffic::{Flaw, FlowSpec, Generator, Stamp, Transport};
use weir_bpf::units::{MacAddr, PacketsPerSec};

const PORT: u16 = 6000;

fn flow(network: &Network, transport: Transport, (far, near): (&str, &str)) -> FlowSpec {
    FlowSpec {
        transport,
        mac: (network.far_mac, network.near_mac),
        address: (far.parse().unwrap(), near.parse().unwrap()),
        random_address_bits: 4,
        port: (4096, PORT),
        random_port_bits: 8,
        payload_len: 100,
        rate: Some(PacketsPerSec(5_000.0)),
    }
}

/// Sends flows until `enough`, and returns how many packets each sent.
fn send(network: &Network, flows: &[FlowSpec], enough: impl Fn(&Generator) -> bool) -> Vec<u64> {
    let load = || Generator::load(network.far_ifindex).unwrap();
    let mut generator = network.far.run(load).unwrap();
    generator.set_flows(flows).unwrap();
    let body = || {
        generator.start();
        wait_until("enough is sent", || enough(&generator));
    };
    generator.run_while(&network.far, None, body).unwrap();
    (0..flows.len()).map(|flow| generator.counts(flow).sent).collect()
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
    let (v4, v6) = network.near.run(|| snmp::udp_stats().unwrap()).unwrap();
    assert_eq!(v4.in_errors + v6.in_errors, 0, "{v4:?} {v6:?}");
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
fn are_counted_as(transport: Transport, (far, near): (&str, &str), names: &[&str]) {
    let network = Network::new();
    let socket = network.bind(near, PORT);
    // The checksum of a short packet is checked on arrival, that of a long one when it is read.
    let flow = FlowSpec { payload_len: 14, ..flow(&network, transport, (far, near)) };
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
    let sent = send(&network, &[light, flood], |generator| generator.counts(0).sent >= 50);
    assert!(sent[1] > 20 * sent[0], "{sent:?}");
}

#[test]
fn contradictory_flows_are_refused() {
    let network = Network::new();
    let load = || Generator::load(network.far_ifindex).unwrap();
    let mut generator = network.far.run(load).unwrap();
    let good = flow(&network, Transport::Udp, (FAR_IP4, NEAR_IP4));
    let bad = [
        FlowSpec { address: (FAR_IP4.parse().unwrap(), NEAR_IP6.parse().unwrap()), ..good.clone() },
        FlowSpec { rate: Some(PacketsPerSec(0.0)), ..good.clone() },
        FlowSpec { rate: Some(PacketsPerSec(f64::NAN)), ..good.clone() },
        FlowSpec { random_port_bits: 17, ..good.clone() },
        FlowSpec { random_port_bits: 16, ..good.clone() },
        FlowSpec { random_address_bits: 33, ..good.clone() },
    ];
    for spec in bad {
        assert!(generator.set_flows(std::slice::from_ref(&spec)).is_err(), "{spec:?}");
    }
    assert!(generator.set_flows(&vec![good.clone(); 5]).is_err());
    generator.set_flows(&[good]).unwrap();
}

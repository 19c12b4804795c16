//! The load generator: what it says it sent arrives, intact and with valid checksums, at real
//! sockets.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

use common::{FAR_IP4, FAR_IP6, NEAR_IP4, NEAR_IP6, Network, wait_until};
use rustix::net::sockopt;
use weir_bpf::sys::snmp;
use weir_bpf::traffic::{FlowSpec, Generator, Stamp, Transport};
use weir_bpf::units::PacketsPerSec;

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

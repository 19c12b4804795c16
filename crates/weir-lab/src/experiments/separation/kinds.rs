//! Floods of every other kind, beside a UDP and a TCP service.

use std::time::Duration;

use weir_bpf::traffic::Flaw;

use super::super::shared::*;
use crate::bench::RANDOM_PORTS;

const SERVICE_PORT: u16 = 5002;
const LISTENER_PORT: u16 = 5003;
/// Of the socket that receives broadcasts and a multicast group.
const MANY_PORT: u16 = 5004;
/// TCP waits for 200 ms before it sends again what was lost.
const SETTLE: Duration = Duration::from_millis(150);
/// The kinds, in the order of the tables.
pub(super) const KINDS: [&str; 12] = [
    "closed",
    "bad-checksum",
    "syn",
    "ack",
    "icmp",
    "fragments",
    "broadcast",
    "multicast",
    "malformed",
    "forward",
    "options",
    "protocol",
];

/// A UDP and a TCP service, and a flood of this kind to something else.
pub(super) fn beside_services(
    kind: &str,
    mut apps: Vec<App>,
    (light, flood): (Flow, Option<Flow>),
    ask: &Ask<'_>,
) -> Scene {
    let sink = udp::Server::sink(ask.traffic.reader, Duration::ZERO);
    let many = AppKind::Udp(udp::Server { joined: true, ..sink });
    apps.extend([
        App::new(
            AppKind::Tcp(tcp::Server { echo: true, ..Default::default() }),
            SERVICE_PORT,
            Role::Other,
        ),
        App::new(AppKind::Tcp(tcp::Server::default()), LISTENER_PORT, Role::Other),
        App::new(many, MANY_PORT, Role::Other),
    ]);
    let sorts = flood.map_or(vec![], |flood| share_out(sorts(kind, &flood), ask.load));
    Scene {
        apps,
        flows: std::iter::once(light).chain(sorts).collect(),
        client: Some(Client::Tcp { connections: 16, per_second: 2000, port: SERVICE_PORT }),
        needs: vec![Need::ClientAddress, Need::Egress],
        books: Books::Ip,
        settle: SETTLE,
        ..Scene::default()
    }
}

/// A kind's sorts of packets.
fn sorts(kind: &str, flood: &Flow) -> Vec<Flow> {
    let of = |transport| Flow { transport, ..flood.clone() };
    let segment = |transport, port| Flow {
        from_port: RANDOM_PORTS,
        sources: Sources::Random { address_bits: 0, port_bits: 15 },
        port,
        ..of(transport)
    };
    // Two sorts share the upper half of a subnet.
    let fragment = |from, transport| Flow {
        from: From::Last(from),
        sources: Sources::Random { address_bits: 6, port_bits: 0 },
        ..of(transport)
    };
    let to_many = |to| Flow { to, port: MANY_PORT, ..flood.clone() };
    match kind {
        "closed" => vec![to_closed_port(flood)],
        "bad-checksum" => vec![of(Transport::UdpBadChecksum)],
        "syn" => vec![segment(Transport::TcpSyn, LISTENER_PORT)],
        "ack" => vec![segment(Transport::TcpAck, SERVICE_PORT)],
        "icmp" => vec![pings(flood)],
        "fragments" => {
            vec![fragment(128, Transport::FirstFragment), fragment(192, Transport::LastFragment)]
        }
        "broadcast" => vec![to_many(To::Broadcast)],
        "multicast" => vec![to_many(To::Group), to_many(To::NobodysGroup)],
        "malformed" => [Flaw::IpLength, Flaw::IpHeader, Flaw::UdpLength]
            .map(|flaw| of(Transport::Malformed(flaw)))
            .to_vec(),
        // A type that nobody knows, with a byte like a source route's.
        "options" => vec![Flow { options: vec![0x1e, 4, 131, 0], ..flood.clone() }],
        "protocol" => vec![of(Transport::OtherProtocol)],
        "forward" => vec![Flow { to: To::Behind, ..flood.clone() }],
        _ => vec![],
    }
}

//! What the generator sends for each kind of flood.

use std::net::{IpAddr, Ipv4Addr};

use weir_bpf::traffic::{Flaw, FlowSpec, Sources, Transport};
use weir_bpf::units::{MacAddr, PacketsPerSec};

use super::host::{Beside, GROUP, LISTENER_PORT, MANY_PORT, SERVICE_PORT};
use crate::results::kinds::Kind;
use crate::trial::Flood;

/// No socket receives it.
const CLOSED_PORT: u16 = 5999;
/// Source ports of TCP segments, and how many low bits of them are random.
const TCP_SOURCE: (u16, u8) = (32_768, 15);
/// How many low bits of a fragment's source address count on, where two sorts share the upper half of a
/// subnet.
const FRAGMENT_BITS: u8 = 6;
/// At the top rate all sorts but the last have this much, and the last what the generator can do more.
const EACH_AT_TOP: PacketsPerSec = PacketsPerSec(1_000_000.0);

/// The flows of a flood that is to come to the host of `base`, at that rate in all; none without one.
pub(crate) fn flows(kind: Kind, flood: Flood, base: &FlowSpec, beside: &Beside) -> Vec<FlowSpec> {
    if flood == Flood::Off {
        return vec![];
    }
    let mut flows = sorts(kind, base, beside);
    share_out(&mut flows, flood);
    flows
}

/// The flows of a flood of three sorts, at that rate in all; none without one: datagrams to where `base`
/// goes, pings, and datagrams to a closed port.
pub(crate) fn mixed(flood: Flood, base: &FlowSpec) -> Vec<FlowSpec> {
    if flood == Flood::Off {
        return vec![];
    }
    let mut flows = vec![pings(base), closed(base), base.clone()];
    share_out(&mut flows, flood);
    flows
}

/// Gives each flow its part of a rate.
fn share_out(flows: &mut [FlowSpec], flood: Flood) {
    let sorts = flows.len();
    for (index, flow) in flows.iter_mut().enumerate() {
        flow.rate = match flood {
            Flood::Paced(PacketsPerSec(rate)) => Some(PacketsPerSec(rate / sorts as f64)),
            _ => (index + 1 < sorts).then_some(EACH_AT_TOP),
        };
    }
}

fn pings(base: &FlowSpec) -> FlowSpec {
    FlowSpec { transport: Transport::Echo, port: (1, 1), ..base.clone() }
}

fn closed(base: &FlowSpec) -> FlowSpec {
    FlowSpec { port: (base.port.0, CLOSED_PORT), ..base.clone() }
}

/// A kind's sorts of packets.
fn sorts(kind: Kind, base: &FlowSpec, beside: &Beside) -> Vec<FlowSpec> {
    let of = |transport| FlowSpec { transport, ..base.clone() };
    let to_port = |port| FlowSpec { port: (base.port.0, port), ..base.clone() };
    match kind {
        Kind::Udp => vec![base.clone()],
        Kind::Closed => vec![closed(base)],
        Kind::BadChecksum => vec![of(Transport::UdpBadChecksum)],
        Kind::Syn => vec![FlowSpec {
            port: (TCP_SOURCE.0, LISTENER_PORT),
            sources: Sources::Random { address_bits: 0, port_bits: TCP_SOURCE.1 },
            ..of(Transport::TcpSyn)
        }],
        Kind::Ack => vec![FlowSpec {
            port: (TCP_SOURCE.0, SERVICE_PORT),
            sources: Sources::Random { address_bits: 0, port_bits: TCP_SOURCE.1 },
            ..of(Transport::TcpAck)
        }],
        Kind::Icmp => vec![pings(base)],
        Kind::Fragments => {
            let from = |last, transport| FlowSpec {
                address: (with_last(base.address.0, last), base.address.1),
                sources: Sources::Random { address_bits: FRAGMENT_BITS, port_bits: 0 },
                ..of(transport)
            };
            vec![from(128, Transport::FirstFragment), from(192, Transport::LastFragment)]
        }
        Kind::Broadcast => vec![FlowSpec {
            mac: (base.mac.0, MacAddr([0xff; 6])),
            address: (base.address.0, with_last(base.address.1, 255)),
            ..to_port(MANY_PORT)
        }],
        Kind::Multicast => {
            let nobodys = Ipv4Addr::from(u32::from(GROUP) + 1);
            let to = |group: Ipv4Addr| FlowSpec {
                mac: (base.mac.0, group_mac(group)),
                address: (base.address.0, group.into()),
                ..to_port(MANY_PORT)
            };
            vec![to(GROUP), to(nobodys)]
        }
        Kind::Malformed => [Flaw::IpLength, Flaw::IpHeader, Flaw::UdpLength]
            .map(|flaw| of(Transport::Malformed(flaw)))
            .to_vec(),
        Kind::Forward => {
            vec![FlowSpec { address: (base.address.0, beside.behind.into()), ..base.clone() }]
        }
    }
}

/// The address of the same subnet (/24) that ends in this.
fn with_last(address: IpAddr, last: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, last).into()
        }
        other => other,
    }
}

/// RFC 1112, 6.4.
fn group_mac(group: Ipv4Addr) -> MacAddr {
    let [_, b, c, d] = group.octets();
    MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

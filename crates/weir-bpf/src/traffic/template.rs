//! From what a flow is to be to what the kernel half writes: headers, and the sums of what does not
//! change in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Flaw, FlowSpec, STAMP_LEN, Transport, refused};
use crate::error::Result;
use crate::skeleton::traffic::types;
use crate::units::PacketsPerSec;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV6_FRAGMENT: u8 = 44;

/// Where a last fragment stands in its datagram, bytes: behind what fits into an Ethernet frame.
const LAST_FRAGMENT_AT: u16 = 1480;
/// A length that no generated frame has.
const TOO_LONG: [u8; 2] = u16::MAX.to_be_bytes();

/// Writes a flow's headers and constant checksums; returns its frames' length.
pub(super) fn write(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<usize> {
    if spec.random_address_bits > 32 || spec.random_port_bits > 16 {
        return Err(refused("a source has more random bits than it has bits".into()));
    }
    let source_mask = ((1_u64 << spec.random_address_bits) - 1) as u32;
    let port_mask = ((1_u32 << spec.random_port_bits) - 1) as u16;
    let source_low = match spec.address.0 {
        IpAddr::V4(source) => u32::from(source),
        IpAddr::V6(source) => source.to_bits() as u32,
    };
    if source_low & source_mask != 0 || spec.port.0 & port_mask != 0 {
        return Err(refused("a source address or port is set where it is to be random".into()));
    }
    let payload_len = payload_len(spec);
    let transport = transport_header(spec, payload_len);
    let (protocol, segment_len) = (protocol(spec), (transport.len() + payload_len) as u16);
    let ip = match spec.address {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ip4_header(spec.transport, (source, destination), protocol, segment_len)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ip6_header(spec.transport, (source, destination), protocol, segment_len)
        }
        (source, destination) => {
            return Err(refused(format!("{source} and {destination} differ in family")));
        }
    };
    let is_ipv4 = spec.address.0.is_ipv4();
    let source_sum = sum(&source_low.to_be_bytes());
    let addresses = if is_ipv4 { sum(&ip[12..20]) } else { sum(&ip[8..40]) };
    let pseudo_header = addresses - source_sum + u32::from(protocol) + u32::from(segment_len);
    flow.ip_sum = if is_ipv4 { sum(&ip) - source_sum } else { 0 };
    flow.transport_sum = sum(&transport) - varied(spec);
    if protocol != ICMP {
        flow.transport_sum += pseudo_header;
    }
    if spec.transport == Transport::UdpBadChecksum {
        flow.transport_sum += 1;
    }
    flow.source_mask = source_mask;
    flow.port_mask = port_mask;
    flow.has_stamp = u8::from(has_stamp(spec.transport) && payload_len >= STAMP_LEN);
    flow.kind = kind(spec.transport, is_ipv4);
    flow.interval_q16 = interval_q16(spec.rate)?;
    let header = [&spec.mac.1.0[..], &spec.mac.0.0, ethertype(is_ipv4), &ip, &transport].concat();
    flow.header[..header.len()].copy_from_slice(&header);
    Ok(header.len() + payload_len)
}

fn ethertype(is_ipv4: bool) -> &'static [u8] {
    if is_ipv4 { &[0x08, 0x00] } else { &[0x86, 0xdd] }
}

fn is_fragment(transport: Transport) -> bool {
    matches!(transport, Transport::FirstFragment | Transport::LastFragment)
}

fn is_tcp(transport: Transport) -> bool {
    matches!(transport, Transport::TcpSyn | Transport::TcpAck)
}

fn has_stamp(transport: Transport) -> bool {
    !is_tcp(transport) && !is_fragment(transport)
}

fn payload_len(spec: &FlowSpec) -> usize {
    let wanted = usize::from(spec.payload_len);
    match spec.transport {
        Transport::TcpSyn | Transport::TcpAck => 0,
        // A fragment that others follow ends at a multiple of 8 bytes (RFC 791, 3.1; RFC 8200, 4.5).
        transport if is_fragment(transport) => wanted.next_multiple_of(8),
        _ => wanted,
    }
}

fn protocol(spec: &FlowSpec) -> u8 {
    match (spec.transport, spec.address.0) {
        (Transport::TcpSyn | Transport::TcpAck, _) => TCP,
        (Transport::Echo, IpAddr::V4(_)) => ICMP,
        (Transport::Echo, IpAddr::V6(_)) => ICMPV6,
        _ => UDP,
    }
}

fn kind(transport: Transport, is_ipv4: bool) -> types::weir_traffic_kind {
    use types::weir_traffic_kind as kinds;
    match (transport, is_ipv4) {
        (Transport::TcpSyn | Transport::TcpAck, true) => kinds::WEIR_TRAFFIC_TCP4,
        (Transport::TcpSyn | Transport::TcpAck, false) => kinds::WEIR_TRAFFIC_TCP6,
        (Transport::Echo, true) => kinds::WEIR_TRAFFIC_ECHO4,
        (Transport::Echo, false) => kinds::WEIR_TRAFFIC_ECHO6,
        (Transport::FirstFragment | Transport::LastFragment, true) => kinds::WEIR_TRAFFIC_FRAGMENT4,
        (Transport::FirstFragment | Transport::LastFragment, false) => {
            kinds::WEIR_TRAFFIC_FRAGMENT6
        }
        (_, true) => kinds::WEIR_TRAFFIC_UDP4,
        (_, false) => kinds::WEIR_TRAFFIC_UDP6,
    }
}

/// What is 0 in the template's sum, because the kernel half writes and adds it.
fn varied(spec: &FlowSpec) -> u32 {
    if is_fragment(spec.transport) { 0 } else { u32::from(spec.port.0) }
}

fn transport_header(spec: &FlowSpec, payload_len: usize) -> Vec<u8> {
    let (first, second) = (spec.port.0.to_be_bytes(), spec.port.1.to_be_bytes());
    let udp_len = match spec.transport {
        Transport::Malformed(Flaw::UdpLength) => TOO_LONG,
        // Of a datagram that goes on behind it.
        Transport::FirstFragment => (LAST_FRAGMENT_AT + 8).to_be_bytes(),
        _ => (8 + payload_len as u16).to_be_bytes(),
    };
    match spec.transport {
        // Sequence and acknowledgement 0, 20 bytes of header, SYN or ACK, window 65,535.
        Transport::TcpSyn | Transport::TcpAck => {
            let flags = if spec.transport == Transport::TcpSyn { 0x02 } else { 0x10 };
            let rest = [0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
            [&first[..], &second, &rest].concat()
        }
        Transport::Echo => {
            let echo_request = if spec.address.0.is_ipv4() { 8 } else { 128 };
            [&[echo_request, 0, 0, 0], &first[..], &second].concat()
        }
        _ => [first, second, udp_len, [0, 0]].concat(),
    }
}

fn ip4_header(
    transport: Transport,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    segment_len: u16,
) -> Vec<u8> {
    let version_ihl = if transport == Transport::Malformed(Flaw::IpHeader) { 0x44 } else { 0x45 };
    let total_len = match transport {
        Transport::Malformed(Flaw::IpLength) => TOO_LONG,
        _ => (20 + segment_len).to_be_bytes(),
    };
    let fragment = match transport {
        Transport::FirstFragment => [0x20, 0], // more fragments
        Transport::LastFragment => (LAST_FRAGMENT_AT / 8).to_be_bytes(),
        _ => [0x40, 0], // don't fragment
    };
    let mut header = vec![version_ihl, 0];
    header.extend(total_len);
    header.extend([0, 0]);
    header.extend(fragment);
    header.extend([64, protocol, 0, 0]); // TTL 64
    header.extend(source.octets());
    header.extend(destination.octets());
    header
}

/// The IPv6 header, and a fragment header behind it if there is to be one.
fn ip6_header(
    transport: Transport,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    protocol: u8,
    segment_len: u16,
) -> Vec<u8> {
    let version = if transport == Transport::Malformed(Flaw::IpHeader) { 0x50 } else { 0x60 };
    let fragment: &[u8] = match transport {
        Transport::FirstFragment => &[protocol, 0, 0, 1, 0, 0, 0, 0], // more fragments
        Transport::LastFragment => {
            let at = LAST_FRAGMENT_AT.to_be_bytes();
            &[protocol, 0, at[0], at[1], 0, 0, 0, 0]
        }
        _ => &[],
    };
    let payload_len = match transport {
        Transport::Malformed(Flaw::IpLength) => TOO_LONG,
        _ => (fragment.len() as u16 + segment_len).to_be_bytes(),
    };
    let next = if fragment.is_empty() { protocol } else { IPV6_FRAGMENT };
    let mut header = vec![version, 0, 0, 0];
    header.extend(payload_len);
    header.extend([next, 64]); // hop limit 64
    header.extend(source.octets());
    header.extend(destination.octets());
    header.extend(fragment);
    header
}

fn interval_q16(rate: Option<PacketsPerSec>) -> Result<u64> {
    match rate {
        None => Ok(0),
        Some(PacketsPerSec(rate)) if rate.is_finite() && rate >= 1.0 => {
            Ok((1e9 * 65536.0 / rate) as u64)
        }
        Some(PacketsPerSec(rate)) => Err(refused(format!("a rate of {rate} packets/s is below 1"))),
    }
}

/// Sum of big-endian 16-bit words (RFC 1071), not folded.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from_be_bytes([0, 0, pair[0], *pair.get(1).unwrap_or(&0)]))
        .sum()
}

//! From what a flow is to be to what the kernel half writes: headers, and the sums of what does not
//! change in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::shapes::{Payloads, Shape};
use super::spec::{Flaw, FlowSpec, RAW_LEN_MAX, Sources, Transport};
use super::{ETHERNET_LEN, FRAME_LEN_MAX, STAMP_LEN, refused};
use crate::error::Result;
use crate::skeleton::traffic::types;
use crate::units::PacketsPerSec;

const TCP: u8 = 6;
/// RFC 3692: for experiments.
const EXPERIMENT: u8 = 253;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV6_FRAGMENT: u8 = 44;

/// Where a last fragment stands in its datagram, bytes: behind what fits into an Ethernet frame.
const LAST_FRAGMENT_AT: u16 = 1480;
/// A length that no generated frame has.
const TOO_LONG: [u8; 2] = u16::MAX.to_be_bytes();

const IP4_HEADER_LEN: usize = 20;
/// As the kernel half's.
const OPTIONS_LEN_MAX: usize = 40;
/// Most packets of one flow that may fall due at once after a pause, but for a longer burst.
const CATCH_UP_PACKETS: u64 = 64;

/// Writes a flow's headers and constant checksums; returns its frames' shape.
pub(super) fn write(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<Shape> {
    write_pace(spec, flow)?;
    let payloads = Payloads::of(spec)?;
    flow.cut_span = payloads.cut_span;
    if spec.transport == Transport::Raw {
        flow.kind = types::weir_traffic_kind::WEIR_TRAFFIC_RAW;
        return raw(spec, payloads);
    }
    check_parts(spec)?;
    let source_low = write_sources(spec, flow)?;
    let payload_len = usize::from(payloads.longest);
    let transport = transport_header(spec, payload_len);
    let (protocol, segment_len) = (protocol(spec), (transport.len() + payload_len) as u16);
    let ip = ip_header(spec, protocol, segment_len)?;
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
    flow.has_stamp = u8::from(has_stamp(spec.transport) && payload_len >= STAMP_LEN);
    flow.kind = kind(spec.transport, is_ipv4);
    let header_len = write_headers(spec, flow, &ip, &transport);
    let frame_len = header_len + payload_len;
    if frame_len > FRAME_LEN_MAX {
        return Err(refused(format!("a frame of {frame_len} bytes is too long")));
    }
    let start_len = header_len + usize::from(flow.has_stamp) * STAMP_LEN;
    Ok(Shape { frame_len, start_len, raw: Vec::new(), payloads })
}

/// Writes headers, and options apart from them; returns the length of all.
fn write_headers(
    spec: &FlowSpec,
    flow: &mut types::weir_traffic_flow,
    ip: &[u8],
    transport: &[u8],
) -> usize {
    let (fixed_ip, options) = ip.split_at(ip.len() - spec.options.len());
    let ethertype = ethertype(spec.address.0.is_ipv4());
    let header = [&spec.mac.1.0[..], &spec.mac.0.0, ethertype, fixed_ip, transport].concat();
    flow.header[..header.len()].copy_from_slice(&header);
    flow.options[..options.len()].copy_from_slice(options);
    flow.option_words = (options.len() / 4) as u8;
    header.len() + options.len()
}

/// A frame that is sent as it is.
fn raw(spec: &FlowSpec, payloads: Payloads) -> Result<Shape> {
    let frame_len = spec.frame.len();
    if !(ETHERNET_LEN..=RAW_LEN_MAX).contains(&frame_len) {
        return Err(refused(format!("a raw frame has {frame_len} bytes")));
    }
    Ok(Shape { frame_len, start_len: frame_len, raw: spec.frame.clone(), payloads })
}

/// Refuses what this transport cannot have.
fn check_parts(spec: &FlowSpec) -> Result<()> {
    let transport = spec.transport;
    let is_udp4 =
        matches!(transport, Transport::Udp | Transport::UdpBadChecksum) && spec.address.0.is_ipv4();
    if !spec.frame.is_empty() {
        return Err(refused(format!("{transport:?} was given a raw frame")));
    }
    if !spec.options.is_empty() && !is_udp4 {
        return Err(refused("options are for UDP over IPv4".into()));
    }
    if spec.options.len() > OPTIONS_LEN_MAX || !spec.options.len().is_multiple_of(4) {
        return Err(refused(format!("IPv4 options of {} bytes", spec.options.len())));
    }
    let has_ports = transport != Transport::Echo && !is_fragment(transport);
    if spec.destination_port_bits > 0 && !has_ports {
        return Err(refused(format!("{transport:?} has no destination port to be random")));
    }
    Ok(())
}

/// Writes what varies in a flow's addresses and ports; returns the low bits of its source address.
fn write_sources(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<u32> {
    let source_low = match spec.address.0 {
        IpAddr::V4(source) => u32::from(source),
        IpAddr::V6(source) => source.to_bits() as u32,
    };
    let (address_bits, port_bits) = match spec.sources {
        Sources::One => (0, 0),
        Sources::Some(count) => {
            let fits = count > 0 && source_low.checked_add(count - 1).is_some();
            if !fits || is_fragment(spec.transport) {
                return Err(refused(format!("{count} sources of {:?}", spec.transport)));
            }
            flow.source_count = count;
            (0, 0)
        }
        Sources::Random { address_bits, port_bits } => (address_bits, port_bits),
    };
    if address_bits > 32 || port_bits > 16 || spec.destination_port_bits > 16 {
        return Err(refused("an address or port has more random bits than it has bits".into()));
    }
    flow.source_mask = ((1_u64 << address_bits) - 1) as u32;
    flow.port_mask = ((1_u32 << port_bits) - 1) as u16;
    flow.destination_port_mask = ((1_u32 << spec.destination_port_bits) - 1) as u16;
    let set_ports = (spec.port.0 & flow.port_mask) | (spec.port.1 & flow.destination_port_mask);
    if source_low & flow.source_mask != 0 || set_ports != 0 {
        return Err(refused("an address or port is set where it is to be random".into()));
    }
    Ok(source_low)
}

fn write_pace(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<()> {
    let burst = u64::from(spec.burst);
    if burst == 0 {
        return Err(refused("a burst of no packets".into()));
    }
    flow.burst = spec.burst;
    flow.interval_q16 = match spec.rate {
        None => 0,
        Some(PacketsPerSec(rate)) if rate.is_finite() && rate >= 1.0 => {
            (1e9 * 65536.0 * burst as f64 / rate) as u64
        }
        Some(PacketsPerSec(rate)) => {
            return Err(refused(format!("a rate of {rate} packets/s is below 1")));
        }
    };
    flow.catch_up_q16 = (CATCH_UP_PACKETS / burst).max(1) * flow.interval_q16;
    Ok(())
}

fn ip_header(spec: &FlowSpec, protocol: u8, segment_len: u16) -> Result<Vec<u8>> {
    match spec.address {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Ok(ip4_header(spec, (source, destination), protocol, segment_len))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ok(ip6_header(spec.transport, (source, destination), protocol, segment_len))
        }
        (source, destination) => {
            Err(refused(format!("{source} and {destination} differ in family")))
        }
    }
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

fn protocol(spec: &FlowSpec) -> u8 {
    match (spec.transport, spec.address.0) {
        (Transport::TcpSyn | Transport::TcpAck, _) => TCP,
        (Transport::OtherProtocol, _) => EXPERIMENT,
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
    spec: &FlowSpec,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    protocol: u8,
    segment_len: u16,
) -> Vec<u8> {
    let header_len = (IP4_HEADER_LEN + spec.options.len()) as u16;
    let version_ihl = match spec.transport {
        Transport::Malformed(Flaw::IpHeader) => 0x44,
        _ => 0x40 | (header_len / 4) as u8,
    };
    let total_len = match spec.transport {
        Transport::Malformed(Flaw::IpLength) => TOO_LONG,
        _ => (header_len + segment_len).to_be_bytes(),
    };
    let fragment = match spec.transport {
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
    header.extend(&spec.options);
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

/// Sum of big-endian 16-bit words (RFC 1071), not folded.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from_be_bytes([0, 0, pair[0], *pair.get(1).unwrap_or(&0)]))
        .sum()
}

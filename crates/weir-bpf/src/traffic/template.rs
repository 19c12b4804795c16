//! From what a flow is to be to what the kernel half writes: the start of its frames, where in it is what
//! changes, and the sums of what does not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::payloads;
use super::spec::{
    ETHERNET_LEN, FRAME_LEN_MAX, Flaw, FlowSpec, STAMP_LEN, Sources, Transport, refused,
};
use crate::abi;
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
/// TTL or hop limit of what may be forwarded.
const HOPS: u8 = 64;

/// Where a last fragment stands in its datagram, bytes: behind what fits into an Ethernet frame.
const LAST_FRAGMENT_AT: u16 = 1480;
/// A length that no generated frame has.
const TOO_LONG: [u8; 2] = u16::MAX.to_be_bytes();

const IP4_HEADER_LEN: usize = 20;
/// What IHL leaves for them.
const OPTIONS_LEN_MAX: usize = 40;
/// Most packets of one flow that may fall due at once after a pause, but for a longer burst.
const CATCH_UP_PACKETS: u64 = 64;

/// How long a flow's longest frame is, and its start.
pub(super) struct Frame {
    pub(super) len: usize,
    pub(super) start_len: usize,
}

/// Writes what a flow's frames are made of.
pub(super) fn write(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<Frame> {
    write_pace(spec, flow)?;
    let longest = usize::from(payloads::write(spec, flow)?);
    let (start, len) = if spec.transport == Transport::Raw {
        (spec.frame.clone(), spec.frame.len())
    } else {
        check_parts(spec)?;
        write_sources(spec, flow)?;
        let start = write_headers(spec, flow, longest)?;
        let len = start.len() + longest;
        // The stamp is payload.
        let stamp_len = if flow.stamp_at > 0 { STAMP_LEN } else { 0 };
        ([start, vec![0; stamp_len]].concat(), len)
    };
    if !(ETHERNET_LEN..=FRAME_LEN_MAX).contains(&len) || start.len() > abi::TRAFFIC_START_LEN {
        return Err(refused(format!("a frame of {len} bytes")));
    }
    flow.start[..start.len()].copy_from_slice(&start);
    Ok(Frame { len, start_len: start.len() })
}

/// Returns the headers; writes where they have what changes, and the sums of the rest.
fn write_headers(
    spec: &FlowSpec,
    flow: &mut types::weir_traffic_flow,
    payload_len: usize,
) -> Result<Vec<u8>> {
    let transport = transport_header(spec, payload_len);
    let segment_len = (transport.len() + payload_len) as u16;
    let ip = ip_header(spec, protocol(spec), segment_len)?;
    let is_ipv4 = spec.address.0.is_ipv4();
    write_places(spec, flow, ip.len());
    if has_stamp(spec.transport) && payload_len >= STAMP_LEN {
        flow.stamp_at = (ETHERNET_LEN + ip.len() + transport.len()) as u8;
        flow.stamp_spare = (payload_len - STAMP_LEN) as u16;
    }
    let ethertype = ethertype(is_ipv4);
    let headers = [&spec.mac.1.0[..], &spec.mac.0.0, ethertype, &ip, &transport].concat();
    let word = |at: u8| u16::from_be_bytes([headers[at as usize], headers[at as usize + 1]]);
    flow.ip_len = word(flow.ip_len_at);
    flow.udp_len = word(flow.udp_len_at);
    let source_sum = sum(&flow.source.to_be_bytes());
    flow.ip_sum = sum(&ip) - source_sum;
    // Both ports, or an echo's identifier and number, are added anew to each packet.
    flow.transport_sum = sum(&transport) - u32::from(spec.port.0) - u32::from(spec.port.1);
    // A UDP length is in the header, and of all but ICMP one is in the pseudo-header.
    flow.summed_lengths = u8::from(flow.udp_len_at > 0);
    if protocol(spec) != ICMP {
        let addresses = if is_ipv4 { sum(&ip[12..20]) } else { sum(&ip[8..40]) };
        flow.summed_lengths += 1;
        flow.summed_source = 1;
        flow.transport_sum += addresses - source_sum;
        flow.transport_sum += u32::from(protocol(spec)) + u32::from(segment_len);
    }
    if spec.transport == Transport::UdpBadChecksum {
        flow.transport_sum += 1;
    }
    Ok(headers)
}

/// Where the headers have what differs from packet to packet.
fn write_places(spec: &FlowSpec, flow: &mut types::weir_traffic_flow, ip_len: usize) {
    let ip_at = ETHERNET_LEN as u8;
    let transport_at = ip_at + ip_len as u8;
    if spec.address.0.is_ipv4() {
        (flow.ip_len_at, flow.ip_sum_at, flow.source_at) = (ip_at + 2, ip_at + 10, ip_at + 12);
    } else {
        (flow.ip_len_at, flow.source_at) = (ip_at + 4, ip_at + 20);
    }
    if is_fragment(spec.transport) {
        // Nothing behind the IP header is a checksummed datagram's.
        let is_ipv4 = spec.address.0.is_ipv4();
        (flow.id_high_at, flow.id_at) =
            if is_ipv4 { (0, ip_at + 4) } else { (ip_at + 44, ip_at + 46) };
        return;
    }
    let (ports, sum) = match spec.transport {
        // A solicitation's are reserved, and 0.
        Transport::Echo | Transport::Solicitation { .. } => (4, 2),
        Transport::TcpSyn | Transport::TcpAck => (0, 16),
        _ => (0, 6),
    };
    (flow.ports_at, flow.sum_at) = (transport_at + ports, transport_at + sum);
    if !is_tcp(spec.transport) && !is_icmp(spec.transport) {
        flow.udp_len_at = transport_at + 4;
    }
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
    let has_ports = !is_icmp(transport) && !is_fragment(transport);
    if spec.destination_port_bits > 0 && !has_ports {
        return Err(refused(format!("{transport:?} has no destination port to be random")));
    }
    if let Transport::Solicitation { .. } = transport
        && (spec.address.0.is_ipv4() || spec.port != (0, 0))
    {
        return Err(refused("a solicitation has IPv6 addresses and no ports".into()));
    }
    Ok(())
}

/// Writes a flow's addresses and ports, and what varies in them.
fn write_sources(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<()> {
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
    flow.source = source_low;
    (flow.port, flow.destination_port) = spec.port;
    Ok(())
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

fn is_icmp(transport: Transport) -> bool {
    matches!(transport, Transport::Echo | Transport::Solicitation { .. })
}

fn has_stamp(transport: Transport) -> bool {
    !is_tcp(transport) && !is_fragment(transport)
}

fn protocol(spec: &FlowSpec) -> u8 {
    match (spec.transport, spec.address.0) {
        (Transport::TcpSyn | Transport::TcpAck, _) => TCP,
        (Transport::OtherProtocol, _) => EXPERIMENT,
        (Transport::Echo, IpAddr::V4(_)) => ICMP,
        (Transport::Echo | Transport::Solicitation { .. }, _) => ICMPV6,
        _ => UDP,
    }
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
        Transport::Solicitation { .. } => {
            let target = match spec.address.1 {
                IpAddr::V6(target) => target.octets(),
                IpAddr::V4(_) => return vec![], // refused
            };
            // Behind the target, of one unit of 8 bytes: the source's Ethernet address.
            let source = [&[1, 1], &spec.mac.0.0[..]].concat();
            [&[135, 0, 0, 0, 0, 0, 0, 0], &target[..], &source].concat()
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
    header.extend([HOPS, protocol, 0, 0]);
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
    let hop_limit = match transport {
        Transport::Solicitation { hop_limit } => hop_limit,
        _ => HOPS,
    };
    let next = if fragment.is_empty() { protocol } else { IPV6_FRAGMENT };
    let mut header = vec![version, 0, 0, 0];
    header.extend(payload_len);
    header.extend([next, hop_limit]);
    header.extend(source.octets());
    header.extend(destination.octets());
    header.extend(fragment);
    header
}

/// Sum of big-endian 16-bit words (RFC 1071), not folded.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from_be_bytes([0, 0, pair[0], *pair.get(1).unwrap_or(&0)]);
    bytes.chunks(2).map(word).sum()
}

//! Frames: etherparse's, and what makes of them such as no library would build.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, PacketBuilder,
    PacketBuilderStep, TcpHeader, ip_number,
};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;
const TTL: u8 = 64;

pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// One UDP payload: its number, then bytes that follow from it.
pub fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number.into());
    let mut bytes: Vec<u8> = number.to_be_bytes().to_vec();
    bytes.resize_with(len.max(4), || random.u8(..));
    bytes
}

/// The first part of a packet between these, whose checksums are then right.
fn between(source: IpAddr, destination: IpAddr) -> PacketBuilderStep<IpHeaders> {
    match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), TTL),
        (IpAddr::V6(from), IpAddr::V6(to)) => PacketBuilder::ipv6(from.octets(), to.octets(), TTL),
        _ => panic!("two families"),
    }
}

/// A packet without its IP header, which has no options.
fn transport(packet: &[u8]) -> Vec<u8> {
    packet[if packet[0] >> 4 == 4 { Ipv4Header::MIN_LEN } else { Ipv6Header::LEN }..].to_vec()
}

/// A UDP header and payload, checksummed.
pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![];
    let builder = between(source.ip(), destination.ip()).udp(source.port(), destination.port());
    builder.write(&mut packet, payload).unwrap();
    transport(&packet)
}

/// A TCP header and its payload, checksummed.
pub fn tcp(source: IpAddr, destination: IpAddr, header: TcpHeader, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![];
    between(source, destination).tcp_header(header).write(&mut packet, payload).unwrap();
    transport(&packet)
}

/// An ICMP or ICMPv6 echo request.
pub fn echo(source: IpAddr, destination: IpAddr, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![];
    let builder = between(source, destination);
    match source {
        IpAddr::V4(_) => builder.icmpv4_echo_request(id, 1).write(&mut packet, payload),
        IpAddr::V6(_) => builder.icmpv6_echo_request(id, 1).write(&mut packet, payload),
    }
    .unwrap();
    transport(&packet)
}

fn mac_of(destination: IpAddr) -> [u8; 6] {
    match destination {
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            [1, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V4(ip) if ip.is_broadcast() || ip.octets() == [198, 18, 0, 255] => [0xff; 6],
        IpAddr::V6(ip) if ip.is_multicast() => {
            let octets = ip.octets();
            [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]
        }
        _ => NEAR_MAC,
    }
}

pub fn ethernet(destination: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &FAR_MAC, &ethertype.to_be_bytes(), payload].concat()
}

/// An IPv4 header that [`ip4`] completes.
pub fn header4(source: IpAddr, destination: IpAddr, protocol: u8) -> Ipv4Header {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        panic!("two families")
    };
    let (source, destination) = (source.octets(), destination.octets());
    let header = Ipv4Header::new(0, TTL, IpNumber(protocol), source, destination).unwrap();
    Ipv4Header { dont_fragment: false, ..header }
}

/// A frame of IPv4, with the header's length and checksum.
pub fn ip4(mut header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    header.set_payload_len(payload.len()).unwrap();
    header.header_checksum = header.calc_header_checksum();
    let packet = [&header.to_bytes()[..], payload].concat();
    ethernet(mac_of(header.destination.into()), 0x0800, &packet)
}

pub fn ip6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header {
        payload_length: payload.len() as u16,
        next_header: IpNumber(next_header),
        hop_limit: TTL,
        source: source.octets(),
        destination: destination.octets(),
        ..Ipv6Header::default()
    };
    let packet = [&header.to_bytes()[..], payload].concat();
    ethernet(mac_of(destination.into()), 0x86dd, &packet)
}

/// Any protocol over either family.
pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ip6(source, destination, protocol, payload)
        }
        _ => ip4(header4(source, destination, protocol), payload),
    }
}

/// A whole UDP packet.
pub fn udp_packet(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (address(source), address(destination));
    ip(source.ip(), destination.ip(), UDP, &udp(source, destination, payload))
}

/// A UDP datagram in fragments that begin at these offsets (multiples of 8; the first is 0).
pub fn udp_fragments(
    source: &str,
    destination: &str,
    id: u16,
    payload: &[u8],
    starts: &[usize],
) -> Vec<Vec<u8>> {
    let (from, to) = (address(source), address(destination));
    let datagram = udp(from, to, payload);
    let mut fragments = Vec::new();
    for (index, offset) in starts.iter().copied().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(datagram.len());
        let (part, more) = (&datagram[offset..end], end < datagram.len());
        let fragment_offset = IpFragOffset::try_new(offset as u16 / 8).unwrap();
        fragments.push(match (from.ip(), to.ip()) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header =
                    Ipv6FragmentHeader::new(ip_number::UDP, fragment_offset, more, id.into());
                ip6(source, destination, IPV6_FRAGMENT, &[&header.to_bytes()[..], part].concat())
            }
            (source, destination) => ip4(
                Ipv4Header {
                    identification: id,
                    fragment_offset,
                    more_fragments: more,
                    ..header4(source, destination, UDP)
                },
                part,
            ),
        });
    }
    fragments
}

/// The same frame with an 802.1Q tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// The same frame to another MAC address.
pub fn to_mac(frame: &[u8], mac: [u8; 6]) -> Vec<u8> {
    [&mac, &frame[6..]].concat()
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| panic!("{text} is no address and port"))
}

//! Frames, byte by byte: also such as no library would build.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;

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

/// The Internet checksum (RFC 1071).
fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut bytes = [octets(source), octets(destination)].concat();
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// A UDP header and payload, checksummed.
pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len();
    let mut bytes = Vec::with_capacity(len);
    for word in [source.port(), destination.port(), len as u16, 0] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(payload);
    let sum = checksum(&[&pseudo(source.ip(), destination.ip(), UDP, len), &bytes]);
    bytes[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
    bytes
}

pub struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub payload: &'a [u8],
}

/// A TCP header without options and its payload, checksummed.
pub fn tcp(source: SocketAddr, destination: SocketAddr, segment: &Segment<'_>) -> Vec<u8> {
    let mut bytes = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.to_be_bytes());
    bytes.extend([0x50, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(segment.payload);
    let sum = checksum(&[&pseudo(source.ip(), destination.ip(), TCP, bytes.len()), &bytes]);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// An ICMP or ICMPv6 echo request.
pub fn echo(source: IpAddr, destination: IpAddr, id: u16, payload: &[u8]) -> Vec<u8> {
    let (kind, pseudo) = if source.is_ipv4() {
        (8, Vec::new())
    } else {
        (128, pseudo(source, destination, 58, 8 + payload.len()))
    };
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend(id.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(payload);
    let sum = checksum(&[&pseudo, &bytes]);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
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

/// IPv4, in full.
pub struct Ip4<'a> {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub options: &'a [u8],
    pub id: u16,
    /// Bytes, a multiple of 8.
    pub offset: usize,
    pub more: bool,
}

impl Ip4<'_> {
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let mut ip = vec![0x40 | (header_len / 4) as u8, 0];
        ip.extend(((header_len + payload.len()) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        let more = if self.more { 0x2000 } else { 0 };
        ip.extend(((self.offset / 8) as u16 | more).to_be_bytes());
        ip.extend([64, self.protocol, 0, 0]);
        ip.extend(self.source.octets());
        ip.extend(self.destination.octets());
        ip.extend(self.options);
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend(payload);
        ethernet(mac_of(self.destination.into()), 0x0800, &ip)
    }
}

pub fn ip6(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((payload.len() as u16).to_be_bytes());
    ip.extend([next_header, 64]);
    ip.extend(source.octets());
    ip.extend(destination.octets());
    ip.extend(payload);
    ethernet(mac_of(destination.into()), 0x86dd, &ip)
}

/// Any protocol over either family.
pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Ip4 { source, destination, protocol, options: &[], id: 0, offset: 0, more: false }
                .frame(payload)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ip6(source, destination, protocol, payload)
        }
        _ => panic!("two families"),
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
        fragments.push(match (from.ip(), to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Ip4 { source, destination, protocol: UDP, options: &[], id, offset, more }
                    .frame(part)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut extension = vec![UDP, 0];
                extension.extend((offset as u16 | u16::from(more)).to_be_bytes());
                extension.extend(u32::from(id).to_be_bytes());
                extension.extend(part);
                ip6(source, destination, IPV6_FRAGMENT, &extension)
            }
            _ => panic!("two families"),
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

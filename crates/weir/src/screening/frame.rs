//! Bytes of a packet that was held: what has to be put right before it goes on, and what its sender is told.

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use weir_bpf::parser::Parsed;

use crate::packet::{ICMP, ICMPV6, Packet, TCP, UDP};

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
/// `ICMP_ECHO`, and ICMPv6's.
const ECHO_REQUESTS: [(u8, u8); 2] = [(ICMP, 8), (ICMPV6, 128)];
/// Of a packet that is answered, so much goes back: what every path bears (RFC 1812, 4.3.2.3; RFC 4443, 2.4).
const QUOTED: usize = 512;

/// A frame's IP packet, without what the link has padded it with.
fn ip<'a>(frame: &'a mut [u8], parsed: &Parsed, packet: &Packet) -> Option<&'a mut [u8]> {
    let ip = frame.get_mut(ETHERNET + VLAN_TAG * usize::from(parsed.vlan_tags)..)?;
    let at = if packet.source.is_ipv4() { 2 } else { 4 };
    let len = usize::from(u16::from_be_bytes(ip.get(at..at + 2)?.try_into().ok()?));
    ip.get_mut(..if packet.source.is_ipv4() { len } else { 40 + len })
}

/// Computes a transport checksum that the sender has left to its device (`CHECKSUM_PARTIAL`): on virtual links no device
/// has done so. It is known by the sum of the addresses that stands in its place.
pub fn complete_checksum(frame: &mut [u8], parsed: &Parsed, packet: &Packet) -> Option<()> {
    let at = match packet.protocol {
        TCP if !packet.fragment => 16,
        UDP if !packet.fragment => 6,
        _ => return None,
    };
    let ip = ip(frame, parsed, packet)?;
    let start = ip.len().checked_sub(parsed.left as usize)?;
    let transport = ip.get_mut(start..)?;
    let mut head = Sum16BitWords::new();
    for address in [packet.source, packet.destination] {
        head = match address {
            IpAddr::V4(it) => head.add_4bytes(it.octets()),
            IpAddr::V6(it) => head.add_16bytes(it.octets()),
        };
    }
    let head = head
        .add_2bytes([0, packet.protocol])
        .add_2bytes((transport.len() as u16).to_be_bytes())
        .ones_complement();
    if *transport.get(at..at + 2)? != (!head).to_ne_bytes() {
        return None;
    }
    let whole = Sum16BitWords::new().add_slice(transport);
    // UDP's 0 means none (RFC 768).
    let whole = match packet.protocol {
        UDP => whole.to_ones_complement_with_no_zero(),
        _ => whole.ones_complement(),
    };
    transport.get_mut(at..at + 2)?.copy_from_slice(&whole.to_ne_bytes());
    Some(())
}

/// The ICMP message by which the sender hears that its packet is prohibited; none where it is to hear nothing, such as
/// of an ICMP error.
pub fn prohibited(frame: &mut [u8], parsed: &Parsed, packet: &Packet) -> Option<Vec<u8>> {
    let is_icmp = matches!(packet.protocol, ICMP | ICMPV6);
    let is_request = ECHO_REQUESTS.contains(&(packet.protocol, packet.icmp_type));
    let nobody = packet.source.is_multicast() || packet.source.is_unspecified();
    // Broadcast and multicast of the link (RFC 1122, 3.2.2; RFC 4443, 2.4).
    let to_many = frame.first().is_none_or(|first| first & 1 == 1);
    if packet.fragment || nobody || to_many || (is_icmp && !is_request) {
        return None;
    }
    let ip = ip(frame, parsed, packet)?;
    let quoted = &ip[..ip.len().min(QUOTED)];
    // Destination unreachable: communication administratively prohibited.
    let (kind, code) = if packet.source.is_ipv4() { (3, 13) } else { (1, 1) };
    let mut message = [&[kind, code, 0, 0, 0, 0, 0, 0], quoted].concat();
    if packet.source.is_ipv4() {
        // The kernel computes ICMPv6's.
        let sum = Sum16BitWords::new().add_slice(&message).ones_complement();
        message[2..4].copy_from_slice(&sum.to_ne_bytes());
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn parsed(left: usize) -> Parsed {
        Parsed { left: left as u32, ..Parsed::default() }
    }

    fn checksum(bytes: &[u8]) -> u16 {
        Sum16BitWords::new().add_slice(bytes).ones_complement()
    }

    #[test]
    fn a_checksum_that_was_left_to_the_device_is_computed_and_another_left_alone() {
        for payload in [&b"odd"[..], b"even", b""] {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let builder = builder.ipv4([198, 18, 0, 2], [198, 19, 0, 2], 64).udp(7, 9);
            let mut frame = Vec::new();
            builder.write(&mut frame, payload).unwrap();
            let packet = Packet {
                source: [198, 18, 0, 2].into(),
                destination: [198, 19, 0, 2].into(),
                protocol: UDP,
                source_port: 7,
                destination_port: 9,
                tcp_flags: 0,
                icmp_type: 0,
                fragment: false,
            };
            let parsed = parsed(8 + payload.len());
            let good = frame.clone();
            assert_eq!(complete_checksum(&mut frame, &parsed, &packet), None);
            assert_eq!(frame, good);
            let head = [198, 18, 0, 2, 198, 19, 0, 2, 0, UDP, 0, 8 + payload.len() as u8];
            frame[40..42].copy_from_slice(&(!checksum(&head)).to_ne_bytes());
            // Padding is no part of it.
            frame.extend([0xff; 8]);
            complete_checksum(&mut frame, &parsed, &packet).unwrap();
            assert_eq!(frame[..good.len()], good);
            let message = prohibited(&mut frame, &parsed, &packet).unwrap();
            assert_eq!((message[0], message[1], checksum(&message)), (3, 13, 0));
            assert_eq!(message[8..], good[14..]);
            frame[0] |= 1;
            assert_eq!(prohibited(&mut frame, &parsed, &packet), None, "to a group");
        }
    }
}

//! The packets that are run through the gate one by one, as bytes.

use std::net::IpAddr;

use etherparse::{PacketBuilder, PacketBuilderStep};
use weir_bpf::units::MacAddr;

use super::rig::SOURCE_PORT;
use super::targets::{CLOSED_PORT, FULL_PORT, ROOM_PORT};
use crate::results::gate_cost::Kind;

const PAYLOAD: [u8; 14] = [0; 14];

/// A packet with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPacket {
    /// For a person.
    pub name: String,
    /// The Ethernet frame.
    pub frame: Vec<u8>,
    /// Its kind, where it is for a full socket, which must be told that it still is.
    pub keep_full: Option<Kind>,
}

/// Where packets come from and go to: generator and host.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Ethernet addresses.
    pub mac: (MacAddr, MacAddr),
    /// IP addresses, IPv4 and IPv6.
    pub addresses: [(IpAddr, IpAddr); 2],
}

/// A packet for each step that the gate may stop at, from the first to the last.
pub fn hot_packets(ends: &Ends) -> Vec<HotPacket> {
    let mut packets = vec![HotPacket {
        name: "not IP (ARP's ethertype)".into(),
        frame: [&ends.mac.1.0[..], &ends.mac.0.0, &[0x08, 0x06], &[0; 46]].concat(),
        keep_full: None,
    }];
    for kind in Kind::ALL {
        let own = ends.addresses[usize::from(kind.ipv6())];
        // One more than the generator's: nobody's.
        let nobodys = (own.0, next(own.0));
        let stranger = (ends.mac.0, MacAddr([2, 0, 0, 0, 0, 1]));
        let mut add = |name: &str, mac, address, port, full| {
            let frame = frame(kind, mac, address, port);
            let keep_full = if full { Some(kind) } else { None };
            packets.push(HotPacket { name: format!("{kind} {name}"), frame, keep_full });
        };
        if !kind.tcp() {
            add("to another MAC address", stranger, own, ROOM_PORT, false);
            add("to another address", ends.mac, nobodys, ROOM_PORT, false);
            add("to no socket", ends.mac, own, CLOSED_PORT, false);
        }
        add("to a socket with room", ends.mac, own, ROOM_PORT, false);
        add("to a full socket", ends.mac, own, FULL_PORT, true);
    }
    packets
}

fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from((u32::from(v4) + 1).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() + 1).to_be_bytes()),
    }
}

fn frame(kind: Kind, mac: (MacAddr, MacAddr), address: (IpAddr, IpAddr), port: u16) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(mac.0.0, mac.1.0);
    let ip = match address {
        (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 64),
        (from, to) => ethernet.ipv6(octets6(from), octets6(to), 64),
    };
    transport(kind, ip, port)
}

fn transport(kind: Kind, ip: PacketBuilderStep<etherparse::IpHeaders>, port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    // Writing to memory fails only for packets that are too long for their headers.
    let written = if kind.tcp() {
        ip.tcp(SOURCE_PORT, port, 0, 65_535).syn().write(&mut frame, &[])
    } else {
        ip.udp(SOURCE_PORT, port).write(&mut frame, &PAYLOAD)
    };
    debug_assert!(written.is_ok(), "{written:?}");
    frame
}

fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    #[test]
    fn packets_are_what_their_names_say() {
        let ends = Ends {
            mac: (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 3])),
            addresses: [
                ("198.18.1.128".parse().unwrap(), "198.18.1.2".parse().unwrap()),
                ("2001:2::100".parse().unwrap(), "2001:2::2".parse().unwrap()),
            ],
        };
        let packets = hot_packets(&ends);
        for packet in &packets[1..] {
            let parsed = SlicedPacket::from_ethernet(&packet.frame).unwrap();
            let port = match parsed.transport.unwrap() {
                TransportSlice::Udp(udp) => udp.destination_port(),
                TransportSlice::Tcp(tcp) => {
                    assert!(tcp.syn() && !tcp.ack());
                    tcp.destination_port()
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(packet.keep_full.is_some(), port == FULL_PORT, "{}", packet.name);
            let ipv6 = matches!(parsed.net, Some(NetSlice::Ipv6(_)));
            assert_eq!(ipv6, packet.name.contains('6'), "{}", packet.name);
        }
        assert_eq!(packets.iter().filter(|packet| packet.keep_full.is_some()).count(), 4);
    }
}

//! What lies where in a packet, and whose it is.

use etherparse::Ipv4Header;
use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, PEER6, SMALL, fill, flood, full, long};
use crate::frame::{self, address, header4, ip4, ip6, tagged, to_mac, udp, udp_packet};
use crate::socket::{Frames, Udp, only_frames_with, packet};
use crate::world::World;

pub const CASES: &[Case] = &[
    full("another host's MAC address, seen by a tap", &[Defect::MacUnchecked], |world| {
        tapped(world, Frames::ForOtherHosts, |frame| to_mac(frame, frame::OTHER_MAC))
    }),
    full("a priority tag, of VLAN 0", &[], |world| {
        changed(world, PEER, ANY, &[HERE], |frame| tagged(frame, 0))
    }),
    full("a broadcast frame with this host's address, or another's", &[], |world| {
        world.udp_beyond("beyond", "0.0.0.0:5000");
        changed(world, PEER, ANY, &[HERE, "198.18.1.2:5000"], |frame| to_mac(frame, [0xff; 6]));
    }),
    full("a UDP length of 0, over IPv6", &[], |world| {
        changed(world, PEER6, HERE6, &[HERE6], without_udp_length)
    }),
    full("a tagged frame, seen by a tap", &[Defect::VlanIgnored], |world| {
        tapped(world, Frames::Tagged, |frame| tagged(frame, 5))
    }),
    full("to another host, by way of this one", &[Defect::AddressUnchecked], |world| {
        world.udp("full", Udp { bind: "0.0.0.0:5000", buffer_bytes: SMALL, ..Udp::default() });
        world.udp_beyond("beyond", "0.0.0.0:5000");
        fill(world, PEER, "198.18.0.1:5000");
        flood(world, PEER, "198.18.1.2:5000", 3);
    }),
    full("a source route through this host", &[Defect::SourceRouteIgnored], source_route),
    full(
        "IPv4 options that look like a full socket's port",
        &[Defect::Ipv4OptionsIgnored],
        options,
    ),
    full(
        "an IPv6 extension that looks like a full socket's port",
        &[Defect::Ipv6ExtensionsIgnored],
        extensions,
    ),
];

const ANY: &str = "0.0.0.0:5000";
const HERE: &str = "198.18.0.1:5000";
const HERE6: &str = "[2001:2::1]:5000";

/// Frames that a change makes unusual, to a full queue and to one that has been read: the first of these addresses'.
fn changed(world: &mut World, from: &str, bind: &str, to: &[&str], change: fn(&[u8]) -> Vec<u8>) {
    world.udp("full", Udp { bind, buffer_bytes: SMALL, ..Udp::default() });
    // Twice, so that the gate knows of them.
    for to_one in to.iter().cycle().take(2) {
        fill(world, from, to[0]);
        let frames: Vec<_> = (0..3).map(|_| change(&long(world, from, to_one))).collect();
        world.send(&frames);
        world.drain("full");
        world.send(&frames);
    }
}

/// Of UDP over IPv6: as of a jumbogram (RFC 2675).
fn without_udp_length(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let word = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let sum = word(60) + word(58);
    let sum = (sum + (sum >> 16)) as u16;
    frame[58..60].fill(0);
    frame[60..62].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn tapped(world: &mut World, frames: Frames, change: fn(&[u8]) -> Vec<u8>) {
    world.raw("tap", || {
        let socket = packet("near", 0x0003);
        only_frames_with(&socket, frames);
        socket
    });
    world.udp("full", Udp { bind: "198.18.0.1:5000", buffer_bytes: SMALL, ..Udp::default() });
    fill(world, PEER, "198.18.0.1:5000");
    let frames: Vec<_> = (0..3).map(|_| change(&long(world, PEER, "198.18.0.1:5000"))).collect();
    world.send(&frames);
}

fn source_route(world: &mut World) {
    world.udp("full", Udp { bind: "198.18.0.1:5000", buffer_bytes: SMALL, ..Udp::default() });
    world.udp_beyond("beyond", "0.0.0.0:5000");
    fill(world, PEER, "198.18.0.1:5000");
    let (source, through) = (address(PEER), address("198.18.0.1:5000"));
    for _ in 0..3 {
        let payload = world.payload(LONG);
        // Its checksum is that of its last leg.
        let datagram = udp(source, address("198.18.1.2:5000"), &payload);
        let header = Ipv4Header {
            options: [131, 7, 4, 198, 18, 1, 2, 0].into(),
            ..header4(source.ip(), through.ip(), frame::UDP)
        };
        world.send_apart(&ip4(header, &datagram));
    }
}

fn options(world: &mut World) {
    // Eight no-operations, read as a UDP header: port 257, length 257.
    const NOP: u8 = 1;
    world.udp("full", Udp { bind: "198.18.0.1:257", buffer_bytes: SMALL, ..Udp::default() });
    world.udp("open", Udp { bind: "198.18.0.1:5000", ..Udp::default() });
    for packets in [50, 4] {
        let frames: Vec<_> =
            (0..packets).map(|_| udp_packet(PEER, "198.18.0.1:257", &world.payload(200))).collect();
        world.send(&frames);
    }
    let (source, to) = (address(PEER), address("198.18.0.1:5000"));
    let payload = world.payload(600);
    let header =
        Ipv4Header { options: [NOP; 8].into(), ..header4(source.ip(), to.ip(), frame::UDP) };
    world.send(&[ip4(header, &udp(source, to, &payload))]);
    // Short packets are charged what is left of a page.
    world.disregard("full");
}

fn extensions(world: &mut World) {
    world.udp("full", Udp { bind: "[2001:2::1]:7684", buffer_bytes: SMALL, ..Udp::default() });
    world.udp("open", Udp { bind: "[2001:2::1]:5000", ..Udp::default() });
    fill(world, PEER6, "[2001:2::1]:7684");
    let (source, to) = (address(PEER6), address("[2001:2::1]:5000"));
    let (std::net::IpAddr::V6(from), std::net::IpAddr::V6(near)) = (source.ip(), to.ip()) else {
        return;
    };
    let payload = world.payload(LONG);
    // Next header, length; an option to be skipped (0x1e) of 4 bytes: port 0x1e04 = 7684 and, in its
    // first two bytes, the length of a long datagram.
    let mut packet = vec![frame::UDP, 0, 0x1e, 4];
    packet.extend((LONG as u16 + 8).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(udp(source, to, &payload));
    world.send(&[ip6(from, near, 60, &packet)]);
}

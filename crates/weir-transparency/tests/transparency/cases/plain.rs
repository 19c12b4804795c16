//! Without overload.

use socket2::{Domain, Protocol, Socket, Type};
use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, PEER6, SMALL, STRANGER, flood, free, long};
use crate::frame::{self, echo, ip, tagged, to_mac, udp_packet};
use crate::peer::{ACK, FIN, Peer};
use crate::socket::{Frames, Udp, only_frames_with, packet};
use crate::world::World;

pub const CASES: &[Case] = &[
    free("a small buffer, before anything was refused", &[Defect::TruesizeGuessed], |world| {
        world.udp("small", Udp { bind: "198.18.0.1:5000", buffer_bytes: SMALL, ..Udp::default() });
        flood(world, PEER, "198.18.0.1:5000", 3);
    }),
    free("sockets of every kind", &[], every_kind),
    free("one of two devices", &[], devices),
    free("ICMP", &[], icmp),
    free("taps and raw sockets", &[], taps),
    free("forwarded packets", &[], forwarded),
    free("VXLAN", &[], vxlan),
    free("malformed packets", &[], malformed),
    free("TCP streams, in trains", &[], streams),
    free("TIME_WAIT, and its port's new life", &[], time_wait),
];

fn every_kind(world: &mut World) {
    let any = Udp { reuse_address: true, ..Udp::default() };
    world.udp("IPv4, one address", Udp { bind: "198.18.0.1:5000", ..any });
    world.udp("IPv4, the other address", Udp { bind: "198.18.0.2:5000", ..any });
    world.udp("IPv6 only", Udp { bind: "[::]:5000", only_v6: true, ..any });
    world.udp("dual-stack", Udp { bind: "[::]:5001", ..any });
    world.udp("unconnected", Udp { bind: "0.0.0.0:5002", ..any });
    world.udp("connected", Udp { bind: "198.18.0.1:5002", connect: Some(PEER), ..any });
    world.udp("with a filter", Udp { bind: "0.0.0.0:5003", even_only: true, ..any });
    let shared = Udp { bind: "0.0.0.0:5004", reuse_port: true, ..any };
    let sockets = world.near(|| vec![shared.open(), shared.open()]);
    world.hashed("SO_REUSEPORT group", sockets);
    let group = ["239.18.0.1", "ff05::12"];
    world.udp("of a group", Udp { bind: "0.0.0.0:5005", join: &group[..1], ..any });
    world.udp("of no group", Udp { bind: "0.0.0.0:5005", ..any });
    world.udp("of an IPv6 group", Udp { bind: "[::]:5006", join: &group[1..], ..any });
    let mut frames = Vec::new();
    for round in 0..3 {
        for port in 5000..5008 {
            let four =
                ["198.18.0.1", "198.18.0.2", "239.18.0.1", "198.18.0.255", "255.255.255.255"];
            for to in four {
                for from in [PEER, STRANGER] {
                    let payload = world.payload(5 + round * 600);
                    frames.push(udp_packet(from, &format!("{to}:{port}"), &payload));
                }
            }
            for to in ["2001:2::1", "2001:2::2", "ff05::12"] {
                let payload = world.payload(5 + round * 600);
                frames.push(udp_packet(PEER6, &format!("[{to}]:{port}"), &payload));
            }
        }
    }
    world.send(&frames);
}

fn devices(world: &mut World) {
    let any = Udp { bind: "0.0.0.0:5000", reuse_address: true, ..Udp::default() };
    world.udp("on any", any);
    world.udp("on near", Udp { device: Some("near"), ..any });
    world.udp("on side", Udp { device: Some("side"), ..any });
    flood(world, PEER, "198.18.0.1:5000", 20);
}

fn icmp(world: &mut World) {
    let (from, from6) = (frame::address(PEER).ip(), frame::address(PEER6).ip());
    let mut frames = Vec::new();
    for (from, to, protocol) in [
        (from, "198.18.0.1", frame::ICMP),
        (from, "198.18.1.2", frame::ICMP),
        (from6, "2001:2::1", 58),
    ] {
        let to = to.parse().unwrap();
        for len in [0, 8, 600, 1400] {
            let payload = world.payload(len);
            frames.push(ip(from, to, protocol, &echo(from, to, 7, &payload)));
        }
    }
    world.send(&frames);
}

fn taps(world: &mut World) {
    for (name, frames) in
        [("other hosts' frames", Frames::ForOtherHosts), ("tagged frames", Frames::Tagged)]
    {
        world.raw(name, || {
            let socket = packet("near", 0x0003);
            only_frames_with(&socket, frames);
            socket
        });
    }
    world.raw("raw UDP", || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap());
    world.udp("open", Udp { bind: "0.0.0.0:5000", ..Udp::default() });
    let frame = long(world, PEER, "198.18.0.1:5000");
    world.send(&[
        to_mac(&frame, frame::OTHER_MAC),
        tagged(&frame, 5),
        tagged(&tagged(&frame[..1000], 5), 6),
        tagged(&frame, 0),
        frame,
    ]);
    // What ends a batch is not for this one to compare.
}

fn forwarded(world: &mut World) {
    world.udp_beyond("beyond", "0.0.0.0:5000");
    world.udp_beyond("beyond, IPv6", "[::]:5001");
    world.udp("near", Udp { bind: "0.0.0.0:5000", ..Udp::default() });
    let mut frames = Vec::new();
    for len in [4, 100, 1400] {
        for (from, to) in [
            (PEER, "198.18.1.2:5000"),
            (PEER, "198.18.1.1:5000"),
            (PEER, "198.18.0.1:5000"),
            (PEER, "198.18.9.9:5000"),
            (PEER6, "[2001:2:0:1::2]:5001"),
        ] {
            let payload = world.payload(len);
            frames.push(udp_packet(from, to, &payload));
        }
    }
    world.send(&frames);
}

fn vxlan(world: &mut World) {
    world.udp("inside the tunnel", Udp { bind: "198.18.2.1:5000", ..Udp::default() });
    let payload = world.payload(500);
    let inner = udp_packet("198.18.2.2:40000", "198.18.2.1:5000", &payload);
    let inner = to_mac(&inner, [2, 0, 0, 0, 0, 5]);
    let outer = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat();
    world.send(&[udp_packet(PEER, "198.18.0.1:4789", &outer)]);
}

/// A good packet with each of its header bytes changed in turn, and cut at each length.
fn malformed(world: &mut World) {
    world.udp("open", Udp { bind: "[::]:5000", ..Udp::default() });
    let payload = world.payload(30);
    let mut frames = Vec::new();
    for (from, to) in [(PEER, "198.18.0.1:5000"), (PEER6, "[2001:2::1]:5000")] {
        let good = udp_packet(from, to, &payload);
        for at in 14..good.len() - payload.len() {
            for bit in [1, 8, 0x40] {
                let mut bad = good.clone();
                bad[at] ^= bit;
                frames.push(bad);
            }
        }
        frames.extend((14..good.len()).map(|len| good[..len].to_vec()));
        frames.push([&good[..], &payload].concat());
    }
    world.send(&frames);
}

fn streams(world: &mut World) {
    world.listen("server", "[::]:5000", 8);
    for (number, to) in ["198.18.0.1:5000", "[2001:2::1]:5000"].into_iter().enumerate() {
        let mut peer = Peer::connect(world, number as u16, to).unwrap();
        for _ in 0..3 {
            let train: Vec<_> = (0..20)
                .map(|_| {
                    let payload = world.payload(LONG - 100);
                    peer.data(&payload)
                })
                .collect();
            world.send(&train);
            world.drain("server");
        }
    }
}

fn time_wait(world: &mut World) {
    world.listen("server", "198.18.0.1:5000", 8);
    let mut peer = Peer::connect(world, 0, "198.18.0.1:5000").unwrap();
    world.drain("server");
    // The server closes first, so the waiting is its own.
    world.shut_down("server");
    world.send(&[]);
    world.send(&[peer.data(b"bye")]);
    peer.took(1);
    world.send(&[peer.segment(FIN | ACK, b"")]);
    world.drain("server");
    let again = peer.syn_again();
    world.send(&[again]);
}

//! Fragments follow their first.

use std::time::{Duration, Instant};

use etherparse::{IpFragOffset, Ipv4Header};
use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, PEER6, SMALL, fill, flood, free, full, long};
use crate::frame::{self, address, header4, ip4, udp_fragments};
use crate::socket::Udp;
use crate::world::World;

const AT: &str = "198.18.0.1:5000";
const AT6: &str = "[2001:2::1]:5000";

pub const CASES: &[Case] = &[
    free("fragments in order", &[Defect::FragmentTailDiscarded], |world| {
        ordered(world, &[0, 1, 2])
    }),
    free("the tail first", &[Defect::FragmentEarlyDiscarded], |world| ordered(world, &[2, 1, 0])),
    free("fragments in other orders, and repeated", &[], |world| {
        ordered(world, &[1, 0, 2]);
        ordered(world, &[2, 0, 1]);
        ordered(world, &[0, 0, 1, 1, 2]);
    }),
    free("one number, several datagrams", &[], |world| {
        open(world);
        // From two hosts, and to two: told apart.
        let id = world.fragment_id(7);
        let mut all = Vec::new();
        for (from, to) in
            [(PEER, AT), ("198.18.0.201:40000", AT), (PEER, "198.18.0.2:5000"), (PEER6, AT6)]
        {
            let payload = world.payload(3000);
            all.push(udp_fragments(from, to, id, &payload, &[0, 1400, 2800]));
        }
        for part in [2, 0, 1] {
            let frames: Vec<_> = all.iter().map(|fragments| fragments[part].clone()).collect();
            world.send(&frames);
        }
    }),
    full("a head between its tail and room for it", &[Defect::FragmentHeadAfterTail], |world| {
        world.udp("drained", Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() });
        fill(world, PEER, AT);
        let parts = fragments(world, 7);
        let busy = long(world, PEER, AT);
        let start = Instant::now();
        world.send(&[parts[2].clone(), busy]);
        world.send(&parts[..1]);
        // What is known of a datagram is believed for 100 ms.
        let in_time = start.elapsed() < Duration::from_millis(90);
        world.drain("drained");
        world.send(&parts[1..2]);
        if !in_time {
            world.disregard("drained");
        }
    }),
    full("to a full socket", &[], |world| {
        world.udp("full", Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() });
        for id in 0..3 {
            fill(world, PEER, AT);
            let parts = fragments(world, id);
            world.send(&parts);
            let parts = fragments(world, id + 10);
            world.send(&[parts[1].clone(), parts[0].clone(), parts[2].clone()]);
            world.drain("full");
            let parts = fragments(world, id + 20);
            world.send(&parts);
        }
    }),
    full(
        "datagrams beside one that is discarded, of the same host",
        &[Defect::DatagramIdForgotten],
        |world| beside_discarded(world, PEER, 2),
    ),
    full(
        "datagrams beside one that is discarded, of another host",
        &[Defect::DatagramSourceForgotten],
        |world| beside_discarded(world, "198.18.0.201:40000", 1),
    ),
    full(
        "pings in fragments beside a datagram that is discarded",
        &[Defect::DatagramProtocolForgotten],
        pings,
    ),
    full(
        "a head that waits for its tail takes nobody's place",
        &[Defect::FragmentExpected],
        |world| {
            world.udp("brim", Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() });
            fill(world, PEER, AT);
            world.drain("brim");
            for _ in 0..5 {
                let whole = long(world, PEER, AT);
                world.send(&[whole]);
            }
            // In one poll, so that none is seen not to arrive before the last.
            let parts: Vec<_> = (0..10).map(|id| fragments(world, id)).collect();
            let mut frames: Vec<_> = parts.iter().map(|parts| parts[0].clone()).collect();
            frames.push(long(world, PEER, AT));
            world.send(&frames);
            let tails: Vec<_> = parts.iter().flat_map(|parts| parts[1..].to_vec()).collect();
            world.send(&tails);
        },
    ),
    full("a datagram beside one of very unlike fragments, which is refused", &[], |world| {
        let small = Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() };
        world.udp("full", small);
        world.udp("other", Udp { bind: "198.18.0.1:5001", ..small });
        for id in 0..3 {
            let starts: Vec<_> = std::iter::once(0).chain((1448..UNLIKE).step_by(160)).collect();
            let payload = world.payload(UNLIKE - 8);
            let mut unlike = udp_fragments(PEER, AT, world.fragment_id(id), &payload, &starts);
            // Behind its tail the head passes.
            unlike.reverse();
            let payload = world.payload(3 * 1448 - 8);
            let (to, number) = ("198.18.0.1:5001", world.fragment_id(id + 10));
            let parts = udp_fragments(PEER, to, number, &payload, &[0, 1448, 2 * 1448]);
            fill(world, PEER, AT);
            flood(world, PEER, to, 1);
            world.send(&unlike);
            world.send(&parts);
            world.drain("other");
        }
    }),
    full(
        "a datagram with a short head beside one of short fragments, which is refused",
        &[],
        |world| {
            let small = Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() };
            world.udp("full", small);
            world.udp("other", Udp { bind: "198.18.0.1:5001", ..small });
            for id in 0..3 {
                let starts: Vec<_> = (0..20 * 8).step_by(8).collect();
                let payload = world.payload(20 * 8 - 8);
                let short = udp_fragments(PEER, AT, world.fragment_id(id), &payload, &starts);
                let payload = world.payload(2 * 1448);
                let (to, number) = ("198.18.0.1:5001", world.fragment_id(id + 10));
                let parts = udp_fragments(PEER, to, number, &payload, &[0, 8, 1456]);
                fill(world, PEER, AT);
                flood(world, PEER, to, 1);
                world.send(&short);
                world.send(&parts);
                world.drain("other");
            }
        },
    ),
];

/// Bytes of a datagram of one long fragment and some 390 short ones.
const UNLIKE: usize = 44 * 1448;

/// Three, each charged a whole page.
fn fragments(world: &mut World, id: u16) -> Vec<Vec<u8>> {
    let payload = world.payload(3 * 1448 - 8);
    udp_fragments(PEER, AT, world.fragment_id(id), &payload, &[0, 1448, 2 * 1448])
}

fn open(world: &mut World) {
    if world.has("open") {
        return;
    }
    world.udp("open", Udp { bind: "[::]:5000", ..Udp::default() });
}

fn ordered(world: &mut World, order: &[usize]) {
    open(world);
    for (from, to) in [(PEER, AT), (PEER6, AT6)] {
        let payload = world.payload(LONG + 1000);
        let id = world.fragment_id(u16::from(payload[3]));
        let parts = udp_fragments(from, to, id, &payload, &[0, 1200, 2400]);
        let frames: Vec<_> = order.iter().map(|part| parts[*part].clone()).collect();
        world.send(&frames);
    }
}

/// A datagram of which the head is on this port of a full socket, and its frames.
fn discarded(world: &mut World) -> Vec<Vec<u8>> {
    world.udp("full", Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() });
    fill(world, PEER, AT);
    let payload = world.payload(3000);
    udp_fragments(PEER, AT, world.fragment_id(1), &payload, &[0, 1448, 2896])
}

/// The head of one that passes, that of one that is discarded, and the rest of the first.
fn beside_discarded(world: &mut World, from: &str, id: u16) {
    world.udp("other", Udp { bind: "198.18.0.1:5001", ..Udp::default() });
    let discarded = discarded(world);
    let payload = world.payload(3000);
    let parts =
        udp_fragments(from, "198.18.0.1:5001", world.fragment_id(id), &payload, &[0, 1448, 2896]);
    let busy = long(world, PEER, AT);
    let frames = [&[busy, parts[0].clone(), discarded[0].clone()], &parts[1..]].concat();
    world.send(&frames);
}

fn pings(world: &mut World) {
    let discarded = discarded(world);
    let (from, to) = (address(PEER).ip(), address(AT).ip());
    let echo = frame::echo(from, to, 7, &world.payload(2000));
    let identification = world.fragment_id(1);
    let whole = Ipv4Header { identification, ..header4(from, to, frame::ICMP) };
    let first = Ipv4Header { more_fragments: true, ..whole.clone() };
    let fragment_offset = IpFragOffset::try_new(1448 / 8).unwrap();
    let last = Ipv4Header { fragment_offset, ..whole };
    let (head, tail) = echo.split_at(1448);
    let busy = long(world, PEER, AT);
    world.send(&[busy, ip4(first, head), discarded[0].clone(), ip4(last, tail)]);
}

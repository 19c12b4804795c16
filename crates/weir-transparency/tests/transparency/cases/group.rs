//! Several receivers, or one of several.

use socket2::Socket;
use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, SMALL, STRANGER, fill, full, long};
use crate::frame::udp_packet;
use crate::socket::{Udp, pick_by_fifth_byte};
use crate::world::World;

const AT: &str = "198.18.0.1:5000";
const GROUP: &str = "239.18.0.1";

pub const CASES: &[Case] = &[
    full("a program picks the socket that has room", &[Defect::GroupProgramIgnored], program),
    full("a program picks the second, which has room", &[Defect::GroupFirstFull], |world| {
        program_of(world, ["full", "reads"])
    }),
    full(
        "a connected socket beside a full group with a program",
        &[Defect::GroupAlwaysAlone],
        |world| {
            let member = Udp {
                bind: AT,
                reuse_port: true,
                reuse_address: true,
                buffer_bytes: SMALL,
                ..Udp::default()
            };
            let sockets = world.near(|| {
                let sockets = [member.open(), member.open()];
                pick_by_fifth_byte(&sockets[0]);
                sockets
            });
            for (name, socket) in ["first", "second"].into_iter().zip(sockets) {
                world.adopt(name, socket);
            }
            let peer = Udp { reuse_port: false, buffer_bytes: 0, connect: Some(PEER), ..member };
            world.udp("connected", peer);
            for (packets, pick) in [(20, 0), (20, 1), (2, 0)] {
                let frames: Vec<_> = (0..packets).map(|_| picked(world, STRANGER, pick)).collect();
                world.send(&frames);
            }
            let frames = [picked(world, STRANGER, 0), long(world, PEER, AT)];
            world.send(&frames);
        },
    ),
    full(
        "a program picks the last of many, which has room",
        &[Defect::LargeGroupFull],
        large_group,
    ),
    full("the first of many on a port has room", &[Defect::BucketCutShort], crowded),
    full(
        "the first or the last receiver of a broadcast is full",
        &[Defect::ToManyAsOne],
        |world| {
            for (port, sizes) in [(5001, [SMALL, 0]), (5002, [0, SMALL])] {
                let (bind, to) = (format!("0.0.0.0:{port}"), format!("198.18.0.255:{port}"));
                for (name, buffer_bytes) in ["first", "last"].into_iter().zip(sizes) {
                    world.udp(name, Udp { bind: &bind, buffer_bytes, ..any() });
                }
                fill(world, PEER, &to);
                let reads = if sizes[0] == 0 { "first" } else { "last" };
                world.drain(reads);
                let frames = [long(world, PEER, &to), long(world, PEER, &to)];
                world.send(&frames);
                world.close("first");
                world.close("last");
            }
        },
    ),
    full("one member of each of two groups", &[Defect::GroupsAreOne], two_groups),
    full("a member that chose one of two senders", &[Defect::SendersIgnored], |world| {
        let member = world.near(|| {
            let socket = Udp { buffer_bytes: SMALL, ..any() }.open();
            let addresses = ["198.18.0.200", GROUP, "198.18.0.1"].map(|it| it.parse().unwrap());
            socket.join_ssm_v4(&addresses[0], &addresses[1], &addresses[2]).unwrap();
            socket
        });
        chosen_sender(world, member);
    }),
    full("a member that is connected to one of two senders", &[Defect::SendersIgnored], |world| {
        let bind = "239.18.0.1:5000";
        let member = Udp { bind, join: &[GROUP], connect: Some(PEER), ..any() };
        let member = world.near(|| Udp { buffer_bytes: SMALL, ..member }.open());
        chosen_sender(world, member);
    }),
    full("a hash picks the full socket, or the other", &[], hashed),
    full("one member of a group is full", &[Defect::MulticastFirstFull], |world| {
        many(world, "239.18.0.1:5000")
    }),
    full("one receiver of a broadcast is full", &[Defect::MulticastFirstFull], |world| {
        many(world, "198.18.0.255:5000")
    }),
    full("the only member of a group is full", &[], |world| {
        world.udp("member", Udp { join: &[GROUP], buffer_bytes: SMALL, ..any() });
        for _ in 0..3 {
            fill(world, PEER, "239.18.0.1:5000");
            fill(world, PEER, "239.18.0.1:5000");
            world.drain("member");
        }
    }),
    full("every member of a group is full", &[], |world| {
        for name in ["first", "second", "third"] {
            world.udp(name, Udp { join: &[GROUP], buffer_bytes: SMALL, ..any() });
        }
        for _ in 0..3 {
            fill(world, PEER, "239.18.0.1:5000");
            fill(world, PEER, "239.18.0.1:5000");
            world.drain("second");
        }
    }),
];

fn any() -> Udp<'static> {
    Udp { bind: "0.0.0.0:5000", reuse_address: true, ..Udp::default() }
}

fn many(world: &mut World, to: &str) {
    world.udp("full", Udp { join: &[GROUP], buffer_bytes: SMALL, ..any() });
    world.udp("reads", Udp { join: &[GROUP], ..any() });
    for _ in 0..2 {
        fill(world, PEER, to);
        world.drain("reads");
        let frames = [long(world, PEER, to), long(world, PEER, to)];
        world.send(&frames);
        world.drain("reads");
    }
}

/// A packet for the socket that the program then picks.
fn picked(world: &mut World, from: &str, pick: u8) -> Vec<u8> {
    let mut payload = world.payload(LONG);
    payload[4] = pick;
    udp_packet(from, AT, &payload)
}

/// Two sockets on a port, each of which takes its own group's packets only. One is full, the other nearly.
fn two_groups(world: &mut World) {
    const OTHER: &str = "239.18.0.2";
    for (name, group) in [("nearly full", GROUP), ("full", OTHER)] {
        let socket = world.near(|| {
            let socket = Udp { join: &[group], buffer_bytes: SMALL, ..any() }.open();
            socket.set_multicast_all_v4(false).unwrap();
            socket
        });
        world.adopt(name, socket);
    }
    let (own, other) = (format!("{GROUP}:5000"), format!("{OTHER}:5000"));
    fill(world, PEER, &own);
    fill(world, PEER, &other);
    world.drain("nearly full");
    for _ in 0..5 {
        let frame = long(world, PEER, &own);
        world.send(&[frame]);
    }
    let mut frames: Vec<_> = (0..20).map(|_| long(world, PEER, &other)).collect();
    frames.push(long(world, PEER, &own));
    world.send(&frames);
}

/// Beside a full socket, a nearly full one; its sender's packets were seen to arrive, and another's do not.
fn chosen_sender(world: &mut World, member: Socket) {
    const TO: &str = "239.18.0.1:5000";
    const OTHER: &str = "198.18.0.201:40000";
    world.adopt("member", member);
    world.udp("full", Udp { join: &[GROUP], buffer_bytes: SMALL, ..any() });
    for _ in 0..3 {
        fill(world, PEER, TO);
        world.drain("member");
        for _ in 0..5 {
            let frame = long(world, PEER, TO);
            world.send(&[frame]);
        }
        let mut frames: Vec<_> = (0..20).map(|_| long(world, OTHER, TO)).collect();
        frames.push(long(world, PEER, TO));
        world.send(&frames);
        world.drain("member");
    }
}

/// More than are looked at (`REUSEPORT_SOCKETS`), each full with one packet but for the last.
fn large_group(world: &mut World) {
    let tiny = Udp { bind: AT, reuse_port: true, buffer_bytes: 1, ..Udp::default() };
    let (tiny, last) = world.near(|| {
        let tiny: Vec<_> = (0..64).map(|_| tiny.open()).collect();
        pick_by_fifth_byte(&tiny[0]);
        (tiny, Udp { bind: AT, reuse_port: true, ..Udp::default() }.open())
    });
    world.hashed("tiny", tiny);
    world.adopt("last", last);
    for _ in 0..2 {
        let frames: Vec<_> = (0..64).map(|pick| picked(world, PEER, pick)).collect();
        world.send(&frames);
    }
    let frames: Vec<_> = [0, 64, 64, 64].map(|pick| picked(world, PEER, pick)).into();
    world.send(&frames);
}

/// More than are looked at (`SURVEY_SOCKETS`), from the last on, each full with one packet but for the first.
fn crowded(world: &mut World) {
    const TO: &str = "239.18.0.1:5000";
    world.udp("first", Udp { join: &[GROUP], ..any() });
    let tiny = Udp { join: &[GROUP], buffer_bytes: 1, ..any() };
    let tiny = world.near(|| (0..72).map(|_| tiny.open()).collect());
    world.hashed("tiny", tiny);
    for _ in 0..4 {
        let frames = [long(world, PEER, TO), long(world, PEER, TO)];
        world.send(&frames);
        world.drain("first");
    }
}

fn program(world: &mut World) {
    program_of(world, ["reads", "full"]);
}

/// From 16 source ports, of which the hash takes about half to either socket.
fn program_of(world: &mut World, names: [&'static str; 2]) {
    let any = Udp { bind: AT, reuse_port: true, ..Udp::default() };
    let sockets = world.near(|| {
        let sockets = names.map(|name| {
            let buffer_bytes = if name == "full" { SMALL } else { 0 };
            Udp { buffer_bytes, ..any }.open()
        });
        pick_by_fifth_byte(&sockets[0]);
        sockets
    });
    for (name, socket) in names.into_iter().zip(sockets) {
        world.adopt(name, socket);
    }
    let (full, reads) = if names[0] == "full" { (0, 1) } else { (1, 0) };
    for (packets, pick) in [(48, full), (2, full), (32, reads)] {
        let frames: Vec<_> = (0..packets)
            .map(|i| {
                let mut payload = world.payload(LONG);
                payload[4] = pick;
                udp_packet(&format!("198.18.0.200:{}", 40_000 + i % 16), AT, &payload)
            })
            .collect();
        world.send(&frames);
    }
}

/// Two senders for each socket, found by trying; one socket is never read.
fn hashed(world: &mut World) {
    let any = Udp { bind: AT, reuse_port: true, buffer_bytes: SMALL, ..Udp::default() };
    let sockets = world.near(|| vec![any.open(), any.open()]);
    world.hashed("SO_REUSEPORT group", sockets);
    let mut ports = [Vec::new(), Vec::new()];
    for port in 40_000_u16..40_064 {
        let frame = udp_packet(&format!("198.18.0.200:{port}"), AT, &port.to_be_bytes());
        world.send(&[frame]);
        let got = world.probe("SO_REUSEPORT group");
        ports[usize::from(got[0].is_empty())].push(port);
    }
    for round in 0..3 {
        for turn in [[0; 20], [1; 20], [0; 20]] {
            let frames: Vec<_> = turn
                .iter()
                .enumerate()
                .map(|(i, socket): (usize, &usize)| {
                    let from = format!("198.18.0.200:{}", ports[*socket][i % 2]);
                    long(world, &from, AT)
                })
                .collect();
            world.send(&frames);
        }
        if round == 1 {
            world.drain("SO_REUSEPORT group");
        }
    }
}

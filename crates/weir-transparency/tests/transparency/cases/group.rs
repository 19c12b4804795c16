//! Several receivers, or one of several.

use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, SMALL, fill, long};
use crate::duel::Queues::Full;
use crate::frame::udp_packet;
use crate::socket::{Udp, pick_by_fifth_byte};
use crate::world::World;

const AT: &str = "198.18.0.1:5000";
const GROUP: &str = "239.18.0.1";

pub const CASES: &[Case] = &[
    Case {
        name: "a program picks the socket that has room",
        queues: Full,
        catches: &[Defect::GroupProgramIgnored],
        run: program,
    },
    Case {
        name: "a hash picks the full socket, or the other",
        queues: Full,
        catches: &[],
        run: hashed,
    },
    Case {
        name: "one member of a group is full",
        queues: Full,
        catches: &[Defect::MulticastFirstFull],
        run: |world| many(world, "239.18.0.1:5000"),
    },
    Case {
        name: "one receiver of a broadcast is full",
        queues: Full,
        catches: &[Defect::MulticastFirstFull],
        run: |world| many(world, "198.18.0.255:5000"),
    },
    Case {
        name: "the only member of a group is full",
        queues: Full,
        catches: &[],
        run: |world| {
            world.udp("member", Udp { join: &[GROUP], buffer_bytes: SMALL, ..any() });
            for _ in 0..3 {
                fill(world, PEER, "239.18.0.1:5000");
                fill(world, PEER, "239.18.0.1:5000");
                world.drain("member");
            }
        },
    },
    Case {
        name: "every member of a group is full",
        queues: Full,
        catches: &[],
        run: |world| {
            for name in ["first", "second", "third"] {
                world.udp(name, Udp { join: &[GROUP], buffer_bytes: SMALL, ..any() });
            }
            for _ in 0..3 {
                fill(world, PEER, "239.18.0.1:5000");
                fill(world, PEER, "239.18.0.1:5000");
                world.drain("second");
            }
        },
    },
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

/// From 16 source ports, of which the hash takes about half to either socket.
fn program(world: &mut World) {
    let any = Udp { bind: AT, reuse_port: true, ..Udp::default() };
    let sockets = world.near(|| {
        let sockets = [any.open(), Udp { buffer_bytes: SMALL, ..any }.open()];
        pick_by_fifth_byte(&sockets[0]);
        sockets
    });
    for (name, socket) in ["reads", "full"].into_iter().zip(sockets) {
        world.adopt(name, socket);
    }
    for (packets, pick) in [(48, 1), (2, 1), (32, 0)] {
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

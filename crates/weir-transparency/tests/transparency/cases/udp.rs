//! One receiver: which, and has its queue room?

use std::time::Duration;

use weir_bpf::sys::encap::receive_esp_in_udp;
use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, PEER6, SMALL, STRANGER, fill, flood, full, long};
use crate::frame::udp_packet;
use crate::socket::Udp;
use crate::world::World;

pub(super) const AT: &str = "198.18.0.1:5000";
pub(super) const FULL: Udp<'_> = Udp {
    bind: AT,
    buffer_bytes: SMALL,
    connect: None,
    reuse_port: false,
    reuse_address: false,
    only_v6: false,
    device: None,
    join: &[],
    even_only: false,
    merged: false,
};

/// `SO_RCVBUF` for 20 long packets on a veth with XDP, or for one and 20 that are merged into one.
const MERGED_BUFFER: usize = 44_000;

pub const CASES: &[Case] = &[
    full("a stranger, to a full connected socket", &[Defect::PeerIgnored], |world| {
        world.udp("full", Udp { connect: Some(PEER), ..FULL });
        fill(world, PEER, AT);
        // In one poll: the peer's packet, the stranger's, who must be told that nobody listens.
        let frames = [long(world, PEER, AT), long(world, STRANGER, AT)];
        world.send(&frames);
    }),
    full("a connected socket beside a full one", &[Defect::PortSharedIgnored], |world| {
        let any = Udp { reuse_address: true, ..FULL };
        world.udp("full", any);
        world.udp("connected", Udp { connect: Some(PEER), buffer_bytes: 0, ..any });
        fill(world, STRANGER, AT);
        let frames = [long(world, STRANGER, AT), long(world, PEER, AT)];
        world.send(&frames);
    }),
    full("a connected socket that joins a full one", &[Defect::AloneForever], |world| {
        let any = Udp { reuse_address: true, ..FULL };
        world.udp("full", any);
        fill(world, PEER, AT);
        world.udp("connected", Udp { connect: Some(PEER), buffer_bytes: 0, ..any });
        flood(world, PEER, AT, 3);
    }),
    full(
        "a socket of one address that joins a full one of any",
        &[Defect::BoundAddressIgnored],
        |world| {
            let any = Udp { reuse_address: true, ..FULL };
            world.udp("full", Udp { bind: "0.0.0.0:5000", ..any });
            fill(world, PEER, AT);
            world.udp("of one address", Udp { buffer_bytes: 0, ..any });
            flood(world, PEER, AT, 3);
        },
    ),
    full(
        "a full socket is closed, and its successor has room",
        &[Defect::NoSocketDiscarded],
        |world| {
            world.udp("first", FULL);
            fill(world, PEER, AT);
            world.drain("first");
            world.close("first");
            world.udp("successor", FULL);
            flood(world, PEER, AT, 3);
            world.close("successor");
            // Nobody: the peer is told.
            flood(world, PEER, AT, 1);
        },
    ),
    full(
        "a full socket in another's place, for another address",
        &[Defect::PlaceIsEnough],
        successors,
    ),
    full("two addresses, one port, one of them full", &[Defect::AddressForgotten], |world| {
        beside_full(world, Udp { bind: "198.18.0.2:5000", ..Udp::default() }, PEER);
    }),
    full("one address, two ports, one of them full", &[Defect::PortForgotten], |world| {
        beside_full(world, Udp { bind: "198.18.0.1:5001", ..Udp::default() }, PEER);
    }),
    full("packets of which none arrives, and one that does", &[Defect::FlightBelieved], |world| {
        world.udp("brim", FULL);
        fill(world, PEER, AT);
        world.drain("brim");
        flood(world, PEER, AT, 3);
        // They are seen not to arrive: two that would have fitted.
        let dead = [dead(world), dead(world)];
        world.send(&dead);
        flood(world, PEER, AT, 1);
        for _ in 0..3 {
            let mut frames: Vec<_> = (0..20).map(|_| self::dead(world)).collect();
            frames.push(long(world, PEER, AT));
            world.send(&frames);
        }
    }),
    full(
        "packets of which all but the last die, to a socket that is read",
        &[Defect::FlightUnbounded],
        |world| {
            // Made before, as what is known of a charge is believed for 10 ms.
            let rounds: Vec<_> = (0..4)
                .map(|_| {
                    let mut frames = vec![dead(world); 55];
                    frames.push(long(world, PEER, AT));
                    frames
                })
                .collect();
            // With room for 28, of which at most 24 are on their way at a time; at tc for 53, and 8.
            world.udp("read", Udp { buffer_bytes: 62_000, ..FULL });
            fill(world, PEER, AT);
            world.drain("read");
            for frames in &rounds {
                world.send(frames);
                world.drain("read");
            }
        },
    ),
    full("a filter that drops all but the last", &[Defect::FilterExpected], |world| {
        world.udp("picky", Udp { even_only: true, ..FULL });
        let first = |world: &mut World, first| {
            let mut payload = world.payload(LONG);
            payload[0] = first;
            udp_packet(PEER, AT, &payload)
        };
        for packets in [40, 2] {
            let frames: Vec<_> = (0..packets).map(|_| first(world, 0)).collect();
            world.send(&frames);
        }
        world.drain("picky");
        // Those that wait, as nothing is believed to be on its way to a queue that stays empty.
        let frames: Vec<_> = (0..5).map(|_| first(world, 0)).collect();
        world.send(&frames);
        let mut frames: Vec<_> = (0..20).map(|_| first(world, 1)).collect();
        frames.push(first(world, 0));
        world.send(&frames);
    }),
    full("two families, one port, one of them full", &[Defect::FamilyIgnored], |world| {
        beside_full(
            world,
            Udp { bind: "[2001:2::1]:5000", only_v6: true, ..Udp::default() },
            PEER6,
        );
    }),
    full("two IPv6 addresses, one port, one of them full", &[Defect::NetworkIsOne], |world| {
        const FIRST: &str = "[2001:2::1]:5000";
        const SECOND: &str = "[2001:2::2]:5000";
        world.udp("full", Udp { bind: FIRST, ..FULL });
        world.udp("other", Udp { bind: SECOND, ..Udp::default() });
        fill(world, PEER6, FIRST);
        let frames = [long(world, PEER6, FIRST), long(world, PEER6, SECOND)];
        world.send(&frames);
    }),
    full("packets that are merged, and fit as they are", &[Defect::MergedExpected], |world| {
        // 21 of them, where they are charged one by one, do not.
        world.udp("merging", Udp { buffer_bytes: MERGED_BUFFER, merged: true, ..FULL });
        for _ in 0..3 {
            fill(world, PEER, AT);
            world.drain("merging");
            // One that waits: to a queue that stays empty nothing is believed to be on its way.
            flood(world, PEER, AT, 1);
            flood(world, PEER, AT, 20);
            world.drain("merging");
        }
    }),
    full(
        "two lengths in one poll, to queues with little room",
        &[Defect::LentToAnyLength],
        two_lengths,
    ),
    full("segments in one piece, the last one short", &[], |world| {
        world.udp("full", FULL);
        for tail in [1, 700, 1439] {
            for _ in 0..4 {
                let payload = world.payload(8 * LONG + tail);
                world.send_segments(AT, &payload, LONG as u16);
                world.send(&[]);
            }
            world.drain("full");
        }
    }),
    full("ESP for the kernel, behind a full socket", &[Defect::EncapIgnored], esp),
    full("a packet larger than the buffer", &[Defect::EmptyQueueFull], |world| {
        world.udp("tiny", Udp { buffer_bytes: 1, ..FULL });
        for _ in 0..6 {
            flood(world, PEER, AT, 3);
            world.drain("tiny");
        }
    }),
    full("to the brim again", &[Defect::QueueHalved], |world| {
        world.udp("brim", FULL);
        for _ in 0..3 {
            fill(world, PEER, AT);
            world.drain("brim");
            for _ in 0..15 {
                flood(world, PEER, AT, 1);
            }
            world.drain("brim");
        }
    }),
    full(
        "a short packet where a long one does not fit",
        &[Defect::ShortPacketJudged, Defect::ChargeOfAnyLength],
        |world| {
            world.udp("full", FULL);
            fill(world, PEER, AT);
            let short = udp_packet(PEER, AT, &world.payload(20));
            let frames = [long(world, PEER, AT), short];
            world.send(&frames);
        },
    ),
    full("a full queue that is read", &[Defect::FullForever], |world| {
        world.udp("read at last", FULL);
        for _ in 0..3 {
            fill(world, PEER, AT);
            world.drain("read at last");
            flood(world, PEER, AT, 2);
            world.drain("read at last");
        }
    }),
    full("one queue, two ways into it", &[Defect::RoomReserved], |world| {
        world.udp("both", Udp { bind: "[::]:5000", ..FULL });
        for _ in 0..3 {
            fill(world, PEER, AT);
            world.drain("both");
            for _ in 0..8 {
                let frames = [long(world, PEER, AT), long(world, PEER6, "[2001:2::1]:5000")];
                world.send(&frames);
            }
            world.drain("both");
        }
    }),
    full("a filter that drops half", &[], |world| {
        world.udp("picky", Udp { even_only: true, ..FULL });
        for _ in 0..4 {
            for _ in 0..4 {
                let frames = [0, 1, 1, 1, 0, 1].map(|first| {
                    let mut payload = world.payload(LONG);
                    payload[0] = first;
                    udp_packet(PEER, AT, &payload)
                });
                world.send(&frames);
            }
            world.drain("picky");
        }
    }),
];

/// A full socket, another, and a packet to each in one poll.
fn beside_full(world: &mut World, other: Udp<'static>, from: &str) {
    world.udp("full", FULL);
    world.udp("other", other);
    fill(world, PEER, AT);
    let frames = [long(world, PEER, AT), long(world, from, other.bind)];
    world.send(&frames);
}

/// What an XDP program on a veth has a long packet charged: a page, and what describes it.
const CHARGE: usize = 4096 + 256;

/// Queues for 2 to 12 long packets, of which some are there already, and two short ones besides.
fn two_lengths(world: &mut World) {
    for (room, there) in [(2, 0), (3, 1), (6, 0), (8, 0), (10, 0), (12, 2), (12, 10)] {
        let buffer_bytes = room * CHARGE / 2 + CHARGE * 7 / 16;
        world.udp("mixed", Udp { buffer_bytes, ..FULL });
        // The first is looked at, and those behind it come as it did, or not.
        for short_at in [[1, 1], [1, 3], [0, 2], [3, 7]] {
            fill(world, PEER, AT);
            world.drain("mixed");
            let mut frames: Vec<_> = (0..2 * room + 6).map(|_| long(world, PEER, AT)).collect();
            for at in short_at {
                let short = udp_packet(PEER, AT, &world.payload(20));
                frames.insert(at + there, short);
            }
            let behind = frames.split_off(there);
            world.send(&frames);
            world.send(&behind);
            world.drain("mixed");
        }
        world.close("mixed");
    }
}

/// A packet whose IPv4 header's checksum is wrong.
fn dead(world: &mut World) -> Vec<u8> {
    let mut frame = long(world, PEER, AT);
    frame[24] ^= 1;
    frame
}

/// Packets with a marker of 0 are for the application, which is stopped; others for the kernel.
fn esp(world: &mut World) {
    let socket = world.near(|| {
        let socket = FULL.open();
        receive_esp_in_udp(&socket).unwrap();
        socket
    });
    world.adopt("key exchange", socket);
    let unknown = |world: &World| world.near(esp_of_unknown_state);
    let before = unknown(world);
    for (packets, marker) in [(40, 0), (2, 0), (4, 7)] {
        let frames: Vec<_> = (0..packets)
            .map(|number: u8| {
                let mut payload = world.payload(LONG);
                payload[..4].copy_from_slice(&[0, 0, 0, marker]);
                payload[4] = number;
                udp_packet(PEER, AT, &payload)
            })
            .collect();
        world.send(&frames);
    }
    for _ in before..unknown(world) {
        world.note("the kernel's ESP", b"a packet".to_vec());
    }
}

/// Packets that reached ESP in this namespace, where no state is known.
fn esp_of_unknown_state() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/xfrm_stat")
        .expect("this kernel has no xfrm statistics, which the test of kernel receivers needs");
    let line = table.lines().find(|line| line.starts_with("XfrmInNoStates")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The kernel reuses the memory of sockets that were closed, after a while.
fn successors(world: &mut World) {
    for _ in 0..12 {
        world.udp("first", FULL);
        flood(world, PEER, AT, 1);
        world.close("first");
        // A grace period (SOCK_RCU_FREE) and more.
        std::thread::sleep(Duration::from_millis(15));
        world.udp("successor", Udp { bind: "198.18.0.2:5000", ..FULL });
        fill(world, PEER, "198.18.0.2:5000");
        // Nobody: the peer is told.
        flood(world, PEER, AT, 1);
        world.close("successor");
    }
}

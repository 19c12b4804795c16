//! Where weir is not transparent, and says so: docs/testing.md. Each is tried, so that the list stays true.

use socket2::{Domain, Protocol, Socket, Type};

use super::udp::{AT, FULL};
use super::{Case, PEER, fill, flood, full, long};
use crate::frame::udp_fragments;

pub const CASES: &[Case] = &[
    full("a raw socket sees what a full socket does not get", &[], |world| {
        world.raw("raw", || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap());
        world.udp("full", FULL);
        fill(world, PEER, AT);
        flood(world, PEER, AT, 5);
    }),
    full("the application reads between a discarded head and its tail", &[], |world| {
        world.udp("drained", FULL);
        fill(world, PEER, AT);
        let payload = world.payload(2 * 1448 - 8);
        let parts = udp_fragments(PEER, AT, world.fragment_id(1), &payload, &[0, 1448]);
        let busy = long(world, PEER, AT);
        world.send(&[busy, parts[0].clone()]);
        world.drain("drained");
        world.send(&parts[1..]);
    }),
];

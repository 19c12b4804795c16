//! Directed cases: each drives one rule of the gate.

pub mod exceptions;
mod fragments;
mod group;
mod nat;
mod parsing;
mod plain;
mod tcp;
mod udp;

use weir_bpf::verdict::Defect;

use crate::duel::Queues;
use crate::frame::udp_packet;
use crate::world::World;

/// One sequence of packets, and of what applications do meanwhile.
pub struct Case {
    pub name: &'static str,
    pub queues: Queues,
    /// What of the gate it is there to find broken.
    pub catches: &'static [Defect],
    pub run: fn(&mut World),
}

/// A case in which no queue is ever full.
const fn free(name: &'static str, catches: &'static [Defect], run: fn(&mut World)) -> Case {
    Case { name, queues: Queues::Free, catches, run }
}

/// A case in which some queues are.
const fn full(name: &'static str, catches: &'static [Defect], run: fn(&mut World)) -> Case {
    Case { name, queues: Queues::Full, catches, run }
}

pub fn all() -> Vec<&'static Case> {
    [
        plain::CASES,
        parsing::CASES,
        udp::CASES,
        group::CASES,
        fragments::CASES,
        tcp::CASES,
        nat::CASES,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A payload of which each packet is charged a whole page by any XDP program on a veth, whatever was
/// received before it.
pub const LONG: usize = 1440;
/// `SO_RCVBUF` for 7 such packets, or 13 where there is no XDP program; with a rest that a short one
/// fits into.
pub const SMALL: usize = 16_000;

pub const PEER: &str = "198.18.0.200:40000";
const STRANGER: &str = "198.18.0.200:40001";
const PEER6: &str = "[2001:2::200]:40000";

/// Sends so many long packets to an address.
fn flood(world: &mut World, from: &str, to: &str, packets: usize) {
    let frames: Vec<_> = (0..packets).map(|_| long(world, from, to)).collect();
    world.send(&frames);
}

fn long(world: &mut World, from: &str, to: &str) -> Vec<u8> {
    udp_packet(from, to, &world.payload(LONG))
}

/// Fills a stopped application's queue; then enough is refused for the gate to know.
fn fill(world: &mut World, from: &str, to: &str) {
    flood(world, from, to, 40);
    flood(world, from, to, 2);
}

//! Listeners whose accept queue is over its limit, and everybody else on their port.

use weir_bpf::verdict::Defect;

use super::{Case, LONG, PEER, SMALL, fill, full, long};
use crate::peer::{ACK, FIN, Peer, RST, SYN};
use crate::socket::Udp;
use crate::world::World;

const AT: &str = "198.18.0.1:5000";
const AT6: &str = "[2001:2::1]:5000";

pub const CASES: &[Case] = &[
    full("accept queues to their limits and one beyond", &[Defect::BacklogAtLimit], |world| {
        for (name, to, backlog) in
            [("0", AT, 0), ("1", "198.18.0.1:5001", 1), ("8", "[2001:2::1]:5008", 8)]
        {
            world.listen(name, to, backlog);
            for number in 0..backlog as u16 + 3 {
                Peer::connect(world, number, to);
            }
            // The application wakes up; there is room again.
            world.drain(name);
            Peer::connect(world, 15, to);
        }
    }),
    full("a connection's data, past a full accept queue", &[Defect::SegmentAsSyn], |world| {
        for (name, to) in [("server", AT), ("IPv6 server", AT6)] {
            let Some(mut peer) = served_and_full(world, name, to) else { return };
            for _ in 0..3 {
                let payload = world.payload(500);
                world.send(&[peer.data(&payload)]);
            }
            world.send(&[peer.segment(FIN | ACK, b"")]);
            world.drain(name);
        }
    }),
    full("a connection's SYN, behind one that is discarded", &[Defect::SynOfConnection], |world| {
        let Some(peer) = served_and_full(world, "server", AT) else { return };
        let mut newcomer = Peer::new(world, 9, AT);
        // In one poll. The connection's is answered (RFC 5961), lest it hang.
        world.send(&[newcomer.syn(), peer.syn_again()]);
    }),
    full("an answer to nobody's SYN, past a full accept queue", &[Defect::SynAckAsSyn], |world| {
        if served_and_full(world, "server", AT).is_none() {
            return;
        }
        let stranger = Peer::new(world, 9, AT);
        world.send(&[stranger.segment(SYN | ACK, b"")]);
    }),
    full("a listener on a full UDP socket's port", &[], |world| {
        let full = Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() };
        world.udp("full", full);
        world.listen("server", AT, 5);
        fill(world, PEER, AT);
        let mut client = Peer::new(world, 9, AT);
        let frames = [long(world, PEER, AT), client.syn()];
        world.send(&frames);
    }),
    full("a connection on a full UDP socket's port", &[], |world| {
        world.listen("server", AT, 5);
        let Some(mut client) = Peer::connect(world, 0, AT) else { return };
        world.udp("full", Udp { bind: AT, buffer_bytes: SMALL, ..Udp::default() });
        fill(world, PEER, AT);
        let payload = world.payload(LONG);
        let frames = [long(world, PEER, AT), client.data(&payload)];
        world.send(&frames);
        world.drain("server");
    }),
    full("a reset, past a full accept queue", &[], |world| {
        let Some(peer) = served_and_full(world, "server", AT) else { return };
        world.send(&[peer.segment(RST | ACK, b"")]);
        world.drain("server");
        Peer::connect(world, 12, AT);
    }),
];

/// A connection that is accepted, and then as many as the accept queue takes.
fn served_and_full(world: &mut World, name: &'static str, to: &str) -> Option<Peer> {
    world.listen(name, to, 1);
    let peer = Peer::connect(world, 0, to)?;
    world.drain(name);
    for number in 1..4 {
        Peer::connect(world, number, to);
    }
    Some(peer)
}

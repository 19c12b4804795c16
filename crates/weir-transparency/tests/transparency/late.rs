//! What the kernel drops although the gate could have known.

use weir_bpf::attach::AttachMode;
use weir_bpf::verdict::{Reason, Verdict};

use crate::cases::{LONG, PEER, SMALL};
use crate::duel::Duel;
use crate::frame::udp_packet;
use crate::socket::Udp;
use crate::turn;
use crate::world::World;

/// How often the queue is filled, and read.
const ROUNDS: usize = 20;
/// `SO_RCVBUF` for 9 long packets on a veth with XDP: one more than GRO brings at once.
const NINE: usize = 20_000;
/// Packets of a piece.
const PIECE: usize = 21;

/// What was discarded, and what the kernel dropped, of so many rounds of a burst that is sent to a socket
/// twice before it reads. What has to be learned is learned before.
fn rounds(mut duel: Duel, socket: Udp<'_>, pass: Reason, burst: impl Fn(&mut World)) -> (u64, u64) {
    duel.with.start_numbers();
    duel.with.udp("receiver", socket);
    let round = |duel: &mut Duel| {
        burst(&mut duel.with);
        burst(&mut duel.with);
        duel.with.drain("receiver");
    };
    let now = |duel: &Duel| {
        let counters = duel.counters();
        let (passed, discarded) = (counters.get(pass), counters.verdict(Verdict::Discard));
        (passed.packets, discarded.packets, duel.with.received("receiver") as u64)
    };
    (0..3).for_each(|_| round(&mut duel));
    let before = now(&duel);
    (0..ROUNDS).for_each(|_| round(&mut duel));
    let after = now(&duel);
    let (passed, discarded, received) =
        (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    duel.with.finish();
    println!("{discarded} discarded, {passed} passed, {received} received");
    (discarded, passed - received)
}

/// A NAPI poll brings more than a group's only member has room for.
#[test]
fn what_a_groups_member_has_no_room_for_is_discarded() {
    let _turn = turn();
    let member =
        Udp { bind: "0.0.0.0:5000", join: &["239.18.0.1"], buffer_bytes: NINE, ..Udp::default() };
    for mode in [AttachMode::Native, AttachMode::Tcx] {
        let frames = vec![udp_packet(PEER, "239.18.0.1:5000", &[0; LONG]); 60];
        // What is believed of a queue is too old after each moment for which the CPU was away.
        let mut seen = Vec::new();
        let found = (0..3).any(|_| {
            let reason = Reason::MulticastRoom;
            let now = rounds(Duel::new(mode), member, reason, |world| world.send(&frames));
            seen.push(now);
            now.0 > 1_000 && now.1 * 200 < now.0
        });
        assert!(found, "{mode:?}: {seen:?}");
    }
}

/// A sender's datagrams that come as one, of which the last is short and may fit by itself.
#[test]
fn what_comes_in_one_piece_is_discarded_although_its_end_is_short() {
    let _turn = turn();
    let socket = Udp { bind: "198.18.0.1:5000", buffer_bytes: SMALL, ..Udp::default() };
    // NAPI hands on eight of them in one go, and what is in the first is not counted for the others.
    let duel = Duel::packet_by_packet(AttachMode::Tcx);
    let (discarded, late) = rounds(duel, socket, Reason::UdpRoom, |world| {
        for _ in 0..3 {
            let payload = world.payload((PIECE - 1) * LONG + 1);
            world.send_segments("198.18.0.1:5000", &payload, LONG as u16);
        }
        world.send(&[]);
    });
    // Each burst has its mark. What fits in part must pass: once each time that the queue is filled.
    let late = late - 2 * ROUNDS as u64;
    assert!(discarded > 1_000 && late <= (ROUNDS * PIECE) as u64, "{discarded} {late}");
}

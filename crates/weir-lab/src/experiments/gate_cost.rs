//! `gate-cost` (LRP 4.2: the cost of soft demultiplexing).
//!
//! A discard and a pass of each row on the real path.

use weir_bpf::bare::Bare;

use super::shared::*;
use crate::apps::unread::{FULL_PORT, ROOM_PORT, SOCKET_BITS};

/// A row whose gate discarded less than this share of the packets does not tell what discarding costs.
const DISCARDED_MIN: f64 = 0.99;
/// An interval of differences is that of their ratios to this.
const ONE_NS: f64 = 1.0;

/// Of what, and whether over IPv6.
type Kind = (&'static str, Transport, bool);
const KINDS: [Kind; 4] = [
    ("udp4", Transport::Udp, false),
    ("udp6", Transport::Udp, true),
    ("tcp-syn4", Transport::TcpSyn, false),
    ("tcp-syn6", Transport::TcpSyn, true),
];

/// How packets are spread: random bits of source address, source port, destination port.
type Pattern = (&'static str, (u8, u8, u8));
/// 2 M flows are more than any table of the gate's could hold.
const PATTERNS: [Pattern; 4] = [
    ("1-flow", (0, 0, 0)),
    ("64-flows", (3, 3, 0)),
    ("2M-flows", (7, 14, 0)),
    ("16-sockets", (3, 3, SOCKET_BITS)),
];

pub static EXPERIMENT: Experiment = Experiment {
    name: "gate-cost",
    paper: "LRP 4.2",
    question: "what does it cost to find a packet's destination, and to discard it there?",
    found: "soft demultiplexing took about 25 of the 60 us that a packet cost",
    arms: "bare-drop,touch-drop?,bare-pass,gate",
    main: "gate",
    cases,
    loads: "top",
    times: Choice::times((200, 1000, 10), (30, 100, 3)),
    skip: |arm, case, _| match arm.bare {
        Some(Bare::Pass) => !is_pass(case),
        Some(Bare::Drop | Bare::TouchDrop) => !is_discard(case),
        None => false,
    },
    scene,
    says: "takes {} for a packet",
    merits: &[&m::ns_per_packet],
    tables: tables! {
        "Discarding, ns per packet, and the share of packets discarded"
            in Cases::Where(is_discard) => ns_per_packet, discarded_share;
        "Passing, ns per packet" in Cases::Where(is_pass) => ns_per_packet;
        "The same by CPU time, ns per packet; packets in full polls"
            in Cases::All => cpu_ns_per_packet, in_full_polls;
    },
    figure: bars("Cost of a packet", &m::ns_per_packet),
    goals: goals! {
        "gate: rate of discarding, of a bare XDP_DROP's, every row" =>
            find(discarding), AtLeast(0.75);
        "gate: added to a packet that passes, ns, every row" => find(passing), AtMost(40.0);
    },
    notes: "The figure is the median time of NAPI polls that took a whole budget right after another: \
            they never wait. What passes the driver ends at the ingress hook, after the skb is built.",
    ..USUAL
};

fn is_discard(case: &str) -> bool {
    case.ends_with("-discard")
}

fn is_pass(case: &str) -> bool {
    case.ends_with("-pass")
}

fn rows() -> impl Iterator<Item = (String, Kind, Pattern)> {
    let pairs = KINDS.into_iter().flat_map(|kind| PATTERNS.map(|pattern| (kind, pattern)));
    // What depends on the pattern is the same for every kind: the others have the first two.
    let all = pairs
        .filter(|((kind, ..), (_, bits))| *kind == "udp4" || bits.0 + bits.1 <= 6 && bits.2 == 0);
    all.map(|(kind, pattern)| (format!("{}-{}", kind.0, pattern.0), kind, pattern))
}

fn cases() -> Vec<Case> {
    let of_row = |(name, kind, pattern): (String, Kind, Pattern)| {
        let quick = kind.0 == "udp4" || pattern.0 == "64-flows";
        ["discard", "pass"].map(|end| Case { quick, ..Case::always(format!("{name}-{end}")) })
    };
    rows().flat_map(of_row).collect()
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let mut scene = Scene {
        apps: vec![App::new(AppKind::Unread, FULL_PORT, Role::Other)],
        needs: vec![Need::OtherFamily],
        watch: Some(Watch::Polls),
        books: Books::Ring,
        sink: is_pass(ask.case),
        ..Scene::default()
    };
    let row = rows().find(|(name, ..)| ask.case.starts_with(&format!("{name}-")));
    if let Some((_, (_, transport, ipv6), (_, (address_bits, port_bits, socket_bits)))) = row {
        let port = if scene.sink { ROOM_PORT } else { FULL_PORT };
        scene.flows.push(Flow {
            transport,
            sources: Sources::Random { address_bits, port_bits },
            from_port: RANDOM_PORTS,
            to: if ipv6 { To::OtherFamily } else { To::Host },
            port_bits: socket_bits,
            ..Flow::udp(port, ask.load)
        });
    }
    Ok(scene)
}

/// Per row, a bare drop's time divided by the gate's.
fn discarding(view: &View<'_>) -> Vec<Found> {
    in_each(view, Cases::Where(is_discard), |case| {
        let share = view.get("gate", case, Load::Top, &m::discarded_share)?;
        let place = format!("{case}: {:.1} % discarded", share * 100.0);
        if share < DISCARDED_MIN {
            return Some(Found::unknown(place));
        }
        compare(times(view, ["bare-drop", "gate"], case), place)
    })
}

/// Per row, what the gate's pass takes more than a bare one.
fn passing(view: &View<'_>) -> Vec<Found> {
    in_each(view, Cases::Where(is_pass), |case| {
        let times = times(view, ["gate", "bare-pass"], case).into_iter();
        compare(times.map(|(gate, bare)| (gate - bare, ONE_NS)), case)
    })
}

fn times(view: &View<'_>, arms: [&str; 2], case: &str) -> Vec<Pair> {
    let [one, other] = arms.map(|arm| (arm, case, Load::Top));
    view.pairs(one, other, &m::ns_per_packet)
}

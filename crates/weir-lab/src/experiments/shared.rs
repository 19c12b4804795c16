//! What experiments share: the names that their declarations are made of, what most of them have in common,
//! floods by name, and references measured without a flood.

pub(super) use std::time::Duration;

use crate::arm::{LABELS, QUIET};
use crate::experiment::Figure;
use crate::scene::CLOSED_PORT;

pub(super) use crate::apps::udp;
pub(super) use crate::arm::BASELINES;
pub(super) use crate::error::{Error, Result};
pub(super) use crate::experiment::{
    Against, Ask, At, BEST, Case, Cases, Choice, Experiment, Found, Goal, List, Search, words,
};
pub(super) use crate::goals::{
    compare, find, nothing_discarded, place, ratio, unsent, while_ring_holds,
};
pub(super) use crate::metric::{Metric, m};
pub(super) use crate::run::{Load, Trial};
pub(super) use crate::scene::{
    App, AppKind, Beside, Books, Client, ECHO_PORT, FLOODED_PORT, Flow, From, LIGHT_PORT, Need,
    RANDOM_PORTS, Role, Scene, To, Watch,
};
pub(super) use crate::stats::median;
pub(super) use crate::view::{Pair, Point, View};
pub(super) use weir_bpf::traffic::{Lengths, Sources, Transport};

/// What an experiment has that it does not declare otherwise.
pub(super) const USUAL: Experiment = Experiment {
    name: "",
    paper: "",
    question: "",
    found: "",
    needs: &[],
    arms: "",
    main: "weir-native",
    says: "",
    cases: Vec::new,
    loads: "",
    times: Choice::times((300, 1000, 10), (50, 200, 3)),
    skip: |_, _, _| false,
    scene: |_| Ok(Scene::default()),
    derive: None,
    merits: &[],
    searches: &[],
    tables: &[],
    figure: bars("", &m::offered_pps),
    goals: Vec::new,
    notes: "",
};

/// Tables: of each its title, the cases of its rows, and the metrics of a cell.
macro_rules! tables {
    ($($title:literal in $cases:expr => $($metric:ident),+;)*) => {
        &[$(crate::experiment::Table {
            title: $title,
            figures: &[$(&crate::metric::m::$metric),+],
            cases: $cases,
        }),*]
    };
}
pub(super) use tables;

/// weir, and the same with its gate in the driver: goals are for both.
pub(super) const WEIRS: List = "weir-native,weir";

/// What computes on the tested CPU meanwhile: the end of a case's name.
pub(super) const BESIDE: [(&str, Option<Beside>); 6] = [
    ("", None),
    ("+hog", Some(Beside::Hog(0))),
    ("+nice-19", Some(Beside::Hog(19))),
    ("+idle", Some(Beside::IdleHog)),
    ("+group", Some(Beside::GroupHog)),
    ("+bursts", Some(Beside::Bursts)),
];
pub(super) const ALONE: Cases = Cases::Where(|case| !case.contains('+'));
pub(super) const ACCOMPANIED: Cases = Cases::Where(|case| case.contains('+'));

/// The rest of a case's name, and what its end says.
pub(super) fn accompanied(case: &str) -> (&str, Option<Beside>) {
    let (rest, end) = case.split_at(case.find('+').unwrap_or(case.len()));
    (rest, BESIDE.into_iter().find(|(name, _)| *name == end).and_then(|(_, beside)| beside))
}

/// Goals: of each its text and its bound, and for each of these arms its figure in these cases, at these loads, against
/// this; or for each of these arms what finds its points, and the cases that it is about; or that without arms.
macro_rules! goals {
    ($($text:literal => $kind:ident $what:tt, $bound:expr;)* $(also $goal:expr;)*) => {
        || {
            #[allow(unused_imports, reason = "not every experiment needs each")]
            use crate::experiment::{Against::*, At::*, Bound::*};
            let goals = [$(goals!(@$kind $text, $what, $bound),)* $(vec![$goal]),*];
            goals.into_iter().flatten().collect()
        }
    };
    (@figure $text:expr, ($arms:expr, $cases:expr, $at:expr, $metric:ident, $against:expr), $bound:expr) => {
        Goal::of_arms($arms, $text, $cases, $bound, |view, arm| {
            find(view, arm, $cases, $at, &m::$metric, $against)
        })
    };
    (@of $text:expr, ($arms:expr, $find:expr $(, $about:expr)?), $bound:expr) => {
        Goal::of_arms($arms, $text, [$($about,)? Cases::All][0], $bound, $find)
    };
    (@find $text:expr, ($find:expr $(, $about:expr)?), $bound:expr) => {
        vec![Goal::new($text, [$($about,)? Cases::All][0], $bound, $find)]
    };
}
pub(super) use goals;

/// A line for each arm over the loads of a case.
pub(super) const fn lines(title: &'static str, case: &'static str, y: &'static Metric) -> Figure {
    Figure { title, case: Some(case), y }
}

pub(super) const fn bars(title: &'static str, y: &'static Metric) -> Figure {
    Figure { title, case: None, y }
}

/// What is found in each of these cases that a run has.
pub(super) fn in_each<F: IntoIterator<Item = Found>>(
    view: &View<'_>,
    cases: Cases,
    find: impl Fn(&str) -> F,
) -> Vec<Found> {
    let cases = view.cases().into_iter().filter(|case| cases.has(&case.name)).map(|case| case.name);
    let found = |case: String| find(&case).into_iter().map(move |found| found.of(&case));
    cases.flat_map(found).collect()
}

/// An arm's late drops, of all that it drops or discards, from the first packet on, at each point of the grid at which
/// that is anything to speak of.
pub(super) fn late_of_discards(view: &View<'_>, arm: &str) -> Vec<Found> {
    let late = |point: &Point| {
        let (late, discarded) = (point.get(&m::late_drop_pps)?, point.get(&m::discarded_pps)?);
        let much = late + discarded > 0.01 * point.get(&m::offered_pps)?;
        let trials = view.trials_of(arm, &point.case, point.load).filter(|_| much);
        let of = |trial: &Trial| {
            let ledger = trial.ledger?;
            Some((ledger.late() as f64, (ledger.late() + ledger.discarded) as f64))
        };
        let found = compare(trials.filter_map(of), place(view, &point.case, point.load));
        found.map(|found| found.of(&point.case))
    };
    let cases = view.cases();
    let of_arm = |point: &&Point| point.arm == arm && cases.iter().any(|c| c.name == point.case);
    view.points.iter().filter(of_arm).filter_map(late).collect()
}

/// The application that is flooded, and a second one that stands by, asleep, as on any host.
pub(super) fn receivers() -> Vec<App> {
    let app = |port, role| App::sink(Duration::ZERO, port, role);
    vec![app(FLOODED_PORT, Role::Flooded), app(LIGHT_PORT, Role::Light)]
}

/// The echo server, started for each trial.
pub(super) fn echo(role: Role) -> App {
    let server =
        udp::Server { ages: Some(udp::Turn::SOME), ..udp::Server::echo(Default::default()) };
    App { per_trial: true, ..App::new(AppKind::Udp(server), ECHO_PORT, role) }
}

/// A flow in bursts, short enough to be received before the next, to a receiver that takes the ages of the packets of
/// a turn; a turn is of one burst. Without a packet a process computes when nobody else wants the CPU.
pub(super) fn in_bursts(ask: &Ask<'_>, turn: udp::Turn, length: u16) -> Scene {
    let server = udp::Server { ages: Some(turn), ..udp::Server::sink(Duration::ZERO) };
    let app = App::new(AppKind::Udp(server), FLOODED_PORT, Role::Flooded);
    let burst = |flow| Flow { burst: turn.of as u16, lengths: Lengths::One(length), ..flow };
    Scene {
        apps: vec![App { per_trial: true, ..app }],
        flows: ask.flood(FLOODED_PORT).map(burst).into_iter().collect(),
        beside: Some(Beside::Spinner),
        ..Scene::default()
    }
}

/// But in `untraced`, the steps of packets are watched.
pub(super) const TRACED: Cases = Cases::Where(|case| case != "untraced");

/// The same of short packets, with their steps.
pub(super) fn traced(ask: &Ask<'_>, turn: udp::Turn) -> Scene {
    let watch = TRACED.has(ask.case).then_some(Watch::Steps(turn));
    Scene { watch, ..in_bursts(ask, turn, 18) }
}

/// An arm's age of packets that come alone, of that where none is traced, at each point.
pub(super) fn of_untraced(view: &View<'_>) -> Vec<Found> {
    let points = view.points.iter().filter(|point| point.case == "alone");
    let found = |point: &Point| {
        let at = |case| (point.arm.as_str(), case, point.load);
        compare(view.pairs(at("alone"), at("untraced"), &m::age_p50_us), point.arm.clone())
    };
    points.filter_map(found).collect()
}

/// At the top load every sort of packets but the last is sent at this rate, and the last at what the
/// generator can do beyond that.
const EACH_AT_TOP: Load = Load::Rate(1_000_000.0);

/// A flood of the kind that the last word of a case names: a mix of lengths or sources, or other packets.
pub(super) fn of_kind(case: &str, flow: Flow) -> Flow {
    match case.rsplit('-').next() {
        Some("mixed") => Flow { lengths: Lengths::Uniform { from: 18, to: 1472 }, ..flow },
        Some("dns") => Flow { lengths: Lengths::dns(), ..flow },
        Some("sources") => Flow { sources: Sources::Some(100), ..flow },
        // To a port without a socket.
        Some("closed") => Flow { port: CLOSED_PORT, ..flow },
        Some("icmp") => Flow { transport: Transport::Echo, from_port: 1, port: 1, ..flow },
        // With an IPv4 option of a type that nobody knows, and a byte like a source route's.
        Some("options") => Flow { options: vec![0x1e, 4, 131, 0], ..flow },
        _ => flow,
    }
}

/// Gives each sort of packets its part of a load.
pub(super) fn share_out(mut sorts: Vec<Flow>, load: Load) -> Vec<Flow> {
    let count = sorts.len();
    for (index, flow) in sorts.iter_mut().enumerate() {
        flow.load = match load {
            Load::Rate(rate) => Load::Rate(rate / count as f64),
            load if index + 1 == count => load,
            _ => EACH_AT_TOP,
        };
    }
    sorts
}

/// TCP segments of this kind from everywhere; what answers them is dropped ([`Need::AnswersDropped`]).
pub(super) fn segments(transport: Transport, port: u16, flow: Flow) -> Flow {
    Flow {
        transport,
        sources: Sources::Random { address_bits: 16, port_bits: 15 },
        from: From::FloodNet,
        from_port: RANDOM_PORTS,
        port,
        ..flow
    }
}

/// First and last ones, from many: the two sorts share the upper half of a subnet.
pub(super) fn fragments(flow: &Flow) -> [Flow; 2] {
    [(128, Transport::FirstFragment), (192, Transport::LastFragment)].map(|(last, transport)| {
        Flow {
            from: From::Last(last),
            sources: Sources::Random { address_bits: 6, port_bits: 0 },
            transport,
            ..flow.clone()
        }
    })
}

/// Whether references are measured in an arm: see [`QUIET`].
pub(super) fn is_quiet(arm: &str) -> bool {
    QUIET.contains(&kind(arm))
}

/// An arm's name without options. Both sides of a comparison of builds stand for weir.
fn kind(arm: &str) -> &str {
    if LABELS.iter().any(|label| arm.starts_with(label)) {
        return "weir-native";
    }
    arm.split(' ').next().unwrap_or_default()
}

/// A figure's median over the trials of these cases at load 0, in the quietest arm that has any.
pub(super) fn unloaded(
    trials: &[Trial],
    cases: Cases,
    figure: fn(&Trial) -> Option<f64>,
) -> Option<f64> {
    QUIET.iter().find_map(|quiet| {
        let is_of =
            |t: &&Trial| t.load == Load::Off && kind(&t.arm) == *quiet && cases.has(&t.case);
        median(trials.iter().filter(is_of).filter_map(figure))
    })
}

/// Sets `hog_work`: the hog's passes, of those that it makes with the CPU to itself, in case `unloaded`.
pub(super) fn hog_work(trials: &mut [Trial]) {
    let alone = unloaded(trials, Cases::Of(&["unloaded"]), |trial| trial.get(&m::hog_per_s));
    for trial in trials {
        let work = trial.get(&m::hog_per_s).zip(alone).map(|(per_s, alone)| per_s / alone);
        trial.set(&m::hog_work, work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;
    use crate::run::Ledger;

    #[test]
    fn a_gate_that_discards_nothing_drops_all_late() {
        let mut run = made_up::overload(&[]);
        for (case, late, discarded) in [("recv", 3e5, 0.0), ("echo", 1.0, 3e5), ("mixed", 9.0, 0.0)]
        {
            let values =
                [(&m::offered_pps, 4e5), (&m::late_drop_pps, late), (&m::discarded_pps, discarded)];
            let mut trial = made_up::trial(("weir", case, Load::Top), 0, &values);
            let (late_socket, discarded) = (late as u64, discarded as u64);
            trial.ledger = Some(Ledger { late_socket, discarded, ..Ledger::default() });
            run.trials.push(trial);
        }
        let found = late_of_discards(&View::new(&made_up::OVERLOAD, &run), "weir");
        let shares: Vec<f64> = found.iter().map(|found| found.value).collect();
        assert_eq!(shares, [1.0, 1.0 / 300_001.0]);
    }

    #[test]
    fn sorts_share_a_rate_and_the_last_has_the_rest_of_the_top() {
        let sorts = || vec![Flow::udp(1, Load::Top), Flow::udp(2, Load::Top)];
        let loads =
            |load| share_out(sorts(), load).iter().map(|flow| flow.load).collect::<Vec<_>>();
        assert_eq!(loads(Load::Rate(3e5)), [Load::Rate(1.5e5); 2]);
        assert_eq!(loads(Load::Top), [EACH_AT_TOP, Load::Top]);
    }
}

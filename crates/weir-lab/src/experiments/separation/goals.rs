//! R_ring, and what is wanted up to there.

use super::super::shared::*;
use super::{EXPERIMENT, KINDS, UDP, WEIR, WELL};
use crate::view::RING_LOSS_MAX;

/// c_gate is the cost of input where at least this share of the packets taken was discarded.
const DISCARDED_MIN: f64 = 0.9;
/// R_ring is looked for above this rate.
const LOWEST_PPS: f64 = 50_000.0;

/// The bystander's goodput beside no flood.
pub(super) fn unflooded(trials: &[Trial], arm: &str) -> f64 {
    let calm = trials.iter().filter(|t| t.arm == arm && t.case == "udp" && t.load == Load::Off);
    median(calm.filter_map(|trial| trial.get(&m::light_goodput)))
}

/// Whether a trial left the bystander well.
pub(super) fn is_well(trial: &Trial, unflooded: f64) -> bool {
    trial.get(&m::light_goodput).is_some_and(|goodput| goodput >= WELL * unflooded)
}

/// The swept rates of a case, lowest first: what was sent in the median, and whether most trials left the
/// bystander well.
fn swept(trials: &[Trial], arm: &str, case: &str) -> Vec<(f64, bool)> {
    let of: Vec<&Trial> =
        trials.iter().filter(|t| t.arm == arm && t.case == case && t.load != Load::Off).collect();
    let mut loads: Vec<Load> = of.iter().map(|trial| trial.load).collect();
    loads.sort_by(|a, b| a.pps().total_cmp(&b.pps()));
    loads.dedup();
    let at = |load: Load, figure: &Metric| {
        median(of.iter().filter(|t| t.load == load).filter_map(|trial| trial.get(figure)))
    };
    let least = WELL * unflooded(trials, arm);
    let swept = loads.into_iter();
    swept.map(|load| (at(load, &m::offered_pps), at(load, &m::light_goodput) >= least)).collect()
}

/// The highest swept rate that left the bystander well, and the next; none if that was the highest.
pub(super) fn between(trials: &[Trial], arm: &str, case: &str) -> Option<(f64, f64)> {
    let swept = swept(trials, arm, case);
    let last = swept.iter().rposition(|(_, well)| *well);
    let (high, _) = swept.get(last.map_or(0, |last| last + 1))?;
    Some((last.map_or(0.0, |last| swept[last].0).max(LOWEST_PPS), *high))
}

/// weir's R_ring: the highest flood, swept or searched, that left the bystander well.
fn found_r_ring(view: &View<'_>, case: &str) -> Option<f64> {
    let swept = swept(&view.trials, WEIR, case).into_iter();
    let search = EXPERIMENT.searches.iter().find(|search| search.of == case)?;
    let well = swept.filter(|(_, well)| *well).map(|(rate, _)| rate);
    well.chain(view.found(search, WEIR)).reduce(f64::max)
}

/// The UDP cases of a run, each with what is found at it.
fn of_udp(view: &View<'_>, found: impl Fn(&str, f64) -> Vec<Found>) -> Vec<Found> {
    in_each(view, UDP, |case| match found_r_ring(view, case) {
        Some(r_ring) => found(case, r_ring),
        None => vec![Found::exact(0.0, format!("{case}: no flood leaves it well"))],
    })
}

/// What both bystanders keep at every flood up to R_ring.
pub(super) fn bystanders(view: &View<'_>) -> Vec<Found> {
    let kept = |case: &str, load: Load, (figure, whole): (&Metric, Option<f64>)| {
        let trials = view.trials_of(WEIR, case, load);
        let pairs: Option<Vec<_>> = trials.map(|t| Some((t.get(figure)?, whole?))).collect();
        compare(pairs?, format!("{}, {}", place(view, case, load), figure.id))
    };
    let calm = unflooded(&view.trials, WEIR);
    let udp = of_udp(view, |case, r_ring| {
        let up_to = |load: &Load| {
            let sent = view.get(WEIR, case, *load, &m::offered_pps);
            *load != Load::Off && sent.is_some_and(|sent| sent <= r_ring)
        };
        let loads = view.loads(case).into_iter().filter(up_to);
        let at = |load| kept(case, load, (&m::light_goodput, Some(calm)));
        loads.filter_map(at).collect()
    });
    let of_kind = |kind: &&str| {
        let holds = |load: &Load| {
            view.point(WEIR, kind, *load).is_some_and(|p| view.ring_loss(p) <= RING_LOSS_MAX)
        };
        let loads: Vec<Load> = view.loads(kind).into_iter().take_while(holds).collect();
        if loads.is_empty() && !view.loads(kind).is_empty() {
            return vec![Found::exact(0.0, format!("{kind}: the ring overflows at any rate"))];
        }
        let calm = |figure| view.get(WEIR, "unflooded", Load::Off, figure);
        let figures = [&m::light_goodput, &m::per_s].map(|figure| (figure, calm(figure)));
        let both = |load| figures.map(|figure| kept(kind, load, figure));
        loads.into_iter().flat_map(both).flatten().collect()
    };
    udp.into_iter().chain(KINDS.iter().flat_map(of_kind)).collect()
}

/// R_ring of each mix, of what a bare `XDP_DROP` takes.
pub(super) fn of_bare(view: &View<'_>) -> Vec<Found> {
    let Some(ns) = view.get("bare-drop", "bare", Load::Top, &m::ns_per_packet) else {
        return vec![];
    };
    of_udp(view, |case, r_ring| {
        let of = format!("{case}: {:.2} of {:.2} M packets/s", r_ring / 1e6, 1e3 / ns);
        vec![Found::exact(r_ring * ns / 1e9, of)]
    })
}

/// The most that the flooded application can have while nobody else loses anything is peak x (1 - R x
/// c_gate), and no more than it is sent.
pub(super) fn of_frontier(view: &View<'_>) -> Vec<Found> {
    let full = view.trials_of(WEIR, "full-socket", Load::Top);
    let full = full.filter(|t| t.get(&m::discarded_share) >= Some(DISCARDED_MIN));
    let c_gate = median(full.filter_map(|trial| trial.get(&m::cpu_ns_per_packet))) / 1e9;
    if c_gate == 0.0 {
        return vec![];
    }
    of_udp(view, |case, r_ring| {
        let of_case = view.points.iter().filter(|point| point.case == case);
        let peak = of_case.filter_map(|point| point.get(&m::delivered_pps)).fold(0.0, f64::max);
        let searched = EXPERIMENT.searches.iter().find(|s| s.of == case).map_or("", |s| s.case);
        let points = view.points.iter().filter(|p| p.arm == WEIR && p.load != Load::Off);
        let up_to = points.filter(|p| p.case == case || p.case == searched).filter_map(|point| {
            let sent = point.get(&m::offered_pps).filter(|sent| *sent <= r_ring)?;
            let most = (peak * (1.0 - sent * c_gate)).min(sent);
            let delivered = point.spread(&m::delivered_pps).filter(|_| most > 0.0)?;
            let place = place(view, case, point.load);
            Some(Found::of(point, delivered, |delivered| delivered / most, place))
        });
        up_to.collect()
    })
}

//! From trials to the fair division (`docs/lab-json.md`, udp-overload-neighbour).

use std::collections::BTreeMap;

use super::{ALONE, BESIDE, UNLOADED};
use crate::load::Plan;
use crate::load::points::{Group, speeds};
use crate::results::Mode;
use crate::results::load::{LoadTrial, per};
use crate::results::neighbour::{NeighbourPoint, NeighbourReference, NeighbourSummary};
use crate::stats::spread;
use crate::trial::Flood;

/// What weir keeps for processes unless it is told otherwise.
const USER_SHARE: f64 = 0.5;
/// Costs are taken at the highest rate of which so much is delivered without the neighbour: there
/// nearly every packet is admitted, and both costs are those of a delivered packet.
const DELIVERED_MIN: f64 = 0.95;
/// Whose costs the division is reckoned with: the first of these that was run.
const COSTS_OF: [Mode; 5] = [Mode::Weir, Mode::IdleWeir, Mode::Gate, Mode::Threaded, Mode::Niced];

/// What is measured once for the run.
pub(super) fn reference(plan: &Plan, trials: &[LoadTrial<Mode>]) -> NeighbourReference {
    let unloaded = trials.iter().filter(|trial| trial.load.purpose == UNLOADED);
    let measured_in = |mode: &Mode| {
        let costs = costs(plan, trials, *mode)?;
        plan.modes.contains(mode).then_some((*mode, costs))
    };
    let costs = COSTS_OF.iter().find_map(measured_in);
    NeighbourReference {
        unloaded_per_s: spread(unloaded.filter_map(|trial| trial.neighbour_per_s)),
        user_share: USER_SHARE,
        costs_of: costs.map(|(mode, _)| mode),
        c_input_ns: costs.map(|(_, costs)| costs.0),
        c_app_ns: costs.map(|(_, costs)| costs.1),
    }
}

/// c_input and c_app of a mode.
fn costs(plan: &Plan, trials: &[LoadTrial<Mode>], mode: Mode) -> Option<(f64, f64)> {
    let all = (trials, speeds(trials));
    let delivered = |group: &Group<'_, Mode>| {
        group.median(|t| per(t.load.ledger.delivered, t.load.ledger.offered).unwrap_or(0.0))
    };
    plan.rates
        .iter()
        .map(|rate| Group::of(all, mode, ALONE, *rate))
        .filter(|group| delivered(group) >= DELIVERED_MIN)
        .filter_map(|group| {
            let input = group.median_of_some(LoadTrial::input_ns_per_packet)?;
            let app = |t: &LoadTrial<Mode>| per(t.flooded_cpu_ns, t.load.ledger.delivered);
            Some((input, group.median_of_some(app)?))
        })
        .next_back()
}

/// What the fair division gives at a rate: whether all fits, the application's packets/s, and the
/// neighbour's share of the CPU.
pub(super) fn division(
    reference: &NeighbourReference,
    offered_pps: f64,
) -> Option<(bool, f64, f64)> {
    let c_input = reference.c_input_ns? / 1e9;
    let c_app = reference.c_app_ns? / 1e9;
    let half = reference.user_share / 2.0;
    let (input, app) = (offered_pps * c_input, offered_pps * c_app);
    Some(if input <= 1.0 - reference.user_share && app <= half {
        (true, offered_pps, 1.0 - input - app)
    } else {
        (false, offered_pps.min(half / c_app), half)
    })
}

/// Per mode, one point per rate.
pub(super) fn series(
    plan: &Plan,
    trials: &[LoadTrial<Mode>],
    reference: &NeighbourReference,
) -> BTreeMap<Mode, Vec<NeighbourPoint>> {
    let all = (trials, speeds(trials));
    let points = |mode: &Mode| {
        let point = |rate: &Flood| {
            let alone = Group::of(all, *mode, ALONE, *rate);
            point(*rate, &alone, &Group::of(all, *mode, BESIDE, *rate), reference)
        };
        (*mode, plan.rates.iter().map(point).collect())
    };
    plan.modes.iter().map(points).collect()
}

fn point(
    rate: Flood,
    alone: &Group<'_, Mode>,
    beside: &Group<'_, Mode>,
    reference: &NeighbourReference,
) -> NeighbourPoint {
    let unloaded = reference.unloaded_per_s.median;
    let work = |trial: &LoadTrial<Mode>| match trial.neighbour_per_s {
        Some(per_s) if unloaded > 0.0 => per_s / unloaded,
        _ => 0.0,
    };
    let offered_pps = beside.median(|t| t.load.offered_pps);
    let division = division(reference, offered_pps);
    NeighbourPoint {
        target_pps: rate.target_pps(),
        offered_pps,
        alone_pps: alone.median(|t| t.load.delivered_pps),
        delivered_pps: beside.median(|t| t.load.delivered_pps),
        delivered: beside.spread(|t| t.load.delivered_pps),
        work: beside.median(work),
        work_range: beside.spread(work),
        neighbour_cpu: beside.median(|t| t.neighbour_cpu.unwrap_or(0.0)),
        input_cpu: beside.input_cpu(),
        nic_drop_pps: beside.median(|t| t.load.nic_drop_pps),
        discarded_pps: beside.median(|t| t.load.discarded_pps),
        late_drop_pps: beside.median(|t| t.load.late_drop_pps),
        age_p50_us: beside.median_of_some(|t| t.load.age_p50_us),
        age_p99_us: beside.median_of_some(|t| t.load.age_p99_us),
        fits: division.map(|(fits, _, _)| fits),
        fair_pps: division.map(|(_, pps, _)| pps),
        fair_work: division.map(|(_, _, work)| work),
        conditions: beside.conditions(),
    }
}

/// Per mode, the sweep beside the neighbour in some figures.
pub(super) fn summary(
    series: &BTreeMap<Mode, Vec<NeighbourPoint>>,
) -> BTreeMap<Mode, NeighbourSummary> {
    let of = |points: &Vec<NeighbourPoint>| {
        let peak_pps = points.iter().map(|point| point.delivered_pps).fold(0.0, f64::max);
        let highest = points.iter().max_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps));
        let overload_pps = highest.map_or(0.0, |point| point.delivered_pps);
        NeighbourSummary {
            peak_pps,
            overload_pps,
            retained: if peak_pps > 0.0 { overload_pps / peak_pps } else { 0.0 },
            overload_work: highest.map_or(0.0, |point| point.work),
        }
    };
    series.iter().map(|(mode, points)| (*mode, of(points))).collect()
}

//! From trials to points, c_gate, R_ring and the frontier.

use std::collections::BTreeMap;

use super::{FULL_SOCKET, R_RING, SWEEP, VICTIM_PPS};
use crate::load::Plan;
use crate::load::points::{Group, speeds};
use crate::results::Mode;
use crate::results::load::{LoadTrial, per};
use crate::results::separation::{SeparationPoint, SeparationReference, SeparationSummary};
use crate::stats::{median, median_of_some, spread};
use crate::trial::Flood;

/// A victim is well while it keeps this share of its unflooded goodput.
pub(super) const WELL: f64 = 0.95;
/// c_gate is told where at least this share of the packets taken was discarded.
const DISCARDED_MIN: f64 = 0.9;
/// What the flooded application is to keep of what the frontier leaves it.
pub(super) const OF_FRONTIER: f64 = 0.8;

/// What was measured once for the run.
pub(super) fn reference(bare_ns: &[f64], trials: &[LoadTrial<Mode>]) -> SeparationReference {
    let bare_drop_ns = spread(bare_ns.iter().copied());
    let ns = bare_drop_ns.median;
    SeparationReference {
        victim_pps: VICTIM_PPS.0,
        bare_drop_ns,
        bare_drop_pps: if ns > 0.0 { 1e9 / ns } else { 0.0 },
        peak_pps: peak_pps(trials),
    }
}

/// The highest median of what the flooded application received at a swept rate, in any mode.
fn peak_pps(trials: &[LoadTrial<Mode>]) -> f64 {
    let mut by_point: BTreeMap<(Mode, Option<u64>), Vec<f64>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.load.purpose == SWEEP) {
        let point = (trial.key, trial.load.target_pps.map(f64::to_bits));
        by_point.entry(point).or_default().push(trial.load.delivered_pps);
    }
    by_point.into_values().map(median).fold(0.0, f64::max)
}

/// Share of what the victim was sent that it received.
pub(super) fn goodput(trial: &LoadTrial<Mode>) -> f64 {
    let sent = trial.load.bystander_offered_pps;
    if sent > 0.0 { trial.load.bystander_delivered_pps / sent } else { 0.0 }
}

/// The victim's goodput without a flood.
pub(super) fn unflooded(trials: &[LoadTrial<Mode>], mode: Mode) -> f64 {
    let of_it = |t: &&LoadTrial<Mode>| {
        t.key == mode && t.load.purpose == SWEEP && t.load.target_pps == Flood::Off.target_pps()
    };
    median(trials.iter().filter(of_it).map(goodput))
}

/// CPU time of input per packet where nearly all are discarded.
pub(super) fn c_gate_ns(trials: &[LoadTrial<Mode>], mode: Mode) -> Option<f64> {
    let full = trials.iter().filter(|t| t.key == mode && t.load.purpose == FULL_SOCKET);
    median_of_some(full.map(|trial| {
        let share = per(trial.load.ledger.discarded, trial.taken())?;
        (share >= DISCARDED_MIN).then(|| trial.input_ns_per_packet())?
    }))
}

/// The rates really sent at the highest swept rate at which the victim was well, and at the next
/// higher; `None` where it was well at the highest, or nothing was swept.
pub(super) fn r_ring_between(
    plan: &Plan,
    trials: &[LoadTrial<Mode>],
    mode: Mode,
) -> Option<(f64, f64)> {
    let unflooded = unflooded(trials, mode);
    let all = (trials, speeds(trials));
    let swept: Vec<(f64, bool)> = plan
        .rates
        .iter()
        .map(|rate| {
            let group = Group::of(all, mode, SWEEP, *rate);
            let well = group.median(goodput) >= WELL * unflooded;
            (group.median(|t| t.load.offered_pps), well)
        })
        .collect();
    let last_well = swept.iter().rposition(|(_, well)| *well);
    let (high, _) = swept.get(last_well.map_or(0, |position| position + 1))?;
    Some((last_well.map_or(0.0, |position| swept[position].0), *high))
}

/// Points and summaries, which need each other: the frontier needs c_gate.
pub(super) fn series_and_summary(
    plan: &Plan,
    rates: &[Flood],
    trials: &[LoadTrial<Mode>],
    reference: &SeparationReference,
) -> (BTreeMap<Mode, Vec<SeparationPoint>>, BTreeMap<Mode, SeparationSummary>) {
    let (mut all_points, mut all_summaries) = (BTreeMap::new(), BTreeMap::new());
    for mode in &plan.modes {
        let all = (trials, speeds(trials));
        let unflooded = unflooded(trials, *mode);
        let mut points: Vec<SeparationPoint> = rates
            .iter()
            .map(|rate| point(*rate, &Group::of(all, *mode, SWEEP, *rate), unflooded))
            .collect();
        let mut summary = summary(&points);
        summary.c_gate_ns = c_gate_ns(trials, *mode);
        summary.r_ring_pps = r_ring(&points, trials, *mode, unflooded);
        for point in points.iter_mut().filter(|point| point.flood_pps > 0.0) {
            point.flooded_wanted_pps = summary
                .c_gate_ns
                .map(|c_gate| frontier(reference.peak_pps, c_gate, point.flood_pps) * OF_FRONTIER);
        }
        all_points.insert(*mode, points);
        all_summaries.insert(*mode, summary);
    }
    (all_points, all_summaries)
}

/// The most that the flooded application can have while nobody else loses anything: peak x
/// (1 - flood x c_gate), and no more than it is sent.
pub(super) fn frontier(peak_pps: f64, c_gate_ns: f64, flood_pps: f64) -> f64 {
    (peak_pps * (1.0 - flood_pps * c_gate_ns / 1e9)).clamp(0.0, flood_pps)
}

fn point(rate: Flood, group: &Group<'_, Mode>, unflooded: f64) -> SeparationPoint {
    let goodput = group.median(goodput);
    let ring_loss =
        |t: &LoadTrial<Mode>| per(t.load.ledger.nic_drop, t.load.ledger.offered).unwrap_or(0.0);
    SeparationPoint {
        target_pps: rate.target_pps(),
        flood_pps: group.median(|t| t.load.offered_pps),
        victim_offered_pps: group.median(|t| t.load.bystander_offered_pps),
        victim_pps: group.median(|t| t.load.bystander_delivered_pps),
        victim: group.spread(|t| t.load.bystander_delivered_pps),
        goodput,
        of_unflooded: if unflooded > 0.0 { goodput / unflooded } else { 0.0 },
        victim_age_p50_us: group.median_of_some(|t| t.bystander_age_p50_us),
        victim_age_p99_us: group.median_of_some(|t| t.bystander_age_p99_us),
        flooded_pps: group.median(|t| t.load.delivered_pps),
        flooded_wanted_pps: None,
        ring_loss: group.median(ring_loss),
        nic_drop_pps: group.median(|t| t.load.nic_drop_pps),
        discarded_pps: group.median(|t| t.load.discarded_pps),
        late_drop_pps: group.median(|t| t.load.late_drop_pps),
        input_cpu: group.input_cpu(),
        conditions: group.conditions(),
    }
}

/// The highest flood, of the sweep's points and of the search's trials, that left the victim well.
fn r_ring(
    points: &[SeparationPoint],
    trials: &[LoadTrial<Mode>],
    mode: Mode,
    unflooded: f64,
) -> Option<f64> {
    let well = points.iter().filter(|point| point.flood_pps > 0.0 && point.of_unflooded >= WELL);
    let found = trials
        .iter()
        .filter(|t| t.key == mode && t.load.purpose == R_RING && goodput(t) >= WELL * unflooded);
    let rates = well.map(|point| point.flood_pps).chain(found.map(|t| t.load.offered_pps));
    rates.reduce(f64::max)
}

fn summary(points: &[SeparationPoint]) -> SeparationSummary {
    let unloaded = points.first().map_or(0.0, |point| point.victim_pps);
    let highest = points.iter().max_by(|a, b| a.flood_pps.total_cmp(&b.flood_pps));
    let overload = highest.map_or(0.0, |point| point.victim_pps);
    SeparationSummary {
        unloaded,
        overload,
        retained: if unloaded > 0.0 { overload / unloaded } else { 0.0 },
        peak_pps: points.iter().map(|point| point.flooded_pps).fold(0.0, f64::max),
        r_ring_pps: None,
        c_gate_ns: None,
    }
}

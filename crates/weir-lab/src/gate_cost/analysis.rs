//! From trials to rows, summaries, goals and warnings.

use std::collections::BTreeMap;

use super::hot::HotTime;
use super::lookup::LookupTime;
use super::rows::RowSpec;
use super::trial::IN_FULL_POLLS_MIN;
use crate::goals::goal;
use crate::results::gate_cost::{
    CostMode, CostPoint, CostRow, CostSummary, CostTrial, GateCost, HotPoint, Kind, LookupPoint,
};
use crate::results::{Goal, Spread};
use crate::stats::{median, median_of_some, spread};
use crate::warnings;

/// A row whose gate discarded less than this share of the packets does not tell what discarding
/// costs.
const DISCARDED_MIN: f64 = 0.99;
/// Discarding must reach this share of a bare `XDP_DROP`'s rate.
const DISCARD_RATIO_MIN: f64 = 0.75;
/// The gate may add this much to a packet that passes.
const PASS_ADDED_MAX_NS: f64 = 40.0;
/// A point is marked where the SUT's speed differs by more than this from the run's median.
const SPEED_TOLERANCE: f64 = 0.05;

/// Per row and mode the medians, and pair by pair what the gate costs.
pub(super) fn rows(specs: &[RowSpec], trials: &[CostTrial]) -> Vec<CostRow> {
    let loops: Vec<f64> = trials.iter().map(|t| t.sut_loop_ns).filter(|ns| *ns > 0.0).collect();
    let fastest = loops.iter().copied().fold(f64::INFINITY, f64::min);
    let usual = median(loops);
    let row = |(position, spec): (usize, &RowSpec)| {
        let of = |mode: CostMode| -> Vec<&CostTrial> {
            let of_it = |t: &&CostTrial| t.row as usize == position && t.mode == mode;
            trials.iter().filter(of_it).collect()
        };
        let modes: BTreeMap<CostMode, CostPoint> = CostMode::ALL
            .into_iter()
            .map(|mode| (mode, point(&of(mode), fastest, usual)))
            .collect();
        let pairs = |a, b, compare: fn(f64, f64) -> f64| compared(&of(a), &of(b), compare);
        let discarded = modes[&CostMode::GateDiscard].discarded;
        CostRow {
            kind: spec.kind,
            flows: spec.flows(),
            sockets: spec.sockets(),
            modes,
            discard_ratio: discarded
                .filter(|share| *share >= DISCARDED_MIN)
                .and_then(|_| pairs(CostMode::BareDrop, CostMode::GateDiscard, |a, b| a / b)),
            pass_added_ns: pairs(CostMode::BarePass, CostMode::GatePass, |a, b| b - a),
        }
    };
    specs.iter().enumerate().map(row).collect()
}

fn point(trials: &[&CostTrial], fastest: f64, usual: f64) -> CostPoint {
    let median_of = |of: fn(&CostTrial) -> f64| median(trials.iter().map(|trial| of(trial)));
    let loop_ns = median_of(|t| t.sut_loop_ns);
    let known = loop_ns > 0.0 && fastest.is_finite();
    CostPoint {
        ns_per_packet: spread(trials.iter().map(|t| t.ns_per_packet)),
        capacity_pps: spread(trials.iter().map(|t| rate(t.ns_per_packet))),
        handled_pps: median_of(|t| t.handled_pps),
        cpu_ns_per_packet: median_of(|t| t.cpu_ns_per_packet),
        busy: median_of(|t| t.busy),
        in_full_polls: median_of(|t| t.in_full_polls),
        discarded: median_of_some(trials.iter().map(|t| t.discarded_share)),
        sut_speed: if known { fastest / loop_ns } else { 0.0 },
        marked: known && (usual / loop_ns - 1.0).abs() > SPEED_TOLERANCE,
        repeats: trials.len() as u32,
    }
}

fn rate(ns_per_packet: f64) -> f64 {
    if ns_per_packet > 0.0 { 1e9 / ns_per_packet } else { 0.0 }
}

/// Trials of the same repeat compared, which the machine's drift slows alike.
fn compared(
    a: &[&CostTrial],
    b: &[&CostTrial],
    compare: impl Fn(f64, f64) -> f64,
) -> Option<Spread> {
    let pairs: Vec<f64> = a
        .iter()
        .filter_map(|a| {
            let b = b.iter().find(|b| b.repeat == a.repeat)?;
            let measured = a.ns_per_packet > 0.0 && b.ns_per_packet > 0.0;
            measured.then(|| compare(a.ns_per_packet, b.ns_per_packet))
        })
        .collect();
    (!pairs.is_empty()).then(|| spread(pairs))
}

/// Per kind the worst row.
pub(super) fn summary(rows: &[CostRow]) -> BTreeMap<Kind, CostSummary> {
    let of = |kind: Kind| {
        let rows: Vec<&CostRow> = rows.iter().filter(|row| row.kind == kind).collect();
        let ns = |mode: CostMode| rows.iter().map(move |row| row.modes[&mode].ns_per_packet.median);
        let ratios: Option<Vec<f64>> =
            rows.iter().map(|row| row.discard_ratio.map(|ratio| ratio.median)).collect();
        let added = rows.iter().filter_map(|row| row.pass_added_ns).map(|added| added.median);
        CostSummary {
            c_gate_ns: ratios.is_some().then(|| ns(CostMode::GateDiscard).fold(0.0, f64::max)),
            bare_drop_ns: median(ns(CostMode::BareDrop)),
            discard_ratio: ratios.and_then(|ratios| ratios.into_iter().reduce(f64::min)),
            pass_added_ns: added.reduce(f64::max),
        }
    };
    Kind::ALL
        .into_iter()
        .filter(|kind| rows.iter().any(|row| row.kind == *kind))
        .map(|kind| (kind, of(kind)))
        .collect()
}

/// The experiment's last column, for each kind; each is judged by its worst row.
pub(super) fn goals(rows: &[CostRow], trials: &[CostTrial]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (kind, summary) in summary(rows) {
        let discard = format!("{kind}: rate of discarding against bare XDP_DROP");
        let want = format!(">= {DISCARD_RATIO_MIN}");
        let got = |ratio: f64| (format!("{ratio:.3}"), ratio >= DISCARD_RATIO_MIN);
        let mut discard = goal(&discard, want, summary.discard_ratio.map(got));
        if summary.discard_ratio.is_none() {
            discard.got = "not discarded".into();
        }
        goals.push(discard);
        let pass = format!("{kind}: added to a packet that passes");
        let got = |ns: f64| (format!("{ns:.0} ns"), ns <= PASS_ADDED_MAX_NS);
        let want = format!("<= {PASS_ADDED_MAX_NS} ns");
        goals.push(goal(&pass, want, summary.pass_added_ns.map(got)));
    }
    let lost: i64 = trials.iter().map(|t| t.ledger.unaccounted.abs()).sum();
    goals.push(Goal {
        name: "every packet of every trial accounted for".into(),
        want: "0 unaccounted".into(),
        got: format!("{lost} unaccounted in {} trials", trials.len()),
        met: lost == 0,
    });
    goals
}

/// Per packet, over the repeats in which its reason was the usual one.
pub(super) fn hot(repeats: &[Vec<HotTime>]) -> Vec<HotPoint> {
    let Some(first) = repeats.iter().max_by_key(|times| times.len()) else { return vec![] };
    let point = |wanted: &HotTime| {
        let same = |time: &&HotTime| time.packet == wanted.packet && time.reason == wanted.reason;
        let times: Vec<&HotTime> = repeats.iter().flatten().filter(same).collect();
        let (gate_ns, bare_ns) =
            (spread(times.iter().map(|t| t.gate_ns)), spread(times.iter().map(|t| t.bare_ns)));
        HotPoint {
            packet: wanted.packet.clone(),
            reason: wanted.reason.name().into(),
            added_ns: gate_ns.median - bare_ns.median,
            gate_ns,
            bare_ns,
        }
    };
    first.iter().map(point).collect()
}

/// Per helper, family and target, over the repeats.
pub(super) fn lookups(repeats: &[Vec<LookupTime>]) -> Vec<LookupPoint> {
    let Some(first) = repeats.first() else { return vec![] };
    let point = |(position, time): (usize, &LookupTime)| LookupPoint {
        helper: time.helper.into(),
        family: time.family.into(),
        target: time.target.into(),
        found: time.found,
        ns: spread(repeats.iter().filter_map(|times| times.get(position)).map(|time| time.ns)),
    };
    first.iter().enumerate().map(point).collect()
}

/// What a reader should know before trusting a figure.
pub(super) fn warnings(cost: &GateCost, repeats: u32) -> Vec<String> {
    let points = || cost.rows.iter().flat_map(|row| row.modes.values());
    let marked = points().filter(|point| point.marked).count();
    let stolen = cost.trials.iter().map(|trial| trial.steal).fold(0.0, f64::max);
    let mut all = warnings::measured((marked, points().count()), stolen);
    let least = points().map(|point| point.repeats).min().unwrap_or(0);
    if least < repeats {
        all.push(format!("the machine was slow: {least} trials per point instead of {repeats}"));
    }
    let starved = points().filter(|point| point.in_full_polls < IN_FULL_POLLS_MIN).count();
    if starved > 0 {
        all.push(format!(
            "in {starved} of {} points the generator was so slow that hardly a poll was full: their \
             figure is the NAPI thread's CPU time, wake-ups included",
            points().count()
        ));
    }
    let undiscarded: Vec<&str> = cost
        .summary
        .iter()
        .filter(|(_, summary)| summary.discard_ratio.is_none())
        .map(|(kind, _)| kind.name())
        .collect();
    if !undiscarded.is_empty() {
        all.push(format!(
            "the gate did not discard {}: those rows say what passing them to the stack costs, and \
             nothing of discarding",
            undiscarded.join(", ")
        ));
    }
    all.extend(warnings::circumstances(&cost.machine, cost.quick));
    all
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod tests;

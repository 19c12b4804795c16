//! From trials to points, summaries and warnings.

use std::collections::BTreeMap;

use weir_bpf::units::PacketsPerSec;

use super::order::Search;
use super::{BYSTANDER, Plan, SWEEP};
use crate::results::{BystanderPoint, Experiment, Mode, Point, Summary, Trial};
use crate::stats::{Bisection, median, median_of_some, spread};
use crate::warnings;

/// A point is marked where the SUT's speed differs by more than this from the run's median.
const SPEED_TOLERANCE: f64 = 0.05;
/// The generator's CPU was elsewhere for more than this share of what fell due.
const MISSED_TOLERANCE: f64 = 0.01;

fn of<'a>(
    trials: &'a [Trial],
    mode: Mode,
    purpose: &'a str,
    rate: Option<PacketsPerSec>,
) -> Vec<&'a Trial> {
    let target = rate.map(|rate| rate.0);
    trials
        .iter()
        .filter(|t| t.mode == mode && t.purpose == purpose && t.target_pps == target)
        .collect()
}

/// Per mode, one point per rate: medians over the trials.
pub(super) fn series(plan: &Plan, trials: &[Trial]) -> BTreeMap<Mode, Vec<Point>> {
    let loops: Vec<f64> = trials.iter().map(|t| t.sut_loop_ns).filter(|ns| *ns > 0.0).collect();
    let fastest = loops.iter().copied().fold(f64::INFINITY, f64::min);
    let usual = fastest / median(loops);
    let point = |rate: &Option<PacketsPerSec>, mode| {
        let trials = of(trials, mode, SWEEP, *rate);
        let median_of = |of: fn(&Trial) -> f64| median(trials.iter().map(|trial| of(trial)));
        let loop_ns = median_of(|t| t.sut_loop_ns);
        let sut_speed = if loop_ns > 0.0 { fastest / loop_ns } else { 0.0 };
        Point {
            target_pps: rate.map(|rate| rate.0),
            offered_pps: median_of(|t| t.offered_pps),
            nic_drop_pps: median_of(|t| t.nic_drop_pps),
            discarded_pps: median_of(|t| t.discarded_pps),
            late_drop_pps: median_of(|t| t.late_drop_pps),
            delivered_pps: median_of(|t| t.delivered_pps),
            delivered: spread(trials.iter().map(|t| t.delivered_pps)),
            user_cpu: median_of(|t| t.user_cpu),
            sut_speed,
            steal: median_of(|t| t.steal),
            marked: (sut_speed / usual - 1.0).abs() > SPEED_TOLERANCE,
            age_p50_us: median_of_some(trials.iter().map(|t| t.age_p50_us)),
            age_p99_us: median_of_some(trials.iter().map(|t| t.age_p99_us)),
            repeats: trials.len() as u32,
        }
    };
    plan.modes
        .iter()
        .map(|mode| (*mode, plan.rates.iter().map(|rate| point(rate, *mode)).collect()))
        .collect()
}

/// The same of the bystander.
pub(super) fn bystanders(plan: &Plan, trials: &[Trial]) -> BTreeMap<Mode, Vec<BystanderPoint>> {
    let point = |rate: &Option<PacketsPerSec>, mode| {
        let trials = of(trials, mode, BYSTANDER, *rate);
        let median_of = |of: fn(&Trial) -> f64| median(trials.iter().map(|trial| of(trial)));
        BystanderPoint {
            flood_target_pps: rate.map(|rate| rate.0),
            flood_pps: median_of(|t| t.offered_pps),
            offered_pps: median_of(|t| t.bystander_offered_pps),
            goodput_pps: median_of(|t| t.bystander_delivered_pps),
            goodput: spread(trials.iter().map(|t| t.bystander_delivered_pps)),
            flooded_delivered_pps: median_of(|t| t.delivered_pps),
            repeats: trials.len() as u32,
        }
    };
    plan.modes
        .iter()
        .map(|mode| (*mode, plan.bystander_rates.iter().map(|rate| point(rate, *mode)).collect()))
        .collect()
}

/// One mode's sweep and search in five figures.
pub(super) fn summarise(points: &[Point], search: &Search) -> Summary {
    let peak_pps = points.iter().map(|point| point.delivered_pps).fold(0.0, f64::max);
    let highest = points.iter().max_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps));
    let overload_pps = highest.map_or(0.0, |point| point.delivered_pps);
    Summary {
        mlfrr_pps: search.partial_drop.best(),
        ndr_pps: search.no_drop.as_ref().and_then(Bisection::best),
        peak_pps,
        overload_pps,
        retained: if peak_pps > 0.0 { overload_pps / peak_pps } else { 0.0 },
    }
}

/// What a reader should know before trusting a figure.
pub(super) fn warnings(experiment: &Experiment) -> Vec<String> {
    let points = || experiment.series.values().flatten();
    let marked = points().filter(|point| point.marked).count();
    let stolen = points().map(|point| point.steal).fold(0.0, f64::max);
    let mut all = warnings::measured((marked, points().count()), stolen);
    let missed = |trial: &&Trial| {
        let missed = trial.missed_by_generator as f64;
        missed > MISSED_TOLERANCE * (missed + trial.ledger.offered as f64)
    };
    let short = experiment.trials.iter().filter(missed).count();
    if short > 0 {
        all.push(format!(
            "in {short} of {} trials the generator's CPU was elsewhere for more than 1 % of the \
             packets; those were not sent, and are not counted as offered",
            experiment.trials.len()
        ));
    }
    all.extend(warnings::circumstances(&experiment.machine, experiment.quick));
    all
}

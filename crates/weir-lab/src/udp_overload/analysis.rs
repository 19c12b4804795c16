//! From trials to points, summaries and warnings.

use std::collections::BTreeMap;

use weir_bpf::units::PacketsPerSec;

use super::search::Search;
use super::{BYSTANDER, ECHO, Plan, SWEEP};
use crate::results::{BystanderPoint, Experiment, Mode, Point, Summary, Trial};
use crate::speed::Speeds;
use crate::stats::{Bisection, median, median_of_some, spread};
use crate::warnings;

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
    let speeds = Speeds::of(trials.iter());
    let point = |rate: &Option<PacketsPerSec>, mode| {
        let echo = of(trials, mode, ECHO, *rate);
        let replies = || echo.iter().map(|trial| trial.replies);
        let trials = of(trials, mode, SWEEP, *rate);
        let median_of = |of: fn(&Trial) -> f64| median(trials.iter().map(|trial| of(trial)));
        let (sut_speed, marked) = speeds.judge(median_of(|t| t.sut_loop_ns));
        Point {
            target_pps: rate.map(|rate| rate.0),
            offered_pps: median_of(|t| t.offered_pps),
            nic_drop_pps: median_of(|t| t.nic_drop_pps),
            discarded_pps: median_of(|t| t.discarded_pps),
            late_drop_pps: median_of(|t| t.late_drop_pps),
            delivered_pps: median_of(|t| t.delivered_pps),
            delivered: spread(trials.iter().map(|t| t.delivered_pps)),
            echo_pps: median_of_some(replies().map(|replies| Some(replies?.arrived_pps))),
            echo_steady: median_of_some(replies().map(|replies| replies?.steady)),
            user_cpu: median_of(|t| t.user_cpu),
            sut_speed,
            steal: median_of(|t| t.steal),
            marked,
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
pub(super) fn warnings(plan: &Plan, experiment: &Experiment) -> Vec<String> {
    let points = || experiment.series.values().flatten();
    let marked = points().filter(|point| point.marked).count();
    let stolen = points().map(|point| point.steal).fold(0.0, f64::max);
    let mut all = warnings::measured((marked, points().count()), stolen);
    let echo = experiment.trials.iter().filter(|trial| trial.purpose == ECHO).count();
    let repeats = echo / (plan.echo_rates.len() * plan.modes.len()).max(1);
    if repeats < plan.echo_repeats as usize {
        let wanted = plan.echo_repeats;
        all.push(format!(
            "the machine was slow: trials of the echo server per point {repeats} instead of {wanted}"
        ));
    }
    all.extend(warnings::missed(experiment.trials.iter()));
    all.extend(warnings::circumstances(&experiment.machine, experiment.quick));
    all
}

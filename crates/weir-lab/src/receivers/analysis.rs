//! From trials to what either receiver received.

use std::collections::BTreeMap;

use super::SWEEP;
use crate::bench::RECEIVER_NICE;
use crate::load::Plan;
use crate::load::points::{Group, speeds};
use crate::results::Mode;
use crate::results::load::{LoadTrial, Receivers};
use crate::results::receivers::{ReceiversPoint, ReceiversReference, ReceiversSummary};
use crate::stats::spread;
use crate::trial::Flood;

/// `sched_prio_to_weight[]` of nice 0 and nice 10 (kernel/sched/core.c).
const WEIGHTS: [f64; 2] = [1024.0, 110.0];
/// Who receives less of what he is sent is overloaded.
const DELIVERED_MIN: f64 = 0.95;

/// What holds for the whole run.
pub(super) fn reference(passes: u32) -> ReceiversReference {
    let [heavier, lighter] = RECEIVER_NICE;
    ReceiversReference {
        heavier_nice: heavier.0,
        lighter_nice: lighter.0,
        weights_ratio: WEIGHTS[0] / WEIGHTS[1],
        passes,
    }
}

/// Per mode, one point per rate.
pub(super) fn series(
    plan: &Plan,
    trials: &[LoadTrial<Mode>],
) -> BTreeMap<Mode, Vec<ReceiversPoint>> {
    let all = (trials, speeds(trials));
    let points = |mode: &Mode| {
        let point = |rate: &Flood| point(*rate, &Group::of(all, *mode, SWEEP, *rate));
        (*mode, plan.rates.iter().map(point).collect())
    };
    plan.modes.iter().map(points).collect()
}

/// What the heavier received against what the lighter did.
fn ratio(trial: &LoadTrial<Mode>) -> Option<f64> {
    let (heavier, lighter) = (trial.load.delivered_pps, trial.load.bystander_delivered_pps);
    (lighter > 0.0).then(|| heavier / lighter)
}

fn point(rate: Flood, group: &Group<'_, Mode>) -> ReceiversPoint {
    let both =
        |of: fn(&Receivers) -> f64| group.median(|trial| trial.receivers.as_ref().map_or(0.0, of));
    let heavier_offered_pps = group.median(|t| t.load.offered_pps);
    let lighter_offered_pps = group.median(|t| t.load.bystander_offered_pps);
    let heavier_pps = group.median(|t| t.load.delivered_pps);
    let lighter_pps = group.median(|t| t.load.bystander_delivered_pps);
    ReceiversPoint {
        target_pps: rate.target_pps(),
        heavier_offered_pps,
        lighter_offered_pps,
        heavier_pps,
        lighter_pps,
        overloaded: heavier_pps < heavier_offered_pps * DELIVERED_MIN
            && lighter_pps < lighter_offered_pps * DELIVERED_MIN,
        ratio: group.median_of_some(ratio),
        ratio_range: spread(group.some(ratio)),
        heavier_cpu: both(|receivers| receivers.heavier_cpu),
        lighter_cpu: both(|receivers| receivers.lighter_cpu),
        input_cpu: group.input_cpu(),
        heavier_sleeps_per_s: both(|receivers| receivers.heavier_sleeps_per_s),
        lighter_sleeps_per_s: both(|receivers| receivers.lighter_sleeps_per_s),
        ring_loss: group.median(|trial| {
            let offered = trial.load.offered_pps + trial.load.bystander_offered_pps;
            if offered > 0.0 { trial.load.nic_drop_pps / offered } else { 0.0 }
        }),
        nic_drop_pps: group.median(|t| t.load.nic_drop_pps),
        discarded_pps: group.median(|t| t.load.discarded_pps),
        late_drop_pps: group.median(|t| t.load.late_drop_pps),
        conditions: group.conditions(),
    }
}

/// Per mode, the sweep in some figures.
pub(super) fn summary(
    series: &BTreeMap<Mode, Vec<ReceiversPoint>>,
) -> BTreeMap<Mode, ReceiversSummary> {
    let together = |point: &ReceiversPoint| point.heavier_pps + point.lighter_pps;
    let of = |points: &Vec<ReceiversPoint>| {
        let peak_pps = points.iter().map(together).fold(0.0, f64::max);
        let highest =
            points.iter().max_by(|a, b| a.heavier_offered_pps.total_cmp(&b.heavier_offered_pps));
        let overload_pps = highest.map_or(0.0, together);
        ReceiversSummary {
            peak_pps,
            overload_pps,
            retained: if peak_pps > 0.0 { overload_pps / peak_pps } else { 0.0 },
            overload_ratio: highest.and_then(|point| point.ratio),
        }
    };
    series.iter().map(|(mode, points)| (*mode, of(points))).collect()
}

//! From trials to shares of work.

use std::collections::BTreeMap;

use super::{SECOND_PPS, SWEEP, UNLOADED};
use crate::load::points::{Group, speeds};
use crate::results::load::{LoadTrial, per};
use crate::results::user_share::{ShareMode, SharePoint, ShareReference, ShareSummary};
use crate::stats::{median_of_some, spread};
use crate::trial::Flood;

/// A share may be less than its setting by so much, of the CPU.
pub(super) const SHORT_MAX: f64 = 0.03;
/// Where input needs less than it may have, processes have this share of the rest.
pub(super) const OF_REST_MIN: f64 = 0.95;

/// What was measured once for the run.
pub(super) fn reference(trials: &[LoadTrial<ShareMode>]) -> ShareReference {
    let unloaded = trials.iter().filter(|trial| trial.load.purpose == UNLOADED);
    let unflooded = trials.iter().filter(|trial| {
        trial.load.purpose == SWEEP && trial.load.target_pps == Flood::Off.target_pps()
    });
    ShareReference {
        unloaded_per_s: spread(unloaded.filter_map(|trial| trial.neighbour_per_s)),
        second_pps: SECOND_PPS.0,
        c_app_ns: median_of_some(
            unflooded.map(|trial| per(trial.bystander_cpu_ns, trial.load.ledger.delivered)),
        ),
    }
}

/// Per setting, one point per rate.
pub(super) fn series(
    keys: &[ShareMode],
    rates: &[Flood],
    trials: &[LoadTrial<ShareMode>],
    reference: &ShareReference,
) -> BTreeMap<ShareMode, Vec<SharePoint>> {
    let all = (trials, speeds(trials));
    let points = |key: &ShareMode| {
        let point = |rate: &Flood| {
            point(*rate, &Group::of(all, *key, SWEEP, *rate), reference, key.setting())
        };
        (*key, rates.iter().map(point).collect())
    };
    keys.iter().map(points).collect()
}

fn point(
    rate: Flood,
    group: &Group<'_, ShareMode>,
    reference: &ShareReference,
    setting: Option<f64>,
) -> SharePoint {
    let unloaded = reference.unloaded_per_s.median;
    let c_app_ns = reference.c_app_ns.unwrap_or(0.0);
    let neighbour = |t: &LoadTrial<ShareMode>| match t.neighbour_per_s {
        Some(per_s) if unloaded > 0.0 => per_s / unloaded,
        _ => 0.0,
    };
    let second = |t: &LoadTrial<ShareMode>| t.load.bystander_delivered_pps * c_app_ns / 1e9;
    let goodput = |t: &LoadTrial<ShareMode>| {
        let sent = t.load.bystander_offered_pps;
        if sent > 0.0 { t.load.bystander_delivered_pps / sent } else { 0.0 }
    };
    let user = group.spread(|t| neighbour(t) + second(t));
    let input_need = group.input_need();
    SharePoint {
        target_pps: rate.target_pps(),
        flood_pps: group.median(|t| t.load.offered_pps),
        user: user.median,
        user_range: user,
        neighbour: group.median(neighbour),
        second: group.median(second),
        second_goodput: group.median(goodput),
        input_cpu: group.input_cpu(),
        input_need,
        wanted: setting.map(|setting| wanted(setting, input_need)),
        deviation_points: setting
            .filter(|setting| match input_need {
                Some(need) => !fits(*setting, need),
                // Whoever has more than its share wants it.
                None => user.median < *setting,
            })
            .map(|setting| (user.median - setting) * 100.0),
        nic_drop_pps: group.median(|t| t.load.nic_drop_pps),
        discarded_pps: group.median(|t| t.load.discarded_pps),
        late_drop_pps: group.median(|t| t.load.late_drop_pps),
        conditions: group.conditions(),
    }
}

/// Whether input needs no more than what is not set aside for processes.
pub(super) fn fits(setting: f64, input_need: f64) -> bool {
    input_need <= 1.0 - setting
}

/// The least that processes are to have.
fn wanted(setting: f64, input_need: Option<f64>) -> f64 {
    let fitting = input_need.filter(|need| fits(setting, *need));
    let rest = fitting.map_or(0.0, |need| (1.0 - need) * OF_REST_MIN);
    f64::max(setting - SHORT_MAX, rest)
}

/// Per setting, the sweep in some figures.
pub(super) fn summary(
    series: &BTreeMap<ShareMode, Vec<SharePoint>>,
) -> BTreeMap<ShareMode, ShareSummary> {
    let of = |key: &ShareMode, points: &Vec<SharePoint>| {
        let unloaded = points.first().map_or(0.0, |point| point.user);
        let highest = points.iter().max_by(|a, b| a.flood_pps.total_cmp(&b.flood_pps));
        let overload = highest.map_or(0.0, |point| point.user);
        let deviations = || points.iter().filter_map(|point| point.deviation_points);
        ShareSummary {
            setting: key.setting(),
            unloaded,
            overload,
            retained: if unloaded > 0.0 { overload / unloaded } else { 0.0 },
            lowest: points.iter().map(|point| point.user).reduce(f64::min).unwrap_or(0.0),
            lowest_deviation_points: deviations().reduce(f64::min),
            highest_deviation_points: deviations().reduce(f64::max),
        }
    };
    series.iter().map(|(key, points)| (*key, of(key, points))).collect()
}

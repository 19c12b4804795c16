//! From trials to what the services kept, and how far the ring reached.

use std::collections::BTreeMap;

use super::UNFLOODED;
use crate::load::Plan;
use crate::load::points::{Group, speeds};
use crate::results::kinds::{Kind, KindPoint, KindSummary, KindsSummary};
use crate::results::load::{LoadTrial, per};
use crate::results::{Mode, Spread};
use crate::trial::Flood;

/// The ring counts as not overflowing up to this share: a hiccup of the machine is not the flood's.
const RING_LOSS_MAX: f64 = 0.005;

/// What the services do without a flood.
#[derive(Clone, Copy)]
struct Unflooded {
    /// Share of what the UDP service is sent that it receives.
    udp: f64,
    /// Requests that the TCP service answers, 1/s.
    tcp: f64,
}

/// Points: without a flood first, then kind by kind.
pub(super) fn series(
    plan: &Plan,
    kinds: &[Kind],
    trials: &[LoadTrial<Mode>],
) -> BTreeMap<Mode, Vec<KindPoint>> {
    let all = (trials, speeds(trials));
    let of_mode = |mode: &Mode| {
        let without = Group::of(all, *mode, UNFLOODED, Flood::Off);
        let unflooded =
            Unflooded { udp: without.median(goodput), tcp: without.median(answered_per_s) };
        let beside = kinds.iter().flat_map(|kind| {
            plan.rates.iter().map(|rate| {
                let group = Group::of(all, *mode, kind.name(), *rate);
                point(Some(*kind), *rate, &group, unflooded)
            })
        });
        let first = point(None, Flood::Off, &without, unflooded);
        (*mode, std::iter::once(first).chain(beside).collect())
    };
    plan.modes.iter().map(of_mode).collect()
}

/// Share of what the UDP service was sent that it received.
fn goodput(trial: &LoadTrial<Mode>) -> f64 {
    let sent = trial.load.bystander_offered_pps;
    if sent > 0.0 { trial.load.bystander_delivered_pps / sent } else { 0.0 }
}

fn answered_per_s(trial: &LoadTrial<Mode>) -> f64 {
    trial.service.map_or(0.0, |service| service.answered_per_s)
}

fn point(
    kind: Option<Kind>,
    rate: Flood,
    group: &Group<'_, Mode>,
    unflooded: Unflooded,
) -> KindPoint {
    let ring_loss =
        |t: &LoadTrial<Mode>| per(t.load.ledger.nic_drop, t.load.ledger.offered).unwrap_or(0.0);
    let udp_range = against(group.spread(goodput), unflooded.udp);
    let tcp_range = against(group.spread(answered_per_s), unflooded.tcp);
    KindPoint {
        kind,
        target_pps: rate.target_pps(),
        flood_pps: group.median(|t| t.load.offered_pps),
        udp_pps: group.median(|t| t.load.bystander_delivered_pps),
        udp_kept: udp_range.median,
        udp_range,
        udp_age_p50_us: group.median_of_some(|t| t.bystander_age_p50_us),
        udp_age_p99_us: group.median_of_some(|t| t.bystander_age_p99_us),
        tcp_per_s: group.median(answered_per_s),
        tcp_kept: tcp_range.median,
        tcp_range,
        tcp_time_p50_us: group.median_of_some(|t| t.service?.time_p50_us),
        tcp_time_p99_us: group.median_of_some(|t| t.service?.time_p99_us),
        flooded_pps: group.median(|t| t.load.delivered_pps),
        ring_loss: group.median(ring_loss),
        nic_drop_pps: group.median(|t| t.load.nic_drop_pps),
        discarded_pps: group.median(|t| t.load.discarded_pps),
        late_drop_pps: group.median(|t| t.load.late_drop_pps),
        input_cpu: group.input_cpu(),
        conditions: group.conditions(),
    }
}

fn against(figure: Spread, whole: f64) -> Spread {
    let of = |part: f64| if whole > 0.0 { part / whole } else { 0.0 };
    Spread { median: of(figure.median), min: of(figure.min), max: of(figure.max) }
}

/// How far the ring reached beside each kind, and what the services kept up to there.
pub(super) fn summary(series: &BTreeMap<Mode, Vec<KindPoint>>) -> BTreeMap<Mode, KindsSummary> {
    let of_mode = |points: &Vec<KindPoint>| {
        let mut by_kind: BTreeMap<Kind, Vec<&KindPoint>> = BTreeMap::new();
        for point in points {
            if let Some(kind) = point.kind {
                by_kind.entry(kind).or_default().push(point);
            }
        }
        let unloaded = points.first().map_or(0.0, |point| point.tcp_per_s);
        let highest = by_kind.values().filter_map(|points| points.last());
        let overload = highest.map(|point| point.tcp_per_s).reduce(f64::min).unwrap_or(unloaded);
        let kinds = by_kind.iter().map(|(kind, points)| (*kind, of_kind(points)));
        KindsSummary {
            unloaded,
            overload,
            retained: if unloaded > 0.0 { overload / unloaded } else { 0.0 },
            kinds: kinds.collect(),
        }
    };
    series.iter().map(|(mode, points)| (*mode, of_mode(points))).collect()
}

/// Of points by rate, lowest first.
fn of_kind(points: &[&KindPoint]) -> KindSummary {
    let reached: Vec<_> =
        points.iter().take_while(|point| point.ring_loss <= RING_LOSS_MAX).collect();
    let lowest = |of: fn(&KindPoint) -> f64| reached.iter().map(|p| of(p)).reduce(f64::min);
    KindSummary {
        r_ring_pps: reached.last().map(|point| point.flood_pps),
        udp_kept: lowest(|point| point.udp_kept),
        tcp_kept: lowest(|point| point.tcp_kept),
    }
}

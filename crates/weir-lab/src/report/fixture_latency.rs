//! A plausible result of `udp-latency`, for tests.

use super::fixture::experiment;
use crate::results::latency::{Latency, LatencyRun};
use crate::results::load::Conditions;
use crate::results::merit::{Fact, MeritPoint, MeritTrial};
use crate::results::{Goal, Mode, Spread};
use crate::udp_latency::{LOST_US, NAME, VARIANT};

const CONDITIONS: Conditions =
    Conditions { sut_speed: 0.98, steal: 0.001, marked: false, repeats: 3 };
const UNLOADED_US: f64 = 40.0;

/// Of 3,000 pings so many were lost; 99 % of the rest took so long.
fn point(target_pps: f64, p99_us: f64, lost: u64) -> MeritPoint<Latency> {
    let merit = if lost > 30 { LOST_US } else { p99_us };
    let ring_loss = if lost > 0 { 0.375 } else { 0.0 };
    MeritPoint {
        variant: VARIANT.to_owned(),
        target_pps: Some(target_pps),
        flood_pps: target_pps,
        merit,
        merit_range: Spread { median: merit, min: p99_us * 0.5, max: merit },
        of_unloaded: Some(merit / UNLOADED_US),
        ring_loss,
        nic_drop_pps: target_pps * ring_loss,
        discarded_pps: target_pps * 0.375,
        delivered_pps: target_pps * 0.25,
        input_cpu: Some(0.25),
        detail: Latency {
            p50_us: Some(p99_us / 2.0),
            p99_us: Some(p99_us),
            p999_us: (lost == 0).then_some(p99_us * 4.0),
            sent: 3000,
            lost,
        },
        conditions: CONDITIONS,
    }
}

/// Without a flood, below R_ring and past it.
pub(crate) fn latency() -> LatencyRun {
    let mut sweep = experiment(&[Mode::Weir]);
    sweep.machine.mitigations.clear();
    let mut load = sweep.trials.swap_remove(0);
    load.purpose = VARIANT.to_owned();
    let points = vec![point(0.0, UNLOADED_US, 0), point(400e3, 60.0, 0), point(1600e3, 250.0, 750)];
    let series = [(Mode::Weir, points)].into();
    let detail =
        Latency { p50_us: Some(20.0), p99_us: Some(60.0), sent: 1000, ..Latency::default() };
    let mut run = LatencyRun {
        schema: sweep.schema,
        experiment: NAME.to_owned(),
        weir_version: sweep.weir_version,
        started_at: sweep.started_at,
        duration_s: sweep.duration_s,
        quick: true,
        machine: sweep.machine,
        merit: "us".to_owned(),
        variants: vec![VARIANT.to_owned()],
        workload: vec![Fact { name: "Pings".to_owned(), value: "2000/s".to_owned() }],
        setup: sweep.setup,
        summary: crate::merit::summary(&[VARIANT], &series),
        series,
        goals: vec![Goal {
            name: "weir does as it should".to_owned(),
            want: "<= 2".to_owned(),
            got: "2.50".to_owned(),
            met: false,
        }],
        sentence: String::new(),
        warnings: vec!["a quick run".to_owned()],
        trials: vec![MeritTrial {
            load,
            merit: 60.0,
            input_cpu_ns: Some(500_000_000),
            daemon_cpu_ns: Some(1_000_000),
            detail,
        }],
    };
    run.sentence = super::latency_sentence(&run);
    run
}

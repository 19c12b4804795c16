//! A plausible result of `http-syn-flood`, for tests.

use super::fixture::experiment;
use crate::http_syn_flood::Usage;
use crate::results::http::{Failures, Http, HttpRun};
use crate::results::load::Conditions;
use crate::results::merit::{Fact, MeritPoint, MeritTrial};
use crate::results::{Goal, Mode, Spread};

const CONDITIONS: Conditions =
    Conditions { sut_speed: 0.98, steal: 0.001, marked: false, repeats: 3 };

fn detail(flooded: bool) -> Http {
    Http {
        took_p50_us: Some(425.5),
        took_p99_us: flooded.then_some(7250.0),
        failures: Failures { timeout: u64::from(flooded) * 7, ..Failures::default() },
        cookies_pps: if flooded { 96e3 } else { 0.0 },
        client_lost_pps: if flooded { 125.0 } else { 0.0 },
        server_cpu: 0.75,
        idle_cpu: 0.0,
        client_cpu: 0.25,
    }
}

fn point(usage: Usage, target_pps: f64, merit: f64, unloaded: f64) -> MeritPoint<Http> {
    let flooded = target_pps > 0.0;
    MeritPoint {
        variant: usage.name().to_owned(),
        target_pps: Some(target_pps),
        flood_pps: target_pps,
        merit,
        merit_range: Spread { median: merit, min: merit * 0.5, max: merit * 1.5 },
        of_unloaded: Some(merit / unloaded),
        ring_loss: if flooded { 0.375 } else { 0.0 },
        nic_drop_pps: target_pps * 0.375,
        discarded_pps: target_pps * 0.375,
        delivered_pps: target_pps * 0.25,
        input_cpu: Some(0.25),
        detail: detail(flooded),
        conditions: CONDITIONS,
    }
}

/// Two usages, without a flood and with one; `weir` meets its goal in one of them.
pub(crate) fn http() -> HttpRun {
    let mut sweep = experiment(&[Mode::Weir]);
    sweep.machine.mitigations.clear();
    let mut load = sweep.trials.swap_remove(0);
    load.purpose = Usage::KeepAlive.name().to_owned();
    let (alive, per_request) = (Usage::KeepAlive, Usage::ConnectionPerRequest);
    let points = vec![
        point(alive, 0.0, 20e3, 20e3),
        point(alive, 400e3, 19e3, 20e3),
        point(per_request, 0.0, 8e3, 8e3),
        point(per_request, 400e3, 2e3, 8e3),
    ];
    let series = [(Mode::Weir, points)].into();
    let variants = Usage::ALL.map(Usage::name);
    let mut run = HttpRun {
        schema: sweep.schema,
        experiment: crate::http_syn_flood::NAME.to_owned(),
        weir_version: sweep.weir_version,
        started_at: sweep.started_at,
        duration_s: sweep.duration_s,
        quick: true,
        machine: sweep.machine,
        merit: "requests/s".to_owned(),
        variants: variants.map(str::to_owned).into(),
        workload: vec![Fact { name: "Server".to_owned(), value: "nginx/1.22.1".to_owned() }],
        setup: sweep.setup,
        summary: crate::merit::summary(&variants, &series),
        series,
        goals: vec![Goal {
            name: "weir does as it should".to_owned(),
            want: ">= 0.90".to_owned(),
            got: "0.250".to_owned(),
            met: false,
        }],
        sentence: String::new(),
        warnings: vec!["a quick run".to_owned()],
        trials: vec![MeritTrial {
            load,
            merit: 19e3,
            input_cpu_ns: Some(500_000_000),
            daemon_cpu_ns: Some(1_000_000),
            detail: detail(true),
        }],
    };
    run.sentence = super::http_sentence(&run);
    run
}

//! A plausible result of `rpc-mix`, for tests.

use super::fixture::experiment;
use crate::results::load::Conditions;
use crate::results::merit::{Fact, MeritPoint, MeritTrial};
use crate::results::rpc::{Rpc, RpcRun};
use crate::results::{Goal, Ledger, Mode, Spread, Trial};
use crate::rpc_mix::Pace;

const CONDITIONS: Conditions =
    Conditions { sut_speed: 0.98, steal: 0.001, marked: false, repeats: 2 };

fn detail(calls_per_s: f64, rpc_per_s: f64) -> Rpc {
    Rpc {
        completion_ms: 1e3 / calls_per_s,
        calls: 4.0,
        rpc_per_s,
        worker_cpu: 0.3125,
        servers_cpu: 0.5,
        charged_ms: 25.0,
        idle_cpu: 0.0,
        client_cpu: 0.75,
    }
}

fn point(target_pps: Option<f64>, calls_per_s: f64, rpc_per_s: f64) -> MeritPoint<Rpc> {
    MeritPoint {
        variant: Pace::Fast.name().to_owned(),
        target_pps,
        flood_pps: rpc_per_s,
        merit: calls_per_s,
        merit_range: Spread { median: calls_per_s, min: calls_per_s, max: calls_per_s },
        of_unloaded: Some(calls_per_s / 50.0),
        ring_loss: 0.0,
        nic_drop_pps: 0.0,
        discarded_pps: 0.0,
        delivered_pps: rpc_per_s,
        input_cpu: Some(0.1875),
        detail: detail(calls_per_s, rpc_per_s),
        conditions: CONDITIONS,
    }
}

fn trial(blank: &Trial, mode: Mode, calls_per_s: f64, rpc_per_s: f64) -> MeritTrial<Rpc> {
    let load = Trial {
        mode,
        purpose: Pace::Fast.name().to_owned(),
        target_pps: None,
        ledger: Ledger { offered: 100, delivered: 100, ..Ledger::default() },
        ..blank.clone()
    };
    MeritTrial {
        load,
        merit: calls_per_s,
        input_cpu_ns: Some(500_000_000),
        daemon_cpu_ns: None,
        detail: detail(calls_per_s, rpc_per_s),
    }
}

/// One pace in four modes: `weir` is as good as `niced` for the worker, half as good as `stock` for the
/// others.
pub(crate) fn rpc() -> RpcRun {
    let mut sweep = experiment(&[Mode::Weir]);
    sweep.machine.mitigations.clear();
    let blank = sweep.trials.swap_remove(0);
    let variants = Pace::ALL.map(Pace::name);
    let series = [(Mode::Weir, vec![point(Some(0.0), 50.0, 0.0), point(None, 16.0, 50e3)])].into();
    let figures = [
        (Mode::Stock, 8.0, 100e3),
        (Mode::Threaded, 12.0, 75e3),
        (Mode::Niced, 16.0, 25e3),
        (Mode::Weir, 16.0, 50e3),
    ];
    let trials = figures.map(|(mode, calls, rpcs)| trial(&blank, mode, calls, rpcs));
    let mut run = RpcRun {
        schema: sweep.schema,
        experiment: crate::rpc_mix::NAME.to_owned(),
        weir_version: sweep.weir_version,
        started_at: sweep.started_at,
        duration_s: sweep.duration_s,
        quick: true,
        machine: sweep.machine,
        merit: "worker calls/s".to_owned(),
        variants: variants.map(str::to_owned).into(),
        workload: vec![Fact { name: "Worker".to_owned(), value: "one call at a time".to_owned() }],
        setup: sweep.setup,
        summary: crate::merit::summary(&variants, &series),
        series,
        goals: vec![Goal {
            name: "weir does as it should".to_owned(),
            want: ">= 0.97".to_owned(),
            got: "undecided: 1.000 (0.900-1.100, 2 pairs) of niced".to_owned(),
            met: false,
        }],
        sentence: String::new(),
        warnings: vec!["a quick run".to_owned()],
        trials: [trials.clone(), trials].concat(),
    };
    run.sentence = super::rpc_sentence(&run);
    run
}

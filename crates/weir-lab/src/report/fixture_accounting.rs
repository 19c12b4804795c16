//! A plausible result of `accounting`, for tests: that of `rpc-mix`, with other figures.

use super::fixture_rpc::rpc;
use crate::results::Mode;
use crate::results::accounting::{Accounting, AccountingRun, MeterSum};
use crate::results::merit::{Fact, MeritPoint, MeritTrial};
use crate::trial::Books;

fn detail(mode: Mode, merit: f64, flood_pps: f64) -> Accounting {
    let metered = MeterSum {
        input_ns: 100e6,
        scheduler_ns: 75e6,
        server_ns: 50e6,
        charged_ns: 75e6,
        discarding_ns: Some(25e6),
        accounted: (flood_pps > 0.0).then_some(1.0),
    };
    Accounting {
        loops_per_s: 1e6,
        bystander_cpu: 0.5,
        work_cpu: 0.5 * merit,
        mischarged: 1.0 - merit,
        server_cpu: 0.25,
        idle_server_cpu: 0.0,
        threads_cpu: (mode != Mode::Stock).then_some(0.1875),
        ksoftirqd_cpu: None,
        softirq_cpu: 0.125,
        metered: (mode == Mode::Weir).then_some(metered),
    }
}

/// Both variants, without a flood and beside one, in `stock` and in `weir`.
pub(crate) fn accounting() -> AccountingRun {
    let run = rpc();
    let blank = run.series[&Mode::Weir][0].clone();
    let point = |mode, books: Books, flood_pps: f64, merit: f64| MeritPoint {
        variant: books.name().to_owned(),
        target_pps: Some(flood_pps),
        flood_pps,
        merit,
        merit_range: crate::stats::spread([merit]),
        of_unloaded: Some(merit),
        ring_loss: 0.0,
        nic_drop_pps: 0.0,
        discarded_pps: 0.0,
        delivered_pps: flood_pps / 2.0,
        input_cpu: None,
        detail: detail(mode, merit, flood_pps),
        conditions: blank.conditions,
    };
    let points = |mode, merit| {
        let of = |books: &Books| [point(mode, *books, 0.0, 1.0), point(mode, *books, 400e3, merit)];
        Books::ALL.iter().flat_map(of).collect::<Vec<_>>()
    };
    let series =
        [(Mode::Stock, points(Mode::Stock, 0.5)), (Mode::Weir, points(Mode::Weir, 0.96875))];
    let series = series.into();
    let variants = Books::ALL.map(Books::name);
    let trials = run.trials.into_iter().take(1).map(|trial| MeritTrial {
        load: trial.load,
        merit: 0.96875,
        input_cpu_ns: trial.input_cpu_ns,
        daemon_cpu_ns: trial.daemon_cpu_ns,
        detail: detail(Mode::Weir, 0.96875, 400e3),
    });
    let mut made = AccountingRun {
        schema: run.schema,
        experiment: crate::accounting::NAME.to_owned(),
        weir_version: run.weir_version,
        started_at: run.started_at,
        duration_s: run.duration_s,
        quick: true,
        machine: run.machine,
        merit: "share".to_owned(),
        variants: variants.map(str::to_owned).into(),
        workload: vec![Fact { name: "Server".to_owned(), value: "a recv loop".to_owned() }],
        setup: run.setup,
        summary: crate::merit::summary(&variants, &series),
        series,
        goals: run.goals,
        sentence: String::new(),
        warnings: run.warnings,
        trials: trials.collect(),
    };
    made.sentence = super::accounting_sentence(&made);
    made
}

//! What every result must be, however fast or slow the machine.

use weir_lab::results::{Experiment, Ledger, Mode, ModeSetup, Point, SCHEMA, Summary, Trial};

/// What was asked for, in a quick run with one repeat.
pub struct Wanted<'a> {
    /// The modes, in column order.
    pub modes: &'a [Mode],
    /// The rates in packets/s, lowest first; `None`: the top.
    pub rates: &'a [Option<f64>],
}

/// Reads what `--json` prints or `--out` keeps.
pub fn parse(json: &str) -> Experiment {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

/// Checks an experiment against what was asked for, and every packet of it.
pub fn assert_sound(experiment: &Experiment, wanted: &Wanted<'_>) {
    assert_eq!((experiment.schema, &*experiment.experiment), (SCHEMA, "udp-overload"));
    assert!(experiment.quick);
    assert!(experiment.workload.queue_depth_packets > 0, "{:?}", experiment.workload);
    assert!(experiment.workload.rcvbuf_bytes > 0, "{:?}", experiment.workload);
    assert_ne!(experiment.machine.sut_cpu, experiment.machine.generator_cpu);
    assert!(!experiment.sentence.is_empty());
    let accounted =
        experiment.goals.iter().find(|goal| goal.name.contains("accounted for")).unwrap();
    assert!(accounted.met, "{accounted:?}");

    assert!(experiment.setup.keys().eq(wanted.modes), "{:?}", experiment.setup);
    assert!(experiment.series.keys().eq(wanted.modes), "{:?}", experiment.series);
    assert!(experiment.summary.keys().eq(wanted.modes), "{:?}", experiment.summary);
    assert!(experiment.bystander.keys().eq(wanted.modes), "{:?}", experiment.bystander);
    for mode in wanted.modes {
        assert_setup(*mode, &experiment.setup[mode]);
        let points = &experiment.series[mode];
        let rates: Vec<_> = points.iter().map(|point| point.target_pps).collect();
        assert_eq!(rates, wanted.rates, "{mode}");
        points.iter().for_each(assert_point);
        assert_summary(&experiment.summary[mode], points);
        let trials = |purpose| {
            let of_it = |trial: &&Trial| trial.mode == *mode && trial.purpose == purpose;
            experiment.trials.iter().filter(of_it).count()
        };
        let rates = wanted.rates.len();
        for (purpose, rates) in [("sweep", rates), ("echo", rates), ("bystander", 2)] {
            let trials = trials(purpose);
            assert!(trials >= rates && trials % rates == 0, "{mode}: {trials} {purpose} trials");
        }
        // Five rates, and again each that failed.
        assert!((5..=10).contains(&trials("mlfrr")), "{mode}: {} trials", trials("mlfrr"));
    }
    experiment.trials.iter().for_each(assert_trial);
}

fn assert_setup(mode: Mode, setup: &ModeSetup) {
    let gated = matches!(mode, Mode::Gate | Mode::IdleWeir | Mode::Weir);
    assert_eq!(setup.attach, if gated { "native" } else { "none" }, "{mode}");
    assert_eq!(setup.gate != "none", gated, "{mode}: {setup:?}");
    assert!(setup.driver_poll.starts_with("CPU "), "{mode}: {setup:?}");
    assert!(setup.application.contains("a session of its own"), "{mode}: {setup:?}");
}

fn assert_point(point: &Point) {
    assert!(point.offered_pps > 0.0, "{point:?}");
    assert!(point.repeats > 0, "{point:?}");
    assert!((0.0..=1.0).contains(&point.sut_speed), "{point:?}");
    let spread = point.delivered;
    assert!(spread.min <= spread.median && spread.median <= spread.max, "{point:?}");
    assert!(point.age_p50_us <= point.age_p99_us, "{point:?}");
    assert!(point.echo_pps.is_some_and(|pps| pps >= 0.0), "{point:?}");
    assert!(point.echo_steady.is_none_or(|share| (0.0..=1.0).contains(&share)), "{point:?}");
}

fn assert_summary(summary: &Summary, points: &[Point]) {
    assert!(points.iter().all(|point| point.delivered_pps <= summary.peak_pps), "{summary:?}");
    assert!((0.0..=1.0).contains(&summary.retained), "{summary:?}");
    assert!(summary.ndr_pps <= summary.mlfrr_pps, "{summary:?}");
}

fn assert_trial(trial: &Trial) {
    let Ledger {
        offered,
        nic_drop,
        discarded,
        late_backlog,
        late_socket,
        late_other,
        delivered,
        beyond_udp,
        unaccounted,
    } = trial.ledger;
    assert_eq!(unaccounted, 0, "{trial:?}");
    let ends = nic_drop + discarded + late_backlog + late_socket + late_other + delivered;
    assert_eq!((offered, beyond_udp), (ends, 0), "{trial:?}");
    assert!(offered > 0, "{trial:?}");
    assert_eq!(trial.replies.is_some(), trial.purpose == "echo", "{trial:?}");
    if let Some(replies) = trial.replies {
        assert_eq!(replies.sent, delivered, "{trial:?}");
        assert_eq!(replies.arrived + replies.refused, delivered, "{trial:?}");
    }
    if matches!(trial.mode, Mode::Stock | Mode::Threaded | Mode::Niced | Mode::IdleWeir) {
        assert_eq!(discarded, 0, "nobody discards in {}: {trial:?}", trial.mode);
    }
    if trial.target_pps == Some(50e3) {
        assert!(delivered > 0, "{trial:?}");
    }
}

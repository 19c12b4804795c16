//! `weir lab run accounting` and `receivers`, very short: the results are whole, every packet of them is
//! accounted for, and nothing stays. No figure about speed is checked here.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
#[allow(dead_code, reason = "the other lab tests use the rest")]
mod running;

use std::fs;
use std::process::Command;

use common::{WEIR, failure};
use running::{Lab, Scratch, alone};
use weir_lab::results::accounting::{Accounting, AccountingRun};
use weir_lab::results::merit::MeritTrial;
use weir_lab::results::receivers::ReceiversRun;
use weir_lab::results::{Mode, SCHEMA};

const TINY: [&str; 5] =
    ["--quick", "--modes=stock,threaded,weir", "--seconds=0.1", "--repeats=1", "--json"];

/// Runs an experiment; what it printed, which is what it kept.
fn run(experiment: &str, options: &[&str]) -> String {
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let mut lab =
        Lab::start_experiment(experiment, &[&TINY[..], options, &["--out", dir]].concat());
    lab.wait_for_trials(4);
    lab.assert_succeeds();
    lab.assert_nothing_left();
    let kept = fs::read_to_string(out.path().join(format!("{experiment}.json"))).unwrap();
    assert_eq!(lab.stdout(), kept);
    assert!(out.path().join(format!("{experiment}.svg")).exists());
    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(page.contains(&format!("<h1>{experiment}</h1>")));
    kept
}

fn assert_trial(trial: &MeritTrial<Accounting>) {
    let (ledger, mode, detail) = (trial.load.ledger, trial.load.mode, &trial.detail);
    assert_eq!(ledger.unaccounted, 0, "{trial:?}");
    // The bystander works whatever comes.
    assert!(detail.loops_per_s > 0.0 && detail.work_cpu > 0.0, "{trial:?}");
    assert!((trial.merit + detail.mischarged - 1.0).abs() < 1e-9, "{trial:?}");
    assert_eq!(detail.threads_cpu.is_none(), mode == Mode::Stock, "{trial:?}");
    assert_eq!(detail.metered.is_some(), mode == Mode::Weir, "{trial:?}");
    let mixed = trial.load.purpose == "mixed" && trial.load.target_pps != Some(0.0);
    // Pings and packets to a closed port, unless the ring or the gate refused them all.
    assert!(mixed || (ledger.beyond_udp, ledger.late_other) == (0, 0), "{trial:?}");
    let Some(metered) = &detail.metered else { return };
    assert!(metered.server_ns <= metered.charged_ns, "{trial:?}");
    if ledger.delivered > 0 {
        assert!(metered.server_ns > 0.0 && metered.input_ns > 0.0, "{trial:?}");
        assert!(metered.accounted.is_none_or(|sum| sum > 0.0), "{trial:?}");
    }
}

#[test]
fn accounting_tells_of_everybody_who_is_charged() {
    let _alone = alone();
    let run: AccountingRun = serde_json::from_str(&run("accounting", &["--rates=20k"])).unwrap();
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, "accounting"));
    assert_eq!(run.variants, ["udp", "mixed"]);
    assert!(run.series.keys().eq(&[Mode::Stock, Mode::Threaded, Mode::Weir]));
    for points in run.series.values() {
        let targets: Vec<_> = points.iter().map(|point| point.target_pps).collect();
        assert_eq!(targets, [Some(0.0), Some(20e3), Some(0.0), Some(20e3)]);
    }
    assert_eq!(run.trials.len(), 12);
    run.trials.iter().for_each(assert_trial);
    let pings = run.trials.iter().map(|trial| trial.load.ledger.beyond_udp);
    assert!(pings.sum::<u64>() > 0);
    assert!(run.goals.last().unwrap().met, "{:?}", run.goals);
    assert!(run.workload.iter().any(|fact| fact.value.contains("IRQ_TIME")), "{:?}", run.workload);
}

#[test]
fn receivers_of_one_session_have_a_flood_each() {
    let _alone = alone();
    let run: ReceiversRun = serde_json::from_str(&run("receivers", &["--rates=5k,100k"])).unwrap();
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, "receivers"));
    assert_eq!((run.reference.heavier_nice, run.reference.lighter_nice), (0, 10));
    assert!(run.reference.passes > 0 && run.reference.weights_ratio > 9.0);
    for points in run.series.values() {
        let targets: Vec<_> = points.iter().map(|point| point.target_pps).collect();
        assert_eq!(targets, [Some(5e3), Some(100e3)]);
        for point in points {
            assert!(point.ratio.is_none_or(|ratio| ratio > 0.0), "{point:?}");
        }
    }
    let received = run.series.values().flatten().map(|point| point.lighter_pps);
    assert!(received.sum::<f64>() > 0.0);
    for trial in &run.trials {
        assert_eq!(trial.load.ledger.unaccounted, 0, "{trial:?}");
        assert!(trial.receivers.is_some(), "{trial:?}");
    }
    assert!(run.goals.last().unwrap().met, "{:?}", run.goals);
}

#[test]
fn what_they_cannot_send_is_refused_with_a_remedy() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(WEIR).args(["lab", "run"]).args(arguments).output().unwrap();
        failure(&output, 1)
    };
    let refusal = refused(&["accounting", "--ipv6"]);
    assert!(refusal.contains("accounting has no --ipv6"), "{refusal}");
    let refusal = refused(&["receivers", "--rates=top"]);
    assert!(refusal.contains("no top rate") && refusal.contains("--rates=50k"), "{refusal}");
}

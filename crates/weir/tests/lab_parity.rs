//! `weir lab run parity` and `rpc-mix`, very short: the results are whole, every datagram of them is
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
use weir_lab::results::parity::{Arm, Measure, ParityRun};
use weir_lab::results::rpc::RpcRun;
use weir_lab::results::{Mode, SCHEMA};

const TINY: [&str; 4] = ["--quick", "--seconds=0.1", "--repeats=1", "--json"];

/// Runs an experiment in so many namespaces; what it printed, which is what it kept.
fn run(experiment: &str, options: &[&str], namespaces: usize) -> String {
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let mut lab =
        Lab::start_experiment(experiment, &[&TINY[..], options, &["--out", dir]].concat());
    lab.wait_for_trials(namespaces);
    lab.assert_succeeds();
    lab.assert_nothing_left();
    let kept = fs::read_to_string(out.path().join(format!("{experiment}.json"))).unwrap();
    assert_eq!(lab.stdout(), kept);
    assert!(out.path().join("report.html").exists());
    kept
}

#[test]
fn parity_is_sound_and_leaves_nothing_but_its_report() {
    let _alone = alone();
    let run: ParityRun = serde_json::from_str(&run("parity", &[], 8)).unwrap();
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, "parity"));
    assert_eq!(run.rows.len(), 3);
    for row in &run.rows {
        assert!(row.arms.keys().eq(run.setup.keys()), "{row:?}");
        for (arm, point) in &row.arms {
            assert!(point.figure.median > 0.0, "{arm}: {point:?}");
            let weirs = arm.attach().is_some();
            let stocks = arm.stocks().iter().filter(|stock| point.against.contains_key(stock));
            assert!(!weirs || stocks.count() == arm.stocks().len(), "{arm}: {point:?}");
        }
    }
    for (arm, setup) in &run.setup {
        assert_eq!(setup.attach.trim_end_matches('x'), arm.attach().unwrap_or("none"), "{arm}");
        assert_eq!(setup.tso, arm.is_plain_veth(), "{arm}: {setup:?}");
    }
    for trial in &run.trials {
        assert_eq!((trial.lost.unaccounted, trial.lost.discarded), (0, 0), "{trial:?}");
        assert_eq!(trial.lost.offered.is_some(), trial.measure.is_udp(), "{trial:?}");
        assert_eq!(trial.lost.offered, trial.lost.delivered, "{trial:?}");
        assert_eq!(trial.p99_us.is_some(), trial.measure == Measure::UdpRoundTrip, "{trial:?}");
    }
}

#[test]
fn parity_takes_rows_and_columns_and_what_they_are_held_against() {
    let _alone = alone();
    let options = ["--rows=udp-round-trip-1", "--arms=tc"];
    let run: ParityRun = serde_json::from_str(&run("parity", &options, 4)).unwrap();
    let rows: Vec<_> = run.rows.iter().map(|row| (row.measure, row.flows)).collect();
    assert_eq!(rows, [(Measure::UdpRoundTrip, 1)]);
    assert!(run.setup.keys().eq(&[Arm::Stock, Arm::StockRps, Arm::Tc]));
    assert!(run.rows[0].arms.keys().eq(run.setup.keys()));
}

#[test]
fn rpc_mix_is_sound_and_leaves_nothing_but_its_report() {
    let _alone = alone();
    let json = run("rpc-mix", &["--modes=stock,weir"], 3);
    let run: RpcRun = serde_json::from_str(&json).unwrap();
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, "rpc-mix"));
    assert!(run.series.keys().eq(&[Mode::Stock, Mode::Weir]));
    for points in run.series.values() {
        // Three paces, alone and mixed.
        assert_eq!(points.len(), 6, "{points:?}");
        for point in points {
            let (mixed, detail) = (point.target_pps.is_none(), &point.detail);
            assert!(detail.calls >= 1.0 && detail.completion_ms > 0.0, "{point:?}");
            assert_eq!(mixed, detail.rpc_per_s > 0.0, "{point:?}");
        }
    }
    for trial in &run.trials {
        let ledger = trial.load.ledger;
        assert_eq!((ledger.offered, ledger.unaccounted), (ledger.delivered, 0), "{trial:?}");
    }
    for met in ["discarded by the gate", "accounted for"] {
        let goal = run.goals.iter().find(|goal| goal.name.contains(met)).unwrap();
        assert!(goal.met, "{goal:?}");
    }
}

#[test]
fn what_they_lack_is_refused_with_a_remedy() {
    let refused = |experiment: &str, option: &str| {
        let command = ["lab", "run", experiment, option];
        let refusal = failure(&Command::new(WEIR).args(command).output().unwrap(), 1);
        let name = option.split('=').next().unwrap();
        assert!(refusal.contains(&format!("{experiment} has no {name}")), "{refusal}");
    };
    for option in ["--ipv6", "--app=recvmmsg", "--payload=100", "--rcvbuf=10000", "--rates=10k"] {
        refused("parity", option);
        refused("rpc-mix", option);
    }
    refused("parity", "--modes=weir");
    for (option, remedy) in [
        ("--rows=tcp-stream", "is an option of parity"),
        ("--rows=tcp-stream-2", "or one of them with -1 or -1000"),
        ("--arms=xdp", "veth-tc"),
    ] {
        let command = ["lab", "run", "rpc-mix", option];
        let output = Command::new(WEIR).args(command).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(remedy), "{told}");
    }
}

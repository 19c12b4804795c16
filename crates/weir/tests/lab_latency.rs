//! `weir lab run udp-latency`, very short: its result is whole, and every ping and every packet of the
//! flood is accounted for. No figure about speed is checked here.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
#[allow(dead_code, reason = "the other lab tests use the rest")]
mod running;

use std::fs;
use std::process::Command;

use common::{WEIR, failure};
use running::{Lab, Scratch, alone};
use weir_lab::results::latency::{Latency, LatencyRun};
use weir_lab::results::merit::MeritTrial;
use weir_lab::results::{Mode, SCHEMA};

const EXPERIMENT: &str = "udp-latency";

fn assert_sound(family: &[&str]) {
    let _alone = alone();
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let options =
        ["--quick", "--modes=stock,weir", "--rates=20k", "--seconds=0.1", "--repeats=1", "--json"];
    let mut lab = Lab::start_experiment(EXPERIMENT, &[&options, family, &["--out", dir]].concat());
    lab.assert_succeeds();
    lab.assert_nothing_left();

    let run: LatencyRun = serde_json::from_str(&lab.stdout()).unwrap();
    let kept = fs::read_to_string(out.path().join("udp-latency.json")).unwrap();
    assert_eq!(run, serde_json::from_str(&kept).unwrap());
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, EXPERIMENT));
    assert!(out.path().join("udp-latency.svg").exists());
    assert!(run.series.keys().eq(&[Mode::Stock, Mode::Weir]));
    for points in run.series.values() {
        let targets: Vec<_> = points.iter().map(|point| point.target_pps).collect();
        assert_eq!(targets, [Some(0.0), Some(20e3)]);
        assert!(points[0].detail.p50_us.is_some_and(|us| us > 0.0), "{points:?}");
    }
    assert_eq!(run.trials.len(), 4);
    run.trials.iter().for_each(assert_trial);
}

fn assert_trial(trial: &MeritTrial<Latency>) {
    let (ledger, replies) = (trial.load.ledger, trial.load.replies.unwrap());
    assert_eq!(ledger.unaccounted, 0, "{trial:?}");
    // Each ping that the server had, it replied to, and each reply was seen on its way.
    assert_eq!(replies.sent, replies.arrived + replies.refused, "{trial:?}");
    let pings = &trial.detail;
    assert!(pings.sent > 0 && pings.sent - pings.lost <= replies.sent, "{trial:?}");
    let offered_in_window = trial.load.bystander_offered_pps * trial.load.window_s;
    assert!((offered_in_window - pings.sent as f64).abs() < 1e-6, "{trial:?}");
    // Nobody else's packets are in the way without a flood.
    if trial.load.target_pps == Some(0.0) {
        let lost = ledger.nic_drop + ledger.discarded + ledger.late_backlog + ledger.late_socket;
        assert!(pings.lost <= lost, "a reply was not seen: {trial:?}");
    }
}

#[test]
fn a_run_is_sound_over_ipv4() {
    assert_sound(&[]);
}

#[test]
fn a_run_is_sound_over_ipv6() {
    assert_sound(&["--ipv6"]);
}

#[test]
fn a_window_of_more_pings_than_are_remembered_is_refused() {
    let command = ["lab", "run", EXPERIMENT, "--seconds=60"];
    let refusal = failure(&Command::new(WEIR).args(command).output().unwrap(), 1);
    assert!(refusal.contains("too long") && refusal.contains("--seconds"), "{refusal}");
}

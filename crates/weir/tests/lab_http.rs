//! `weir lab run http-syn-flood`, very short: its result is whole, every packet of it is accounted for,
//! and neither nginx nor its files stay. No figure about speed is checked here.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
#[allow(dead_code, reason = "the other lab tests use the rest")]
mod running;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{WEIR, failure, wait_until};
use running::{Lab, Scratch, alone};
use rustix::process::Signal;
use weir_lab::results::http::{Http, HttpRun};
use weir_lab::results::merit::MeritTrial;
use weir_lab::results::{Mode, SCHEMA};

const EXPERIMENT: &str = "http-syn-flood";

/// Directories of nginx's files, of any lab.
fn directories() -> Vec<PathBuf> {
    let entries = fs::read_dir("/run/weir-lab").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[test]
fn a_run_is_sound_and_leaves_nothing_but_its_report() {
    let _alone = alone();
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let options =
        ["--quick", "--modes=stock,weir", "--rates=20k", "--seconds=0.1", "--repeats=1", "--json"];
    let mut lab = Lab::start_experiment(EXPERIMENT, &[&options[..], &["--out", dir]].concat());
    lab.wait_for_trials(3);
    lab.assert_succeeds();
    lab.assert_nothing_left();

    let run: HttpRun = serde_json::from_str(&lab.stdout()).unwrap();
    let kept = fs::read_to_string(out.path().join("http-syn-flood.json")).unwrap();
    assert_eq!(run, serde_json::from_str(&kept).unwrap());
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, EXPERIMENT));
    assert!(out.path().join("http-syn-flood.svg").exists());
    assert!(run.series.keys().eq(&[Mode::Stock, Mode::Weir]));
    assert!(run.setup.keys().eq(run.series.keys()) && run.summary.keys().eq(run.series.keys()));
    for (mode, points) in &run.series {
        assert!(run.setup[mode].application.contains("a session of its own"), "{:?}", run.setup);
        // Two usages, with and without a flood.
        assert_eq!(points.len(), 4, "{points:?}");
        for point in points.iter().filter(|point| point.target_pps == Some(0.0)) {
            assert!(point.merit > 0.0 && point.of_unloaded == Some(1.0), "{point:?}");
            assert_eq!((point.flood_pps, point.nic_drop_pps), (0.0, 0.0), "{point:?}");
        }
    }
    run.trials.iter().for_each(assert_trial);
    let cookies = run.trials.iter().map(|trial| trial.detail.cookies_pps).sum::<f64>();
    assert!(cookies > 0.0, "no SYN was answered by a cookie");
    let accounted = run.goals.iter().find(|goal| goal.name.contains("accounted for")).unwrap();
    assert!(accounted.met, "{accounted:?}");
}

fn assert_trial(trial: &MeritTrial<Http>) {
    let ledger = trial.load.ledger;
    let ends = ledger.nic_drop + ledger.discarded + ledger.delivered;
    assert_eq!((ledger.offered, ledger.unaccounted), (ends, 0), "{trial:?}");
    // Nothing was lost without a flood, so that a failure would be the lab's own.
    if trial.load.target_pps == Some(0.0) {
        assert_eq!(trial.detail.failures.all(), 0, "{trial:?}");
    }
}

#[test]
fn ctrl_c_ends_nginx_too() {
    let _alone = alone();
    let mut lab = start_long();
    let files = lab.files_path();
    assert!(files.join("niced").is_dir(), "{:?}", directories());
    lab.signal_group(Signal::INT);
    lab.assert_interrupted();
    assert!(!files.exists());
}

#[test]
fn after_a_kill_nginx_ends_and_clean_removes_its_files() {
    let _alone = alone();
    let mut lab = start_long();
    let files = lab.files_path();
    let is_nginx = |process: &String| process.contains("nginx: ");
    wait_until("nginx runs", || lab.processes().iter().filter(|p| is_nginx(p)).count() == 2);
    lab.signal(Signal::KILL);
    lab.end();
    lab.assert_no_process_left();
    assert!(files.is_dir());
    let cleaned = Command::new(WEIR).args(["lab", "clean"]).output().unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert!(!files.exists());
    lab.assert_nothing_left();
}

/// A run that would take minutes.
fn start_long() -> Lab {
    let options = ["--quick", "--modes=niced", "--rates=20k", "--repeats=1000"];
    let mut lab = Lab::start_experiment(EXPERIMENT, &options);
    lab.wait_for_trials(2);
    lab
}

#[test]
fn what_it_lacks_is_refused_with_a_remedy() {
    let run = |options: &[&str]| {
        let command = [&["lab", "run", EXPERIMENT], options].concat();
        failure(&Command::new(WEIR).args(command).output().unwrap(), 1)
    };
    for option in ["--ipv6", "--app=recvmmsg", "--payload=100", "--rcvbuf=10000"] {
        let refusal = run(&[option]);
        let name = option.split('=').next().unwrap();
        assert!(refusal.contains(&format!("http-syn-flood has no {name}")), "{refusal}");
    }
    // Where there is no nginx to be found.
    if !Path::new("/usr/sbin/nginx").exists() && !Path::new("/usr/bin/nginx").exists() {
        assert!(run(&["--quick"]).contains("apt-get install nginx-light"));
    }
}

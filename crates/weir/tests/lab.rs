//! `weir lab`, the real thing on real packets: its results are sound, and nothing of it stays.
//!
//! No figure about speed is checked here; the machines that run tests are noisy.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
mod running;
#[path = "lab/soundness.rs"]
mod soundness;

use std::fs;
use std::process::{Command, Output};

use common::*;
use running::{Lab, Scratch, alone};
use rustix::process::Signal;
use soundness::{Wanted, assert_sound, parse};
use weir_bpf::sys::netns::NetNs;
use weir_lab::results::Mode;

/// Ends within a second or two.
const TINY: [&str; 7] = ["--quick", "--rates", "50k", "--seconds", "0.05", "--repeats", "1"];

/// Runs a `weir lab` command that makes no namespace.
fn lab(arguments: &[&str]) -> Output {
    Command::new(WEIR).arg("lab").args(arguments).output().unwrap()
}

/// Standard output of a command that succeeded.
fn success(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_run_is_sound_and_leaves_nothing_but_its_report() {
    let _alone = alone();
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let mut lab_run = Lab::start(&[
        "--quick",
        "--modes=stock,threaded,weir",
        "--rates=50k,top",
        "--seconds=0.1",
        "--repeats=1",
        "--json",
        "--out",
        dir,
    ]);
    lab_run.wait_for_trials(4);
    lab_run.assert_succeeds();
    lab_run.assert_nothing_left();

    let printed = parse(&lab_run.stdout());
    let json = out.path().join("udp-overload.json");
    assert_eq!(printed, parse(&fs::read_to_string(&json).unwrap()));
    let modes = [Mode::Stock, Mode::Threaded, Mode::Weir];
    assert_sound(&printed, &Wanted { modes: &modes, rates: &[Some(50e3), None] });
    assert_eq!((&*printed.workload.application, &*printed.workload.packets), ("recv", "udp4"));
    let shed = |trial: &&weir_lab::results::Trial| {
        trial.mode == Mode::Weir && trial.purpose == "sweep" && trial.target_pps.is_none()
    };
    let top = printed.trials.iter().find(shed).unwrap();
    assert!(top.ledger.discarded + top.ledger.nic_drop > 0, "{top:?}");

    let svg = fs::read_to_string(out.path().join("udp-overload.svg")).unwrap();
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg:.80}");
    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    let without_namespace = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for outside in ["http", "src=", "@import", "url(", "<link", "<script"] {
        assert!(!without_namespace.contains(outside), "report.html refers to {outside}");
    }

    // The page can be had again from the directory alone.
    fs::remove_file(out.path().join("report.html")).unwrap();
    let told = success(&lab(&["report", dir]));
    assert_eq!(told, format!("wrote {dir}/report.html\n"));
    assert_eq!(fs::read_to_string(out.path().join("report.html")).unwrap(), page);
}

#[test]
fn ipv6_is_sound_too() {
    let _alone = alone();
    let experiment = run_variant(&["--ipv6", "--modes=threaded,weir"]);
    assert_eq!(experiment.workload.packets, "udp6");
}

#[test]
fn an_application_that_takes_batches_is_sound_too() {
    let _alone = alone();
    let experiment = run_variant(&["--app=recvmmsg", "--modes=threaded,weir"]);
    assert_eq!(experiment.workload.application, "recvmmsg");
}

fn run_variant(options: &[&str]) -> weir_lab::results::Experiment {
    let mut lab_run = Lab::start(&[&TINY[..], &["--json"], options].concat());
    lab_run.wait_for_trials(3);
    lab_run.assert_succeeds();
    lab_run.assert_nothing_left();
    let experiment = parse(&lab_run.stdout());
    let modes = [Mode::Threaded, Mode::Weir];
    assert_sound(&experiment, &Wanted { modes: &modes, rates: &[Some(50e3)] });
    experiment
}

/// A run that would take minutes.
fn start_long(modes: &str) -> Lab {
    let mut lab_run =
        Lab::start(&["--quick", "--json", "--rates=50k", "--repeats=1000", "--modes", modes]);
    lab_run.wait_for_trials(modes.split(',').count() + 1);
    lab_run
}

#[test]
fn sigterm_ends_it_and_removes_everything() {
    let _alone = alone();
    let mut lab_run = start_long("weir");
    wait_until("the daemon protects the interface", || !lab_run.state_files().is_empty());
    lab_run.signal(Signal::TERM);
    lab_run.assert_interrupted();
}

#[test]
fn sigint_ends_it_and_removes_everything() {
    let _alone = alone();
    let mut lab_run = start_long("weir");
    lab_run.signal(Signal::INT);
    lab_run.assert_interrupted();
}

#[test]
fn ctrl_c_reaches_its_processes_first_and_is_still_an_interruption() {
    let _alone = alone();
    let mut lab_run = start_long("stock,threaded");
    // A terminal signals the whole group: the applications are gone before the lab asks them.
    lab_run.signal_group(Signal::INT);
    lab_run.assert_interrupted();
}

#[test]
fn after_a_kill_the_processes_end_and_clean_removes_the_rest() {
    let _alone = alone();
    let mut lab_run = start_long("weir,gate");
    wait_until("the daemon protects the interface", || !lab_run.state_files().is_empty());
    assert!(!lab_run.processes().is_empty());
    lab_run.signal(Signal::KILL);
    lab_run.end();
    lab_run.assert_no_process_left();

    let names = lab_run.namespaces();
    assert_eq!(names.len(), 3);
    let somebody_elses = Sandbox::new("weir-lab-mine");
    let told = success(&lab(&["clean"]));
    somebody_elses.assert_exists();
    let (lines, total) = told.trim_end().rsplit_once('\n').unwrap();
    for name in &names {
        assert!(lines.lines().any(|line| line == format!("removed namespace {name}")), "{told}");
    }
    assert_eq!(total, format!("{} namespaces removed", lines.lines().count()));
    lab_run.assert_nothing_left();
    assert!(!success(&lab(&["clean"])).contains(&names[0]), "removed twice");
}

/// A namespace whose name is much like the lab's, and is not the lab's.
struct Sandbox(String);

impl Sandbox {
    fn new(prefix: &str) -> Self {
        let name = format!("{prefix}{}", std::process::id());
        NetNs::create_named(&name).unwrap();
        Self(name)
    }

    fn assert_exists(&self) {
        assert!(NetNs::open_named(&self.0).is_ok(), "{} has been removed", self.0);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = NetNs::delete_named(&self.0);
    }
}

#[test]
fn two_labs_at_once_leave_each_other_alone() {
    let _alone = alone();
    let tiny_but = |repeats: &'static str, mode: &'static str| {
        [
            "--quick",
            "--json",
            "--rates=50k",
            "--seconds=0.05",
            "--modes",
            mode,
            "--repeats",
            repeats,
        ]
    };
    let mut first = Lab::start(&tiny_but("48", "threaded"));
    first.wait_for_trials(2);
    let names = first.namespaces();
    let told = success(&lab(&["clean"]));
    assert!(names.iter().all(|name| !told.contains(name)), "{told}");
    assert_eq!(first.namespaces(), names);

    let mut second = Lab::start(&tiny_but("1", "weir"));
    second.wait_for_trials(2);
    second.assert_succeeds();
    assert!(first.is_running(), "the first was to outlast the second");
    assert_eq!(first.namespaces(), names);
    second.assert_nothing_left();
    let wanted = Wanted { modes: &[Mode::Weir], rates: &[Some(50e3)] };
    assert_sound(&parse(&second.stdout()), &wanted);

    first.assert_succeeds();
    first.assert_nothing_left();
    let wanted = Wanted { modes: &[Mode::Threaded], rates: &[Some(50e3)] };
    assert_sound(&parse(&first.stdout()), &wanted);
}

#[test]
fn wrong_usage_exits_with_2_and_names_what_is_allowed() {
    let run = |options: &[&str]| failure(&lab(&[&["run", "udp-overload"], options].concat()), 2);
    let refusal = run(&["--modes", "stock,fast"]);
    assert!(refusal.contains("'fast'") && refusal.contains("stock, threaded, niced"), "{refusal}");
    for bad in ["5x", "0", "", "999", "1G"] {
        let refusal = run(&["--rates", bad]);
        assert!(refusal.contains("1k to 200M packets/s"), "{refusal}");
    }
    let refusal = run(&["--seconds", "0"]);
    assert!(refusal.contains("0.05 to 3600 seconds"), "{refusal}");
    let refusal = run(&["--app", "epoll"]);
    assert!(refusal.contains("recv, recvmmsg"), "{refusal}");
    for bad in [&["--repeats", "0"][..], &["--payload", "13"], &["--nonsense"]] {
        run(bad);
    }
    for bad in [&["run"][..], &["report"], &["nonsense"], &[]] {
        failure(&lab(bad), 2);
    }
}

#[test]
fn an_unknown_experiment_is_named_and_nothing_is_begun() {
    for experiments in [&["tcp-overload"][..], &["udp-overload", "tcp-overload"]] {
        let output = lab(&[&["run"], experiments].concat());
        let refusal = failure(&output, 2);
        assert!(refusal.contains("tcp-overload"), "{refusal}");
        assert!(refusal.contains("possible values: udp-overload"), "{refusal}");
        assert!(!refusal.contains("setting up"), "{refusal}");
    }
}

#[test]
fn missing_capabilities_are_named() {
    let run = |dropped: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", dropped, "--inh-caps", "-all", WEIR]);
        let output = command.args(["lab", "run", "udp-overload"]).args(TINY).output().unwrap();
        let refusal = failure(&output, 1);
        assert!(refusal.contains("run it as root"), "{refusal}");
        assert!(!refusal.contains("setting up"), "{refusal}");
        refusal
    };
    let refusal = run("-net_admin,-sys_nice");
    assert!(refusal.contains("lacks CAP_NET_ADMIN, CAP_SYS_NICE;"), "{refusal}");
    let refusal = run("-sys_admin,-bpf,-perfmon");
    assert!(refusal.contains("lacks CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF;"), "{refusal}");
}

#[test]
fn the_experiments_are_listed() {
    let list = success(&lab(&["list"]));
    for name in [
        "udp-overload ",
        "gate-cost ",
        "separation ",
        "user-share ",
        "parity ",
        "rpc-mix ",
        "accounting ",
        "receivers ",
    ] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
    }
}

#[test]
fn a_report_of_nothing_or_of_a_broken_file_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.path().to_str().unwrap();
    let refusal = failure(&lab(&["report", dir]), 1);
    assert!(refusal.contains("no results in") && refusal.contains("weir lab run"), "{refusal}");

    fs::write(scratch.path().join("cut.json"), "{\"schema\": 1,\n  \"exper").unwrap();
    let refusal = failure(&lab(&["report", dir]), 1);
    assert!(refusal.contains("cut.json") && refusal.contains("line 2"), "{refusal}");
    assert!(refusal.contains("move it out"), "{refusal}");
    assert!(!scratch.path().join("report.html").exists());

    let refusal = failure(&lab(&["report", &format!("{dir}/absent")]), 1);
    assert!(refusal.contains("cannot list") && refusal.contains("absent"), "{refusal}");
}

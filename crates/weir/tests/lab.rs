//! `weir lab`, the real thing on real packets: its results are sound, and nothing of it stays.
//!
//! No figure about speed is checked here; the machines that run tests are noisy.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output};

use common::*;
use running::Lab;
use rustix::process::Signal;
use serde_json::Value;
use weir_lab::experiments;
use weir_lab::metric::{self, Unit, m};
use weir_lab::run::{Load, Run, SCHEMA, Trial};

/// Ends within a second or two.
const TINY: [&str; 9] = [
    "--quick", "--no-warm-up", "--rates=50k", "--seconds=0.05", "--repeats=1", "--cases", "recv",
    "--json", "--arms",
];

/// Runs a `weir lab` command that makes no namespace.
fn lab(arguments: &[&str]) -> Output {
    Command::new(WEIR).arg("lab").args(arguments).output().unwrap()
}

/// What `--json` prints, which has all that is kept and what is computed of it.
fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

/// The kept part of it.
fn kept(printed: &Value) -> Run {
    let kept = ["head", "columns", "trials"].map(|key| (key, &printed[key]));
    Run::parse(&serde_json::to_string(&BTreeMap::from(kept)).unwrap()).unwrap()
}

/// What every result must be, however fast or slow the machine.
fn assert_sound(run: &Run) {
    let head = &run.head;
    assert_eq!(head.schema, SCHEMA);
    assert_eq!(head.command[..3], ["weir", "lab", "run"]);
    assert!(head.commit == "unknown" || head.commit.len() == 40, "{}", head.commit);
    assert_ne!(head.machine.sut_cpu, head.machine.generator_cpu);
    assert!(!run.trials.is_empty());
    for trial in &run.trials {
        assert!(head.setup.contains_key(&trial.arm) || trial.ledger.is_none(), "{trial:?}");
        assert_trial(trial, &head.experiment);
    }
}

fn assert_trial(trial: &Trial, experiment: &str) {
    for (id, value) in &trial.values {
        let known = metric::METRICS.iter().copied().find(|metric| metric.id == id);
        let metric = known.unwrap_or_else(|| panic!("{id} is not declared"));
        assert!(value.is_finite() && *value >= 0.0 || metric == &m::mischarged, "{id}: {trial:?}");
        if metric.unit == Unit::Share && metric != &m::mischarged {
            // CPU time is accounted in ticks, and windows are short.
            assert!(*value <= 3.0, "{experiment}: {id}: {trial:?}");
        }
    }
    assert!(trial.get(&m::window_s).is_none_or(|window| window > 0.0), "{trial:?}");
    let Some(ledger) = trial.ledger else { return };
    assert_eq!(ledger.unaccounted, 0, "{trial:?}");
    assert_eq!(ledger.closed(), ledger, "{trial:?}");
    let gated = trial.arm.starts_with("weir") || trial.arm == "gate" || trial.arm == "softirq";
    if !gated {
        assert_eq!(ledger.discarded, 0, "nobody discards in {}: {trial:?}", trial.arm);
    }
}

#[test]
fn a_run_is_sound_and_leaves_nothing_but_its_report() {
    let _alone = Cpus::take();
    let out = killed::temp_dir();
    let dir = out.path().to_str().unwrap();
    let mut lab_run = Lab::start(&[
        "--quick",
        "--arms=stock,threaded,batch,weir,weir-native",
        "--rates=50k,top",
        "--seconds=0.1",
        "--repeats=1",
        "--json",
        "--out",
        dir,
    ]);
    lab_run.wait_for_trials(6);
    lab_run.assert_succeeds();
    lab_run.assert_nothing_left();

    let printed = parse(&lab_run.stdout());
    let run = Run::read(&out.path().join("udp-overload.json")).unwrap();
    assert_eq!(kept(&printed), run);
    assert_sound(&run);
    let of = |arm: &str, case: &str| {
        run.trials.iter().filter(|t| t.arm == arm && t.case == case).collect::<Vec<_>>()
    };
    for arm in ["stock", "threaded", "batch", "weir", "weir-native"] {
        let swept: BTreeSet<String> = of(arm, "recv").iter().map(|t| t.load.to_string()).collect();
        assert_eq!(swept, BTreeSet::from(["50 k".to_owned(), "top".to_owned()]), "{arm}");
        assert!(of(arm, "echo").iter().all(|t| t.get(&m::echo_pps).is_some()), "{arm}");
        let setup = &run.head.setup[arm];
        let gated = arm.starts_with("weir");
        assert_eq!(setup.attach != "none", gated, "{setup:?}");
        assert_eq!(setup.daemon != "none", gated, "{setup:?}");
        // Where weir governs, the thread's policy is that of the moment.
        let batch = setup.driver_poll.contains("SCHED_BATCH");
        assert!(batch == (arm == "batch") || gated, "{setup:?}");
        assert!(setup.application.contains("a session of its own"), "{setup:?}");
        assert!(setup.queue_depth_packets.is_some_and(|packets| packets > 0), "{setup:?}");
        let series = printed["series"][arm].as_array().unwrap();
        let delivered = |point: &Value| point["delivered_pps"].as_f64() > Some(0.0);
        assert!(series.iter().any(delivered), "{arm}: {series:?}");
    }
    assert_eq!(run.head.setup["weir-native"].attach, "native");
    // What fails at every rate has a bound, too.
    let pdr = &printed["searches"]["weir-native"]["pdr"];
    assert!(pdr["passed"].is_number() || pdr["failed"].is_number(), "{pdr}");
    // Four rates, of each two trials, or three where those disagree.
    assert!((8..=12).contains(&of("weir-native", "pdr").len()), "{:?}", of("weir-native", "pdr"));
    let top = of("weir-native", "recv").into_iter().find(|t| t.load == Load::Top).unwrap();
    let ledger = top.ledger.unwrap();
    assert!(ledger.discarded + ledger.nic_drop > 0, "{ledger:?}");
    assert!(
        printed["goals"].as_array().unwrap().iter().any(|g| g["name"] == "packets in no counter")
    );

    let svg = fs::read_to_string(out.path().join("udp-overload.svg")).unwrap();
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg:.80}");
    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    // The page can be had again from the directory alone.
    fs::remove_file(out.path().join("report.html")).unwrap();
    let told = success(&lab(&["report", dir]));
    assert_eq!(told, format!("wrote {dir}/report.html\n"));
    assert_eq!(fs::read_to_string(out.path().join("report.html")).unwrap(), page);
    let tables = success(&lab(&["report", dir, "--markdown"]));
    assert!(tables.contains("| weir-native |") || tables.contains("weir-native"), "{tables}");
    let same = format!("{dir}/udp-overload.json");
    assert!(success(&lab(&["compare", &same, &same])).contains("delivered_pps"));
}

/// Every experiment on its weir arm and a baseline, a trial of each point of a quick run.
#[test]
fn every_experiment_is_sound() {
    let _alone = Cpus::take();
    let null_owner = || fs::metadata("/dev/null").unwrap().uid();
    let owner = null_owner();
    for experiment in experiments::ALL.iter().filter(|e| e.name != "udp-overload") {
        let is_quick = |word: &&str| !word.ends_with('?');
        let mut arms = experiment.arms.split(',').filter(is_quick);
        let baseline = arms.find(|arm| *arm != experiment.main).unwrap();
        let arms = format!("--arms={baseline},{}", experiment.main);
        let mut options =
            ["--quick", "--no-warm-up", "--seconds=0.05", "--repeats=1", "--json"].to_vec();
        options.push(&arms);
        // Of a series of rates the last, at which every book has most to balance.
        let mut loads = experiment.loads.rsplit(',').filter(is_quick);
        let heaviest = loads.next().filter(|_| loads.count() > 1);
        let heaviest = heaviest.map(|load| format!("--rates={load}"));
        options.extend(heaviest.as_deref());
        let mut lab_run = Lab::start_experiment(experiment.name, &options);
        lab_run.assert_succeeds();
        lab_run.assert_nothing_left();
        assert_eq!(null_owner(), owner, "{} gave /dev/null away", experiment.name);
        let printed = parse(&lab_run.stdout());
        let run = kept(&printed);
        assert_eq!(run.head.experiment, experiment.name);
        assert_sound(&run);
        let of_merit = |t: &&Trial| experiment.merits.iter().any(|merit| t.get(merit).is_some());
        let weir: Vec<&Trial> = run.trials.iter().filter(|t| t.arm == experiment.main).collect();
        assert!(weir.iter().any(of_merit) || experiment.derive.is_some(), "{}", experiment.name);
        for program in experiment.needs {
            assert!(run.head.programs.contains_key(*program), "{:?}", run.head.programs);
        }
        assert!(!printed["sentence"].as_str().unwrap().is_empty(), "{}", experiment.name);
    }
}

/// A run that would take minutes.
fn start_long(arms: &str, more: &[&str]) -> Lab {
    let options = ["--quick", "--json", "--rates=50k", "--cases=recv", "--repeats=1000"];
    let arms_option = format!("--arms={arms}");
    let mut lab_run = Lab::start(&[&options[..], &[&arms_option], more].concat());
    lab_run.wait_for_trials(arms.split(',').count() + 1);
    lab_run
}

/// How many trials a run that lasts has kept.
fn kept_trials(partial: &Path) -> usize {
    let text = fs::read_to_string(partial).unwrap_or_default();
    text.lines().filter(|line| line.starts_with('{')).count()
}

#[test]
fn a_run_that_is_stopped_removes_everything_and_goes_on_later() {
    let _alone = Cpus::take();
    let out = killed::temp_dir();
    let dir = out.path().to_str().unwrap();
    let options =
        ["--repeats=8", "--seconds=0.05", "--quick", "--json", "--rates=50k", "--cases=recv"];
    let options = [&options[..], &["--no-warm-up", "--arms=threaded,weir", "--out", dir]].concat();
    let mut lab_run = Lab::start(&options);
    lab_run.wait_for_trials(3);
    let partial = out.path().join("udp-overload.partial");
    wait_until("some trials are kept", || kept_trials(&partial) > 2);
    lab_run.signal(Signal::TERM);
    lab_run.assert_interrupted();
    let messages = lab_run.stderr();
    assert!(
        messages.contains(&format!("the same command goes on with the trials in {dir}")),
        "{messages}"
    );
    let before = kept_trials(&partial);

    let mut again = Lab::start(&options);
    again.assert_succeeds();
    assert!(
        again.stderr().contains(&format!("going on after {before} trials")),
        "{}",
        again.stderr()
    );
    let run = Run::read(&out.path().join("udp-overload.json")).unwrap();
    assert_eq!(run.trials.len(), 16);
    assert_sound(&run);
    assert!(!partial.exists());
}

#[test]
fn a_run_whose_disk_is_full_says_how_it_goes_on() {
    let _alone = Cpus::take();
    let out = killed::temp_dir();
    let script = r#"mount -t tmpfs -o size=8k none "$dir" && exec "$weir" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", "lab", "run", "udp-overload", "--quick"]);
    command.args(["--seconds=0.05", "--rates=50k", "--cases=recv", "--no-warm-up"]);
    command.args(["--repeats=100", "--arms=threaded", "--out"]).arg(out.path());
    let output = command.env("dir", out.path()).env("weir", WEIR).output().unwrap();
    let said = failure(&output, 1);
    let goes_on = format!("the same command goes on with the trials in {}", out.path().display());
    assert!(said.contains("No space left") && said.contains(&goes_on), "{said}");
}

#[test]
fn of_several_experiments_those_that_were_measured_are_not_measured_again() {
    let _alone = Cpus::take();
    let out = killed::temp_dir();
    let dir = out.path().to_str().unwrap();
    let options = ["burst-latency", "--cases=recv,short", "--repeats=1", "--seconds=0.05"];
    let arms = ["threaded", "stock", "weir"];
    let arms_option = format!("--arms={}", arms.join(","));
    let more = ["--quick", "--no-warm-up", "--rates=50k", &arms_option, "--out", dir];
    let options = [&options[..], &more].concat();
    let [first, second] = ["udp-overload", "burst-latency"].map(|name| out.path().join(name));
    let partials = [&first, &second].map(|path| path.with_extension("partial"));
    let mut lab_run = Lab::start(&options);
    let begun = || kept_trials(&partials[1]) > 0;
    wait_until("the second is measured", || begun() || !lab_run.is_running());
    lab_run.signal(Signal::TERM);
    let (status, messages) = lab_run.end();
    assert_eq!(status.code(), Some(1), "{messages}");
    lab_run.assert_nothing_left();
    let read = || fs::read_to_string(first.with_extension("json")).unwrap();
    let (before, trials) = (read(), kept_trials(&partials[1]));

    let mut again = Lab::start(&options);
    again.assert_succeeds();
    let said = again.stderr();
    assert!(said.contains("udp-overload: already measured"), "{said}");
    let goes_on = format!("burst-latency: going on after {trials} trials");
    assert!(said.contains(&goes_on), "{said}");
    assert_eq!(read(), before);
    let run = Run::read(&second.with_extension("json")).unwrap();
    assert_eq!(run.trials.len(), arms.len());
    // Also of those that had no trial left.
    assert!(run.head.setup.keys().eq(&BTreeSet::from(arms)), "{:?}", run.head.setup);
    assert!(partials.iter().all(|path| !path.exists()));

    let mut anew = Lab::start(&options);
    anew.assert_succeeds();
    assert!(!anew.stderr().contains("already measured"), "{}", anew.stderr());
    assert_ne!(read(), before);
}

#[test]
fn sigint_ends_it_and_removes_everything() {
    let _alone = Cpus::take();
    let mut lab_run = start_long("weir", &[]);
    lab_run.signal(Signal::INT);
    lab_run.assert_interrupted();
}

#[test]
fn ctrl_c_reaches_its_processes_first_and_is_still_an_interruption() {
    let _alone = Cpus::take();
    let mut lab_run = start_long("stock,threaded", &[]);
    // A terminal signals the whole group: the applications are gone before the lab asks them.
    lab_run.signal_group(Signal::INT);
    lab_run.assert_interrupted();
}

#[test]
fn after_a_kill_the_processes_end_and_the_next_lab_removes_the_files() {
    let _alone = Cpus::take();
    let mut killed = start_long("weir,gate", &[]);
    wait_until("the daemon protects the interface", || !killed.state_files().is_empty());
    assert!(!killed.processes().is_empty());
    killed.signal(Signal::KILL);
    killed.end();
    killed.assert_no_process_left();
    assert!(killed.files_path().exists());

    let mut next = Lab::start(&[&TINY[..], &["threaded"]].concat());
    next.assert_succeeds();
    killed.assert_nothing_left();
    next.assert_nothing_left();
}

#[test]
fn after_a_kill_the_next_lab_removes_the_capture() {
    let _alone = Cpus::take();
    let captures = || {
        let files = fs::read_dir("/var/tmp").unwrap().map(|file| file.unwrap().file_name());
        files.filter(|name| name.to_str().unwrap().starts_with("weir-lab-capture-")).count()
    };
    let options = ["--cases=tcpdump-disk-56", "--arms=threaded", "--rates=50k", "--seconds=5"];
    let mut killed = Lab::start_experiment("monitor", &options);
    wait_until("it captures", || captures() > 0 || !killed.is_running());
    assert!(killed.is_running(), "{}", killed.stderr());
    killed.signal(Signal::KILL);
    killed.end();
    assert_eq!(captures(), 1);
    let mut next = Lab::start(&[&TINY[..], &["threaded"]].concat());
    next.assert_succeeds();
    assert_eq!(captures(), 0);
}

/// It is the machine's, so no namespace takes it along.
#[test]
fn after_a_kill_the_machine_has_its_quota_back() {
    let _alone = Cpus::take();
    let names = ["dev_weight", "netdev_budget", "netdev_budget_usecs"];
    let read =
        || names.map(|name| fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap());
    let before = read();
    let mut killed = start_long("stock-rps+quota7", &[]);
    wait_until("the quota is set", || read()[..2] == ["7\n", "7\n"]);
    killed.signal(Signal::KILL);
    killed.end();
    wait_until("the quota is as before", || read() == before);
}

#[test]
fn a_second_lab_waits_for_the_first() {
    let _alone = Cpus::take();
    let mut first = start_long("threaded", &[]);
    let mut second = Lab::start(&[&TINY[..], &["weir"]].concat());
    let waits = format!("waits until another lab has ended, process {}", first.id());
    wait_until("it waits", || second.stderr().contains(&waits) || !second.is_running());
    assert!(second.is_running() && first.is_running(), "{}", second.stderr());
    first.signal(Signal::TERM);
    first.assert_interrupted();
    second.assert_succeeds();
    second.assert_nothing_left();
    assert_sound(&kept(&parse(&second.stdout())));
}

#[test]
fn two_settings_are_compared_pair_by_pair() {
    let _alone = Cpus::take();
    let out = killed::temp_dir();
    let dir = out.path().to_str().unwrap();
    let options = ["ab", "--a", "weir", "--b", "weir --nice 0", "udp-overload", "--quick"];
    let points = ["--cases=recv", "--rates=50k", "--seconds=0.05", "--repeats=3", "--no-warm-up"];
    let told = success(&lab(&[&options[..], &points, &["--out", dir]].concat()));
    assert!(told.trim_end().lines().last().unwrap().starts_with("ab: "), "{told}");
    assert!(told.contains("too few pairs"), "{told}");
    let run = Run::read(&out.path().join("ab-udp-overload.json")).unwrap();
    assert_eq!(run.trials.len(), 6);

    let missing = failure(&lab(&["ab", "--a", "./no-such-weir", "--b", "weir", "udp-overload"]), 1);
    assert!(missing.contains("no-such-weir"), "{missing}");
}

#[test]
fn wrong_usage_exits_with_2_and_names_what_is_allowed() {
    let run = |options: &[&str]| failure(&lab(&[&["run", "udp-overload"], options].concat()), 2);
    let refusal = run(&["--arms", "stock,fast"]);
    assert!(
        refusal.contains("fast") && refusal.contains("stock, stock-rps, threaded"),
        "{refusal}"
    );
    let refusal = run(&["--arms", "stock --nice 0"]);
    assert!(refusal.contains("runs no weir"), "{refusal}");
    for bad in ["5x", "", "0.5", "1G"] {
        let refusal = run(&["--rates", bad]);
        assert!(refusal.contains("1 to 200M packets/s"), "{refusal}");
    }
    let refusal = run(&["--seconds", "0"]);
    assert!(refusal.contains("0.05 to 3600 seconds"), "{refusal}");
    for bad in [&["--repeats", "0"][..], &["--nonsense"]] {
        run(bad);
    }
    for bad in [&["run"][..], &["report"], &["compare", "a"], &["nonsense"], &[]] {
        failure(&lab(bad), 2);
    }
    let refusal = failure(&lab(&["run", "udp-overload", "tcp-overload"]), 2);
    assert!(refusal.contains("tcp-overload") && refusal.contains("udp-overload,"), "{refusal}");
}

#[test]
fn cases_and_rates_that_an_experiment_does_not_have_are_refused() {
    let run = |options: &[&str]| failure(&lab(&[&["run"], options].concat()), 1);
    let refusal = run(&["rpc-mix", "--rates", "100k"]);
    assert!(refusal.contains("rpc-mix has no --rates"), "{refusal}");
    for option in ["--cases", "--kinds"] {
        let refusal = run(&["separation", option, "plague"]);
        assert!(refusal.contains("plague") && refusal.contains("fragments"), "{refusal}");
    }
    let refusal = run(&["udp-overload", "rpc-mix", "--cases", "recv,tpyo"]);
    assert!(refusal.contains("no case \"tpyo\"") && refusal.contains("echo"), "{refusal}");
    for (experiment, rates) in [("burst-latency", "1k,top"), ("receivers", "2k,top")] {
        let refusal = run(&[experiment, "--rates", rates]);
        assert!(refusal.contains("has no load top"), "{refusal}");
        assert!(!refusal.contains("trials"), "it measures: {refusal}");
    }
    // Those of one experiment are shown with it alone.
    let shown =
        |experiment: &str| success(&lab(&["run", experiment, "--help"])).contains("bad-checksum");
    assert!(shown("separation") && !shown("udp-overload"));
}

#[test]
fn missing_capabilities_are_named() {
    let run = |dropped: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", dropped, "--inh-caps", "-all", WEIR]);
        let output = command.args(["lab", "run", "udp-overload"]).output().unwrap();
        let refusal = failure(&output, 1);
        assert!(refusal.contains("this root is confined"), "{refusal}");
        refusal
    };
    let refusal = run("-net_admin,-sys_nice");
    assert!(refusal.contains("lacks CAP_NET_ADMIN, CAP_SYS_NICE;"), "{refusal}");
    let refusal = run("-sys_admin,-bpf,-perfmon");
    assert!(refusal.contains("lacks CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF;"), "{refusal}");
}

#[test]
fn experiments_and_arms_are_listed() {
    let list = success(&lab(&["list"]));
    for experiment in experiments::ALL {
        let line = list.lines().find(|line| line.starts_with(experiment.name)).unwrap();
        assert!(line.contains(experiment.question), "{line}");
    }
    assert!(list.contains("min quick") && list.contains("batch"), "{list}");
}

#[test]
fn a_report_of_nothing_or_of_a_broken_file_is_refused_and_before_a_run() {
    let scratch = killed::temp_dir();
    let dir = scratch.path().to_str().unwrap();
    let refusal = failure(&lab(&["report", dir]), 1);
    assert!(refusal.contains("no result in") && refusal.contains("weir lab run"), "{refusal}");

    fs::write(scratch.path().join("cut.json"), "{\"head\": {},\n  \"exper").unwrap();
    let refusal = failure(&lab(&["report", dir]), 1);
    assert!(refusal.contains("cut.json"), "{refusal}");
    let refusal = failure(&lab(&["run", "burst-latency", "--quick", "--out", dir]), 1);
    assert!(refusal.contains("cut.json"), "{refusal}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);

    let refusal = failure(&lab(&["report", &format!("{dir}/absent")]), 1);
    assert!(refusal.contains("cannot list") && refusal.contains("absent"), "{refusal}");
}

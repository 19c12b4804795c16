//! `weir lab run`, the experiments in which several things want the CPU, very short: their results are
//! whole and every packet of them is accounted for. No figure about speed is checked here.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
#[allow(dead_code, reason = "the other lab tests use the rest")]
mod running;

use std::fs;
use std::process::Command;

use common::{WEIR, failure, wait_until};
use running::{Lab, Scratch, alone};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use weir_lab::results::kinds::{Kind, KindsRun};
use weir_lab::results::load::{LoadKey, LoadPoint, LoadRun, LoadTrial};
use weir_lab::results::neighbour::NeighbourRun;
use weir_lab::results::separation::SeparationRun;
use weir_lab::results::user_share::{ShareMode, UserShareRun};
use weir_lab::results::{Ledger, Mode, SCHEMA, Spread};

const SHORT: [&str; 4] = ["--quick", "--seconds=0.05", "--repeats=1", "--json"];

/// Runs an experiment in so many namespaces, and reads its result, which is kept under `name`.
fn run<K, P, S, R>(
    (experiment, name): (&str, &str),
    options: &[&str],
    namespaces: usize,
) -> LoadRun<K, P, S, R>
where
    K: LoadKey + DeserializeOwned + std::fmt::Debug,
    P: LoadPoint + DeserializeOwned + PartialEq + std::fmt::Debug,
    S: DeserializeOwned + PartialEq + std::fmt::Debug,
    R: DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let options = [&SHORT[..], options, &["--out", dir]].concat();
    let mut lab = Lab::start_experiment(experiment, &options);
    lab.wait_for_trials(namespaces);
    lab.assert_succeeds();
    lab.assert_nothing_left();

    let run: LoadRun<K, P, S, R> = serde_json::from_str(&lab.stdout()).unwrap();
    let kept = fs::read_to_string(out.path().join(format!("{name}.json"))).unwrap();
    assert_eq!(run, serde_json::from_str(&kept).unwrap());
    assert_eq!((run.schema, &*run.experiment), (SCHEMA, name));
    assert!(out.path().join(format!("{name}.svg")).exists());
    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(page.contains(&format!("<h1>{name}</h1>")));
    assert_whole(&run);
    run
}

fn assert_whole<K, P, S, R>(run: &LoadRun<K, P, S, R>)
where
    K: LoadKey + std::fmt::Debug,
    P: LoadPoint + std::fmt::Debug,
{
    assert!(!run.sentence.is_empty());
    let accounted = run.goals.iter().find(|goal| goal.name.contains("accounted for")).unwrap();
    assert!(accounted.met, "{accounted:?}");
    assert!(run.setup.keys().eq(run.series.keys()), "{:?}", run.setup);
    assert!(run.summary.keys().eq(run.series.keys()));
    for setup in run.setup.values() {
        assert!(setup.application.contains("a session of its own"), "{setup:?}");
    }
    for point in run.series.values().flatten() {
        assert_eq!(point.conditions().repeats, 1, "{point:?}");
        // So short a trial may be one in which the generator did not get its CPU.
        assert!(point.flood_pps() == 0.0 || point.target_pps() != Some(0.0), "{point:?}");
    }
    assert!(run.series.values().flatten().any(|point| point.flood_pps() > 0.0));
    run.trials.iter().for_each(assert_trial);
}

fn assert_trial<K: LoadKey + std::fmt::Debug>(trial: &LoadTrial<K>) {
    let ledger = trial.load.ledger;
    let late = ledger.late_backlog + ledger.late_socket + ledger.late_other;
    let ends = ledger.nic_drop + ledger.discarded + late + ledger.delivered + ledger.beyond_udp;
    assert_eq!((ledger.offered, ledger.unaccounted), (ends, 0), "{trial:?}");
    assert_eq!(trial.load.mode, trial.key.mode());
    // Softirq has no thread whose CPU time could be read.
    assert_eq!(trial.input_cpu_ns.is_none(), trial.load.mode.is_interrupted(), "{trial:?}");
    let weir_runs = !Mode::BASELINES.contains(&trial.load.mode);
    assert_eq!(trial.daemon_cpu_ns.is_some(), weir_runs, "{trial:?}");
    assert_eq!(trial.neighbour_per_s.is_some(), trial.neighbour_cpu.is_some(), "{trial:?}");
}

fn targets<P: LoadPoint>(points: &[P]) -> Vec<Option<f64>> {
    points.iter().map(LoadPoint::target_pps).collect()
}

fn assert_ordered(spread: Spread) {
    assert!(spread.min <= spread.median && spread.median <= spread.max, "{spread:?}");
}

#[test]
fn a_neighbour_runs_in_its_own_trials_only() {
    let _alone = alone();
    let options = ["--neighbour", "--modes=stock,weir", "--rates=50k,top"];
    let run: NeighbourRun = run(("udp-overload", "udp-overload-neighbour"), &options, 3);
    assert!(run.series.keys().eq(&[Mode::Stock, Mode::Weir]));
    for points in run.series.values() {
        assert_eq!(targets(points), [Some(50e3), None]);
        for point in points {
            assert_ordered(point.delivered);
            assert_ordered(point.work_range);
            assert_eq!(point.fair_pps.is_some(), run.reference.costs_of.is_some());
        }
    }
    assert!(run.reference.unloaded_per_s.min > 0.0, "{:?}", run.reference);
    for trial in &run.trials {
        let beside = trial.load.purpose != "alone";
        assert_eq!(trial.neighbour_per_s.is_some(), beside, "{trial:?}");
    }
    let of = |purpose: &str| run.trials.iter().filter(|t| t.load.purpose == purpose).count();
    assert_eq!((of("unloaded"), of("alone"), of("neighbour")), (1, 4, 4));
    assert_eq!(run.goals.len(), 5);
}

#[test]
fn separation_has_a_victim_a_full_socket_and_a_bare_drop() {
    let _alone = alone();
    let options = ["--modes=threaded,weir", "--rates=100k,top"];
    let run: SeparationRun = run(("separation", "separation"), &options, 4);
    assert!(run.series.keys().eq(&[Mode::Threaded, Mode::Weir]));
    for points in run.series.values() {
        assert_eq!(targets(points), [Some(0.0), Some(100e3), None]);
        for point in points {
            assert!(point.victim_offered_pps > 0.0, "{point:?}");
            assert_ordered(point.victim);
            assert!(point.victim_age_p50_us <= point.victim_age_p99_us, "{point:?}");
        }
        assert_eq!(points[0].flooded_pps, 0.0);
    }
    assert_ordered(run.reference.bare_drop_ns);
    assert!(run.reference.bare_drop_ns.min > 0.0, "{:?}", run.reference);
    let full = run.trials.iter().filter(|t| t.load.purpose == "full-socket");
    let full: Vec<_> = full.map(|t| (t.key, t.load.bystander_offered_pps)).collect();
    assert_eq!(full, [(Mode::Weir, 0.0)]);
    assert_eq!(run.summary[&Mode::Threaded].c_gate_ns, None);
    let search = run.trials.iter().filter(|t| t.load.purpose == "r-ring").count();
    assert!(search <= 6, "{search} trials in a search of three steps");
    assert_eq!(run.goals.len(), 4);
}

/// Shares of the packets that came as far as IP, or were discarded before, at least: what UDP dropped for another
/// reason than a full socket, and what was not for UDP. Half of what a flood of 50 k packets/s beside two services comes to, as
/// the generator may not get its CPU.
fn least_shares(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Udp | Kind::Broadcast => (0.0, 0.0),
        Kind::Closed | Kind::BadChecksum => (0.2, 0.0),
        Kind::Multicast => (0.0, 0.12),
        Kind::Malformed => (0.06, 0.12),
        Kind::Syn | Kind::Ack | Kind::Icmp | Kind::Fragments | Kind::Forward => (0.0, 0.2),
    }
}

#[test]
fn each_kind_of_flood_ends_where_it_should() {
    let _alone = alone();
    let names = Kind::ALL.map(Kind::name).join(",");
    let options = ["--modes=threaded,weir", "--rates=50k", "--kinds", &names];
    let run: KindsRun = run(("separation", "separation-kinds"), &options, 3);
    for points in run.series.values() {
        assert_eq!(points.len(), 12);
        assert_eq!((points[0].kind, points[0].target_pps), (None, Some(0.0)));
        assert!(points[0].tcp_per_s > 0.0 && points[0].udp_pps > 0.0, "{:?}", points[0]);
        for (point, kind) in points[1..].iter().zip(Kind::ALL) {
            assert_eq!((point.kind, point.target_pps), (Some(kind), Some(50e3)));
            assert_ordered(point.udp_range);
            assert_ordered(point.tcp_range);
        }
    }
    for trial in &run.trials {
        assert!(trial.service.is_some(), "{trial:?}");
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == trial.load.purpose);
        let (other, beyond) = kind.map_or((0.0, 0.0), least_shares);
        let Ledger { offered, nic_drop, discarded, late_other, beyond_udp, .. } = trial.load.ledger;
        let by_ip = (offered - nic_drop - discarded) as f64;
        // Where weir holds the flood to its share of a busy CPU, most of it comes no further than the gate.
        let taken = (offered - nic_drop) as f64;
        assert!((late_other + discarded) as f64 >= other * taken, "{trial:?}");
        assert!((beyond_udp + discarded) as f64 >= beyond * taken, "{trial:?}");
        // TCP comes with requests and acknowledgements, some 4 k a second.
        let at_most = if beyond > 0.0 { 1.0 } else { 0.5 };
        assert!(beyond_udp as f64 <= at_most * by_ip, "{trial:?}");
    }
    assert_eq!(run.goals.len(), 12);
}

#[test]
fn user_share_compares_what_is_set_with_what_is_done() {
    let _alone = alone();
    let options = ["--modes=threaded,weir,softirq", "--rates=top"];
    let run: UserShareRun = run(("user-share", "user-share"), &options, 4);
    let keys = [
        ShareMode::Threaded,
        ShareMode::Weir25,
        ShareMode::Weir50,
        ShareMode::Weir75,
        ShareMode::Softirq50,
    ];
    assert!(run.series.keys().eq(&keys));
    for (key, points) in &run.series {
        assert_eq!(targets(points), [Some(0.0), None]);
        for point in points {
            assert_ordered(point.user_range);
            assert_eq!(point.wanted.is_some(), key.setting().is_some(), "{key}: {point:?}");
        }
        assert_eq!(run.summary[key].setting, key.setting());
    }
    assert!(run.trials.iter().all(|t| t.neighbour_per_s.is_some()));
    assert_eq!(run.goals.len(), 8);
}

#[test]
fn sigint_ends_it_and_removes_everything() {
    let _alone = alone();
    let mut lab = Lab::start_experiment("separation", &["--json", "--quick", "--repeats=1000"]);
    lab.wait_for_trials(6);
    lab.signal(Signal::INT);
    lab.assert_interrupted();
}

/// Whether a process is stopped, from its line of [`Lab::processes`].
fn is_stopped(process: &str) -> bool {
    let path = process.split(':').next().unwrap();
    let stat = fs::read_to_string(format!("{path}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[test]
fn after_a_kill_a_stopped_application_ends_too() {
    let _alone = alone();
    let options = ["--json", "--quick", "--repeats=1000", "--modes=threaded"];
    let mut lab = Lab::start_experiment("user-share", &options);
    lab.wait_for_trials(2);
    wait_until("an application is stopped", || lab.processes().iter().any(|p| is_stopped(p)));
    lab.signal(Signal::KILL);
    lab.end();
    lab.assert_no_process_left();
}

#[test]
fn options_that_an_experiment_does_not_have_are_refused() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(WEIR).args(["lab", "run"]).args(arguments).output().unwrap();
        failure(&output, 1)
    };
    let refusal = refused(&["separation", "--neighbour"]);
    assert!(refusal.contains("--neighbour is an option of udp-overload"), "{refusal}");
    let refusal = refused(&["user-share", "--modes=threaded,stock"]);
    assert!(refusal.contains("user-share has no mode stock"), "{refusal}");
    assert!(refusal.contains("threaded, niced, weir"), "{refusal}");
}

//! `weir lab run gate-cost`, the real thing, very short: its result is whole and every packet of it
//! is accounted for. No figure about speed is checked here.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;
#[path = "lab/running.rs"]
#[allow(dead_code, reason = "the other lab tests use the rest")]
mod running;

use std::fs;
use std::process::Command;

use common::{WEIR, failure};
use running::{Lab, Scratch, alone};
use rustix::process::Signal;
use weir_lab::results::gate_cost::{CostMode, CostRow, CostTrial, GateCost, Kind};
use weir_lab::results::{SCHEMA, Spread};

const NAMESPACES: usize = 2;

#[test]
fn a_short_run_is_whole_and_leaves_nothing_but_its_report() {
    let _alone = alone();
    let out = Scratch::new();
    let dir = out.path().to_str().unwrap();
    let options = ["--quick", "--seconds=0.05", "--repeats=1", "--json", "--out", dir];
    let mut lab = Lab::start_experiment("gate-cost", &options);
    lab.wait_for_trials(NAMESPACES);
    lab.assert_succeeds();
    lab.assert_nothing_left();

    let cost: GateCost = serde_json::from_str(&lab.stdout()).unwrap();
    let kept = fs::read_to_string(out.path().join("gate-cost.json")).unwrap();
    assert_eq!(cost, serde_json::from_str(&kept).unwrap());
    assert_eq!((cost.schema, &*cost.experiment), (SCHEMA, "gate-cost"));
    assert_eq!(cost.setup.attach, "native");
    assert!(cost.setup.driver_poll.contains("NAPI thread"), "{:?}", cost.setup);
    assert_ne!(cost.machine.sut_cpu, cost.machine.generator_cpu);

    for kind in Kind::ALL {
        assert!(cost.rows.iter().any(|row| row.kind == kind), "{kind}");
        assert!(cost.summary.contains_key(&kind), "{kind}");
    }
    cost.rows.iter().for_each(assert_row);
    assert_eq!(cost.trials.len(), cost.rows.len() * CostMode::ALL.len());
    cost.trials.iter().for_each(|trial| assert_trial(trial, &cost.rows[trial.row as usize]));
    assert_test_runs(&cost);
    let accounted = cost.goals.iter().find(|goal| goal.name.contains("accounted for")).unwrap();
    assert!(accounted.met, "{accounted:?}");
    assert_eq!(cost.goals.len(), 2 * Kind::ALL.len() + 1);

    let page = fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(page.contains("<h1>gate-cost</h1>") && page.contains("bpf_sk_lookup_udp"));
    let told = Command::new(WEIR).args(["lab", "report", dir]).output().unwrap();
    assert!(told.status.success(), "{told:?}");
    assert_eq!(fs::read_to_string(out.path().join("report.html")).unwrap(), page);
}

fn assert_ordered(spread: Spread) {
    assert!(spread.min <= spread.median && spread.median <= spread.max, "{spread:?}");
}

fn assert_row(row: &CostRow) {
    assert!(row.modes.keys().eq(&CostMode::ALL), "{row:?}");
    for (mode, point) in &row.modes {
        assert!(point.ns_per_packet.min > 0.0 && point.capacity_pps.min > 0.0, "{mode}: {point:?}");
        assert_ordered(point.ns_per_packet);
        assert_eq!(point.discarded.is_some(), mode.gated(), "{mode}: {point:?}");
        assert_eq!(point.repeats, 1);
    }
    assert_eq!(row.modes[&CostMode::GatePass].discarded, Some(0.0), "{row:?}");
    // No figure without discards, and one with them.
    let discarded = row.modes[&CostMode::GateDiscard].discarded.unwrap();
    assert_eq!(row.discard_ratio.is_some(), discarded >= 0.99, "{row:?}");
    assert!(row.pass_added_ns.is_some(), "{row:?}");
    // On a machine so busy that no poll was full, hardly more came than fits into a queue.
    if !row.kind.tcp() && row.modes[&CostMode::GateDiscard].in_full_polls > 0.5 {
        assert!(discarded > 0.5, "the sockets are to be full: {row:?}");
    }
}

fn assert_trial(trial: &CostTrial, row: &CostRow) {
    let ledger = trial.ledger;
    assert!(ledger.offered > 0 && ledger.seen > 0, "{trial:?}");
    assert_eq!(ledger.offered, ledger.ring_drop + ledger.seen, "{trial:?}");
    assert_eq!(ledger.unaccounted, 0, "{trial:?}");
    assert_eq!(ledger.counted, trial.mode.gated().then_some(ledger.seen), "{trial:?}");
    assert!(ledger.discarded <= ledger.counted, "{trial:?}");
    assert_eq!(ledger.unjudged, trial.mode.gated().then_some(0), "{trial:?}");
    assert!((0.0..=1.0).contains(&trial.busy), "{trial:?}");
    assert!((0.0..=1.0).contains(&trial.in_full_polls), "{trial:?}");
    assert!(row.modes.contains_key(&trial.mode));
}

/// What `BPF_PROG_TEST_RUN` measured.
fn assert_test_runs(cost: &GateCost) {
    let counted = |packet: &str| {
        let point = cost.hot.iter().find(|point| point.packet == packet);
        point.unwrap_or_else(|| panic!("{packet} is not among {:?}", cost.hot)).reason.as_str()
    };
    assert_eq!(counted("not IP (ARP's ethertype)"), "neighbour");
    for family in ["udp4", "udp6"] {
        assert_eq!(counted(&format!("{family} to another MAC address")), "other-mac");
        assert_ne!(
            counted(&format!("{family} to a socket with room")),
            counted(&format!("{family} to no socket"))
        );
        assert_ne!(
            counted(&format!("{family} to a full socket")),
            counted(&format!("{family} to a socket with room"))
        );
    }
    assert_eq!(cost.lookups.len(), 16);
    for point in &cost.lookups {
        assert_eq!(point.found, point.target != "nothing", "{point:?}");
        assert!(point.ns.median > 0.0, "{point:?}");
    }
}

#[test]
fn sigint_ends_it_and_removes_everything() {
    let _alone = alone();
    let mut lab = Lab::start_experiment("gate-cost", &["--json", "--repeats=1000"]);
    lab.wait_for_trials(NAMESPACES);
    lab.signal(Signal::INT);
    lab.assert_interrupted();
}

#[test]
fn options_that_it_does_not_have_are_refused() {
    for option in ["--rates=50k", "--modes=stock", "--ipv6", "--payload=100", "--rcvbuf=9000"] {
        let mut command = Command::new(WEIR);
        let output = command.args(["lab", "run", "gate-cost", option]).output().unwrap();
        let refusal = failure(&output, 1);
        let name = option.split('=').next().unwrap();
        assert!(refusal.contains(&format!("gate-cost has no {name}")), "{refusal}");
    }
}

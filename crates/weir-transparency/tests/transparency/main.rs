//! The first invariant, proven: the same packets through two namespaces, one with weir and one
//! without; what applications receive is compared. `docs/testing.md`.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod beside;
mod cases;
mod duel;
mod frame;
mod late;
mod network;
mod peer;
mod random;
mod socket;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

use duel::{Difference, Duel, Queues};
use weir_bpf::attach::AttachMode;
use weir_bpf::verdict::{Defect, Reason};

/// One at a time: each has a CPU to itself.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(differences: &[Difference]) -> String {
    differences.iter().map(|one| format!("\n    {one}")).collect()
}

fn directed_cases(duel: &mut Duel) -> String {
    let mut failures = String::new();
    for queues in [Queues::Free, Queues::Full] {
        for case in cases::all().into_iter().filter(|case| case.queues == queues) {
            let differences = duel.run(queues, case.run);
            if !differences.is_empty() {
                failures += &format!("\n  {}:{}", case.name, describe(&differences));
            }
        }
    }
    failures
}

fn nothing_is_lost(mode: AttachMode) {
    let _turn = turn();
    let mut duel = Duel::new(mode);
    let mut failures = directed_cases(&mut duel);
    // Whoever else wants the CPU changes nothing.
    let _beside = beside::Loops::start();
    failures += &random::run(&mut duel, mode);
    let counters = duel.counters();
    for reason in Reason::ALL {
        println!("{mode:?}: {} {}", reason.name(), counters.get(reason).packets);
    }
    assert!(
        failures.is_empty(),
        "with weir, {mode:?}, applications receive something else:{failures}"
    );
    // The gate did discard, so that the above says something.
    for reason in
        [Reason::UdpFull, Reason::MulticastFull, Reason::TcpBacklogFull, Reason::FragmentDiscarded]
    {
        assert!(counters.get(reason).packets > 0, "nothing was discarded as {}", reason.name());
    }
}

#[test]
fn applications_receive_the_same_with_the_gate_in_the_driver() {
    nothing_is_lost(AttachMode::Native);
}

#[test]
fn applications_receive_the_same_with_the_gate_in_the_stack() {
    nothing_is_lost(AttachMode::Generic);
}

#[test]
fn applications_receive_the_same_with_the_gate_at_tc() {
    nothing_is_lost(AttachMode::Tcx);
}

/// How often a case is tried: what the gate has learned of a queue, it believes for 10 ms, and another
/// program may take the CPU for as long.
const ATTEMPTS: usize = 8;

/// The same, of cases that are there for another defect.
const ATTEMPTS_OF_OTHERS: usize = 3;

/// What cannot be caught at tc: there the stack itself keeps such packets from the socket, the skb holds its
/// charge, or no buffer is as small as one packet.
const NOT_AT_TC: [Defect; 5] = [
    Defect::MacUnchecked,
    Defect::VlanIgnored,
    Defect::EmptyQueueFull,
    Defect::ChargeOfAnyLength,
    Defect::MergedExpected,
];

/// Each by a case that is there for it. `WEIR_TABLE` in the environment tries every case with every defect,
/// which takes minutes, and prints the table of `docs/testing.md`.
fn are_caught(mode: AttachMode, defects: impl Iterator<Item = Defect>) {
    let _turn = turn();
    let mut duel = Duel::new(mode);
    let whole_table = std::env::var_os("WEIR_TABLE").is_some();
    let mut missed = Vec::new();
    for defect in defects {
        duel.set_defect(Some(defect));
        // Its own first: a defect may leave the gate in a state of which it does not get out.
        let (own, others): (Vec<_>, Vec<_>) =
            cases::all().into_iter().partition(|case| case.catches.contains(&defect));
        let mut catches = |case: &cases::Case, attempts| {
            let mut runs = (0..attempts).map(|_| duel.run(case.queues, case.run));
            let differences = runs.find(|differences| !differences.is_empty())?;
            println!("{}: caught by {:?}:{}", defect.name(), case.name, describe(&differences));
            Some(case.name)
        };
        let mut own = own.iter().filter_map(|case| catches(case, ATTEMPTS));
        let mut caught: Vec<_> = own.next().into_iter().collect();
        if caught.is_empty() {
            missed.push(defect.name());
        }
        if whole_table {
            caught.extend(own);
            caught.extend(others.iter().filter_map(|case| catches(case, ATTEMPTS_OF_OTHERS)));
            println!("| `{}` | {} | {} |", defect.name(), defect.description(), caught.join("; "));
        }
    }
    assert!(missed.is_empty(), "not caught, {mode:?}: {missed:?}");
}

#[test]
fn every_seeded_defect_is_caught() {
    assert!(Defect::ALL.len() >= 20);
    are_caught(AttachMode::Native, Defect::ALL.into_iter());
}

#[test]
fn every_seeded_defect_is_caught_at_tc() {
    let defects = Defect::ALL.into_iter().filter(|defect| !NOT_AT_TC.contains(defect));
    are_caught(AttachMode::Tcx, defects);
}

/// What the docs say is not kept is not kept; when it is, they have to be changed.
#[test]
fn the_known_exceptions_are_exceptions() {
    let _turn = turn();
    let mut duel = Duel::new(AttachMode::Native);
    for case in cases::exceptions::CASES {
        let differs = (0..ATTEMPTS).any(|_| !duel.run(case.queues, case.run).is_empty());
        assert!(differs, "no exception any more: {}", case.name);
    }
}

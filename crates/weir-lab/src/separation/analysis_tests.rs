//! c_gate, R_ring and the frontier, from made-up trials.

use std::collections::BTreeMap;

use weir_bpf::units::PacketsPerSec;

use super::analysis::{frontier, r_ring_between, reference, series_and_summary};
use super::{FULL_SOCKET, R_RING, SWEEP};
use crate::load::Plan;
use crate::results::Mode;
use crate::results::load::LoadTrial;
use crate::results::separation::{SeparationPoint, SeparationSummary};
use crate::trial::Flood;
use crate::trial::made_up::{self, trial};

const LOW: Flood = Flood::Paced(PacketsPerSec(1e6));

fn plan() -> Plan {
    made_up::plan(&[LOW, Flood::Top])
}

/// A flood with a victim that is sent 20,000 packets and receives so many of them.
fn beside(
    purpose: &str,
    flood: Flood,
    offered: u64,
    delivered: u64,
    victim: f64,
) -> LoadTrial<Mode> {
    let mut made = trial(Mode::Weir, purpose, flood, offered, delivered);
    made.load.bystander_offered_pps = 20e3;
    made.load.bystander_delivered_pps = victim;
    made
}

fn trials() -> Vec<LoadTrial<Mode>> {
    let mut full = trial(Mode::Weir, FULL_SOCKET, Flood::Top, 5_000_000, 0);
    full.input_cpu_ns = Some(1_000_000_000);
    vec![
        full,
        beside(SWEEP, Flood::Off, 0, 0, 20e3),
        beside(SWEEP, LOW, 1_000_000, 300_000, 19.8e3),
        beside(SWEEP, Flood::Top, 5_000_000, 10_000, 9e3),
    ]
}

type Points = (BTreeMap<Mode, Vec<SeparationPoint>>, BTreeMap<Mode, SeparationSummary>);

fn points(rates: &[Flood], trials: &[LoadTrial<Mode>]) -> Points {
    series_and_summary(&plan(), rates, trials, &reference(&[], trials))
}

#[test]
fn c_gate_is_what_input_costs_where_all_is_discarded() {
    let (_, summary) = points(&[Flood::Off, LOW, Flood::Top], &trials());
    assert_eq!(summary[&Mode::Weir].c_gate_ns, Some(200.0));
    let mut passed = trials();
    passed[0].load.ledger.discarded = 3_000_000;
    let (_, summary) = points(&[Flood::Off], &passed);
    assert_eq!(summary[&Mode::Weir].c_gate_ns, None);
}

#[test]
fn r_ring_is_looked_for_where_the_victim_begins_to_lose() {
    assert_eq!(r_ring_between(&plan(), &trials(), Mode::Weir), Some((1e6, 5e6)));
    let mut well = trials();
    well[3].load.bystander_delivered_pps = 19.5e3;
    assert_eq!(r_ring_between(&plan(), &well, Mode::Weir), None);
    let rates = [Flood::Off, LOW, Flood::Top];
    let mut searched = trials();
    searched.push(beside(R_RING, Flood::Paced(PacketsPerSec(2e6)), 2_000_000, 100_000, 19.9e3));
    searched.push(beside(R_RING, Flood::Paced(PacketsPerSec(3e6)), 3_000_000, 90_000, 15e3));
    let (series, summary) = points(&rates, &searched);
    assert_eq!(summary[&Mode::Weir].r_ring_pps, Some(2e6));
    let low = &series[&Mode::Weir][1];
    assert_eq!((low.goodput, low.of_unflooded), (0.99, 0.99));
    // 0.8 x 300,000 x (1 - 1 M x 200 ns).
    assert!((low.flooded_wanted_pps.unwrap() - 192e3).abs() < 1.0, "{low:?}");
    assert_eq!(summary[&Mode::Weir].retained, 0.45);
}

#[test]
fn the_frontier_ends_where_the_gate_takes_the_whole_cpu_and_never_exceeds_what_is_sent() {
    assert_eq!(frontier(300e3, 200.0, 6e6), 0.0);
    assert_eq!(frontier(300e3, 200.0, 100e3), 100e3);
    assert_eq!(reference(&[100.0, 125.0, 100.0], &[]).bare_drop_pps, 1e7);
    assert_eq!(reference(&[], &[]).bare_drop_pps, 0.0);
    assert_eq!(reference(&[], &trials()).peak_pps, 300e3);
}

use proptest::prelude::*;

use super::*;
use crate::results::gate_cost::CostLedger;

const SPEC: RowSpec = RowSpec { kind: Kind::Udp4, address_bits: 3, port_bits: 3, socket_bits: 0 };

fn trial(mode: CostMode, repeat: u32, ns_per_packet: f64) -> CostTrial {
    let gated = |share: u64| mode.gated().then_some(share);
    let discarded = if mode == CostMode::GateDiscard { 995 } else { 0 };
    CostTrial {
        row: 0,
        repeat,
        mode,
        window_s: 0.1,
        offered_pps: 5e6,
        handled_pps: 4e6,
        ns_per_packet,
        ns_p25: ns_per_packet,
        ns_p75: ns_per_packet,
        mean_ns_per_packet: ns_per_packet,
        cpu_ns_per_packet: ns_per_packet + 1.0,
        busy: 1.0,
        in_full_polls: 0.9,
        discarded_share: mode.gated().then_some(discarded as f64 / 1000.0),
        interrupted_polls: 0,
        sut_loop_ns: 5000.0,
        steal: 0.0,
        ledger: CostLedger {
            offered: 1500,
            ring_drop: 500,
            seen: 1000,
            counted: gated(1000),
            discarded: gated(discarded),
            unjudged: gated(0),
            unaccounted: 0,
        },
    }
}

/// Two repeats, the second on a machine that has become twice as slow.
fn trials() -> Vec<CostTrial> {
    let ns = [(CostMode::BareDrop, 90.0), (CostMode::GateDiscard, 100.0)];
    let passing = [(CostMode::BarePass, 400.0), (CostMode::GatePass, 430.0)];
    let all = || ns.into_iter().chain(passing);
    let first = all().map(|(mode, ns)| trial(mode, 0, ns));
    first.chain(all().map(|(mode, ns)| trial(mode, 1, 2.0 * ns))).collect()
}

#[test]
fn pairs_are_compared_within_their_repeat() {
    let rows = rows(&[SPEC], &trials());
    let ratio = rows[0].discard_ratio.unwrap();
    assert_eq!((ratio.min, ratio.max), (0.9, 0.9));
    let added = rows[0].pass_added_ns.unwrap();
    assert_eq!((added.min, added.median, added.max), (30.0, 45.0, 60.0));
    let drop = &rows[0].modes[&CostMode::BareDrop];
    assert_eq!((drop.ns_per_packet.min, drop.ns_per_packet.max), (90.0, 180.0));
    assert!((drop.capacity_pps.max - 1e9 / 90.0).abs() < 1e-6, "{drop:?}");
    assert_eq!((rows[0].flows, rows[0].sockets, drop.repeats), (64, 1, 2));
    assert_eq!(drop.discarded, None);
}

#[test]
fn goals_judge_the_worst_row() {
    let slow = RowSpec { socket_bits: 4, ..SPEC };
    let mut all = trials();
    let worse: Vec<CostTrial> = trials()
        .into_iter()
        .map(|t| {
            let gated = if t.mode.gated() { 2.0 } else { 1.0 };
            CostTrial { row: 1, ns_per_packet: t.ns_per_packet * gated, ..t }
        })
        .collect();
    all.extend(worse);
    let rows = rows(&[SPEC, slow], &all);
    let summary = summary(&rows)[&Kind::Udp4];
    assert_eq!(summary.discard_ratio, Some(0.45));
    assert_eq!(summary.c_gate_ns, Some(300.0));
    let goals = goals(&rows, &all);
    assert_eq!((goals[0].got.as_str(), goals[0].met), ("0.450", false));
    assert!(goals[1].name.contains("passes") && !goals[1].met);
    assert!(goals[2].met, "{:?}", goals[2]);
}

#[test]
fn what_was_not_discarded_is_given_no_figure() {
    let mut trials = trials();
    for trial in trials.iter_mut().filter(|trial| trial.mode == CostMode::GateDiscard) {
        trial.discarded_share = Some(0.98);
    }
    let rows = rows(&[SPEC], &trials);
    assert_eq!(rows[0].discard_ratio, None);
    assert_eq!(rows[0].modes[&CostMode::GateDiscard].discarded, Some(0.98));
    assert_eq!(summary(&rows)[&Kind::Udp4].c_gate_ns, None);
    let goals = goals(&rows, &trials);
    assert_eq!((goals[0].got.as_str(), goals[0].met), ("not discarded", false));
}

#[test]
fn a_slow_machine_is_marked() {
    let mut trials = trials();
    for trial in trials.iter_mut().filter(|trial| trial.mode == CostMode::BareDrop) {
        trial.sut_loop_ns = 5600.0;
    }
    let rows = rows(&[SPEC], &trials);
    assert!(rows[0].modes[&CostMode::BareDrop].marked);
    assert!(!rows[0].modes[&CostMode::GatePass].marked);
}

#[test]
fn hot_times_are_of_one_reason() {
    use weir_bpf::verdict::Reason;
    let time = |reason, gate_ns| HotTime { packet: "p".into(), reason, gate_ns, bare_ns: 10.0 };
    let repeats = [
        vec![time(Reason::UdpFull, 60.0)],
        vec![time(Reason::UdpRoom, 5.0)],
        vec![time(Reason::UdpFull, 80.0)],
    ];
    // The last of the longest stands for the others.
    let points = hot(&repeats);
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].reason.as_str(), points[0].added_ns), ("udp-full", 60.0));
}

proptest! {
    /// Whatever a trial measured, no figure is infinite or not a number.
    #[test]
    fn figures_are_finite(ns in prop::collection::vec(0.0..1e9_f64, 4), counted in 0_u64..2) {
        let trials: Vec<CostTrial> = CostMode::ALL
            .into_iter()
            .zip(&ns)
            .map(|(mode, ns)| {
                let mut trial = trial(mode, 0, *ns);
                trial.discarded_share = trial.discarded_share.map(|_| counted as f64);
                trial.sut_loop_ns = 0.0;
                trial
            })
            .collect();
        let rows = rows(&[SPEC], &trials);
        let json = serde_json::to_string(&rows).unwrap();
        let back: Vec<CostRow> = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(rows, back);
    }
}

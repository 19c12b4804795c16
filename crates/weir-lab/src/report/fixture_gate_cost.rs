//! A plausible `gate-cost` for tests: the shape that was measured, without the noise.

use crate::results::gate_cost::*;
use crate::results::{Goal, Machine, SCHEMA, Spread};

/// `gate-cost` with a row that is discarded and one that is not.
pub(super) fn gate_cost(machine: Machine) -> GateCost {
    let rows = vec![row(Kind::Udp4, 64, true), row(Kind::TcpSyn6, 2_097_152, false)];
    let mut cost = GateCost {
        schema: SCHEMA,
        experiment: "gate-cost".to_owned(),
        weir_version: "0.1.0".to_owned(),
        started_at: "2026-02-03T04:05:06Z".to_owned(),
        duration_s: 38.2,
        quick: true,
        machine,
        setup: CostSetup {
            driver: "veth".to_owned(),
            attach: "native".to_owned(),
            driver_poll: "CPU 1 at nice 0, NAPI thread".to_owned(),
            gro: true,
            payload_bytes: 14,
            passed_end: crate::gate_cost::PASSED_END.to_owned(),
        },
        rows,
        hot: vec![HotPoint {
            packet: "udp4 to a full socket".to_owned(),
            reason: "udp-full".to_owned(),
            gate_ns: around(110.0),
            bare_ns: around(11.0),
            added_ns: 99.0,
        }],
        lookups: vec![LookupPoint {
            helper: "bpf_sk_lookup_udp".to_owned(),
            family: "ipv4".to_owned(),
            target: "socket".to_owned(),
            found: true,
            ns: around(36.0),
        }],
        summary: [
            (Kind::Udp4, summary(Some(300.0), Some(0.3), Some(110.0))),
            (Kind::TcpSyn6, summary(None, None, Some(-1.7))),
        ]
        .into(),
        goals: vec![Goal {
            name: "udp4: rate of discarding against bare XDP_DROP".to_owned(),
            want: ">= 0.75".to_owned(),
            got: "0.300".to_owned(),
            met: false,
        }],
        sentence: String::new(),
        warnings: vec!["a quick run".to_owned()],
        trials: vec![trial()],
    };
    cost.sentence = super::gate_cost_sentence(&cost);
    cost
}

fn around(median: f64) -> Spread {
    Spread { median, min: median - 2.0, max: median + 3.0 }
}

fn summary(c_gate: Option<f64>, ratio: Option<f64>, added: Option<f64>) -> CostSummary {
    CostSummary {
        c_gate_ns: c_gate,
        bare_drop_ns: 90.0,
        discard_ratio: ratio,
        pass_added_ns: added,
    }
}

fn row(kind: Kind, flows: u64, discarded: bool) -> CostRow {
    let point = |mode: CostMode| {
        let ns = match mode {
            CostMode::BareDrop => 90.0,
            CostMode::TouchDrop => 140.0,
            CostMode::GateDiscard => 300.0,
            CostMode::BarePass => 400.0,
            CostMode::GatePass => 510.0,
        };
        let share = if discarded && mode == CostMode::GateDiscard { 0.998 } else { 0.0 };
        CostPoint {
            ns_per_packet: around(ns),
            capacity_pps: Spread { median: 4e6, min: 3.9e6, max: 4.1e6 },
            handled_pps: 3.9e6,
            cpu_ns_per_packet: ns + 2.0,
            busy: 0.98,
            in_full_polls: 0.97,
            discarded: mode.gated().then_some(share),
            sut_speed: 0.99,
            marked: mode == CostMode::BarePass,
            repeats: 3,
        }
    };
    CostRow {
        kind,
        flows,
        sockets: 1,
        modes: CostMode::ALL.map(|mode| (mode, point(mode))).into(),
        discard_ratio: discarded.then_some(Spread { median: 0.3, min: 0.28, max: 0.31 }),
        pass_added_ns: Some(around(110.0)),
    }
}

fn trial() -> CostTrial {
    CostTrial {
        row: 0,
        repeat: 0,
        mode: CostMode::GateDiscard,
        window_s: 0.1,
        offered_pps: 5e6,
        handled_pps: 3.9e6,
        ns_per_packet: 300.5,
        ns_p25: 290.5,
        ns_p75: 310.5,
        mean_ns_per_packet: 301.25,
        cpu_ns_per_packet: 302.0,
        busy: 0.98,
        in_full_polls: 0.97,
        discarded_share: Some(0.998),
        interrupted_polls: 2,
        sut_loop_ns: 5000.0,
        steal: 0.001,
        ledger: CostLedger {
            offered: 500_000,
            ring_drop: 100_000,
            seen: 400_000,
            counted: Some(400_000),
            discarded: Some(399_200),
            unjudged: Some(0),
            unaccounted: 0,
        },
    }
}

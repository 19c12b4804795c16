//! A plausible result of `parity`, for tests.

use std::collections::BTreeMap;

use super::fixture::experiment;
use crate::compare::{Compared, compare};
use crate::results::load::Conditions;
use crate::results::merit::Fact;
use crate::results::parity::{
    Arm, ArmPoint, ArmSetup, Lost, Measure, ParityRow, ParityRun, ParityTrial,
};
use crate::results::{Goal, Mode, Spread};

/// A trial of one second.
pub(crate) fn trial(
    repeat: u32,
    (measure, flows): (Measure, u32),
    arm: Arm,
    figure: f64,
) -> ParityTrial {
    let udp = measure.is_udp().then_some(5000);
    ParityTrial {
        repeat,
        measure,
        flows,
        arm,
        figure,
        window_s: 1.0,
        p99_us: measure.is_time().then_some(figure * 2.0),
        sut_loop_ns: 5000.0,
        steal: 0.0,
        idle_cpu: 0.5,
        lost: Lost { offered: udp, delivered: udp, ..Lost::default() },
    }
}

fn point(figure: f64, against: &[(Arm, [f64; 2])], marked: bool) -> ArmPoint {
    let compared = |ratios: &[f64; 2]| -> Compared {
        compare(&ratios.map(|ratio| (ratio, 1.0))).expect("two pairs")
    };
    let against: BTreeMap<Arm, Compared> =
        against.iter().map(|(arm, ratios)| (*arm, compared(ratios))).collect();
    ArmPoint {
        figure: Spread { median: figure, min: figure * 0.5, max: figure * 1.5 },
        against,
        conditions: Conditions { sut_speed: 0.98, steal: 0.001, marked, repeats: 2 },
    }
}

/// Two rows: one within stock's but at one attach point, one that nobody can tell.
pub(crate) fn parity() -> ParityRun {
    let mut sweep = experiment(&[Mode::Stock]);
    sweep.machine.mitigations.clear();
    let native =
        [(Arm::Stock, [2.0, 1.5]), (Arm::StockRps, [0.75, 0.5]), (Arm::Threaded, [1.0; 2])];
    let tc = [(Arm::Stock, [2.0; 2]), (Arm::StockRps, [1.0, 1.25])];
    let round_trip = [
        (Arm::Stock, point(80.0, &[], false)),
        (Arm::StockRps, point(40.0, &[], false)),
        (Arm::Threaded, point(50.0, &[], true)),
        (Arm::Native, point(60.0, &native, false)),
        (Arm::Tc, point(35.5, &tc, false)),
    ];
    let stream = [
        (Arm::VethStock, point(12000.0, &[], false)),
        (Arm::VethTc, point(12500.0, &[(Arm::VethStock, [1.25, 0.75])], false)),
    ];
    let row = |measure: Measure, arms: BTreeMap<Arm, ArmPoint>| ParityRow {
        measure,
        flows: 1,
        unit: measure.unit().to_owned(),
        arms,
    };
    let setup = ArmSetup {
        attach: "tc".to_owned(),
        driver_poll: "CPU 1 at nice 19, NAPI thread".to_owned(),
        tso: false,
        gro: true,
        rps_cpus: "00000000".to_owned(),
    };
    let stream_row = (Measure::TcpStream, 1);
    let mut dropped = trial(0, stream_row, Arm::VethTc, 12500.0);
    dropped.lost.ring = 7;
    let mut run = ParityRun {
        schema: sweep.schema,
        experiment: crate::parity::NAME.to_owned(),
        weir_version: sweep.weir_version,
        started_at: sweep.started_at,
        duration_s: sweep.duration_s,
        quick: true,
        machine: sweep.machine,
        workload: vec![Fact { name: "TCP stream".to_owned(), value: "iperf 3.12".to_owned() }],
        setup: [(Arm::Tc, setup)].into(),
        rows: vec![
            row(Measure::UdpRoundTrip, round_trip.into()),
            row(Measure::TcpStream, stream.into()),
        ],
        goals: vec![Goal {
            name: "weir does as it should".to_owned(),
            want: ">= 0.97".to_owned(),
            got: "undecided: 1.000 (0.750-1.250, 2 pairs)".to_owned(),
            met: false,
        }],
        sentence: String::new(),
        warnings: vec!["a quick run".to_owned()],
        trials: vec![trial(0, (Measure::UdpRoundTrip, 1), Arm::Tc, 35.5), dropped],
    };
    run.sentence = super::parity_sentence(&run);
    run
}

//! The simulation against the curves measured on the machine that it is calibrated to
//! (docs/results/udp-overload.json). What is off by more than 15 % is named here and in
//! docs/simulation.md.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use serde_json::Value;
use weir_policy::Nanos;
use weir_policy::sim::tables::{Table, percent, rate};
use weir_policy::sim::vm::{self, Mode};
use weir_policy::sim::{Host, Outcome, PacketsPerSec};

const TOLERANCE: f64 = 0.15;
/// The first three were looked at when the costs were chosen; the others are predictions.
const MODES: [(&str, Mode); 5] = [
    ("stock", Mode::Stock),
    ("threaded", Mode::Threaded),
    ("niced", Mode::Niced),
    ("gate", Mode::Gate),
    // What that run calls weir is the gate in a thread at nice 19: the governor came later.
    ("weir", Mode::NicedGate),
];
/// The points that are off by more than 15 %.
const EXCEPTIONS: [&str; 8] = [
    "stock 600 k",
    "stock 1.20 M",
    "stock 2.40 M",
    "stock top",
    "threaded 800 k",
    "niced 1.20 M",
    "weir 800 k",
    "weir 2.40 M",
];

struct Point {
    name: String,
    offered: f64,
    delivered: f64,
    range: (f64, f64),
}

fn measured(mode: &str) -> Vec<Point> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/udp-overload.json");
    let results: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let points = results["series"][mode].as_array().unwrap();
    let point = |point: &Value| Point {
        name: point["target_pps"]
            .as_f64()
            .map_or_else(|| "top".to_owned(), |pps| rate(PacketsPerSec(pps))),
        offered: point["offered_pps"].as_f64().unwrap(),
        delivered: point["delivered_pps"].as_f64().unwrap(),
        range: (
            point["delivered"]["min"].as_f64().unwrap(),
            point["delivered"]["max"].as_f64().unwrap(),
        ),
    };
    points.iter().map(point).collect()
}

fn simulated(mode: Mode, offered: f64, neighbour: bool) -> Outcome {
    let host = vm::flooded(mode, PacketsPerSec(offered));
    let host = if neighbour { vm::with_neighbour(host) } else { host };
    let (host, outcome) = Host::measure(host, Nanos::from_millis(60), Nanos::from_millis(200));
    assert_eq!(host.outcome().unaccounted(), 0);
    outcome
}

#[test]
fn the_measured_curves_are_met_but_for_the_named_points() {
    let mut table = Table::new(
        "Delivered packets/s, measured and simulated",
        &["mode", "offered", "measured", "of 4 trials", "simulated", "off by", ""],
    );
    let mut off = Vec::new();
    for (name, mode) in MODES {
        for point in measured(name) {
            let got = simulated(mode, point.offered, false).rate_of(0);
            let deviation = got.0 / point.delivered - 1.0;
            let beyond = deviation.abs() > TOLERANCE;
            let inside = (point.range.0..=point.range.1).contains(&got.0);
            if beyond {
                off.push(format!("{name} {}", point.name));
            }
            let [low, high] = [point.range.0, point.range.1].map(|pps| rate(PacketsPerSec(pps)));
            table.row(vec![
                name.to_owned(),
                point.name,
                rate(PacketsPerSec(point.delivered)),
                format!("{low} to {high}"),
                rate(got),
                format!("{:+.0} %", deviation * 100.0),
                match (beyond, inside) {
                    (false, _) => String::new(),
                    (true, true) => "beyond 15 %, within the trials".to_owned(),
                    (true, false) => "beyond 15 %".to_owned(),
                },
            ]);
        }
    }
    insta::assert_snapshot!("measured_and_simulated", table.render());
    assert_eq!(off, EXCEPTIONS);
}

/// Measured on other days, while the machine's speed doubled (design figures, no raw data): shown, and
/// not claimed to be met.
#[test]
fn beside_a_compute_bound_process() {
    let points = [
        ("niced", Mode::Niced, 100e3, 23e3, None),
        ("niced", Mode::Niced, 400e3, 76e3, None),
        ("niced", Mode::Niced, 5e6, 84e3, Some(0.97)),
        ("threaded", Mode::Threaded, 100e3, 78e3, None),
        ("threaded", Mode::Threaded, 400e3, 184e3, None),
        ("threaded", Mode::Threaded, 5e6, 37e3, Some(0.43)),
    ];
    let mut table = Table::new(
        "With a compute-bound process beside the consumer; not validated",
        &["mode", "offered", "measured", "simulated", "off by", "neighbour, measured", "simulated"],
    );
    for (name, mode, offered, delivered, neighbour) in points {
        let outcome = simulated(mode, offered, true);
        table.row(vec![
            name.to_owned(),
            rate(PacketsPerSec(offered)),
            rate(PacketsPerSec(delivered)),
            rate(outcome.rate_of(0)),
            format!("{:+.0} %", (outcome.rate_of(0).0 / delivered - 1.0) * 100.0),
            neighbour.map_or_else(|| "-".to_owned(), percent),
            percent(outcome.share(|cpu| cpu.neighbours).get()),
        ]);
    }
    insta::assert_snapshot!("beside_a_neighbour", table.render());
}

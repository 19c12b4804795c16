//! A plausible experiment for tests: the shape that was measured, without the noise.

use std::collections::BTreeMap;

use crate::results::*;

/// Rates of the sweep, packets/s; the last is the generator's top.
const TARGETS: [Option<f64>; 7] =
    [Some(100e3), Some(200e3), Some(400e3), Some(800e3), Some(1.6e6), Some(3.2e6), None];
const TOP_PPS: f64 = 5.1e6;

/// Delivered by mode at each of [`TARGETS`], packets/s.
const DELIVERED: [(Mode, [f64; 7]); 7] = [
    (Mode::Stock, [100e3, 200e3, 351e3, 214e3, 96e3, 18e3, 2.1e3]),
    (Mode::Threaded, [100e3, 199e3, 290e3, 231e3, 180e3, 141e3, 119e3]),
    (Mode::Niced, [100e3, 186e3, 355e3, 382e3, 376e3, 371e3, 367e3]),
    (Mode::Gate, [100e3, 199e3, 305e3, 291e3, 262e3, 214e3, 171e3]),
    (Mode::IdleWeir, [100e3, 199e3, 286e3, 228e3, 176e3, 139e3, 116e3]),
    (Mode::Weir, [100e3, 200e3, 361e3, 384e3, 379e3, 370e3, 365e3]),
    (Mode::Softirq, [100e3, 200e3, 351e3, 271e3, 211e3, 181e3, 121e3]),
];

/// `udp-overload` with these modes, a bystander, a marked point and one that fell short.
pub(super) fn experiment(modes: &[Mode]) -> Experiment {
    let swept = || DELIVERED.into_iter().filter(|(mode, _)| modes.contains(mode));
    let series: BTreeMap<Mode, Vec<Point>> =
        swept().map(|(mode, delivered)| (mode, sweep(mode, &delivered))).collect();
    let summary = series.iter().map(|(mode, points)| (*mode, summary(points))).collect();
    let mut experiment = Experiment {
        schema: SCHEMA,
        experiment: "udp-overload".to_owned(),
        weir_version: "0.1.0".to_owned(),
        started_at: "2026-02-03T04:05:06Z".to_owned(),
        duration_s: 41.6,
        quick: true,
        machine: machine(),
        workload: Workload {
            application: "recv".to_owned(),
            packets: "udp4".to_owned(),
            payload_bytes: 14,
            rcvbuf_bytes: 212_992,
            queue_depth_packets: 50,
            generator_top_pps: Some(TOP_PPS),
        },
        setup: swept().map(|(mode, _)| (mode, setup(mode))).collect(),
        bystander: swept().map(|(mode, _)| (mode, bystander(mode))).collect(),
        series,
        summary,
        goals: vec![
            goal("weir retains its peak at the top rate", ">= 0.97", "0.951", false),
            goal("stock falls into receive livelock", "<= 0.2", "0.006", true),
        ],
        sentence: String::new(),
        warnings: vec![
            "This is a virtual machine: CPUs may share a core, so compare modes within this run \
             only and give absolute figures no weight."
                .to_owned(),
        ],
        trials: swept().map(|(mode, _)| trial(mode)).collect(),
    };
    experiment.sentence = super::sentence(&experiment);
    experiment
}

/// To four places: serde_json reads longer figures back with an error in the last bit.
fn short(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

fn goal(name: &str, want: &str, got: &str, met: bool) -> Goal {
    Goal { name: name.to_owned(), want: want.to_owned(), got: got.to_owned(), met }
}

fn sweep(mode: Mode, delivered: &[f64; 7]) -> Vec<Point> {
    let points = TARGETS.iter().zip(delivered);
    points.map(|(target, delivered)| point(mode, *target, *delivered)).collect()
}

fn point(mode: Mode, target_pps: Option<f64>, delivered_pps: f64) -> Point {
    let gated = matches!(mode, Mode::Gate | Mode::Weir | Mode::Softirq);
    let mut offered_pps = target_pps.unwrap_or(TOP_PPS - 20e3 * mode as u8 as f64);
    if mode == Mode::Threaded && target_pps == Some(3.2e6) {
        offered_pps = 2.9e6;
    }
    let lost = offered_pps - delivered_pps;
    let nic_drop_pps = if mode == Mode::Stock { 0.0 } else { lost * 0.4 };
    let discarded_pps = if gated { lost * 0.598 } else { 0.0 };
    Point {
        target_pps,
        offered_pps,
        nic_drop_pps,
        discarded_pps,
        late_drop_pps: lost - nic_drop_pps - discarded_pps,
        delivered_pps,
        delivered: Spread {
            median: delivered_pps,
            min: short(delivered_pps * 0.96),
            max: short(delivered_pps * 1.03).min(offered_pps),
        },
        echo_pps: target_pps.is_none_or(|target| target < 300e3).then_some(delivered_pps * 0.5),
        echo_steady: target_pps.is_none().then_some(0.875),
        user_cpu: delivered_pps / 400e3,
        sut_speed: 0.98,
        steal: 0.001,
        marked: mode == Mode::Gate && target_pps == Some(1.6e6),
        age_p50_us: (delivered_pps > 5e3).then_some(140.0 + lost / 1e5),
        age_p99_us: (delivered_pps > 5e3).then_some(900.0 + lost / 1e3),
        repeats: 3,
    }
}

fn summary(points: &[Point]) -> Summary {
    let peak_pps = points.iter().map(|point| point.delivered_pps).fold(0.0, f64::max);
    let overload_pps = points.last().map_or(0.0, |point| point.delivered_pps);
    let retained = if peak_pps > 0.0 { short(overload_pps / peak_pps) } else { 0.0 };
    Summary { mlfrr_pps: Some(peak_pps * 0.8), ndr_pps: None, peak_pps, overload_pps, retained }
}

fn bystander(mode: Mode) -> Vec<BystanderPoint> {
    let kept = |flood: f64| match mode {
        Mode::Stock => (1.0 - flood / 2e6).max(0.0),
        Mode::Gate | Mode::Weir => 0.998,
        _ => (1.0 - flood / 9e6).max(0.0),
    };
    let point = |target: Option<f64>| {
        let flood_pps = target.unwrap_or(TOP_PPS);
        let goodput_pps = short(1e3 * kept(flood_pps));
        BystanderPoint {
            flood_target_pps: target,
            flood_pps,
            offered_pps: 1e3,
            goodput_pps,
            goodput: Spread {
                median: goodput_pps,
                min: short(goodput_pps * 0.9),
                max: goodput_pps,
            },
            flooded_delivered_pps: 200e3,
            repeats: 3,
        }
    };
    [Some(800e3), Some(1.6e6), None].map(point).into()
}

fn machine() -> Machine {
    let mitigations = [("spectre_v2", "Mitigation: Retpolines"), ("mds", "Vulnerable")];
    Machine {
        kernel: "6.18.5-cloud-amd64".to_owned(),
        cpu_model: "Intel(R) Xeon(R) Processor @ 2.70GHz".to_owned(),
        cpus: 2,
        virtual_machine: true,
        memory_mib: 7_936,
        preemption: "voluntary".to_owned(),
        hz: Some(250),
        scheduler_slice_ns: Some(2_800_000),
        mitigations: mitigations.map(|(name, state)| (name.to_owned(), state.to_owned())).into(),
        sut_cpu: 1,
        generator_cpu: 0,
        shared_core: false,
    }
}

fn setup(mode: Mode) -> ModeSetup {
    let (poll, attach) = match mode {
        Mode::Stock => ("CPU 1, softirq", "none"),
        Mode::Threaded => ("CPU 1, NAPI thread at nice 0", "none"),
        Mode::Niced => ("CPU 1, NAPI thread at nice 19", "none"),
        Mode::Gate | Mode::IdleWeir => ("CPU 1, NAPI thread at nice 0", "native"),
        Mode::Weir => ("CPU 1, NAPI thread at nice 0 to 19", "native"),
        Mode::Softirq => ("CPU 1, softirq", "native"),
    };
    let stock = mode == Mode::Stock;
    ModeSetup {
        driver_poll: poll.to_owned(),
        protocol: if stock { "CPU 1, softirq" } else { poll }.to_owned(),
        gate: if attach == "none" { "none" } else { poll }.to_owned(),
        application: "CPU 1".to_owned(),
        attach: attach.to_owned(),
        gro: stock,
        rps_cpus: "0".to_owned(),
        queue_depth_packets: 50,
    }
}

fn trial(mode: Mode) -> Trial {
    let ledger = Ledger {
        offered: 5_100_000,
        nic_drop: 2_000_000,
        discarded: 0,
        late_backlog: 500_000,
        late_socket: 2_500_000,
        late_other: 0,
        delivered: 100_000,
        beyond_udp: 0,
        unaccounted: 0,
    };
    Trial {
        mode,
        purpose: "sweep".to_owned(),
        target_pps: None,
        window_s: 1.0,
        offered_pps: 5.1e6,
        nic_drop_pps: 2e6,
        discarded_pps: 0.0,
        late_drop_pps: 3e6,
        delivered_pps: 1e5,
        bystander_offered_pps: 0.0,
        bystander_delivered_pps: 0.0,
        user_cpu: 0.25,
        sut_loop_ns: 1_020_000.0,
        steal: 0.001,
        age_p50_us: Some(190.0),
        age_p99_us: None,
        missed_by_generator: 0,
        ledger,
        replies: None,
    }
}

//! Plausible results of the experiments in which several things want the CPU, for tests.

use super::fixture::experiment;
use crate::results::kinds::*;
use crate::results::load::{Conditions, LoadRun, LoadTrial, Receivers, Service};
use crate::results::neighbour::*;
use crate::results::receivers::*;
use crate::results::separation::*;
use crate::results::user_share::*;
use crate::results::{Goal, Mode, Spread};

const CONDITIONS: Conditions =
    Conditions { sut_speed: 0.98, steal: 0.001, marked: false, repeats: 3 };
const MARKED: Conditions = Conditions { sut_speed: 0.9, steal: 0.001, marked: true, repeats: 3 };

fn around(median: f64) -> Spread {
    Spread { median, min: median * 0.5, max: median * 1.5 }
}

/// Everything but the points, on the machine of the other fixtures.
fn run<K: Ord + Copy, P, S, R>(
    name: &str,
    key: K,
    (points, summary, reference): (Vec<P>, S, R),
) -> LoadRun<K, P, S, R> {
    let mut sweep = experiment(&[Mode::Weir]);
    sweep.machine.mitigations.clear();
    let trial = sweep.trials.swap_remove(0);
    LoadRun {
        schema: sweep.schema,
        experiment: name.to_owned(),
        weir_version: sweep.weir_version,
        started_at: sweep.started_at,
        duration_s: sweep.duration_s,
        quick: true,
        machine: sweep.machine,
        workload: sweep.workload,
        setup: sweep.setup.into_values().map(|setup| (key, setup)).collect(),
        reference,
        series: [(key, points)].into(),
        summary: [(key, summary)].into(),
        goals: vec![Goal {
            name: "weir does as it should".to_owned(),
            want: ">= 0.95".to_owned(),
            got: "0.951 at worst".to_owned(),
            met: true,
        }],
        sentence: String::new(),
        warnings: vec!["a quick run".to_owned()],
        trials: vec![LoadTrial {
            key,
            load: trial,
            bystander_age_p50_us: Some(85.5),
            bystander_age_p99_us: None,
            input_cpu_ns: Some(500_000_000),
            daemon_cpu_ns: Some(1_000_000),
            flooded_cpu_ns: 250_000_000,
            bystander_cpu_ns: 50_000_000,
            neighbour_per_s: Some(100_000.0),
            neighbour_cpu: Some(0.5),
            service: None,
            receivers: None,
        }],
    }
}

/// `udp-overload --neighbour`: a rate at which all fits, and the top.
pub(super) fn neighbour() -> NeighbourRun {
    let point = |target_pps: Option<f64>, conditions| NeighbourPoint {
        target_pps,
        offered_pps: target_pps.unwrap_or(5e6),
        alone_pps: 100e3,
        delivered_pps: 98e3,
        delivered: around(98e3),
        work: 0.25,
        work_range: around(0.25),
        neighbour_cpu: 0.26,
        input_cpu: Some(0.5),
        nic_drop_pps: 0.0,
        discarded_pps: 2e3,
        late_drop_pps: 0.0,
        age_p50_us: Some(85.5),
        age_p99_us: None,
        fits: Some(target_pps.is_some()),
        fair_pps: Some(99e3),
        fair_work: Some(0.25),
        conditions,
    };
    let reference = NeighbourReference {
        unloaded_per_s: around(200e3),
        user_share: 0.5,
        costs_of: Some(Mode::Weir),
        c_input_ns: Some(900.0),
        c_app_ns: Some(1900.0),
    };
    let summary =
        NeighbourSummary { peak_pps: 98e3, overload_pps: 98e3, retained: 1.0, overload_work: 0.25 };
    let points = vec![point(Some(100e3), CONDITIONS), point(None, MARKED)];
    let mut run = run("udp-overload-neighbour", Mode::Weir, (points, summary, reference));
    run.sentence = super::neighbour_sentence(&run);
    run
}

/// `separation`: no flood, one below R_ring that the generator did not reach, and the top.
pub(super) fn separation() -> SeparationRun {
    let point = |target_pps: Option<f64>, flood_pps: f64| {
        let victim_pps = if target_pps.is_some() { 19.8e3 } else { 12e3 };
        SeparationPoint {
            target_pps,
            flood_pps,
            victim_offered_pps: 20e3,
            victim_pps,
            victim: around(victim_pps),
            goodput: victim_pps / 20e3,
            of_unflooded: victim_pps / 19.8e3,
            victim_age_p50_us: Some(85.5),
            victim_age_p99_us: Some(850.5),
            flooded_pps: 200e3_f64.min(flood_pps),
            flooded_wanted_pps: (flood_pps > 0.0).then_some(150e3),
            ring_loss: if target_pps.is_some() { 0.0 } else { 0.375 },
            nic_drop_pps: 0.0,
            discarded_pps: 1.4e6,
            late_drop_pps: 0.0,
            input_cpu: Some(0.5),
            conditions: CONDITIONS,
        }
    };
    let reference = SeparationReference {
        victim_pps: 20e3,
        bare_drop_ns: around(100.0),
        bare_drop_pps: 10e6,
        peak_pps: 250e3,
    };
    let summary = SeparationSummary {
        unloaded: 19.8e3,
        overload: 12e3,
        retained: 0.6,
        peak_pps: 200e3,
        r_ring_pps: Some(3.9e6),
        c_gate_ns: Some(126.0),
    };
    let points = vec![point(Some(0.0), 0.0), point(Some(1.6e6), 1.5e6), point(None, 5e6)];
    let mut run = run("separation", Mode::Weir, (points, summary, reference));
    run.sentence = super::separation_sentence(&run);
    run
}

/// `separation --kinds`: no flood, connection requests below R_ring and past it, and pings past it.
pub(super) fn kinds() -> KindsRun {
    let point = |kind: Option<Kind>, target_pps: Option<f64>, kept: f64| KindPoint {
        kind,
        target_pps,
        flood_pps: target_pps.unwrap_or(5e6),
        udp_pps: 20e3 * kept,
        udp_kept: kept,
        udp_range: around(kept),
        udp_age_p50_us: Some(85.5),
        udp_age_p99_us: Some(850.5),
        tcp_per_s: 1000.0 * kept,
        tcp_kept: kept / 2.0,
        tcp_range: around(kept / 2.0),
        tcp_time_p50_us: Some(120.5),
        tcp_time_p99_us: None,
        flooded_pps: 0.0,
        ring_loss: if kept < 0.5 { 0.375 } else { 0.0 },
        nic_drop_pps: 2e6,
        discarded_pps: 1.4e6,
        late_drop_pps: 0.0,
        input_cpu: Some(0.5),
        conditions: if kept < 0.5 { MARKED } else { CONDITIONS },
    };
    let reference = KindsReference { udp_pps: 20e3, tcp_per_s: 2000.0 };
    let reached =
        KindSummary { r_ring_pps: Some(100e3), udp_kept: Some(0.96875), tcp_kept: Some(0.484375) };
    let summary = KindsSummary {
        unloaded: 1000.0,
        overload: 250.0,
        retained: 0.25,
        kinds: [(Kind::Syn, reached), (Kind::Icmp, KindSummary::default())].into(),
    };
    let points = vec![
        point(None, Some(0.0), 1.0),
        point(Some(Kind::Syn), Some(100e3), 0.96875),
        point(Some(Kind::Syn), None, 0.25),
        point(Some(Kind::Icmp), None, 0.375),
    ];
    let mut run = run("separation-kinds", Mode::Weir, (points, summary, reference));
    run.trials[0].service = Some(Service {
        answered_per_s: 968.75,
        time_p50_us: Some(120.5),
        time_p99_us: Some(1200.5),
    });
    run.trials[0].load.ledger.delivered -= 1000;
    run.trials[0].load.ledger.beyond_udp = 1000;
    run.sentence = super::kinds_sentence(&run);
    run
}

/// `user-share`: no flood, and a flood past the share.
pub(super) fn user_share() -> UserShareRun {
    let point = |target_pps: Option<f64>, user: f64, off: Option<f64>| SharePoint {
        target_pps,
        flood_pps: target_pps.unwrap_or(5e6),
        user,
        user_range: around(user),
        neighbour: user - 0.0625,
        second: 0.0625,
        second_goodput: 0.99,
        input_cpu: Some(0.25),
        input_need: Some(0.75),
        wanted: Some(0.72),
        deviation_points: off,
        nic_drop_pps: 2e6,
        discarded_pps: 3e6,
        late_drop_pps: 0.0,
        conditions: CONDITIONS,
    };
    let reference =
        ShareReference { unloaded_per_s: around(200e3), second_pps: 20e3, c_app_ns: Some(3100.0) };
    let summary = ShareSummary {
        setting: Some(0.75),
        unloaded: 0.96875,
        overload: 0.734375,
        retained: 0.75,
        lowest: 0.734375,
        lowest_deviation_points: Some(-1.5625),
        highest_deviation_points: Some(-1.5625),
    };
    let points = vec![point(Some(0.0), 0.96875, None), point(None, 0.734375, Some(-1.5625))];
    let mut run = run("user-share", ShareMode::Weir75, (points, summary, reference));
    run.sentence = super::user_share_sentence(&run);
    run
}

/// `receivers`: a rate that both can take, and one that neither can.
pub(super) fn receivers() -> ReceiversRun {
    let point = |target_pps: f64, heavier_pps: f64, lighter_pps: f64| ReceiversPoint {
        target_pps: Some(target_pps),
        heavier_offered_pps: target_pps,
        lighter_offered_pps: target_pps,
        heavier_pps,
        lighter_pps,
        overloaded: lighter_pps < target_pps,
        ratio: Some(heavier_pps / lighter_pps),
        ratio_range: around(heavier_pps / lighter_pps),
        heavier_cpu: 0.375,
        lighter_cpu: 0.0625,
        input_cpu: Some(0.25),
        heavier_sleeps_per_s: 120.0,
        lighter_sleeps_per_s: 80.0,
        ring_loss: 0.0,
        nic_drop_pps: 0.0,
        discarded_pps: 2.0 * target_pps - heavier_pps - lighter_pps,
        late_drop_pps: 0.0,
        conditions: CONDITIONS,
    };
    let reference =
        ReceiversReference { heavier_nice: 0, lighter_nice: 10, weights_ratio: 9.3125, passes: 8 };
    let summary = ReceiversSummary {
        peak_pps: 72e3,
        overload_pps: 72e3,
        retained: 1.0,
        overload_ratio: Some(8.0),
    };
    let points = vec![point(2e3, 2e3, 2e3), point(200e3, 64e3, 8e3)];
    let mut run = run("receivers", Mode::Weir, (points, summary, reference));
    run.trials[0].receivers = Some(Receivers {
        heavier_cpu: 0.375,
        lighter_cpu: 0.0625,
        heavier_sleeps_per_s: 120.0,
        lighter_sleeps_per_s: 80.0,
    });
    run.sentence = super::receivers_sentence(&run);
    run
}

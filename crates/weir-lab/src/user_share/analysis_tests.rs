//! Shares of work, from made-up trials.

use weir_bpf::units::PacketsPerSec;

use super::analysis::{reference, series, summary};
use super::{SWEEP, UNLOADED};
use crate::results::Mode;
use crate::results::load::{LoadKey, LoadTrial};
use crate::results::user_share::ShareMode;
use crate::trial::Flood;
use crate::trial::made_up::trial;

const KEY: ShareMode = ShareMode::Weir75;
const FLOOD: Flood = Flood::Paced(PacketsPerSec(1e6));

/// The neighbour's loop runs 200,000 times a second unloaded; a packet of the second application costs
/// it 2 us, and each packet input 400 ns.
fn made(
    purpose: &str,
    flood: Flood,
    offered: u64,
    second: f64,
    per_s: f64,
) -> LoadTrial<ShareMode> {
    let made = trial(Mode::Weir, purpose, flood, offered, 0);
    let mut load = made.load;
    load.bystander_offered_pps = 20e3;
    load.bystander_delivered_pps = second;
    load.offered_pps -= 20e3_f64.min(load.offered_pps);
    load.ledger.delivered = second as u64;
    LoadTrial {
        key: KEY,
        load,
        bystander_age_p50_us: None,
        bystander_age_p99_us: None,
        input_cpu_ns: Some(offered * 400),
        daemon_cpu_ns: None,
        flooded_cpu_ns: 0,
        bystander_cpu_ns: second as u64 * 2000,
        neighbour_per_s: Some(per_s),
        neighbour_cpu: Some(per_s / 200e3),
        service: None,
        receivers: None,
    }
}

fn trials() -> Vec<LoadTrial<ShareMode>> {
    vec![
        made(UNLOADED, Flood::Off, 0, 0.0, 200e3),
        made(SWEEP, Flood::Off, 20_000, 20e3, 190e3),
        made(SWEEP, FLOOD, 1_020_000, 10e3, 142e3),
    ]
}

#[test]
fn work_is_the_neighbours_and_the_second_applications() {
    let reference = reference(&trials());
    assert_eq!((reference.unloaded_per_s.median, reference.c_app_ns), (200e3, Some(2000.0)));
    let series = series(&[KEY], &[Flood::Off, FLOOD], &trials(), &reference);
    let [calm, flooded] = series[&KEY].as_slice() else { panic!("{series:?}") };
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got} is not {want}");
    near(calm.user, 0.95 + 0.04);
    near(calm.input_need.unwrap(), 0.008);
    near(calm.wanted.unwrap(), 0.992 * 0.95);
    assert_eq!(calm.deviation_points, None);
    near(flooded.user, 0.71 + 0.02);
    near(flooded.input_need.unwrap(), 0.408);
    near(flooded.second_goodput, 0.5);
    near(flooded.wanted.unwrap(), 0.72);
    near(flooded.deviation_points.unwrap(), -2.0);
    let summary = summary(&series)[&KEY];
    near(summary.lowest, 0.73);
    assert_eq!(summary.lowest_deviation_points, flooded.deviation_points);
}

#[test]
fn a_setting_is_the_options_of_one_mode() {
    for key in ShareMode::ALL {
        let is_weir = matches!(key.mode(), Mode::Weir | Mode::Softirq);
        assert_eq!(key.setting().is_some(), is_weir, "{key}");
        assert_eq!(key.options().is_empty(), key.setting().is_none(), "{key}");
        assert_eq!(serde_json::to_string(&key).unwrap(), format!("{:?}", key.name()));
    }
}

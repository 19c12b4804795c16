//! What a service keeps, from made-up trials.

use weir_bpf::units::PacketsPerSec;

use super::{series, summary};
use crate::results::Mode;
use crate::results::http::{Failures, Http};
use crate::results::merit::MeritTrial;
use crate::trial::Flood;
use crate::trial::made_up::trial;

const FLOOD: Flood = Flood::Paced(PacketsPerSec(400e3));

/// A trial of one second in which a quarter of the flood was lost at the ring.
fn made(variant: &str, flood: Flood, requests: f64, timeout: u64) -> MeritTrial<Http> {
    let offered = if flood == Flood::Off { 0 } else { 400_000 };
    let mut load = trial(Mode::Weir, variant, flood, offered, 0).load;
    load.nic_drop_pps = load.offered_pps / 4.0;
    let failures = Failures { timeout, ..Failures::default() };
    let detail = Http {
        took_p50_us: (requests > 0.0).then_some(100.0),
        failures,
        server_cpu: requests / 20e3,
        ..Http::default()
    };
    MeritTrial {
        load,
        merit: requests,
        input_cpu_ns: Some(250_000_000),
        daemon_cpu_ns: None,
        detail,
    }
}

fn trials() -> Vec<MeritTrial<Http>> {
    vec![
        made("a", Flood::Off, 10e3, 0),
        made("b", Flood::Off, 4e3, 0),
        made("a", FLOOD, 8e3, 1),
        made("b", FLOOD, 0.0, 2),
        made("a", FLOOD, 9e3, 2),
        made("a", FLOOD, 9.5e3, 0),
    ]
}

#[test]
fn a_point_is_the_median_of_its_own_trials_against_the_unflooded() {
    let series = series(&[Mode::Weir], &["a", "b"], &[Flood::Off, FLOOD], &trials());
    let points = &series[&Mode::Weir];
    let order: Vec<_> = points.iter().map(|p| (p.variant.as_str(), p.target_pps)).collect();
    assert_eq!(order, [("a", Some(0.0)), ("a", Some(400e3)), ("b", Some(0.0)), ("b", Some(400e3))]);
    let flooded = &points[1];
    assert_eq!(
        (flooded.merit, flooded.merit_range.min, flooded.merit_range.max),
        (9e3, 8e3, 9.5e3)
    );
    assert_eq!((flooded.of_unloaded, flooded.conditions.repeats), (Some(0.9), 3));
    assert_eq!((flooded.ring_loss, flooded.input_cpu), (0.25, Some(0.25)));
    // Failures are summed: a median would hide one that is rare.
    assert_eq!((flooded.detail.failures.timeout, flooded.detail.server_cpu), (3, 0.45));
    assert_eq!((points[0].ring_loss, points[0].of_unloaded), (0.0, Some(1.0)));
    assert_eq!((points[3].of_unloaded, points[3].detail.took_p50_us), (Some(0.0), None));
}

#[test]
fn the_summary_is_the_variant_that_keeps_least() {
    let series = series(&[Mode::Weir], &["a", "b"], &[Flood::Off, FLOOD], &trials());
    let summary = &summary(&["a", "b"], &series)[&Mode::Weir];
    assert_eq!((summary.variant.as_str(), summary.unloaded), ("b", 4e3));
    assert_eq!((summary.overload, summary.retained), (0.0, 0.0));
    let kept = summary.variants["a"];
    assert_eq!((kept.unloaded, kept.overload, kept.retained), (10e3, 9e3, 0.9));
}

#[test]
fn what_was_not_run_is_left_out() {
    let only_flooded = vec![made("a", FLOOD, 8e3, 0)];
    let series = series(&[Mode::Weir], &["a", "b"], &[Flood::Off, FLOOD], &only_flooded);
    let points = &series[&Mode::Weir];
    assert_eq!((points.len(), points[0].of_unloaded), (1, None));
    let summary = &summary(&["a", "b"], &series)[&Mode::Weir];
    assert_eq!((summary.unloaded, summary.retained), (0.0, 0.0));
    assert!(!summary.variants.contains_key("b"));
}

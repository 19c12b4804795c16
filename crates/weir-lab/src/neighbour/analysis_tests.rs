//! The fair division, reckoned from made-up trials.

use weir_bpf::units::PacketsPerSec;

use super::analysis::{division, reference, series, summary};
use super::{ALONE, BESIDE, UNLOADED};
use crate::load::Plan;
use crate::results::Mode;
use crate::results::load::LoadTrial;
use crate::trial::Flood;
use crate::trial::made_up::{self, trial};

const LOW: Flood = Flood::Paced(PacketsPerSec(100e3));
const HIGH: Flood = Flood::Paced(PacketsPerSec(1e6));

fn plan() -> Plan {
    made_up::plan(&[LOW, HIGH])
}

/// Input 1 us and application 2 us per packet; the neighbour's loop runs 200,000 times a second.
fn trials() -> Vec<LoadTrial<Mode>> {
    let at = |purpose, flood, offered: u64, delivered: u64| {
        let mut made = trial(Mode::Weir, purpose, flood, offered, delivered);
        made.input_cpu_ns = Some(offered * 1000);
        made.flooded_cpu_ns = delivered * 2000;
        made
    };
    let with = |mut made: LoadTrial<Mode>, per_s| {
        made.neighbour_per_s = Some(per_s);
        made.neighbour_cpu = Some(per_s / 200e3);
        made
    };
    vec![
        with(trial(Mode::Weir, UNLOADED, Flood::Off, 0, 0), 200e3),
        at(ALONE, LOW, 100_000, 100_000),
        at(ALONE, HIGH, 1_000_000, 300_000),
        with(at(BESIDE, LOW, 100_000, 96_000), 130e3),
        with(at(BESIDE, HIGH, 1_000_000, 100_000), 40e3),
    ]
}

#[test]
fn costs_are_taken_where_nearly_all_is_delivered() {
    let reference = reference(&plan(), &trials());
    assert_eq!(reference.costs_of, Some(Mode::Weir));
    assert_eq!((reference.c_input_ns, reference.c_app_ns), (Some(1000.0), Some(2000.0)));
    assert_eq!(reference.unloaded_per_s.median, 200e3);
}

#[test]
fn the_cpu_is_divided_by_what_each_needs_and_past_that_in_halves() {
    let reference = reference(&plan(), &trials());
    let near = |got: f64, want: f64| (got - want).abs() < 1e-9;
    // 10 % for input, 20 % for the application.
    let (fits, pps, work) = division(&reference, 100e3).unwrap();
    assert!(fits && near(pps, 100e3) && near(work, 0.7), "{pps} {work}");
    // The application would need 26 %, which is more than half of the user share.
    let (fits, pps, work) = division(&reference, 130e3).unwrap();
    assert!(!fits && near(pps, 125e3) && near(work, 0.25), "{pps} {work}");
}

#[test]
fn points_say_what_was_kept_and_what_was_fair() {
    let reference = reference(&plan(), &trials());
    let series = series(&plan(), &trials(), &reference);
    let [low, high] = series[&Mode::Weir].as_slice() else { panic!("{series:?}") };
    assert_eq!((low.alone_pps, low.delivered_pps, low.work), (100e3, 96e3, 0.65));
    assert_eq!((low.fits, high.fits), (Some(true), Some(false)));
    assert_eq!((high.work, high.fair_work), (0.2, Some(0.25)));
    assert!((high.input_cpu.unwrap() - 1.0).abs() < 1e-9, "{high:?}");
    let summary = summary(&series)[&Mode::Weir];
    assert_eq!((summary.peak_pps, summary.overload_pps), (100e3, 100e3));
    assert_eq!(summary.overload_work, 0.2);
}

#[test]
fn without_packets_nothing_is_said_of_the_division() {
    let reference = reference(&plan(), &[]);
    assert_eq!(reference.costs_of, None);
    assert!(division(&reference, 100e3).is_none());
}

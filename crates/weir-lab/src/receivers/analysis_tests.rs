//! What two receivers get, reckoned from made-up trials.

use weir_bpf::units::PacketsPerSec;

use super::SWEEP;
use super::analysis::{reference, series, summary};
use super::goals::goal_of_weights;
use crate::load::Plan;
use crate::results::Mode;
use crate::results::load::LoadTrial;
use crate::trial::Flood;
use crate::trial::made_up::{self, trial};

const LOW: Flood = Flood::Paced(PacketsPerSec(10e3));
const HIGH: Flood = Flood::Paced(PacketsPerSec(100e3));

fn plan() -> Plan {
    made_up::plan(&[LOW, HIGH])
}

fn both(flood: Flood, sent: u64, heavier: u64, lighter: u64) -> LoadTrial<Mode> {
    let mut made = trial(Mode::Weir, SWEEP, flood, sent, heavier);
    made.load.bystander_offered_pps = sent as f64;
    made.load.bystander_delivered_pps = lighter as f64;
    made
}

#[test]
fn where_both_are_overloaded_their_weights_are_to_decide() {
    let share = |lighter| {
        let trials = [both(LOW, 10_000, 10_000, 10_000), both(HIGH, 100_000, 65_000, lighter)];
        series(&plan(), &trials)
    };
    let fair = share(7_000);
    let [low, high] = fair[&Mode::Weir].as_slice() else { panic!("{fair:?}") };
    assert_eq!((low.overloaded, low.ratio), (false, Some(1.0)));
    assert!(high.overloaded && (high.ratio.unwrap() - 9.286).abs() < 1e-3, "{high:?}");
    let summary = summary(&fair)[&Mode::Weir];
    assert_eq!((summary.peak_pps, summary.retained), (72_000.0, 1.0));
    assert_eq!(summary.overload_ratio, high.ratio);
    let weights = reference(8).weights_ratio;
    assert!(goal_of_weights(weights, &fair[&Mode::Weir]).met);
    for far in [5_000, 9_000] {
        let goal = goal_of_weights(weights, &share(far)[&Mode::Weir]);
        assert!(!goal.met && goal.got.contains("100 k"), "{goal:?}");
    }
}

#[test]
fn a_receiver_that_received_nothing_misses_the_goal() {
    let series = series(&plan(), &[both(HIGH, 100_000, 65_000, 0)]);
    let high = &series[&Mode::Weir][1];
    assert!(high.overloaded && high.ratio.is_none(), "{high:?}");
    let goal = goal_of_weights(reference(8).weights_ratio, &series[&Mode::Weir][1..]);
    assert!(!goal.met && goal.got.contains("nothing"), "{goal:?}");
}

#[test]
fn without_overload_nothing_is_said_of_weights() {
    let series = series(&plan(), &[both(LOW, 10_000, 10_000, 10_000)]);
    let goal = goal_of_weights(reference(8).weights_ratio, &series[&Mode::Weir][..1]);
    assert!(!goal.met && goal.got.contains("not measured"), "{goal:?}");
}

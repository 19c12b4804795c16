//! From trials to the table.

use std::collections::BTreeMap;

use super::RowSpec;
use crate::compare::{Compared, compare};
use crate::results::load::Conditions;
use crate::results::parity::{Arm, ArmPoint, Measure, ParityRow, ParityRun, ParityTrial};
use crate::speed::Speeds;
use crate::stats::{median, spread};

/// The rows, each arm against every one of its own wire that is not weir's.
pub(super) fn rows(rows: &[RowSpec], arms: &[Arm], trials: &[ParityTrial]) -> Vec<ParityRow> {
    let speeds = Speeds::of_loops(trials.iter().map(|trial| trial.sut_loop_ns));
    let row = |(measure, flows): &RowSpec| {
        let of = |arm: Arm| -> Vec<&ParityTrial> {
            let is_its = |trial: &&ParityTrial| {
                (trial.measure, trial.flows, trial.arm) == (*measure, *flows, arm)
            };
            trials.iter().filter(is_its).collect()
        };
        let point = |arm: &Arm| {
            let own = of(*arm);
            let others = arms.iter().filter(|other| {
                **other != *arm
                    && other.attach().is_none()
                    && other.is_plain_veth() == arm.is_plain_veth()
            });
            let against =
                others.filter_map(|other| Some((*other, against(*measure, &own, &of(*other))?)));
            let point = (!own.is_empty()).then(|| ArmPoint {
                figure: spread(own.iter().map(|trial| trial.figure)),
                against: against.collect(),
                conditions: conditions(&own, speeds),
            });
            Some((*arm, point?))
        };
        let arms = arms.iter().filter_map(point).collect();
        ParityRow { measure: *measure, flows: *flows, unit: measure.unit().into(), arms }
    };
    rows.iter().map(row).collect()
}

/// By the trials of one repeat.
fn against(measure: Measure, own: &[&ParityTrial], other: &[&ParityTrial]) -> Option<Compared> {
    let by_repeat: BTreeMap<u32, f64> =
        other.iter().map(|trial| (trial.repeat, trial.figure)).collect();
    let pairs: Vec<(f64, f64)> = own
        .iter()
        .filter_map(|trial| {
            let other = *by_repeat.get(&trial.repeat)?;
            // Of a time, less is better.
            Some(if measure.is_time() { (other, trial.figure) } else { (trial.figure, other) })
        })
        .collect();
    compare(&pairs)
}

fn conditions(trials: &[&ParityTrial], speeds: Speeds) -> Conditions {
    let (sut_speed, marked) = speeds.judge(median(trials.iter().map(|trial| trial.sut_loop_ns)));
    Conditions {
        sut_speed,
        steal: median(trials.iter().map(|trial| trial.steal)),
        marked,
        repeats: trials.len() as u32,
    }
}

/// What was lost where nothing should be.
pub(super) fn warnings(run: &ParityRun) -> Vec<String> {
    let lossy = run.trials.iter().filter(|trial| trial.measure.is_udp());
    let lossy = lossy.filter(|trial| trial.lost.offered != trial.lost.delivered).count();
    let warning = format!("in {lossy} trials datagrams were lost: those were not without overload");
    (lossy > 0).then_some(warning).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;
    use crate::report::fixture_parity::trial;

    #[test]
    fn arms_are_held_against_their_own_wires_in_the_same_repeat() {
        let row = (Measure::UdpRoundTrip, 1);
        let trials = vec![
            trial(0, row, Arm::Stock, 100.0),
            trial(0, row, Arm::Tc, 50.0),
            trial(1, row, Arm::Tc, 100.0),
            trial(1, row, Arm::Stock, 80.0),
            trial(2, row, Arm::Tc, 1.0),
            trial(0, row, Arm::VethStock, 10.0),
            trial(0, (Measure::UdpWindow, 1), Arm::Tc, 9.0),
        ];
        let arms = [Arm::Stock, Arm::Native, Arm::Tc, Arm::VethStock];
        let table = rows(&[row], &arms, &trials);
        let found: Vec<Arm> = table[0].arms.keys().copied().collect();
        assert_eq!(found, [Arm::Stock, Arm::Tc, Arm::VethStock]);
        let tc = &table[0].arms[&Arm::Tc];
        assert_eq!((tc.figure.median, tc.conditions.repeats), (50.0, 3));
        // A round trip of half the time is twice as good.
        let compared = tc.against[&Arm::Stock];
        assert_eq!((compared.low, compared.high, compared.pairs), (0.8, 2.0, 2));
        assert_eq!((compared.verdict, tc.against.len()), (Verdict::Undecided, 1));
        assert!(table[0].arms[&Arm::VethStock].against.is_empty());
    }

    #[test]
    fn of_throughput_more_is_better() {
        let row = (Measure::TcpStream, 1);
        let trials = [trial(0, row, Arm::VethStock, 4000.0), trial(0, row, Arm::VethTc, 5000.0)];
        let table = rows(&[row], &[Arm::VethStock, Arm::VethTc], &trials);
        assert_eq!(table[0].arms[&Arm::VethTc].against[&Arm::VethStock].ratio, 1.25);
    }
}

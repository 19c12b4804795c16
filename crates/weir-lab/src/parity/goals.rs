//! What is wanted: every figure within 3 % of stock, or better.

use crate::compare::WITHIN;
use crate::results::Goal;
use crate::results::parity::{Arm, ArmPoint, ParityRow, ParityRun};

/// The goals: one for each row and attach point, then that nothing was discarded or is missing.
pub(super) fn goals(run: &ParityRun) -> Vec<Goal> {
    let of_row = |row: &ParityRow| -> Vec<Goal> {
        let gates = row.arms.iter().filter(|(arm, _)| arm.attach().is_some());
        gates.filter_map(|(arm, point)| kept(row, *arm, point)).collect()
    };
    let mut goals: Vec<Goal> = run.rows.iter().flat_map(of_row).collect();
    goals.push(zero(run, "discarded by the gate", |trial| trial.lost.discarded));
    goals.push(zero(run, "datagrams in no counter", |trial| trial.lost.unaccounted.unsigned_abs()));
    goals
}

/// Against the better of its wire's stocks.
fn kept(row: &ParityRow, arm: Arm, point: &ArmPoint) -> Option<Goal> {
    let stocks = arm.stocks().iter().filter_map(|stock| Some((stock, point.against.get(stock)?)));
    let (stock, compared) = stocks.min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))?;
    Some(Goal {
        name: format!("{arm}: {}, {} flows, against {stock}", row.measure.name(), row.flows),
        want: format!(">= {WITHIN}"),
        got: format!(
            "{}: {:.3} ({:.3}-{:.3}, {} pairs)",
            compared.verdict.name(),
            compared.ratio,
            compared.low,
            compared.high,
            compared.pairs
        ),
        met: compared.verdict == crate::compare::Verdict::Met,
    })
}

fn zero(run: &ParityRun, name: &str, of: fn(&crate::results::parity::ParityTrial) -> u64) -> Goal {
    let sum: u64 = run.trials.iter().map(of).sum();
    Goal {
        name: name.into(),
        want: "0".into(),
        got: format!("{sum} in {} trials", run.trials.len()),
        met: sum == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::goals;
    use crate::report::fixture_parity::parity;

    #[test]
    fn each_attach_point_is_held_against_the_better_stock() {
        let run = parity();
        let goals = goals(&run);
        let told: Vec<_> = goals.iter().map(|goal| (goal.name.as_str(), goal.met)).collect();
        assert_eq!(
            told,
            [
                ("native: udp-round-trip, 1 flows, against stock-rps", false),
                ("tc: udp-round-trip, 1 flows, against stock-rps", true),
                ("veth-tc: tcp-stream, 1 flows, against veth-stock", false),
                ("discarded by the gate", true),
                ("datagrams in no counter", true),
            ]
        );
        assert!(goals[2].got.starts_with("undecided: "), "{}", goals[2].got);
    }
}

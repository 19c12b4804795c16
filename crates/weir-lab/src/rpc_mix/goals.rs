//! What is wanted: the worker's calls and the short RPCs as with the best of the others, and no
//! discard.

use super::Pace;
use crate::compare::{Compared, Verdict, WITHIN, compare};
use crate::goals::{accounted, goal};
use crate::results::merit::MeritTrial;
use crate::results::rpc::{Rpc, RpcRun};
use crate::results::{Goal, Mode};
use crate::trial::Flood;

type Figure = fn(&MeritTrial<Rpc>) -> f64;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &RpcRun) -> Vec<Goal> {
    let figures: [(&str, Figure); 2] = [
        ("worker's calls/s (1 / completion time)", |trial| trial.merit),
        ("short RPCs/s", |trial| trial.detail.rpc_per_s),
    ];
    let of_pace =
        |pace: &Pace| figures.map(|(name, figure)| against_best(run, *pace, name, figure));
    let mut goals: Vec<Goal> = Pace::ALL.iter().flat_map(of_pace).collect();
    let discarded: u64 = run.trials.iter().map(|trial| trial.load.ledger.discarded).sum();
    goals.push(Goal {
        name: "discarded by the gate".into(),
        want: "0".into(),
        got: format!("{discarded} in {} trials", run.trials.len()),
        met: discarded == 0,
    });
    goals.push(accounted(run.trials.iter().map(|trial| &trial.load)));
    goals
}

/// Against the baseline to which weir compares worst, trial by trial.
fn against_best(run: &RpcRun, pace: Pace, name: &str, figure: Figure) -> Goal {
    let all: Option<Vec<(Mode, Compared)>> = Mode::BASELINES
        .iter()
        .map(|mode| Some((*mode, compare(&pairs(run, *mode, pace, figure))?)))
        .collect();
    let worst = all.and_then(|all| all.into_iter().min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio)));
    goal(
        &format!("weir: {}: {name} against the best of stock, threaded, niced", pace.name()),
        format!(">= {WITHIN} (a margin of 3 %)"),
        worst.map(|(mode, compared)| {
            let Compared { ratio, low, high, pairs, verdict } = compared;
            let verdict_name = verdict.name();
            let got =
                format!("{verdict_name}: {ratio:.3} ({low:.3}-{high:.3}, {pairs} pairs) of {mode}");
            (got, verdict == Verdict::Met)
        }),
    )
}

/// Mixed trials of weir and of another, in the order in which they ran: repeat by repeat.
fn pairs(run: &RpcRun, other: Mode, pace: Pace, figure: Figure) -> Vec<(f64, f64)> {
    let of = |mode: Mode| {
        let is_its = move |trial: &&MeritTrial<Rpc>| {
            let load = &trial.load;
            load.mode == mode
                && load.purpose == pace.name()
                && load.target_pps == Flood::Top.target_pps()
        };
        run.trials.iter().filter(is_its).map(figure)
    };
    of(Mode::Weir).zip(of(other)).collect()
}

#[cfg(test)]
mod tests {
    use super::goals;
    use crate::report::fixture_rpc::rpc;
    use crate::results::Mode;

    #[test]
    fn the_best_of_three_is_asked_for_each_figure_by_itself() {
        let mut run = rpc();
        let of =
            |run: &_| goals(run).into_iter().map(|goal| (goal.got, goal.met)).collect::<Vec<_>>();
        let told = of(&run);
        assert_eq!(told[0], ("met: 1.000 (1.000-1.000, 2 pairs) of niced".to_owned(), true));
        assert_eq!(told[1], ("NOT met: 0.500 (0.500-0.500, 2 pairs) of stock".to_owned(), false));
        assert!(told[2].0.contains("not measured") && told[6].1 && told[7].1, "{told:?}");
        run.trials.retain(|trial| trial.load.mode != Mode::Niced);
        run.trials[0].load.ledger.discarded = 1;
        let told = of(&run);
        assert!(told[0].0.contains("not measured") && !told[6].1, "{told:?}");
    }
}

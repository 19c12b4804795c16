//! In which order the trials are run, and how the loss-free rates are searched for.

use weir_bpf::units::PacketsPerSec;

use super::Plan;
use crate::results::{Mode, Trial};
use crate::stats::Bisection;

/// Loss that a partial-drop rate (PDR) may have: MLRsearch's 0.5 %.
const PDR_LOSS: f64 = 0.005;
/// Where the search for a loss-free rate begins and ends.
const LOWEST_PPS: f64 = 20_000.0;
const HIGHEST_PPS: f64 = 1_500_000.0;

/// Every rate in every mode, `repeats` times. Modes are innermost, so that a machine whose speed drifts
/// slows all of them alike; their order rotates and the rates' order turns round from one repeat to
/// the next, so that none always follows the same one.
pub(super) fn interleaved(
    rates: &[Option<PacketsPerSec>],
    modes: &[Mode],
    repeats: u32,
) -> Vec<(Option<PacketsPerSec>, Mode)> {
    let mut order = Vec::new();
    for repeat in 0..repeats as usize {
        for position in 0..rates.len() {
            let rate = if repeat % 2 == 0 { position } else { rates.len() - 1 - position };
            for turn in 0..modes.len() {
                order.push((rates[rate], modes[(turn + repeat + position) % modes.len()]));
            }
        }
    }
    order
}

/// The search for a mode's loss-free rates.
pub(super) struct Search {
    /// The highest rate with at most [`PDR_LOSS`].
    pub(super) partial_drop: Bisection,
    /// The highest rate without loss. Absent in a quick run, whose trials are too short to tell no
    /// loss from little.
    pub(super) no_drop: Option<Bisection>,
}

impl Search {
    pub(super) fn new(plan: &Plan) -> Self {
        let bisection = Bisection::new(LOWEST_PPS, HIGHEST_PPS, plan.bisection_steps);
        Self { partial_drop: bisection, no_drop: (!plan.quick).then_some(bisection) }
    }

    /// The rate to try next, or `None` when both searches are over.
    pub(super) fn next(&self) -> Option<f64> {
        self.partial_drop.next().or_else(|| self.no_drop.as_ref()?.next())
    }

    /// What came of the trial at [`Search::next`].
    pub(super) fn report(&mut self, trial: &Trial) {
        let lost = trial.ledger.offered - trial.ledger.delivered;
        let loss = lost as f64 / trial.ledger.offered.max(1) as f64;
        let passed = |allowed: f64| (loss <= allowed).then_some(trial.offered_pps);
        if self.partial_drop.next().is_some() {
            self.partial_drop.report(passed(PDR_LOSS));
        } else if let Some(no_drop) = &mut self.no_drop {
            no_drop.report(passed(0.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_meets_every_mode_as_often_as_it_is_repeated() {
        let rates = [Some(PacketsPerSec(1e5)), Some(PacketsPerSec(1e6)), None];
        let modes = [Mode::Stock, Mode::Niced, Mode::Weir];
        let order = interleaved(&rates, &modes, 4);
        for rate in rates {
            for mode in modes {
                let times = order.iter().filter(|trial| **trial == (rate, mode)).count();
                assert_eq!(times, 4, "{rate:?} {mode}");
            }
        }
        // No mode always comes first.
        let first: Vec<Mode> = order.chunks(modes.len()).map(|chunk| chunk[0].1).collect();
        assert!(modes.iter().all(|mode| first.contains(mode)), "{first:?}");
    }
}

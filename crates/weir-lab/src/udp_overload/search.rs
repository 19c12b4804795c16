//! How the loss-free rates are searched for.

use super::Plan;
use crate::results::Trial;
use crate::stats::Bisection;

/// Loss that a partial-drop rate (PDR) may have: MLRsearch's 0.5 %.
const PDR_LOSS: f64 = 0.005;
/// Where the search for a loss-free rate begins and ends.
const LOWEST_PPS: f64 = 20_000.0;
const HIGHEST_PPS: f64 = 1_500_000.0;

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

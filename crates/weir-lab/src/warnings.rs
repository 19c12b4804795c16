//! What a reader should know before trusting any experiment's figures.

use crate::results::load::Conditions;
use crate::results::{Machine, Trial};
use crate::topology;

/// The generator's CPU was elsewhere for more than this share of what fell due.
const MISSED_TOLERANCE: f64 = 0.01;

/// Of how the machine behaved: how many points are marked of how many there are, and the largest
/// share of the SUT's CPU that the hypervisor took.
pub fn measured((marked, points): (usize, usize), stolen: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    if marked > 0 {
        warnings.push(format!(
            "{marked} of {points} points were measured while the CPU's speed differed by more than \
             5 % from the run's median (marked)"
        ));
    }
    if stolen > 0.02 {
        warnings.push(format!("the hypervisor took up to {:.0} % of the CPU", stolen * 100.0));
    }
    warnings
}

/// Of a run's points: how the machine behaved, and whether there was time for every trial.
pub fn of_points<'a>(
    conditions: impl Iterator<Item = &'a Conditions> + Clone,
    repeats: u32,
) -> Vec<String> {
    let marked = conditions.clone().filter(|conditions| conditions.marked).count();
    let stolen = conditions.clone().map(|conditions| conditions.steal).fold(0.0, f64::max);
    let mut all = measured((marked, conditions.clone().count()), stolen);
    let least = conditions.map(|conditions| conditions.repeats).min().unwrap_or(0);
    if least < repeats {
        all.push(format!("the machine was slow: {least} trials per point instead of {repeats}"));
    }
    all
}

/// Of the generator: in how many trials it was elsewhere.
pub fn missed<'a>(trials: impl ExactSizeIterator<Item = &'a Trial>) -> Option<String> {
    let all = trials.len();
    let missed = |trial: &&Trial| {
        let missed = trial.missed_by_generator as f64;
        missed > MISSED_TOLERANCE * (missed + trial.ledger.offered as f64)
    };
    let short = trials.filter(missed).count();
    (short > 0).then(|| {
        format!(
            "in {short} of {all} trials the generator's CPU was elsewhere for more than 1 % of the \
             packets; those were not sent, and are not counted as offered"
        )
    })
}

/// Of the machine and the run.
pub fn circumstances(machine: &Machine, quick: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if machine.shared_core {
        warnings.push("generator and tested system share a core: each slows the other down".into());
    }
    if topology::another_runs() {
        warnings.push("another lab ran on this machine at the same time".into());
    }
    if quick {
        warnings.push(
            "a quick run: few short trials per point; differences of a few percent are noise"
                .into(),
        );
    }
    warnings
}

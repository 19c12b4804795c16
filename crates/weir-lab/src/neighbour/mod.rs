//! `udp-overload --neighbour`: the flooded receiver beside a compute-bound process on its CPU, in every
//! mode, and without it for comparison.
//!
//! The neighbour is a process of its own, in a session of its own, that runs during its own trials only.
//! What it does is measured by work: passes of a calibrated loop, against those that it makes with the
//! CPU to itself while the generator's CPU is as busy as ever.

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod goals;

use crate::error::Result;
use crate::load::{Found, Plan, Runner};
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::report;
use crate::results::Mode;
use crate::results::neighbour::NeighbourRun;
use crate::stop::Stop;
use crate::trial::{Flood, Load};

/// The result's name.
pub const NAME: &str = "udp-overload-neighbour";
/// What trials are for.
pub(crate) const ALONE: &str = "alone";
pub(crate) const BESIDE: &str = "neighbour";
pub(crate) const UNLOADED: &str = "unloaded";

/// The mode in which an idle host costs its CPU least, for what is measured without packets.
pub(crate) fn quietest(modes: &[Mode]) -> Mode {
    let quiet =
        [Mode::Threaded, Mode::Niced, Mode::Gate, Mode::IdleWeir, Mode::Weir, Mode::Softirq];
    quiet.into_iter().find(|mode| modes.contains(mode)).unwrap_or(Mode::Stock)
}

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<NeighbourRun> {
    let mut runner = Runner::set_up(plan, stop, progress)?;
    let per_repeat = 1 + 2 * plan.rates.len() * plan.modes.len();
    runner.begin(per_repeat * plan.repeats as usize);
    let with = |neighbour, flood| Load { neighbour, ..plan.load(flood) };
    for repeat in 0..plan.repeats {
        if runner.is_late(repeat) {
            break;
        }
        runner.trial(quietest(&plan.modes), UNLOADED, with(true, Flood::Off))?;
        for (flood, mode) in one_repeat(&plan.rates, &plan.modes, repeat) {
            // What is compared stands together in time, and which comes first alternates.
            let both = [(ALONE, false), (BESIDE, true)];
            for turn in 0..2 {
                let (purpose, neighbour) = both[(turn + repeat as usize) % 2];
                runner.trial(mode, purpose, with(neighbour, flood))?;
            }
        }
    }
    let reference = analysis::reference(plan, &runner.trials);
    let series = analysis::series(plan, &runner.trials, &reference);
    let summary = analysis::summary(&series);
    let mut run = runner.finish(NAME, Found { reference, series, summary });
    run.goals = goals::goals(&run);
    run.sentence = report::neighbour_sentence(&run);
    Ok(run)
}

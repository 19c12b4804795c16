//! `user-share` (MR, figure 7-1): a compute-bound process on the SUT's CPU while that is flooded, at
//! three settings of the user's share.
//!
//! The flood goes to an application that is stopped, so that each of its packets is discarded and a
//! faster flood only ever wants more of the CPU for input; a second application is sent a light flow, so
//! that separation makes input want all that it may have. What processes get is measured by work done.

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod goals;

use weir_bpf::units::PacketsPerSec;

use crate::error::{Error, Result};
use crate::load::{Found, Plan, Runner};
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::report;
use crate::results::Mode;
use crate::results::load::LoadKey;
use crate::results::user_share::{ShareMode, UserShareRun};
use crate::stop::Stop;
use crate::trial::{Flood, Load};

/// Its name on the command line.
pub const NAME: &str = "user-share";
/// The modes that it compares.
pub const MODES: [Mode; 4] = [Mode::Threaded, Mode::Niced, Mode::Weir, Mode::Softirq];
/// What the second application is sent.
pub(crate) const SECOND_PPS: PacketsPerSec = PacketsPerSec(20_000.0);
/// What trials are for.
pub(crate) const SWEEP: &str = "sweep";
pub(crate) const UNLOADED: &str = "unloaded";

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<UserShareRun> {
    // A quick run has time for one setting of the fallback.
    let left_out =
        |key: &ShareMode| plan.quick && matches!(key, ShareMode::Softirq25 | ShareMode::Softirq75);
    let keys: Vec<ShareMode> = ShareMode::ALL
        .into_iter()
        .filter(|key| plan.modes.contains(&key.mode()) && !left_out(key))
        .collect();
    let Some(quietest) = keys.first().copied() else {
        return Err(Error::refused(
            format!("{NAME} has none of these modes"),
            format!("its modes are {}", MODES.map(Mode::name).join(", ")),
        ));
    };
    let mut runner = Runner::set_up(plan, stop, progress)?;
    let rates = plan.loads();
    runner.begin((1 + rates.len() * keys.len()) * plan.repeats as usize);
    for repeat in 0..plan.repeats {
        if runner.is_late(repeat) {
            break;
        }
        let alone = Load { neighbour: true, ..plan.load(Flood::Off) };
        runner.trial(quietest, UNLOADED, alone)?;
        for (flood, key) in one_repeat(&rates, &keys, repeat) {
            let load = Load {
                bystander: Some(SECOND_PPS),
                neighbour: true,
                stopped: true,
                ..plan.load(flood)
            };
            runner.trial(key, SWEEP, load)?;
        }
    }
    let reference = analysis::reference(&runner.trials);
    let series = analysis::series(&keys, &rates, &runner.trials, &reference);
    let summary = analysis::summary(&series);
    let mut run = runner.finish(NAME, Found { reference, series, summary });
    run.goals = goals::goals(&run);
    run.sentence = report::user_share_sentence(&run);
    Ok(run)
}

//! `receivers`: two UDP servers of different weight on the SUT's CPU, at nice 0 and nice 10, each flooded at
//! the same rate. Where both have more than they can take, who is to receive what is the scheduler's to
//! say: by their weights (LRP, section 3: receive work at its receiver's priority).
//!
//! Both are in one session: with autogroup nice values mean nothing between two.

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod goals;

use std::time::Duration;

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::histogram;
use crate::load::{Found, Plan, Runner};
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::report;
use crate::results::receivers::ReceiversRun;
use crate::stop::Stop;
use crate::trial::{Flood, Load};
use crate::worker::slots;

/// Its name on the command line.
pub const NAME: &str = "receivers";
/// What trials are for.
pub(crate) const SWEEP: &str = "sweep";
/// What either computes for a packet, at least: so much that a fair share of the CPU is too little for rates
/// that the ring takes.
const WORK: Duration = Duration::from_micros(5);
/// How long the calibrated loop is watched, to know how often that is.
const WATCH: Duration = Duration::from_millis(100);

/// Runs the experiment. The plan's rates are those of either flood.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<ReceiversRun> {
    if plan.rates.contains(&Flood::Top) {
        return Err(Error::refused(
            format!("{NAME} has no top rate: both receivers are to be sent as much"),
            "give it rates in packets/s, such as --rates=50k,200k",
        ));
    }
    let mut runner = Runner::set_up(plan, stop, progress)?;
    let passes = passes(&runner.bench, stop)?;
    runner.bench.add_receivers(passes)?;
    runner.begin(plan.rates.len() * plan.modes.len() * plan.repeats as usize);
    for repeat in 0..plan.repeats {
        if runner.is_late(repeat) {
            break;
        }
        for (flood, mode) in one_repeat(&plan.rates, &plan.modes, repeat) {
            let Flood::Paced(rate) = flood else { continue };
            let load = Load { bystander: Some(rate), receivers: true, ..plan.load(flood) };
            runner.trial(mode, SWEEP, load)?;
        }
    }
    let reference = analysis::reference(passes);
    let series = analysis::series(plan, &runner.trials);
    let summary = analysis::summary(&series);
    let mut run = runner.finish(NAME, Found { reference, series, summary });
    run.goals = goals::goals(&run);
    run.sentence = report::receivers_sentence(&run);
    Ok(run)
}

/// How many passes of the calibrated loop a packet's work is, on this machine.
fn passes(bench: &Bench, stop: &Stop) -> Result<u32> {
    let loops = || histogram::snapshot(bench.speed.shared(), slots::HISTOGRAM);
    let before = loops();
    stop.sleep(WATCH)?;
    let took = histogram::percentile(&before, &loops(), 50.0).filter(|ns| *ns > 0);
    let loop_ns = took.ok_or_else(|| {
        Error::refused("the calibrated loop does not run", "is the machine overloaded? try again")
    })?;
    Ok((WORK.as_nanos() as f64 / loop_ns as f64).ceil() as u32)
}

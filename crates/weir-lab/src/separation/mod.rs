//! `separation` (LRP 2.2 and 3), its UDP row: a victim that is sent a light flow, a flood to another
//! socket on the same host.
//!
//! Beside the sweep: the victim without a flood; c_gate, from a flood at the top rate to an application
//! that is stopped, so that its queue is full and nearly all is discarded; a bare `XDP_DROP` on an
//! interface and a CPU like the others' ([`bare`]); and a search for R_ring between the sweep's rates.

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod bare;
mod goals;

use weir_bpf::units::PacketsPerSec;

use crate::error::Result;
use crate::load::{Found, Plan, Runner};
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::report;
use crate::results::Mode;
use crate::results::separation::SeparationRun;
use crate::stats::Bisection;
use crate::stop::Stop;
use crate::trial::{Flood, Load};
use bare::BareDrop;

/// Its name on the command line.
pub const NAME: &str = "separation";
/// What the victim is sent.
pub(crate) const VICTIM_PPS: PacketsPerSec = PacketsPerSec(20_000.0);
/// What trials are for.
pub(crate) const SWEEP: &str = "sweep";
pub(crate) const FULL_SOCKET: &str = "full-socket";
pub(crate) const R_RING: &str = "r-ring";
/// Halvings of the interval in which R_ring lies.
const STEPS: u32 = 6;
const STEPS_QUICK: u32 = 3;
/// R_ring is looked for above this.
const LOWEST_PPS: f64 = 50_000.0;

/// Whether a mode has a gate that discards.
fn discards(mode: Mode) -> bool {
    matches!(mode, Mode::Gate | Mode::Weir)
}

/// The modes for which R_ring is searched: the sweep's rates are too coarse to be held against a
/// goal. A quick run has time for weir's alone.
fn searched(plan: &Plan) -> Vec<Mode> {
    let wanted = |mode: &Mode| if plan.quick { *mode == Mode::Weir } else { discards(*mode) };
    plan.modes.iter().copied().filter(wanted).collect()
}

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<SeparationRun> {
    let mut runner = Runner::set_up(plan, stop, progress)?;
    let mut bare = BareDrop::set_up(&mut runner.bench)?;
    let rates = plan.loads();
    let full: Vec<Mode> = plan.modes.iter().copied().filter(|mode| discards(*mode)).collect();
    let steps = if plan.quick { STEPS_QUICK } else { STEPS };
    let search = searched(plan).len() * steps as usize * 3 / 2;
    runner.begin((rates.len() * plan.modes.len() + full.len()) * plan.repeats as usize + search);

    let mut bare_ns = vec![];
    for repeat in 0..plan.repeats {
        if runner.is_late(repeat) {
            break;
        }
        runner.step("a bare XDP_DROP");
        bare_ns.push(bare.run(&mut runner.bench, plan.warm_up, plan.window, stop)?);
        for mode in &full {
            let load = Load { stopped: true, ..plan.load(Flood::Top) };
            runner.trial(*mode, FULL_SOCKET, load)?;
        }
        for (flood, mode) in one_repeat(&rates, &plan.modes, repeat) {
            runner.trial(mode, SWEEP, beside_victim(plan, flood))?;
        }
    }
    for mode in searched(plan) {
        search_r_ring(&mut runner, mode, steps)?;
    }
    let reference = analysis::reference(&bare_ns, &runner.trials);
    let (series, summary) = analysis::series_and_summary(plan, &rates, &runner.trials, &reference);
    let mut run = runner.finish(NAME, Found { reference, series, summary });
    run.goals = goals::goals(&run);
    run.sentence = report::separation_sentence(&run);
    Ok(run)
}

fn beside_victim(plan: &Plan, flood: Flood) -> Load {
    Load { bystander: Some(VICTIM_PPS), ..plan.load(flood) }
}

/// Halves the interval between the highest swept rate at which the victim was well and the next.
fn search_r_ring(runner: &mut Runner<'_, Mode>, mode: Mode, steps: u32) -> Result<()> {
    let Some((low, high)) = analysis::r_ring_between(runner.plan, &runner.trials, mode) else {
        return Ok(());
    };
    let unflooded = analysis::unflooded(&runner.trials, mode);
    let mut search = Bisection::new(low.max(LOWEST_PPS), high, steps);
    while let Some(rate) = search.next() {
        let load = beside_victim(runner.plan, Flood::Paced(PacketsPerSec(rate)));
        let trial = runner.trial(mode, R_RING, load)?;
        let well = analysis::goodput(&trial) >= analysis::WELL * unflooded;
        search.report(well.then_some(trial.load.offered_pps));
    }
    Ok(())
}

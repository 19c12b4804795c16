//! `separation --kinds` (LRP 2.2 and 3): a UDP service and a TCP service, neither overloaded, beside floods
//! of one kind after the other to something else on the same host.
//!
//! The UDP service is `separation`'s victim, sent by the generator. The TCP service's client is a process
//! at the far end, with connections that stay open, and its segments come through the same ring.

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod flows;
mod goals;
mod host;

use crate::error::Result;
use crate::load::{Found, Plan, Runner};
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::report;
use crate::results::kinds::{Kind, KindsReference, KindsRun};
use crate::separation::VICTIM_PPS;
use crate::stop::Stop;
use crate::trial::{Flood, Load};
pub(crate) use flows::{flows, mixed};
pub use host::Beside;

/// The result's name.
pub const NAME: &str = "separation-kinds";
/// What trials without a flood are for; the others are named after the kind.
pub(crate) const UNFLOODED: &str = "unflooded";
/// What a quick run of all kinds has time for.
pub const QUICK: [Kind; 5] = [Kind::Closed, Kind::Syn, Kind::Icmp, Kind::Fragments, Kind::Forward];

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, kinds: &[Kind], stop: &Stop, progress: &Progress) -> Result<KindsRun> {
    let mut runner = Runner::set_up(plan, stop, progress)?;
    runner.bench.add_beside()?;
    let points = plan.modes.len() * (1 + kinds.len() * plan.rates.len());
    runner.begin(points * plan.repeats as usize);
    for repeat in 0..plan.repeats {
        if runner.is_late(repeat) {
            break;
        }
        for (flood, mode) in one_repeat(&[Flood::Off], &plan.modes, repeat) {
            runner.trial(mode, UNFLOODED, beside_services(plan, Kind::Udp, flood))?;
        }
        for kind in kinds {
            for (flood, mode) in one_repeat(&plan.rates, &plan.modes, repeat) {
                runner.trial(mode, kind.name(), beside_services(plan, *kind, flood))?;
            }
        }
    }
    let reference =
        KindsReference { udp_pps: VICTIM_PPS.0, tcp_per_s: host::REQUESTS_PER_S.into() };
    let series = analysis::series(plan, kinds, &runner.trials);
    let summary = analysis::summary(&series);
    let mut run = runner.finish(NAME, Found { reference, series, summary });
    run.goals = goals::goals(&run);
    run.sentence = report::kinds_sentence(&run);
    Ok(run)
}

fn beside_services(plan: &Plan, kind: Kind, flood: Flood) -> Load {
    Load { bystander: Some(VICTIM_PPS), kind: Some(kind), ..plan.load(flood) }
}

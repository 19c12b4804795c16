//! `gate-cost` (LRP 4.2: the cost of soft demultiplexing): the gate against programs that only drop
//! or only pass, on the same interface and CPU, in one run.
//!
//! - **The real path**: packets at the generator's top rate into a veth whose NAPI thread runs on the
//!   SUT's CPU. What passes ends at the interface's ingress chain ([`sink`]), so that the stack, which costs ten times what is
//!   measured, adds no noise; it is the same for gate and bare program. The figure is the median time of
//!   NAPI polls that took a whole budget right after another ([`weir_bpf::poll_cost`]): a bare drop is
//!   faster than the generator, and its NAPI thread sleeps now and then, but such polls never wait. The
//!   CPU time of the thread over its packets, wake-ups and all, is the cross-check.
//!   (A timer that starts the polls, as behind a NIC that moderates its interrupts, made nine in ten of
//!   a bare drop's polls full instead of half, and a quarter of them slow: the generator then refills
//!   the ring while it is drained. The medians differ by a tenth; the simpler one is taken.)
//! - **One packet over and over** ([`hot`]), and **socket lookups** ([`lookup`]): `BPF_PROG_TEST_RUN`.

mod analysis;
pub mod hot;
pub mod lookup;
mod packets;
mod rig;
mod rows;
mod sink;
mod targets;
mod trial;

use std::time::{Duration, Instant, SystemTime};

use weir_bpf::lookup_cost::LookupPrograms;

use crate::error::Result;
use crate::machine;
use crate::progress::Progress;
use crate::report;
use crate::results::SCHEMA;
use crate::results::gate_cost::{CostMode, GateCost};
use crate::stop::Stop;
use rig::Rig;
pub use sink::PASSED_END;
pub(crate) use trial::IN_FULL_POLLS_MIN;
use trial::Times;

/// Its name on the command line.
pub const NAME: &str = "gate-cost";

/// One run's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Trials of each row and mode.
    pub repeats: u32,
    /// Before a window.
    pub warm_up: Duration,
    /// A trial's window.
    pub window: Duration,
    /// System calls of `BPF_PROG_TEST_RUN` for each packet and repeat.
    pub calls: u32,
    /// Whether this is a quick run.
    pub quick: bool,
    /// No repeat is begun that would end later than this after the first began; the first always is.
    pub budget: Option<Duration>,
}

impl Plan {
    /// Whether one repeat more would take longer than there is, by the time that `done` took.
    fn is_late(&self, elapsed: Duration, done: u32) -> bool {
        let next = |budget| done > 0 && elapsed + elapsed / done > budget;
        self.budget.is_some_and(next)
    }
}

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<GateCost> {
    let began = Instant::now();
    let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let cpus = machine::choose_cpus()?;
    progress.say("setting up a namespace and its sockets");
    let mut rig = Rig::set_up(cpus)?;
    let setup = rig.observe()?;
    let mut lookup_programs = LookupPrograms::load()?;

    let rows = rows::rows(plan.quick);
    let modes = CostMode::ALL.len();
    progress.begin((plan.repeats as usize * (rows.len() * modes + 1)) as u64);
    let times = Times { warm_up: plan.warm_up, window: plan.window };
    let (mut trials, mut hot, mut lookups) = (vec![], vec![], vec![]);
    let first_trial = Instant::now();
    for repeat in 0..plan.repeats {
        if plan.is_late(first_trial.elapsed(), repeat) {
            break;
        }
        for (position, spec) in rows.iter().enumerate() {
            for group in rows::order(repeat, position) {
                let mut program = None;
                for mode in group {
                    stop.check()?;
                    progress.step(format!(
                        "{}, {} flows, {} sockets: {mode}",
                        spec.kind,
                        spec.flows(),
                        spec.sockets()
                    ));
                    // The gate serves both of its modes; a bare program makes way for the other.
                    if !mode.gated() || program.is_none() {
                        drop(program.take());
                        program = Some(rig.attach(mode)?);
                    }
                    let Some(program) = &program else { continue };
                    let which = (position as u32, repeat, *spec);
                    trials.push(trial::run(&mut rig, which, mode, program, times, stop)?);
                    progress.done();
                }
            }
        }
        progress.step("one packet over and over, and socket lookups");
        let program = rig.attach(CostMode::GatePass)?;
        hot.push(hot::run(&mut rig, &program, plan.calls, stop)?);
        lookups.push(lookup::run(&rig, &mut lookup_programs, stop)?);
        progress.done();
    }
    progress.finish();

    let rows = analysis::rows(&rows, &trials);
    let summary = analysis::summary(&rows);
    let mut cost = GateCost {
        schema: SCHEMA,
        experiment: NAME.into(),
        weir_version: env!("CARGO_PKG_VERSION").into(),
        started_at,
        duration_s: 0.0,
        quick: plan.quick,
        machine: machine::describe(cpus.0, cpus.1),
        setup,
        goals: analysis::goals(&rows, &trials),
        rows,
        hot: analysis::hot(&hot),
        lookups: analysis::lookups(&lookups),
        summary,
        sentence: String::new(),
        warnings: vec![],
        trials,
    };
    cost.warnings = analysis::warnings(&cost, plan.repeats);
    cost.sentence = report::gate_cost_sentence(&cost);
    cost.duration_s = began.elapsed().as_secs_f64();
    Ok(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_leaves_out_repeats_rather_than_be_late() {
        let budget = Some(Duration::from_secs(40));
        let plan = Plan {
            repeats: 3,
            warm_up: Duration::ZERO,
            window: Duration::ZERO,
            calls: 1,
            quick: true,
            budget,
        };
        assert!(!plan.is_late(Duration::from_secs(100), 0));
        assert!(!plan.is_late(Duration::from_secs(19), 1));
        assert!(plan.is_late(Duration::from_secs(21), 1));
        assert!(!Plan { budget: None, ..plan }.is_late(Duration::from_secs(1000), 1));
    }
}

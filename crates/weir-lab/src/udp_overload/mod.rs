//! `udp-overload` (LRP, figure 3): an unmodified UDP receiver at rates from below its peak to the
//! generator's top, per mode.

mod analysis;
mod search;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use weir_bpf::units::PacketsPerSec;

use crate::bench::{Bench, Workload};
use crate::error::{Error, Result};
use crate::machine;
use crate::order::{interleaved, one_repeat};
use crate::progress::Progress;
use crate::results::{Experiment, Mode, SCHEMA, Summary, Trial, Workload as WorkloadResult};
use crate::setup;
use crate::stop::Stop;
use crate::trial::{self, Echo, Flood, Load};
use crate::{goals, report};
use search::Search;

/// Its name on the command line.
pub const NAME: &str = "udp-overload";
/// What the bystander is sent beside the flood.
const BYSTANDER_PPS: PacketsPerSec = PacketsPerSec(20_000.0);
/// What trials are for.
const SWEEP: &str = "sweep";
const ECHO: &str = "echo";
const BYSTANDER: &str = "bystander";
const MLFRR: &str = "mlfrr";

/// One run's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The modes, in the order in which each rate goes through them.
    pub modes: Vec<Mode>,
    /// Offered rates, lowest first; `None`: the generator's top.
    pub rates: Vec<Option<PacketsPerSec>>,
    /// Rates at which an echo server is flooded in the application's place; each is one of `rates`.
    pub echo_rates: Vec<Option<PacketsPerSec>>,
    /// Rates of the flood beside the bystander.
    pub bystander_rates: Vec<Option<PacketsPerSec>>,
    /// Trials per point.
    pub repeats: u32,
    /// Trials of the echo server per point.
    pub echo_repeats: u32,
    /// Trials per bystander point.
    pub bystander_repeats: u32,
    /// Steps of each bisection.
    pub bisection_steps: u32,
    /// Before a window.
    pub warm_up: Duration,
    /// A sweep's window.
    pub window: Duration,
    /// The echo server's.
    pub echo_window: Duration,
    /// A bisection's window.
    pub bisection_window: Duration,
    /// Packets and application.
    pub workload: Workload,
    /// Whether this is a quick run.
    pub quick: bool,
    /// The echo server's trials are not repeated once the run would take longer than this.
    pub budget: Option<Duration>,
}

impl Plan {
    /// Whether a run that lasts this long is too long.
    fn is_late(&self, duration: Duration) -> bool {
        self.budget.is_some_and(|budget| duration > budget)
    }

    /// About how many trials it takes.
    pub fn trials(&self) -> u64 {
        let sweep = self.rates.len() * self.repeats as usize;
        let echo = self.echo_rates.len() * self.echo_repeats as usize;
        let bystander = self.bystander_rates.len() * self.bystander_repeats as usize;
        // Most rates that a search for no loss tries fail, and are tried twice; of the others, half.
        let halves = if self.quick { 3 } else { 3 + 4 };
        let search = self.bisection_steps as usize * halves / 2;
        (self.modes.len() * (sweep + echo + bystander + search)) as u64
    }
}

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<Experiment> {
    let began = Instant::now();
    let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let cpus = machine::choose_cpus()?;
    progress.say("setting up namespaces and applications");
    let mut bench = Bench::set_up(&plan.modes, plan.workload, cpus)?;
    let setup = setup::observe(&mut bench, &plan.modes, stop)?;

    progress.begin(plan.trials());
    let mut trials = Vec::new();
    let mut trial = |mode, purpose: &str, flood: Option<PacketsPerSec>, window| {
        let flood = Flood::from(flood);
        progress.step(format!("{purpose}: {mode}, {flood}"));
        let bystander = (purpose == BYSTANDER).then_some(BYSTANDER_PPS);
        let echo = if purpose == ECHO { Echo::Flooded } else { Echo::None };
        let load = Load { bystander, echo, ..Load::of(flood, plan.warm_up, window) };
        let done = trial::run(&mut bench, mode, purpose, load, stop)?;
        progress.done();
        trials.push(done.clone());
        Ok::<Trial, Error>(done)
    };
    for (purpose, rates, repeats) in [
        (SWEEP, &plan.rates, plan.repeats),
        (BYSTANDER, &plan.bystander_rates, plan.bystander_repeats),
    ] {
        for (rate, mode) in interleaved(rates, &plan.modes, repeats) {
            trial(mode, purpose, rate, plan.window)?;
        }
    }
    let mut searches: BTreeMap<Mode, Search> =
        plan.modes.iter().map(|mode| (*mode, Search::new(plan))).collect();
    while searches.values().any(|search| search.next().is_some()) {
        for (mode, search) in &mut searches {
            if let Some(rate) = search.next() {
                let rate = Some(PacketsPerSec(rate));
                search.report(&trial(*mode, MLFRR, rate, plan.bisection_window)?);
            }
        }
    }
    let echo_began = Instant::now();
    for repeat in 0..plan.echo_repeats {
        // Last, as these are what a slow machine leaves out.
        if repeat > 0 && plan.is_late(began.elapsed() + echo_began.elapsed() / repeat) {
            break;
        }
        for (rate, mode) in one_repeat(&plan.echo_rates, &plan.modes, repeat) {
            trial(mode, ECHO, rate, plan.echo_window)?;
        }
    }
    progress.finish();

    let series = analysis::series(plan, &trials);
    let summary: BTreeMap<Mode, Summary> = series
        .iter()
        .map(|(mode, points)| (*mode, analysis::summarise(points, &searches[mode])))
        .collect();
    let tops = series.values().flatten().filter(|point| point.target_pps.is_none());
    let depths = setup.modes.values().map(|setup| setup.queue_depth_packets);
    let mut experiment = Experiment {
        schema: SCHEMA,
        experiment: NAME.into(),
        weir_version: env!("CARGO_PKG_VERSION").into(),
        started_at,
        duration_s: 0.0,
        quick: plan.quick,
        machine: machine::describe(cpus.0, cpus.1),
        workload: WorkloadResult {
            application: plan.workload.app.name().into(),
            packets: if plan.workload.ipv6 { "udp6" } else { "udp4" }.into(),
            payload_bytes: plan.workload.payload_len.into(),
            rcvbuf_bytes: setup.rcvbuf_bytes,
            queue_depth_packets: depths.min().unwrap_or(0),
            generator_top_pps: tops.map(|point| point.offered_pps).reduce(f64::max),
        },
        setup: setup.modes,
        bystander: analysis::bystanders(plan, &trials),
        series,
        summary,
        goals: vec![],
        sentence: String::new(),
        warnings: vec![],
        trials,
    };
    experiment.goals = goals::udp_overload(&experiment);
    experiment.warnings = analysis::warnings(plan, &experiment);
    experiment.sentence = report::sentence(&experiment);
    experiment.duration_s = began.elapsed().as_secs_f64();
    Ok(experiment)
}

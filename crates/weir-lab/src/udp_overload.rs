//! `udp-overload` (LRP, figure 3): an unmodified UDP receiver at rates from below its peak to the
//! generator's top, per mode.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use weir_bpf::units::PacketsPerSec;

use crate::bench::{Bench, Workload};
use crate::error::{Error, Result};
use crate::machine;
use crate::progress::Progress;
use crate::results::{
    BystanderPoint, Experiment, Mode, Point, SCHEMA, Summary, Trial, Workload as WorkloadResult,
};
use crate::setup;
use crate::stats::{Bisection, median, median_of_some, spread};
use crate::stop::Stop;
use crate::topology;
use crate::trial::{self, Load};
use crate::{goals, report};

/// Its name on the command line.
pub const NAME: &str = "udp-overload";
/// What the bystander is sent beside the flood.
const BYSTANDER_PPS: PacketsPerSec = PacketsPerSec(20_000.0);
/// Loss that a partial-drop rate (PDR) may have: MLRsearch's 0.5 %.
const PDR_LOSS: f64 = 0.005;
/// Where the search for a loss-free rate begins and ends.
const LOWEST_PPS: f64 = 20_000.0;
const HIGHEST_PPS: f64 = 1_500_000.0;
/// The generator's CPU was elsewhere for more than this share of what fell due.
const MISSED_TOLERANCE: f64 = 0.01;
/// What trials are for.
const SWEEP: &str = "sweep";
const BYSTANDER: &str = "bystander";
const MLFRR: &str = "mlfrr";
/// A point is marked where the SUT's speed differs by more than this from the run's median.
const SPEED_TOLERANCE: f64 = 0.05;

/// One run's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The modes, in the order in which each rate goes through them.
    pub modes: Vec<Mode>,
    /// Offered rates, lowest first; `None`: the generator's top.
    pub rates: Vec<Option<PacketsPerSec>>,
    /// Rates of the flood beside the bystander.
    pub bystander_rates: Vec<Option<PacketsPerSec>>,
    /// Trials per point.
    pub repeats: u32,
    /// Trials per bystander point.
    pub bystander_repeats: u32,
    /// Steps of each bisection.
    pub bisection_steps: u32,
    /// Before a window.
    pub warm_up: Duration,
    /// A sweep's window.
    pub window: Duration,
    /// A bisection's window.
    pub bisection_window: Duration,
    /// Packets and application.
    pub workload: Workload,
    /// Whether this is a quick run.
    pub quick: bool,
}

impl Plan {
    /// About how many trials it takes.
    pub fn trials(&self) -> u64 {
        let sweep = self.rates.len() * self.repeats as usize;
        let bystander = self.bystander_rates.len() * self.bystander_repeats as usize;
        // About half of the rates that a search tries fail, and are tried twice.
        let searches = if self.quick { 1 } else { 2 };
        let search = searches * self.bisection_steps as usize * 3 / 2;
        (self.modes.len() * (sweep + bystander + search)) as u64
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
        progress.step(mode, purpose, flood.map(|rate| rate.0));
        let bystander = (purpose == BYSTANDER).then_some(BYSTANDER_PPS);
        let load = Load { flood, bystander, warm_up: plan.warm_up, window };
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
    progress.finish();

    let series = series(plan, &trials);
    let summary: BTreeMap<Mode, Summary> =
        series.iter().map(|(mode, points)| (*mode, summarise(points, &searches[mode]))).collect();
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
        bystander: bystanders(plan, &trials),
        series,
        summary,
        goals: vec![],
        sentence: String::new(),
        warnings: vec![],
        trials,
    };
    experiment.goals = goals::udp_overload(&experiment);
    experiment.warnings = warnings(&experiment);
    experiment.sentence = report::sentence(&experiment);
    experiment.duration_s = began.elapsed().as_secs_f64();
    Ok(experiment)
}

/// Every rate in every mode, `repeats` times. Modes are innermost, so that a machine whose speed drifts
/// slows all of them alike; their order rotates and the rates' order turns round from one repeat to
/// the next, so that none always follows the same one.
fn interleaved(
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
struct Search {
    partial_drop: Bisection,
    /// Absent in a quick run, whose trials are too short to tell no loss from little.
    no_drop: Option<Bisection>,
}

impl Search {
    fn new(plan: &Plan) -> Self {
        let bisection = Bisection::new(LOWEST_PPS, HIGHEST_PPS, plan.bisection_steps);
        Self { partial_drop: bisection, no_drop: (!plan.quick).then_some(bisection) }
    }

    fn next(&self) -> Option<f64> {
        self.partial_drop.next().or_else(|| self.no_drop.as_ref()?.next())
    }

    fn report(&mut self, trial: &Trial) {
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

fn of<'a>(
    trials: &'a [Trial],
    mode: Mode,
    purpose: &'a str,
    rate: Option<PacketsPerSec>,
) -> Vec<&'a Trial> {
    let target = rate.map(|rate| rate.0);
    trials
        .iter()
        .filter(|t| t.mode == mode && t.purpose == purpose && t.target_pps == target)
        .collect()
}

fn series(plan: &Plan, trials: &[Trial]) -> BTreeMap<Mode, Vec<Point>> {
    let loops: Vec<f64> = trials.iter().map(|t| t.sut_loop_ns).filter(|ns| *ns > 0.0).collect();
    let fastest = loops.iter().copied().fold(f64::INFINITY, f64::min);
    let usual = fastest / median(loops);
    let point = |rate: &Option<PacketsPerSec>, mode| {
        let trials = of(trials, mode, SWEEP, *rate);
        let median_of = |of: fn(&Trial) -> f64| median(trials.iter().map(|trial| of(trial)));
        let loop_ns = median_of(|t| t.sut_loop_ns);
        let sut_speed = if loop_ns > 0.0 { fastest / loop_ns } else { 0.0 };
        Point {
            target_pps: rate.map(|rate| rate.0),
            offered_pps: median_of(|t| t.offered_pps),
            nic_drop_pps: median_of(|t| t.nic_drop_pps),
            discarded_pps: median_of(|t| t.discarded_pps),
            late_drop_pps: median_of(|t| t.late_drop_pps),
            delivered_pps: median_of(|t| t.delivered_pps),
            delivered: spread(trials.iter().map(|t| t.delivered_pps)),
            user_cpu: median_of(|t| t.user_cpu),
            sut_speed,
            steal: median_of(|t| t.steal),
            marked: (sut_speed / usual - 1.0).abs() > SPEED_TOLERANCE,
            age_p50_us: median_of_some(trials.iter().map(|t| t.age_p50_us)),
            age_p99_us: median_of_some(trials.iter().map(|t| t.age_p99_us)),
            repeats: trials.len() as u32,
        }
    };
    plan.modes
        .iter()
        .map(|mode| (*mode, plan.rates.iter().map(|rate| point(rate, *mode)).collect()))
        .collect()
}

fn bystanders(plan: &Plan, trials: &[Trial]) -> BTreeMap<Mode, Vec<BystanderPoint>> {
    let point = |rate: &Option<PacketsPerSec>, mode| {
        let trials = of(trials, mode, BYSTANDER, *rate);
        let median_of = |of: fn(&Trial) -> f64| median(trials.iter().map(|trial| of(trial)));
        BystanderPoint {
            flood_target_pps: rate.map(|rate| rate.0),
            flood_pps: median_of(|t| t.offered_pps),
            offered_pps: median_of(|t| t.bystander_offered_pps),
            goodput_pps: median_of(|t| t.bystander_delivered_pps),
            goodput: spread(trials.iter().map(|t| t.bystander_delivered_pps)),
            flooded_delivered_pps: median_of(|t| t.delivered_pps),
            repeats: trials.len() as u32,
        }
    };
    plan.modes
        .iter()
        .map(|mode| (*mode, plan.bystander_rates.iter().map(|rate| point(rate, *mode)).collect()))
        .collect()
}

fn summarise(points: &[Point], search: &Search) -> Summary {
    let peak_pps = points.iter().map(|point| point.delivered_pps).fold(0.0, f64::max);
    let highest = points.iter().max_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps));
    let overload_pps = highest.map_or(0.0, |point| point.delivered_pps);
    Summary {
        mlfrr_pps: search.partial_drop.best(),
        ndr_pps: search.no_drop.as_ref().and_then(Bisection::best),
        peak_pps,
        overload_pps,
        retained: if peak_pps > 0.0 { overload_pps / peak_pps } else { 0.0 },
    }
}

fn warnings(experiment: &Experiment) -> Vec<String> {
    let mut warnings = Vec::new();
    let points = || experiment.series.values().flatten();
    let marked = points().filter(|point| point.marked).count();
    if marked > 0 {
        warnings.push(format!(
            "{marked} of {} points were measured while the CPU's speed differed by more than 5 % \
             from the run's median (marked)",
            points().count()
        ));
    }
    let stolen = points().map(|point| point.steal).fold(0.0, f64::max);
    if stolen > 0.02 {
        warnings.push(format!("the hypervisor took up to {:.0} % of the CPU", stolen * 100.0));
    }
    let missed = |trial: &&Trial| {
        let missed = trial.missed_by_generator as f64;
        missed > MISSED_TOLERANCE * (missed + trial.ledger.offered as f64)
    };
    let short = experiment.trials.iter().filter(missed).count();
    if short > 0 {
        warnings.push(format!(
            "in {short} of {} trials the generator's CPU was elsewhere for more than 1 % of the \
             packets; those were not sent, and are not counted as offered",
            experiment.trials.len()
        ));
    }
    if experiment.machine.shared_core {
        warnings.push("generator and tested system share a core: each slows the other down".into());
    }
    if topology::another_runs() {
        warnings.push("another lab ran on this machine at the same time".into());
    }
    if experiment.quick {
        warnings.push(
            "a quick run: 3 short trials per point; differences of a few percent are noise".into(),
        );
    }
    warnings
}

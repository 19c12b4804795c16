//! What the experiments share in which several things want the SUT's CPU at once: the plan, the
//! running of trials, and what every result has.

pub(crate) mod points;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use weir_bpf::units::CpuId;

use crate::bench::{Bench, Workload};
use crate::error::Result;
use crate::machine;
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::results::load::{LoadKey, LoadPoint, LoadRun, LoadTrial};
use crate::results::{Machine, Mode, SCHEMA, Workload as WorkloadResult};
use crate::setup::{self, Observed};
use crate::stop::Stop;
use crate::trial::{self, Flood, Load};
use crate::warnings;

/// One run's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The modes, in the order in which each rate goes through them.
    pub modes: Vec<Mode>,
    /// Rates of the flood, lowest first.
    pub rates: Vec<Flood>,
    /// Trials per point.
    pub repeats: u32,
    /// Before a window.
    pub warm_up: Duration,
    /// A trial's window.
    pub window: Duration,
    /// Packets and applications.
    pub workload: Workload,
    /// Whether this is a quick run.
    pub quick: bool,
    /// No repeat is begun that would end later than this after the first began; the first always is.
    pub budget: Option<Duration>,
}

impl Plan {
    /// No flood, then each rate.
    pub fn loads(&self) -> Vec<Flood> {
        std::iter::once(Flood::Off).chain(self.rates.iter().copied()).collect()
    }

    /// A trial with this flood and nothing else.
    pub fn load(&self, flood: Flood) -> Load {
        Load::of(flood, self.warm_up, self.window)
    }

    /// Whether one repeat more would take longer than there is, by the time that `done` took.
    fn is_late(&self, elapsed: Duration, done: u32) -> bool {
        self.budget.is_some_and(|budget| done > 0 && elapsed + elapsed / done > budget)
    }
}

/// One run, from its beginning: its plan, its place and its clock.
pub struct Session<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What is shown meanwhile.
    pub progress: &'a Progress,
    /// CPU of the system under test, and of the generator.
    pub cpus: (CpuId, CpuId),
    /// When it began.
    pub began: Instant,
    /// The same, UTC, RFC 3339.
    pub started_at: String,
    first_trial: Option<Instant>,
}

impl<'a> Session<'a> {
    /// Begins one.
    ///
    /// # Errors
    /// With fewer than two CPUs.
    pub fn begin(plan: &'a Plan, progress: &'a Progress) -> Result<Self> {
        let began = Instant::now();
        let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let cpus = machine::choose_cpus()?;
        progress.say("setting up namespaces and applications");
        Ok(Self { plan, progress, cpus, began, started_at, first_trial: None })
    }

    /// So many trials there will be, about.
    pub fn begin_trials(&mut self, trials: usize) {
        self.progress.begin(trials as u64);
        self.first_trial = Some(Instant::now());
    }

    /// Whether a quick run had better not begin another repeat.
    pub fn is_late(&self, repeats_done: u32) -> bool {
        let elapsed = self.first_trial.map_or(Duration::ZERO, |first| first.elapsed());
        self.plan.is_late(elapsed, repeats_done)
    }

    /// Runs a trial of each point in each mode, or whatever is compared, as often as is planned or, of a
    /// quick run, as there is time for. `measure` is told which repeat it is, from 0.
    ///
    /// # Errors
    /// The first trial's that fails.
    pub fn trials<P: Copy, K: Copy, T>(
        &mut self,
        points: &[P],
        keys: &[K],
        mut measure: impl FnMut(u32, P, K) -> Result<T>,
    ) -> Result<Vec<T>> {
        let repeats = self.plan.repeats;
        self.begin_trials(points.len() * keys.len() * repeats as usize);
        let mut trials = vec![];
        for repeat in 0..repeats {
            if self.is_late(repeat) {
                break;
            }
            for (point, key) in one_repeat(points, keys, repeat) {
                trials.push(measure(repeat, point, key)?);
                self.progress.done();
            }
        }
        self.progress.finish();
        Ok(trials)
    }

    /// What it runs on.
    pub fn machine(&self) -> Machine {
        machine::describe(self.cpus.0, self.cpus.1)
    }
}

/// Runs trials and keeps them.
pub struct Runner<'a, K> {
    /// Hosts, applications, generator.
    pub bench: Bench,
    /// The plan.
    pub plan: &'a Plan,
    /// Whether the user wants to stop.
    pub stop: &'a Stop,
    /// Every trial so far.
    pub trials: Vec<LoadTrial<K>>,
    session: Session<'a>,
    observed: Observed,
}

/// What an experiment found, by what it compares.
pub struct Found<K, P, S, R> {
    /// What was measured once for the whole run.
    pub reference: R,
    /// Points.
    pub series: BTreeMap<K, Vec<P>>,
    /// Summaries.
    pub summary: BTreeMap<K, S>,
}

impl<'a, K: LoadKey> Runner<'a, K> {
    /// Sets up a host for each of the plan's modes.
    ///
    /// # Errors
    /// Without the privilege, or where the kernel refuses.
    pub fn set_up(plan: &'a Plan, stop: &'a Stop, progress: &'a Progress) -> Result<Self> {
        let session = Session::begin(plan, progress)?;
        let mut bench = Bench::set_up(&plan.modes, plan.workload, session.cpus)?;
        let observed = setup::observe(&mut bench, &plan.modes, stop)?;
        Ok(Self { bench, plan, stop, trials: vec![], session, observed })
    }

    /// So many trials there will be, about.
    pub fn begin(&mut self, trials: usize) {
        self.session.begin_trials(trials);
    }

    /// Whether a quick run had better not begin another repeat.
    pub fn is_late(&self, repeats_done: u32) -> bool {
        self.session.is_late(repeats_done)
    }

    /// Says what is being measured beside the trials.
    pub fn step(&self, what: &'static str) {
        self.session.progress.step(what);
    }

    /// Runs one trial.
    ///
    /// # Errors
    /// As [`trial::measure`].
    pub fn trial(&mut self, key: K, purpose: &str, load: Load) -> Result<LoadTrial<K>> {
        self.session.progress.step(format!("{purpose}: {key}, {}", load.flood));
        let load = Load { options: key.options(), ..load };
        let done = trial::measure(&mut self.bench, key.mode(), purpose, load, self.stop)?;
        self.session.progress.done();
        let trial = LoadTrial {
            key,
            load: done.trial,
            bystander_age_p50_us: done.bystander_age_us.0,
            bystander_age_p99_us: done.bystander_age_us.1,
            input_cpu_ns: done.input_cpu.map(|time| time.0),
            daemon_cpu_ns: done.daemon_cpu.map(|time| time.0),
            flooded_cpu_ns: done.flooded_cpu.0,
            bystander_cpu_ns: done.bystander_cpu.0,
            neighbour_per_s: done.neighbour.map(|work| work.per_s),
            neighbour_cpu: done.neighbour.map(|work| work.cpu),
            service: done.service,
            receivers: done.receivers,
        };
        self.trials.push(trial.clone());
        Ok(trial)
    }

    /// The result; goals and sentence are left to the experiment.
    pub fn finish<P: LoadPoint, S, R>(
        self,
        name: &str,
        found: Found<K, P, S, R>,
    ) -> LoadRun<K, P, S, R> {
        self.session.progress.finish();
        let plan = self.plan;
        let tops = self.trials.iter().filter(|trial| trial.load.target_pps.is_none());
        let depths = self.observed.modes.values().map(|setup| setup.queue_depth_packets);
        let workload = WorkloadResult {
            application: plan.workload.app.name().into(),
            packets: if plan.workload.ipv6 { "udp6" } else { "udp4" }.into(),
            payload_bytes: plan.workload.payload_len.into(),
            rcvbuf_bytes: self.observed.rcvbuf_bytes,
            queue_depth_packets: depths.min().unwrap_or(0),
            generator_top_pps: tops.map(|trial| trial.load.offered_pps).reduce(f64::max),
        };
        let setup = found.series.keys().filter_map(|key| {
            self.observed.modes.get(&key.mode()).map(|setup| (*key, setup.clone()))
        });
        let mut run = LoadRun {
            schema: SCHEMA,
            experiment: name.into(),
            weir_version: env!("CARGO_PKG_VERSION").into(),
            started_at: self.session.started_at.clone(),
            duration_s: 0.0,
            quick: plan.quick,
            machine: self.session.machine(),
            workload,
            setup: setup.collect(),
            reference: found.reference,
            series: found.series,
            summary: found.summary,
            goals: vec![],
            sentence: String::new(),
            warnings: vec![],
            trials: self.trials,
        };
        run.warnings = warnings_of(&run, plan.repeats);
        run.duration_s = self.session.began.elapsed().as_secs_f64();
        run
    }
}

/// What a reader should know before trusting a figure.
fn warnings_of<K: Ord, P: LoadPoint, S, R>(run: &LoadRun<K, P, S, R>, repeats: u32) -> Vec<String> {
    let conditions = run.series.values().flatten().map(LoadPoint::conditions);
    let mut all = warnings::of_points(conditions, repeats);
    all.extend(warnings::missed(run.trials.iter().map(|trial| &trial.load)));
    all.extend(warnings::circumstances(&run.machine, run.quick));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::made_up;

    #[test]
    fn a_quick_run_leaves_out_repeats_rather_than_be_late() {
        let budget = Some(Duration::from_secs(40));
        let plan = Plan { repeats: 3, budget, ..made_up::plan(&[]) };
        assert!(!plan.is_late(Duration::from_secs(100), 0));
        assert!(!plan.is_late(Duration::from_secs(19), 1));
        assert!(plan.is_late(Duration::from_secs(28), 2));
        assert!(!Plan { budget: None, ..plan }.is_late(Duration::from_secs(1000), 1));
    }
}

//! `udp-overload` (LRP, figure 3): an unmodified UDP receiver at rates from below its peak to the
//! generator's top, per mode.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use weir_bpf::units::PacketsPerSec;

use crate::bench::{Bench, Workload};
use crate::error::Result;
use crate::machine;
use crate::progress::Progress;
use crate::results::{
    BystanderPoint, Experiment, Mode, ModeSetup, Point, SCHEMA, Summary, Trial,
    Workload as WorkloadResult,
};
use crate::stats::{bisect, median, median_of_some, spread};
use crate::stop::Stop;
use crate::trial::{self, Load};
use crate::{goals, interrupts, queue_depth, report};

/// Its name on the command line.
pub const NAME: &str = "udp-overload";
/// What the bystander is sent beside the flood.
const BYSTANDER_PPS: PacketsPerSec = PacketsPerSec(20_000.0);
/// Loss that a partial-drop rate (PDR) may have: MLRsearch's 0.5 %.
const PDR_LOSS: f64 = 0.005;
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
    /// How many trials it takes.
    pub fn trials(&self) -> u64 {
        let sweep = self.rates.len() * self.repeats as usize;
        let bystander = self.bystander_rates.len() * self.bystander_repeats as usize;
        (self.modes.len() * (sweep + bystander + self.bisection_steps as usize)) as u64
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
    let depth = queue_depth::count(&mut bench, plan.modes[0], stop)?;
    let setup = describe_modes(&bench, plan)?;

    progress.begin(plan.trials());
    let mut trials = Vec::new();
    let mut trial = |mode, purpose: &str, flood, bystander, window| {
        let rate: Option<PacketsPerSec> = flood;
        progress.step(mode, purpose, rate.map(|rate| rate.0));
        let load = Load { flood, bystander, warm_up: plan.warm_up, window };
        let done = trial::run(&mut bench, mode, purpose, load, stop)?;
        progress.done();
        trials.push(done.clone());
        Ok::<Trial, crate::Error>(done)
    };
    // Modes innermost: a machine whose speed drifts slows all of them alike.
    for _ in 0..plan.repeats {
        for rate in &plan.rates {
            for mode in &plan.modes {
                trial(*mode, "sweep", *rate, None, plan.window)?;
            }
        }
    }
    for _ in 0..plan.bystander_repeats {
        for rate in &plan.bystander_rates {
            for mode in &plan.modes {
                trial(*mode, "bystander", *rate, Some(BYSTANDER_PPS), plan.window)?;
            }
        }
    }
    let mut loss_free = BTreeMap::new();
    for mode in &plan.modes {
        let mut losses = Vec::new();
        let pdr = bisect(20_000.0, 1_500_000.0, plan.bisection_steps, |rate| {
            let done =
                trial(*mode, "mlfrr", Some(PacketsPerSec(rate)), None, plan.bisection_window)?;
            let offered = done.ledger.offered.max(1) as f64;
            let loss = 1.0 - done.ledger.delivered as f64 / offered;
            losses.push((rate, loss));
            Ok::<_, crate::Error>(loss <= PDR_LOSS)
        })?;
        let lossy = losses.iter().filter(|(_, loss)| *loss > 0.0).map(|(rate, _)| *rate);
        let first_lossy = lossy.fold(f64::INFINITY, f64::min);
        let clean = losses.iter().filter(|(rate, loss)| *loss == 0.0 && *rate < first_lossy);
        let ndr = clean.map(|(rate, _)| *rate).reduce(f64::max);
        loss_free.insert(*mode, (pdr, ndr));
    }
    progress.finish();

    let series = series(plan, &trials);
    let summary: BTreeMap<Mode, Summary> =
        series.iter().map(|(mode, points)| (*mode, summarise(points, loss_free[mode]))).collect();
    let tops = series.values().flatten().filter(|point| point.target_pps.is_none());
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
            rcvbuf_bytes: depth.rcvbuf_bytes,
            queue_depth_packets: depth.packets,
            generator_top_pps: tops.map(|point| point.offered_pps).fold(0.0, f64::max),
        },
        setup,
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
        let trials = of(trials, mode, "sweep", *rate);
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
        let trials = of(trials, mode, "bystander", *rate);
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

fn summarise(points: &[Point], (pdr, ndr): (Option<f64>, Option<f64>)) -> Summary {
    let peak_pps = points.iter().map(|point| point.delivered_pps).fold(0.0, f64::max);
    let highest = points.iter().max_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps));
    let overload_pps = highest.map_or(0.0, |point| point.delivered_pps);
    Summary {
        mlfrr_pps: pdr,
        ndr_pps: ndr,
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
    if experiment.quick {
        warnings.push(
            "a quick run: 3 short trials per point; differences of a few percent are noise".into(),
        );
    }
    warnings
}

fn describe_modes(bench: &Bench, plan: &Plan) -> Result<BTreeMap<Mode, ModeSetup>> {
    let mut setup = BTreeMap::new();
    for mode in &plan.modes {
        let attach =
            bench.start_daemon(*mode)?.map_or("none".into(), |daemon| daemon.attach.clone());
        let sut = bench.sut_cpu;
        let thread = |nice: &str| format!("CPU {sut}, NAPI thread at nice {nice}");
        let (poll, protocol) = match mode {
            Mode::Stock => {
                let every = interrupts::MODERATION.as_micros();
                let softirq = format!("CPU {sut}, softirq (timer interrupt every {every} us)");
                (softirq, format!("CPU {sut}, softirq"))
            }
            Mode::Threaded | Mode::Gate | Mode::IdleWeir => (thread("0"), thread("0")),
            Mode::Niced | Mode::Weir => (thread("19"), thread("19")),
        };
        let gate = match mode {
            Mode::Stock | Mode::Threaded | Mode::Niced => "none".into(),
            Mode::IdleWeir => format!("CPU {sut}, in the NAPI thread, policy off"),
            Mode::Gate | Mode::Weir => format!("CPU {sut}, in the NAPI thread"),
        };
        let file = |name: &str| {
            let host = &bench.sut(*mode).host;
            host.sysfs.read(crate::topology::SUT_INTERFACE, name)
        };
        let row = ModeSetup {
            driver_poll: poll,
            protocol,
            gate,
            application: format!("CPU {sut}, nice 0"),
            attach,
            gro: true,
            rps_cpus: file("queues/rx-0/rps_cpus")?.trim().to_owned(),
        };
        setup.insert(*mode, row);
    }
    Ok(setup)
}

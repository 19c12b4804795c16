//! `accounting` (LRP, section 2.2): who is charged for the receive work that a flood to one server makes,
//! while a process that has nothing to do with it computes on the same CPU.
//!
//! The process counts passes of the calibrated loop beside its own clock of CPU time, so that what its work
//! took is known, and with it what it was charged beyond.

mod goals;

use weir_bpf::units::Nanos;

use crate::error::{Error, Result};
use crate::load::{Plan, Session};
use crate::merit::{self, About};
use crate::neighbour::quietest;
use crate::order::one_repeat;
use crate::progress::Progress;
use crate::results::Mode;
use crate::results::accounting::{Accounting, AccountingRun, MeterSum};
use crate::results::merit::{Fact, MeritTrial};
use crate::stats::median_of_some;
use crate::stop::Stop;
use crate::trial::{self, Books, Flood, Load, Measured, Metered};
use crate::{machine, report, setup};

/// Its name on the command line.
pub const NAME: &str = "accounting";

impl Books {
    /// All, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Udp, Self::Mixed];

    /// As the variant of a result.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Mixed => "mixed",
        }
    }
}

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<AccountingRun> {
    let mut session = Session::begin(plan, progress)?;
    let mut bench = crate::bench::Bench::set_up(&plan.modes, plan.workload, session.cpus)?;
    let observed = setup::observe(&mut bench, &plan.modes, stop)?;
    let loads: Vec<Flood> = std::iter::once(Flood::Off).chain(plan.rates.iter().copied()).collect();
    let points: Vec<(Books, Flood)> =
        Books::ALL.iter().flat_map(|books| loads.iter().map(|load| (*books, *load))).collect();
    session.begin_trials(points.len() * plan.modes.len() * plan.repeats as usize);
    let mut measured = vec![];
    for repeat in 0..plan.repeats {
        if session.is_late(repeat) {
            break;
        }
        for ((books, flood), mode) in one_repeat(&points, &plan.modes, repeat) {
            progress.step(format!("{}: {mode}, {flood}", books.name()));
            let load = Load { books: Some(books), neighbour: true, ..plan.load(flood) };
            measured.push(trial::measure(&mut bench, mode, books.name(), load, stop)?);
            progress.done();
        }
    }
    progress.finish();
    let loop_ns = calibrate(&measured, quietest(&plan.modes))?;
    let about = About {
        name: NAME,
        merit: "share of the CPU time charged to the bystander that was its own work",
        variants: Books::ALL.map(Books::name).into(),
        workload: workload(plan, observed.rcvbuf_bytes, loop_ns),
        setup: observed.modes,
    };
    let trials = measured.into_iter().map(|measured| told(measured, loop_ns)).collect();
    let mut run = merit::finish(&session, about, &loads, trials);
    run.goals = goals::goals(&run);
    run.sentence = report::accounting_sentence(&run);
    Ok(run)
}

/// What a pass of the bystander's loop is charged without a flood, nanoseconds, in the mode whose idle host
/// interrupts it least.
fn calibrate(measured: &[Measured], mode: Mode) -> Result<f64> {
    let calm =
        |m: &&Measured| m.trial.mode == mode && m.trial.target_pps == Flood::Off.target_pps();
    let pass = |m: &Measured| {
        let work = m.neighbour.filter(|work| work.per_s > 0.0)?;
        Some(work.cpu * 1e9 / work.per_s)
    };
    median_of_some(measured.iter().filter(calm).map(pass)).ok_or_else(|| {
        Error::refused(
            format!("the bystander did nothing without a flood in mode {mode}"),
            "is the machine overloaded? try again, or give --seconds more",
        )
    })
}

/// A trial, once it is known how long a pass takes.
fn told(measured: Measured, loop_ns: f64) -> MeritTrial<Accounting> {
    let loops_per_s = measured.neighbour.map_or(0.0, |work| work.per_s);
    let bystander_cpu = measured.neighbour.map_or(0.0, |work| work.cpu);
    let work_cpu = loops_per_s * loop_ns / 1e9;
    let merit = if bystander_cpu > 0.0 { work_cpu / bystander_cpu } else { 0.0 };
    let sums = measured.metered.zip(measured.input_cpu);
    let work = measured.receive_work;
    MeritTrial {
        merit,
        input_cpu_ns: measured.window_cpu.0.map(|time| time.0),
        daemon_cpu_ns: measured.window_cpu.1.map(|time| time.0),
        detail: Accounting {
            loops_per_s,
            bystander_cpu,
            work_cpu,
            mischarged: 1.0 - merit,
            server_cpu: measured.trial.user_cpu,
            idle_server_cpu: measured.bystander_cpu.0 as f64 / 1e9 / measured.trial.window_s,
            threads_cpu: work.and_then(|work| work.threads),
            ksoftirqd_cpu: work.and_then(|work| work.ksoftirqd),
            softirq_cpu: work.map_or(0.0, |work| work.softirqs),
            metered: sums.map(|(metered, scheduler)| meter_sum(metered, scheduler)),
        },
        load: measured.trial,
    }
}

fn meter_sum(metered: Metered, scheduler: Nanos) -> MeterSum {
    let (input_ns, charged_ns) = (metered.input.0 as f64, metered.charged.0 as f64);
    let discarding_ns = metered.discarding.map(|time| time.0 as f64);
    let accounted = discarding_ns.map(|discarding| (charged_ns + discarding) / input_ns);
    MeterSum {
        input_ns,
        scheduler_ns: scheduler.0 as f64,
        server_ns: metered.flooded.0 as f64,
        charged_ns,
        discarding_ns,
        // Without a packet there is nothing to charge, and the thread has run all the same.
        accounted: accounted.filter(|_| charged_ns > 0.0 && input_ns > 0.0),
    }
}

fn workload(plan: &Plan, rcvbuf_bytes: u32, loop_ns: f64) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let softirqs = match machine::irq_time_is_apart() {
        Some(true) => "apart from processes' (CONFIG_IRQ_TIME_ACCOUNTING)",
        Some(false) => "a process's, whichever runs (no CONFIG_IRQ_TIME_ACCOUNTING)",
        None => "charged as this kernel was built to, which it does not tell",
    };
    vec![
        fact("Packets", format!("udp4, {} bytes", plan.workload.payload_len)),
        fact("Server", format!("a {} loop; another one is sent nothing", plan.workload.app.name())),
        fact("Mixed", "a third of the flood to the server, pings, to a closed port".into()),
        fact("Bystander", format!("computes in passes of {loop_ns:.0} ns of CPU time each")),
        fact("Softirqs' time", softirqs.into()),
        fact("Receive buffers", format!("{rcvbuf_bytes} bytes")),
    ]
}

//! One trial: a load at one rate against one mode, and where every packet of it ended.

mod books;
#[cfg(test)]
pub(crate) mod made_up;
mod meter;
mod receivers;
mod replies;
mod service;
mod snapshot;

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_bpf::sys::task_clock::TaskClock;
use weir_bpf::units::{Nanos, PacketsPerSec};

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::histogram;
use crate::interrupts;
use crate::results::kinds::Kind;
use crate::results::load::{Receivers, Service};
use crate::results::{Ledger, Mode, Trial};
use crate::stop::Stop;
pub use books::ReceiveWork;
pub use meter::Metered;
use snapshot::{Observer, Snapshot};

/// How long packets that are still queued at the end may take to arrive.
pub(crate) const DRAIN_DEADLINE: Duration = Duration::from_secs(2);
pub(crate) const DRAIN_STEP: Duration = Duration::from_millis(2);
/// The generator works, without sending, before the first packet.
pub(crate) const SPIN_UP: Duration = Duration::from_millis(10);

/// How fast the flood is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flood {
    /// There is none.
    Off,
    /// So many packets per second.
    Paced(PacketsPerSec),
    /// As fast as the generator can.
    Top,
}

impl Flood {
    /// As results have it: 0 without a flood, `None` at the top.
    pub fn target_pps(self) -> Option<f64> {
        match self {
            Self::Off => Some(0.0),
            Self::Paced(rate) => Some(rate.0),
            Self::Top => None,
        }
    }
}

impl From<Option<PacketsPerSec>> for Flood {
    fn from(rate: Option<PacketsPerSec>) -> Self {
        rate.map_or(Self::Top, Self::Paced)
    }
}

impl std::fmt::Display for Flood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => f.pad("no flood"),
            Self::Paced(rate) => write!(f, "{:.0} k/s", rate.0 / 1000.0),
            Self::Top => f.pad("top rate"),
        }
    }
}

/// In whose place an echo server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echo {
    /// There is none.
    #[default]
    None,
    /// The flooded application's; there is no bystander then.
    Flooded,
    /// The second application's: it has the light flow.
    Light,
}

/// What floods the host while everybody's accounts are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Books {
    /// Datagrams to the first application.
    Udp,
    /// These, pings, and datagrams to a closed port, a third each.
    Mixed,
}

/// What a trial sends, for how long, and what else runs meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Rate of the flood to the first application.
    pub flood: Flood,
    /// Rate of the light flow to the second application, if there is one.
    pub bystander: Option<PacketsPerSec>,
    /// Whether a compute-bound process runs on the SUT's CPU.
    pub neighbour: bool,
    /// Whether the flooded application is stopped, so that its queue is full.
    pub stopped: bool,
    /// What the flood is, where the TCP service runs too; `None`: UDP to the first application, without
    /// that service.
    pub kind: Option<Kind>,
    /// In whose place an echo server runs, if one does.
    pub echo: Echo,
    /// Whether two receivers of one session are in the applications' place, the heavier in the first's.
    pub receivers: bool,
    /// What the flood is where everybody's accounts are looked at; `None`: they are not.
    pub books: Option<Books>,
    /// More options of `weir run`, in a mode that has it.
    pub options: &'static [&'static str],
    /// Before the window.
    pub warm_up: Duration,
    /// The measured window.
    pub window: Duration,
}

impl Load {
    /// A flood alone.
    pub fn of(flood: Flood, warm_up: Duration, window: Duration) -> Self {
        Self {
            flood,
            bystander: None,
            neighbour: false,
            stopped: false,
            kind: None,
            echo: Echo::None,
            receivers: false,
            books: None,
            options: &[],
            warm_up,
            window,
        }
    }
}

/// A trial, and what only some experiments tell of it. CPU times are of the whole trial: they are
/// exact where the threads sleep before and after it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Rates of the window and the whole trial's ledger.
    pub trial: Trial,
    /// Age of the bystander's packets, median and 99th percentile.
    pub bystander_age_us: (Option<f64>, Option<f64>),
    /// Numbers of the light flow's packets that were sent in the window: from, and up to before.
    pub light: (u64, u64),
    /// CPU time of the polling threads and of `weir run` over the window alone, to within a tick.
    pub window_cpu: (Option<Nanos>, Option<Nanos>),
    /// CPU time of the polling threads; `None` where softirq polls.
    pub input_cpu: Option<Nanos>,
    /// CPU time of `weir run`, where it runs; it is on the SUT's CPU too.
    pub daemon_cpu: Option<Nanos>,
    /// CPU time of the flooded application.
    pub flooded_cpu: Nanos,
    /// CPU time of the bystander.
    pub bystander_cpu: Nanos,
    /// What the compute-bound process did in the window, if one ran.
    pub neighbour: Option<Work>,
    /// What the TCP service did in the window, if it ran.
    pub service: Option<Service>,
    /// How the two receivers shared the CPU, if they were there.
    pub receivers: Option<Receivers>,
    /// What receive work took in the window, where that was asked.
    pub receive_work: Option<ReceiveWork>,
    /// What weir's meter charged over the whole trial, where that was asked and weir runs.
    pub metered: Option<Metered>,
}

/// What a compute-bound process did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Passes of the calibrated loop per second.
    pub per_s: f64,
    /// Share of the CPU, by its own clock of CPU time.
    pub cpu: f64,
}

/// Runs one trial.
///
/// # Errors
/// As [`measure`].
pub fn run(bench: &mut Bench, mode: Mode, purpose: &str, load: Load, stop: &Stop) -> Result<Trial> {
    measure(bench, mode, purpose, load, stop).map(|measured| measured.trial)
}

/// Runs one trial and tells everything of it.
///
/// # Errors
/// Where packets do not add up, the daemon does not come up, or the user stops the run.
pub fn measure(
    bench: &mut Bench,
    mode: Mode,
    purpose: &str,
    load: Load,
    stop: &Stop,
) -> Result<Measured> {
    let daemon = bench.start_daemon(mode, load.options)?;
    if mode.is_interrupted() {
        interrupts::bind(bench, mode)?;
    }
    let flood_flows = aim(bench, mode, &load)?;
    let bench = &*bench;
    let client = match load.kind {
        Some(_) => Some(bench.beside(mode)?.start_client(&bench.topology, bench.generator_cpu)?),
        None => None,
    };
    let echo = if load.echo == Echo::None { None } else { Some(bench.start_echo(mode)?) };
    let neighbour = if load.neighbour { Some(bench.start_neighbour(mode)?) } else { None };
    let stopped =
        if load.stopped { Some(Stopped::stop(bench.sut(mode).flooded.pid())?) } else { None };
    let receivers = if load.receivers { Some(bench.receivers(mode)?) } else { None };
    let in_place = |of| echo.as_ref().filter(|_| load.echo == of);
    let pollers = bench.pollers(mode)?;
    let clocks = match load.books {
        Some(_) => pollers.iter().map(|pid| Ok(TaskClock::of(*pid)?)).collect::<Result<_>>()?,
        None => vec![],
    };
    let observer = Observer {
        bench,
        mode,
        sut: bench.sut(mode),
        client: client.as_ref(),
        flood_flows,
        flooded: receivers
            .map(|[heavier, _]| heavier)
            .or(in_place(Echo::Flooded))
            .unwrap_or(&bench.sut(mode).flooded),
        bystander: receivers
            .map(|[_, lighter]| lighter)
            .or(in_place(Echo::Light))
            .unwrap_or(&bench.sut(mode).bystander),
        echo: echo.as_ref(),
        daemon: daemon.as_ref(),
        pollers,
        clocks,
        ksoftirqd: if load.books.is_some() { books::ksoftirqd(bench.sut_cpu)? } else { None },
        load,
    };

    let (before, opened, closed, arrivals) = bench.generate_while(|| {
        stop.sleep(SPIN_UP)?;
        let before = observer.snapshot(neighbour.as_ref())?;
        bench.generator.start();
        service::let_go(client.as_ref(), true);
        stop.sleep(load.warm_up)?;
        let opened = observer.snapshot(neighbour.as_ref())?;
        let arrivals = match load.echo {
            Echo::None => {
                stop.sleep(load.window)?;
                vec![]
            }
            Echo::Flooded => replies::watch(bench, mode, (load.window, replies::SLICE), stop)?,
            // Reading takes the CPU from the generator, which would be late with a ping.
            Echo::Light => replies::watch(bench, mode, (load.window, load.window), stop)?,
        };
        Ok::<_, Error>((before, opened, observer.snapshot(neighbour.as_ref())?, arrivals))
    })??;
    service::let_go(client.as_ref(), false);
    // What waits in its queue is to be received, and in good time.
    drop(stopped);
    drop(neighbour);
    let after = drain(&before, &observer, stop)?;
    let metered = match (&daemon, load.books) {
        (Some(daemon), Some(_)) => Some(meter::read(&observer, (&before, &after), daemon, stop)?),
        _ => None,
    };
    if mode.is_interrupted() {
        interrupts::release(bench, mode)?;
    }
    let ledger = after.ledger_since(&before);
    check_conservation(&ledger, mode, load.flood)?;
    let ends = before.replies.as_ref().zip(after.replies.as_ref());
    let replies = ends.map(|(before, after)| replies::replies(before, after, &arrivals));
    if let Some(replies) = &replies {
        replies::check(replies, after.echoed_since(&before), mode, load.flood)?;
    }
    let missed = (0..observer.flows()).map(|flow| bench.generator.counts(flow).missed);
    let trial = Trial {
        missed_by_generator: missed.sum(),
        ledger,
        replies,
        ..window(mode, purpose, load.flood, &opened, &closed)
    };
    let age = |percentile| age_us(&opened.bystander_ages, &closed.bystander_ages, percentile);
    Ok(Measured {
        bystander_age_us: (age(50.0), age(99.0)),
        light: (opened.bystander_sent, closed.bystander_sent),
        window_cpu: (
            closed.input_cpu_ns.zip(opened.input_cpu_ns).map(since),
            closed.daemon_cpu_ns.zip(opened.daemon_cpu_ns).map(since),
        ),
        input_cpu: after.input_cpu_ns.zip(before.input_cpu_ns).map(since),
        daemon_cpu: after.daemon_cpu_ns.zip(before.daemon_cpu_ns).map(since),
        flooded_cpu: since((after.flooded_cpu_ns, before.flooded_cpu_ns)),
        bystander_cpu: since((after.bystander_cpu_ns, before.bystander_cpu_ns)),
        neighbour: load.neighbour.then(|| work(&opened, &closed)),
        service: service::service(&opened, &closed),
        receivers: receivers::receivers(&opened, &closed),
        receive_work: books::receive_work(&opened, &closed),
        metered,
        trial,
    })
}

/// Points the generator at what a load floods; returns of how many flows the flood is.
fn aim(bench: &mut Bench, mode: Mode, load: &Load) -> Result<usize> {
    match load.kind {
        Some(kind) => return bench.aim_kind(mode, (kind, load.flood), load.bystander),
        None if load.books == Some(Books::Mixed) => return bench.aim_mixed(mode, load.flood),
        None if load.receivers => bench.aim_at_receivers(mode, load.flood, load.bystander)?,
        None => match load.echo {
            Echo::None => bench.aim(mode, load.flood, load.bystander)?,
            Echo::Flooded => bench.aim_at_echo(mode, load.flood)?,
            Echo::Light => bench.aim_pings(mode, load.flood, load.bystander)?,
        },
    }
    Ok(usize::from(load.flood != Flood::Off))
}

fn since((now, then): (u64, u64)) -> Nanos {
    Nanos(now.saturating_sub(then))
}

pub(crate) fn check_conservation(ledger: &Ledger, mode: Mode, flood: Flood) -> Result<()> {
    if ledger.unaccounted == 0 {
        return Ok(());
    }
    Err(Error::Conservation {
        mode: mode.to_string(),
        rate: flood.to_string(),
        unaccounted: ledger.unaccounted,
        offered: ledger.offered,
        ledger: format!("{ledger:?}"),
    })
}

/// A process that does not run until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Result<Self> {
        kill_process(pid, Signal::STOP)
            .map_err(|source| Error::io("stop", "the flooded application", source))?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn work(opened: &Snapshot, closed: &Snapshot) -> Work {
    let window_s = (closed.sent_at - opened.sent_at).as_secs_f64();
    let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / window_s;
    Work {
        per_s: per_s(closed.work, opened.work),
        cpu: per_s(closed.work_cpu_ns, opened.work_cpu_ns) / 1e9,
    }
}

/// Age below which `percentile` percent of the packets between two snapshots were delivered.
pub(crate) fn age_us(before: &[u64], after: &[u64], percentile: f64) -> Option<f64> {
    histogram::percentile(before, after, percentile).map(|ns| ns as f64 / 1000.0)
}

/// The rates between two snapshots, each counter over its own interval.
fn window(mode: Mode, purpose: &str, flood: Flood, opened: &Snapshot, closed: &Snapshot) -> Trial {
    let sent_s = (closed.sent_at - opened.sent_at).as_secs_f64();
    let kernel_s = (closed.kernel_at - opened.kernel_at).as_secs_f64();
    let over = |seconds: f64, of: fn(&Snapshot) -> u64| {
        of(closed).saturating_sub(of(opened)) as f64 / seconds
    };
    let age = |percentile| age_us(&opened.ages, &closed.ages, percentile);
    Trial {
        mode,
        purpose: purpose.to_owned(),
        target_pps: flood.target_pps(),
        window_s: sent_s,
        offered_pps: over(sent_s, |s| s.flood_sent),
        nic_drop_pps: over(kernel_s, |s| s.nic_drop),
        discarded_pps: over(kernel_s, |s| s.discarded),
        late_drop_pps: over(kernel_s, Snapshot::late_drop),
        delivered_pps: over(sent_s, |s| s.flooded_delivered),
        bystander_offered_pps: over(sent_s, |s| s.bystander_sent),
        bystander_delivered_pps: over(sent_s, |s| s.bystander_delivered),
        user_cpu: over(sent_s, |s| s.flooded_cpu_ns) / 1e9,
        // The undisturbed passes of the loop: interrupts only ever make it slower.
        sut_loop_ns: histogram::percentile(&opened.loops, &closed.loops, 10.0).unwrap_or(0) as f64,
        steal: (closed.steal_s - opened.steal_s) / sent_s,
        age_p50_us: age(50.0),
        age_p99_us: age(99.0),
        missed_by_generator: 0,
        ledger: Ledger::default(),
        replies: None,
    }
}

/// Waits until every packet has ended somewhere.
fn drain(before: &Snapshot, observer: &Observer<'_>, stop: &Stop) -> Result<Snapshot> {
    let deadline = Instant::now() + DRAIN_DEADLINE;
    let mut last = None;
    loop {
        let now = observer.snapshot(None)?;
        // What IP has received may still be on its way to an application.
        let ledger = now.ledger_since(before);
        let at_rest = now.service.is_none() || last == Some(ledger);
        if (now.is_drained_since(before) && at_rest) || Instant::now() > deadline {
            return Ok(now);
        }
        last = Some(ledger);
        stop.sleep(DRAIN_STEP)?;
    }
}

/// One of an interface's counters.
pub(crate) fn statistic(
    sysfs: &weir_bpf::sys::sysfs::NetSysfs,
    ifname: &str,
    file: &str,
) -> Result<u64> {
    let text = sysfs.read(ifname, &format!("statistics/{file}"))?;
    text.trim().parse().map_err(|_| {
        Error::refused(format!("{ifname}'s {file} reads {text:?}"), "the kernel should count there")
    })
}

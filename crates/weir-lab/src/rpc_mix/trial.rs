//! One trial: the worker alone, or with the short servers, over whole calls of the worker.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_bpf::sys::sched;

use super::peer::CALL_PATIENCE;
use super::{OUTSTANDING, Pace, Services, short_addresses, worker_address};
use crate::bench::Bench;
use crate::drops::Drops;
use crate::error::{Error, Result};
use crate::results::merit::MeritTrial;
use crate::results::rpc::Rpc;
use crate::results::{Ledger, Mode, Trial};
use crate::stop::Stop;
use crate::trial::{DRAIN_DEADLINE, DRAIN_STEP, Flood, check_conservation};
use crate::worker::slots;
use crate::worker_process::{Daemon, Worker};
use crate::{far_end, histogram, interrupts, machine};

/// How often the end of a call is looked for.
const CALL_STEP: Duration = Duration::from_micros(500);
/// Nothing listens here: `discard`.
const NOBODYS_PORT: u16 = 9;

/// What a trial is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) mode: Mode,
    pub(super) pace: Pace,
    /// Without the short servers, or with them.
    pub(super) load: Flood,
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
}

/// Cumulative counters just after a call of the worker.
struct Snapshot {
    at: Instant,
    call_ns: u64,
    calls: u64,
    rpcs: u64,
    sent: u64,
    loops: Vec<u64>,
    worker_cpu_ns: u64,
    servers_cpu_ns: u64,
    client_cpu_ns: u64,
    input_cpu_ns: Option<u64>,
    daemon_cpu_ns: Option<u64>,
    idle_s: f64,
    steal_s: f64,
}

struct Observer<'a> {
    bench: &'a Bench,
    asked: Asked,
    services: &'a Services,
    daemon: Option<&'a Daemon>,
    pollers: Vec<Pid>,
}

/// What the servers have received and answered.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Served {
    received: u64,
    answered: u64,
}

/// Runs one trial.
///
/// # Errors
/// Where packets do not add up, a process does not come up, or the user stops the run.
pub(super) fn measure(
    bench: &mut Bench,
    services: &Services,
    asked: Asked,
    stop: &Stop,
) -> Result<MeritTrial<Rpc>> {
    let mode = asked.mode;
    let daemon = bench.start_daemon(mode, &[])?;
    if mode.is_interrupted() {
        interrupts::bind(bench, mode)?;
    }
    let client_host = bench.sut(mode).host.address.0;
    far_end::bind(bench, mode, SocketAddr::new(client_host, NOBODYS_PORT))?;
    let pollers = bench.pollers(mode)?;
    let observer = Observer { bench, asked, services, daemon: daemon.as_ref(), pollers };
    let (drops, served) = (observer.drops()?, observer.served());
    let client = observer.start_client()?;
    stop.sleep(asked.warm_up)?;
    let opened = observer.after_a_call(&client, Duration::ZERO, stop)?;
    let closed = observer.after_a_call(&client, asked.window, stop)?;
    client.shared().get(slots::STOP).store(1, Ordering::Relaxed);
    let ledger = observer.drain(&client, (&drops, served), stop)?;
    drop(client);
    far_end::release(bench, mode)?;
    if mode.is_interrupted() {
        interrupts::release(bench, mode)?;
    }
    check_conservation(&ledger, mode, asked.load)?;
    Ok(figures(asked, (&opened, &closed), ledger))
}

impl Observer<'_> {
    fn start_client(&self) -> Result<Worker> {
        let (bench, asked) = (self.bench, self.asked);
        let worker = worker_address(bench, asked.mode).to_string();
        let outstanding = OUTSTANDING.to_string();
        let mut role: Vec<String> =
            ["rpc-client", "--worker", &worker, "--outstanding", &outstanding]
                .map(str::to_owned)
                .into();
        if asked.load != Flood::Off {
            for address in short_addresses(bench, asked.mode, asked.pace) {
                role.extend(["--servers".into(), address.to_string()]);
            }
        }
        Worker::start(&bench.topology.generator_path, bench.generator_cpu, &role)
    }

    fn short(&self) -> &[Worker; 2] {
        &self.services.short[self.asked.pace.name()]
    }

    fn drops(&self) -> Result<Drops> {
        Drops::read(&self.bench.topology, &self.bench.sut(self.asked.mode).host, self.daemon)
    }

    fn served(&self) -> Served {
        let all = || self.short().iter().chain([&self.services.worker]);
        Served {
            received: all().map(Worker::delivered).sum(),
            answered: all().map(|server| server.count(slots::REPLIED)).sum(),
        }
    }

    /// Waits for the first end of a call that comes after so long.
    fn after_a_call(&self, client: &Worker, after: Duration, stop: &Stop) -> Result<Snapshot> {
        stop.sleep(after)?;
        let (before, deadline) = (client.count(slots::CALLS), Instant::now() + CALL_PATIENCE);
        while client.count(slots::CALLS) == before {
            if Instant::now() > deadline {
                return Err(Error::refused(
                    format!("the worker does not answer in mode {}", self.asked.mode),
                    "is the machine overloaded? try again",
                ));
            }
            stop.check()?;
            std::thread::sleep(CALL_STEP);
        }
        let bench = self.bench;
        let cpu_ns = |pid| -> Result<u64> { Ok(sched::cpu_time(pid)?.0) };
        let sum = |pids: &[Pid]| -> Result<u64> {
            Ok(pids.iter().map(|pid| cpu_ns(*pid)).collect::<Result<Vec<u64>>>()?.iter().sum())
        };
        let [one, other] = self.short();
        Ok(Snapshot {
            at: Instant::now(),
            calls: client.count(slots::CALLS),
            call_ns: client.count(slots::LAST_CALL_NS),
            rpcs: client.delivered(),
            sent: client.count(slots::SENT),
            worker_cpu_ns: cpu_ns(self.services.worker.pid())?,
            servers_cpu_ns: sum(&[one.pid(), other.pid()])?,
            client_cpu_ns: cpu_ns(client.pid())?,
            input_cpu_ns: (!self.pollers.is_empty()).then(|| sum(&self.pollers)).transpose()?,
            daemon_cpu_ns: self.daemon.map(Daemon::cpu_time).transpose()?.map(|time| time.0),
            loops: histogram::snapshot(bench.speed.shared(), slots::HISTOGRAM),
            idle_s: machine::idle_s(bench.sut_cpu),
            steal_s: machine::steal_s(bench.sut_cpu),
        })
    }

    /// Waits until every request has ended somewhere and every answer has arrived.
    fn drain(
        &self,
        client: &Worker,
        (drops, served): (&Drops, Served),
        stop: &Stop,
    ) -> Result<Ledger> {
        // The worker may have just begun.
        let deadline = Instant::now() + DRAIN_DEADLINE;
        loop {
            let now = self.served();
            let received = now.received - served.received;
            let answered = now.answered - served.answered;
            let arrived = client.delivered() + client.count(slots::CALLS);
            let ledger = self.drops()?.since(drops).ledger(client.count(slots::SENT), received);
            if ledger.unaccounted == 0 && answered == received && arrived == answered {
                return Ok(ledger);
            }
            if Instant::now() > deadline {
                check_conservation(&ledger, self.asked.mode, self.asked.load)?;
                return Err(Error::Replies {
                    mode: self.asked.mode.to_string(),
                    rate: self.asked.load.to_string(),
                    replies: format!("{received} received, {answered} sent, {arrived} arrived"),
                });
            }
            stop.sleep(DRAIN_STEP)?;
        }
    }
}

/// The figures of the window. Calls and their time are counted from end to end.
fn figures(
    asked: Asked,
    (opened, closed): (&Snapshot, &Snapshot),
    ledger: Ledger,
) -> MeritTrial<Rpc> {
    let window_s = (closed.at - opened.at).as_secs_f64();
    let per_s = |of: fn(&Snapshot) -> u64| of(closed).saturating_sub(of(opened)) as f64 / window_s;
    let share = |of: fn(&Snapshot) -> u64| per_s(of) / 1e9;
    let since = |of: fn(&Snapshot) -> Option<u64>| {
        of(closed).zip(of(opened)).map(|(now, then)| now.saturating_sub(then))
    };
    let calls = (closed.calls - opened.calls) as f64;
    let elapsed_ns = (closed.call_ns - opened.call_ns) as f64;
    let rpc_per_s = per_s(|s| s.rpcs);
    let charged_ns = (closed.worker_cpu_ns - opened.worker_cpu_ns) as f64;
    let loop_ns = histogram::percentile(&opened.loops, &closed.loops, 10.0);
    MeritTrial {
        load: Trial {
            mode: asked.mode,
            purpose: asked.pace.name().into(),
            target_pps: asked.load.target_pps(),
            window_s,
            // The calls of the worker are not of the load.
            offered_pps: (per_s(|s| s.sent) - per_s(|s| s.calls)).max(0.0),
            nic_drop_pps: 0.0,
            discarded_pps: 0.0,
            late_drop_pps: 0.0,
            delivered_pps: rpc_per_s,
            bystander_offered_pps: per_s(|s| s.calls),
            bystander_delivered_pps: per_s(|s| s.calls),
            user_cpu: share(|s| s.worker_cpu_ns),
            sut_loop_ns: loop_ns.unwrap_or(0) as f64,
            steal: (closed.steal_s - opened.steal_s) / window_s,
            age_p50_us: None,
            age_p99_us: None,
            missed_by_generator: 0,
            ledger,
            replies: None,
        },
        merit: calls * 1e9 / elapsed_ns,
        input_cpu_ns: since(|s| s.input_cpu_ns),
        daemon_cpu_ns: since(|s| s.daemon_cpu_ns),
        detail: Rpc {
            completion_ms: elapsed_ns / calls / 1e6,
            calls,
            rpc_per_s,
            worker_cpu: share(|s| s.worker_cpu_ns),
            servers_cpu: share(|s| s.servers_cpu_ns),
            charged_ms: charged_ns / calls / 1e6,
            idle_cpu: (closed.idle_s - opened.idle_s) / window_s,
            client_cpu: share(|s| s.client_cpu_ns),
        },
    }
}

//! One trial: a load at one rate against one mode, and where every packet of it ended.

use std::time::{Duration, Instant};

use weir_bpf::sys::{sched, snmp};
use weir_bpf::units::PacketsPerSec;
use weir_bpf::verdict::Verdict;

use crate::bench::{Bench, Sut};
use crate::error::{Error, Result};
use crate::histogram;
use crate::interrupts;
use crate::machine;
use crate::results::{Ledger, Mode, Trial};
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::worker::slots;
use crate::worker_process::Daemon;

/// How long packets that are still queued at the end may take to arrive.
pub(crate) const DRAIN_DEADLINE: Duration = Duration::from_secs(2);
pub(crate) const DRAIN_STEP: Duration = Duration::from_millis(2);
/// The generator works, without sending, before the first packet.
pub(crate) const SPIN_UP: Duration = Duration::from_millis(10);

/// What a trial sends, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Rate of the flood; `None`: the generator's top.
    pub flood: Option<PacketsPerSec>,
    /// Rate of the light flow to the second application, if there is one.
    pub bystander: Option<PacketsPerSec>,
    /// Before the window.
    pub warm_up: Duration,
    /// The measured window.
    pub window: Duration,
}

/// Cumulative counters, each with the instant at which it was read.
struct Snapshot {
    sent_at: Instant,
    flood_sent: u64,
    bystander_sent: u64,
    flooded_delivered: u64,
    bystander_delivered: u64,
    cpu_ns: u64,
    ages: Vec<u64>,
    loops: Vec<u64>,
    steal_s: f64,
    kernel_at: Instant,
    nic_drop: u64,
    discarded: u64,
    late_backlog: u64,
    late_socket: u64,
    late_other: u64,
}

impl Snapshot {
    fn late_drop(&self) -> u64 {
        self.late_backlog + self.late_socket + self.late_other
    }

    /// Every packet between two snapshots: exact once everything has drained.
    fn ledger_since(&self, before: &Self) -> Ledger {
        let sent = |s: &Self| s.flood_sent + s.bystander_sent;
        let delivered = |s: &Self| s.flooded_delivered + s.bystander_delivered;
        let mut ledger = Ledger {
            offered: sent(self) - sent(before),
            nic_drop: self.nic_drop - before.nic_drop,
            discarded: self.discarded - before.discarded,
            late_backlog: self.late_backlog.saturating_sub(before.late_backlog),
            late_socket: self.late_socket - before.late_socket,
            late_other: self.late_other.saturating_sub(before.late_other),
            delivered: delivered(self) - delivered(before),
            unaccounted: 0,
        };
        let ends = ledger.nic_drop
            + ledger.discarded
            + ledger.late_backlog
            + ledger.late_socket
            + ledger.late_other
            + ledger.delivered;
        ledger.unaccounted = ledger.offered as i64 - ends as i64;
        ledger
    }
}

/// Runs one trial.
///
/// # Errors
/// Where packets do not add up, the daemon does not come up, or the user stops the run.
pub fn run(bench: &mut Bench, mode: Mode, purpose: &str, load: Load, stop: &Stop) -> Result<Trial> {
    let daemon = bench.start_daemon(mode)?;
    if mode == Mode::Stock {
        interrupts::bind(bench, mode)?;
    }
    bench.aim(mode, load.flood, load.bystander)?;
    let bench = &*bench;
    let has_bystander = load.bystander.is_some();
    let snapshot = || Snapshot::take(bench, bench.sut(mode), daemon.as_ref(), has_bystander);

    let (before, opened, closed) = bench.generate_while(|| {
        stop.sleep(SPIN_UP)?;
        let before = snapshot()?;
        bench.generator.start();
        stop.sleep(load.warm_up)?;
        let opened = snapshot()?;
        stop.sleep(load.window)?;
        Ok::<_, Error>((before, opened, snapshot()?))
    })??;
    let after = drain(&before, snapshot, stop)?;
    if mode == Mode::Stock {
        interrupts::release(bench, mode)?;
    }
    let ledger = after.ledger_since(&before);
    if ledger.unaccounted != 0 {
        return Err(Error::Conservation {
            mode: mode.to_string(),
            rate: load.flood.map_or("top rate".into(), |rate| format!("{:.0} packets/s", rate.0)),
            unaccounted: ledger.unaccounted,
            offered: ledger.offered,
            ledger: format!("{ledger:?}"),
        });
    }
    let missed = (0..=usize::from(has_bystander)).map(|flow| bench.generator.counts(flow).missed);
    Ok(Trial {
        missed_by_generator: missed.sum(),
        ledger,
        ..window(mode, purpose, load.flood, &opened, &closed)
    })
}

/// The rates between two snapshots, each counter over its own interval.
fn window(
    mode: Mode,
    purpose: &str,
    flood: Option<PacketsPerSec>,
    opened: &Snapshot,
    closed: &Snapshot,
) -> Trial {
    let sent_s = (closed.sent_at - opened.sent_at).as_secs_f64();
    let kernel_s = (closed.kernel_at - opened.kernel_at).as_secs_f64();
    let over = |seconds: f64, of: fn(&Snapshot) -> u64| {
        of(closed).saturating_sub(of(opened)) as f64 / seconds
    };
    let age = |percentile| {
        histogram::percentile(&opened.ages, &closed.ages, percentile).map(|ns| ns as f64 / 1000.0)
    };
    Trial {
        mode,
        purpose: purpose.to_owned(),
        target_pps: flood.map(|rate| rate.0),
        window_s: sent_s,
        offered_pps: over(sent_s, |s| s.flood_sent),
        nic_drop_pps: over(kernel_s, |s| s.nic_drop),
        discarded_pps: over(kernel_s, |s| s.discarded),
        late_drop_pps: over(kernel_s, Snapshot::late_drop),
        delivered_pps: over(sent_s, |s| s.flooded_delivered),
        bystander_offered_pps: over(sent_s, |s| s.bystander_sent),
        bystander_delivered_pps: over(sent_s, |s| s.bystander_delivered),
        user_cpu: over(sent_s, |s| s.cpu_ns) / 1e9,
        // The undisturbed passes of the loop: interrupts only ever make it slower.
        sut_loop_ns: histogram::percentile(&opened.loops, &closed.loops, 10.0).unwrap_or(0) as f64,
        steal: (closed.steal_s - opened.steal_s) / sent_s,
        age_p50_us: age(50.0),
        age_p99_us: age(99.0),
        missed_by_generator: 0,
        ledger: Ledger::default(),
    }
}

/// Waits until every packet has ended somewhere.
fn drain(
    before: &Snapshot,
    snapshot: impl Fn() -> Result<Snapshot>,
    stop: &Stop,
) -> Result<Snapshot> {
    let deadline = Instant::now() + DRAIN_DEADLINE;
    loop {
        let now = snapshot()?;
        if now.ledger_since(before).unaccounted == 0 || Instant::now() > deadline {
            return Ok(now);
        }
        stop.sleep(DRAIN_STEP)?;
    }
}

impl Snapshot {
    fn take(bench: &Bench, sut: &Sut, daemon: Option<&Daemon>, bystander: bool) -> Result<Self> {
        let host = &sut.host;
        // The figures that matter most first, from memory, within a microsecond.
        let sent_at = Instant::now();
        let sent = |flow| bench.generator.counts(flow).sent;
        let (bystander_sent, flood_sent) =
            if bystander { (sent(0), sent(1)) } else { (0, sent(0)) };
        let flooded_delivered = sut.flooded.delivered();
        let bystander_delivered = sut.bystander.delivered();
        let ages = histogram::snapshot(sut.flooded.shared(), slots::HISTOGRAM);
        let loops = histogram::snapshot(bench.speed.shared(), slots::HISTOGRAM);
        let cpu_ns = sched::cpu_time(sut.flooded.pid())?.0;
        let steal_s = machine::steal_s(bench.sut_cpu);

        let kernel_at = Instant::now();
        let generator =
            |file: &str| statistic(&bench.topology.generator_sysfs, &host.generator_ifname, file);
        let nic_drop = generator("tx_dropped")?;
        let rx_dropped = statistic(&host.sysfs, SUT_INTERFACE, "rx_dropped")?;
        let discarded = match daemon {
            Some(daemon) => daemon.counters.counters()?.verdict(Verdict::Discard).packets,
            None => 0,
        };
        let (v4, v6) = host.netns.run(snmp::udp_stats)??;
        let late_socket = v4.rcvbuf_errors + v6.rcvbuf_errors;
        let other = |s: &snmp::UdpStats| s.in_errors.saturating_sub(s.rcvbuf_errors) + s.no_ports;
        Ok(Self {
            sent_at,
            flood_sent,
            bystander_sent,
            flooded_delivered,
            bystander_delivered,
            cpu_ns,
            ages,
            loops,
            steal_s,
            kernel_at,
            nic_drop,
            discarded,
            // veth counts what its full ring refused at both ends.
            late_backlog: rx_dropped.saturating_sub(nic_drop),
            late_socket,
            late_other: other(&v4) + other(&v6),
        })
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

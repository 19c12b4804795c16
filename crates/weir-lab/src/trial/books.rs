//! What receive work takes, and whom the kernel charges for it. What softirqs take while a process runs is that process' own CPU time,
//! unless the kernel was built with `CONFIG_IRQ_TIME_ACCOUNTING`; what they take beside is `ksoftirqd`'s.

use std::fs;

use rustix::process::Pid;
use weir_bpf::sys::{sched, snmp};
use weir_bpf::units::CpuId;

use super::snapshot::{Observer, Snapshot};
use crate::error::{Error, Result};
use crate::machine;

/// Cumulative counters.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// Pings that the host has received.
    pub(super) pings: u64,
    /// What the NAPI threads have run, by perf; `None` where there are none.
    pub(super) input_ns: Option<u64>,
    softirq_s: f64,
    ksoftirqd_ns: Option<u64>,
}

/// Shares of the SUT's CPU over the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiveWork {
    /// What the NAPI threads ran, by perf; `None` where there are none.
    pub threads: Option<f64>,
    /// Softirqs, as the kernel's ticks found them.
    pub softirqs: f64,
    /// Had by `ksoftirqd`; `None` where that is not to be seen, in a PID namespace.
    pub ksoftirqd: Option<f64>,
}

impl Counts {
    pub(super) fn now(observer: &Observer<'_>) -> Result<Self> {
        let (cpu, host) = (observer.bench.sut_cpu, &observer.sut.host);
        let ran: Vec<u64> =
            observer.clocks.iter().map(|clock| Ok(clock.read()?.0)).collect::<Result<_>>()?;
        Ok(Self {
            pings: host.netns.run(snmp::icmp4_received)??,
            input_ns: (!ran.is_empty()).then(|| ran.iter().sum()),
            softirq_s: machine::softirq_s(cpu),
            ksoftirqd_ns: observer.ksoftirqd.map(sched::cpu_time).transpose()?.map(|time| time.0),
        })
    }
}

/// The kernel's thread for softirqs of a CPU.
pub(super) fn ksoftirqd(cpu: CpuId) -> Result<Option<Pid>> {
    let name = format!("ksoftirqd/{cpu}\n");
    let failed = |source| Error::io("list", "/proc", source);
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        // One that has ended meanwhile is not it.
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm == name) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// What was done between two snapshots.
pub(super) fn receive_work(opened: &Snapshot, closed: &Snapshot) -> Option<ReceiveWork> {
    let (before, after) = opened.books.zip(closed.books)?;
    let window_s = (closed.sent_at - opened.sent_at).as_secs_f64();
    let share = |(now, then): (u64, u64)| now.saturating_sub(then) as f64 / 1e9 / window_s;
    Some(ReceiveWork {
        threads: after.input_ns.zip(before.input_ns).map(share),
        softirqs: (after.softirq_s - before.softirq_s) / window_s,
        ksoftirqd: after.ksoftirqd_ns.zip(before.ksoftirqd_ns).map(share),
    })
}

//! How two receivers of one session shared the CPU in a window, and how often each had nothing to do.

use std::fs;

use rustix::process::Pid;
use weir_bpf::sys::sched;

use super::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::results::load::Receivers;
use crate::worker_process::Worker;

/// Cumulative counters, the heavier's first.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    cpu_ns: [u64; 2],
    sleeps: [u64; 2],
}

impl Counts {
    pub(super) fn now([heavier, lighter]: [&Worker; 2]) -> Result<Self> {
        let pids = [heavier.pid(), lighter.pid()];
        let mut counts = Self { cpu_ns: [0; 2], sleeps: [0; 2] };
        for (at, pid) in pids.into_iter().enumerate() {
            counts.cpu_ns[at] = sched::cpu_time(pid)?.0;
            counts.sleeps[at] = sleeps(pid)?;
        }
        Ok(counts)
    }
}

/// How often a thread has slept: a receiver does so when its queue is empty.
fn sleeps(pid: Pid) -> Result<u64> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let text = fs::read_to_string(&path).map_err(|source| Error::io("read", &path, source))?;
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).ok_or_else(|| {
        Error::refused(format!("{path} lacks voluntary_ctxt_switches"), "is this a Linux kernel's?")
    })
}

/// What happened between two snapshots.
pub(super) fn receivers(opened: &Snapshot, closed: &Snapshot) -> Option<Receivers> {
    let (before, after) = opened.receivers.zip(closed.receivers)?;
    let window_s = (closed.sent_at - opened.sent_at).as_secs_f64();
    let per_s = |now: [u64; 2], then: [u64; 2]| {
        [0, 1].map(|at| now[at].saturating_sub(then[at]) as f64 / window_s)
    };
    let [heavier_ns, lighter_ns] = per_s(after.cpu_ns, before.cpu_ns);
    let [heavier_sleeps_per_s, lighter_sleeps_per_s] = per_s(after.sleeps, before.sleeps);
    Some(Receivers {
        heavier_cpu: heavier_ns / 1e9,
        lighter_cpu: lighter_ns / 1e9,
        heavier_sleeps_per_s,
        lighter_sleeps_per_s,
    })
}

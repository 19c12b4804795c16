//! What runs where in each mode, read back from the kernel rather than from what was asked for.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, getpid};
use weir_bpf::sys::stat::Stat;
use weir_bpf::sys::{ethtool, napi, sched};

use crate::bench::Bench;
use crate::error::Result;
use crate::interrupts;
use crate::queue_depth;
use crate::results::{Mode, ModeSetup};
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::worker_process::Daemon;

/// Every mode's set-up.
pub struct Observed {
    /// Per mode.
    pub modes: BTreeMap<Mode, ModeSetup>,
    /// `SO_RCVBUF` of the applications, as the kernel reports it.
    pub rcvbuf_bytes: u32,
}

/// Sets each mode up as for a trial, looks, and puts it back.
///
/// # Errors
/// Where a mode cannot be set up.
pub fn observe(bench: &mut Bench, modes: &[Mode], stop: &Stop) -> Result<Observed> {
    let mut rcvbuf_bytes = 0;
    let modes = observe_with(bench, modes, |bench, mode| {
        let depth = queue_depth::count(bench, mode, stop)?;
        rcvbuf_bytes = depth.rcvbuf_bytes;
        Ok((bench.sut(mode).flooded.pid(), depth.packets))
    })?;
    Ok(Observed { modes, rcvbuf_bytes })
}

/// The same, of another application: `application` tells which, and how many of this run's packets its
/// queue holds.
///
/// # Errors
/// Where a mode cannot be set up.
pub fn observe_with(
    bench: &mut Bench,
    modes: &[Mode],
    mut application: impl FnMut(&mut Bench, Mode) -> Result<(Pid, u32)>,
) -> Result<BTreeMap<Mode, ModeSetup>> {
    let mut observed = BTreeMap::new();
    for mode in modes {
        let daemon = bench.start_daemon(*mode, &[])?;
        if mode.is_interrupted() {
            interrupts::bind(bench, *mode)?;
        }
        let application = application(bench, *mode)?;
        observed.insert(*mode, describe(bench, *mode, daemon.as_ref(), application)?);
        if mode.is_interrupted() {
            interrupts::release(bench, *mode)?;
        }
    }
    Ok(observed)
}

/// What runs where in a mode that is set up, with an application and how much its queue holds.
fn describe(
    bench: &Bench,
    mode: Mode,
    daemon: Option<&Daemon>,
    (application, queue_depth_packets): (Pid, u32),
) -> Result<ModeSetup> {
    let sut = bench.sut(mode);
    let attach = daemon.map_or("none".into(), |daemon| daemon.attach.clone());
    let file = |name: &str| -> Result<String> {
        Ok(sut.host.sysfs.read(SUT_INTERFACE, name)?.trim().to_owned())
    };
    let (threads, gro) = sut.host.netns.run(|| {
        let threads = napi::napi_threads(sut.host.ifindex, SUT_INTERFACE)?;
        Ok::<_, weir_bpf::Error>((threads, ethtool::gro(SUT_INTERFACE)?))
    })??;
    let poll = match threads.first() {
        Some(thread) => format!("{}, NAPI thread", place(thread.pid)?),
        None => {
            let timeout_us = file("gro_flush_timeout")?.parse::<u64>().unwrap_or(0) / 1000;
            format!("CPU {}, softirq on a timer interrupt each {timeout_us} us", bench.sut_cpu)
        }
    };
    let gate = match (attach.as_str(), mode) {
        ("none", _) => "none".into(),
        (_, Mode::IdleWeir) => format!("{poll}, policy off"),
        _ => poll.clone(),
    };
    Ok(ModeSetup {
        protocol: poll.clone(),
        driver_poll: poll,
        gate,
        application: format!("{}, {}", place(application)?, session(application)),
        attach,
        gro,
        rps_cpus: file("queues/rx-0/rps_cpus")?,
        queue_depth_packets,
    })
}

/// CPU and weight of a thread.
///
/// # Errors
/// If there is no such thread any more.
pub fn place(pid: Pid) -> Result<String> {
    let cpus: Vec<String> = sched::affinity(pid)?.iter().map(ToString::to_string).collect();
    Ok(format!("CPU {} at nice {}", cpus.join(","), sched::nice(pid)?))
}

/// Whom the scheduler weighs a process with.
fn session(pid: Pid) -> &'static str {
    let autogroup = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    // A server's worker process is in its master's. Not getsid(2) by rustix, which takes a session
    // of 0, one that was begun outside the PID namespace, for impossible.
    let session = |pid: Pid| Stat::of(pid.as_raw_nonzero().get()).and_then(|stat| stat.session());
    match (session(pid) != session(getpid()), autogroup.is_ok_and(|text| text.trim() == "1")) {
        (true, true) => "a session of its own, autogroup on",
        (true, false) => "a session of its own, no autogroup",
        (false, true) => "in the lab's session, autogroup on",
        (false, false) => "in the lab's session, no autogroup",
    }
}

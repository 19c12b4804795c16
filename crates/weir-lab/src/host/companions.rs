//! The process beside the applications, and one that is stopped.

use rustix::process::{Pid, Signal, kill_process};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::units::{CpuId, Nice};

use super::group::group_of;
use super::process::Process;
use crate::apps::Job;
use crate::error::{Result, cannot};
use crate::scene::Beside;
use crate::stop::Undo;

/// Stops a process until what is returned is dropped.
pub fn stopped(pid: Pid) -> Result<Undo<'static>> {
    kill_process(pid, Signal::STOP).map_err(cannot("stop", "the flooded application"))?;
    Ok(Undo(Box::new(move || kill_process(pid, Signal::CONT).unwrap_or_default())))
}

/// Starts the process beside the applications.
pub fn start(netns: &NetNs, cpu: Option<CpuId>, kind: Beside) -> Result<Process> {
    let mut process = Process::worker(netns, cpu, Nice(0), Job::Beside(kind))?;
    if kind == Beside::GroupHog {
        process.after = Some(Box::new(group_of(process.pid())?));
    }
    Ok(process)
}

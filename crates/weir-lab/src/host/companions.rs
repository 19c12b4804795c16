//! Processes beside the applications, and one that is stopped.

use rustix::process::{Pid, Signal, kill_process};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::units::{CpuId, Nice};

use super::group::group_of;
use super::process::Process;
use crate::apps::{Job, Pauses};
use crate::error::{Result, cannot};
use crate::scene::Beside;
use crate::stop::Undo;

/// Stops a process until what is returned is dropped.
pub fn stopped(pid: Pid) -> Result<Undo<'static>> {
    kill_process(pid, Signal::STOP).map_err(cannot("stop", "the flooded application"))?;
    Ok(Undo(Box::new(move || kill_process(pid, Signal::CONT).unwrap_or_default())))
}

/// The processes beside the applications, each with the group that goes after it.
#[derive(Default)]
pub struct Companions(Vec<(Beside, Process, Option<Undo<'static>>)>);

impl Companions {
    pub fn start(netns: &NetNs, cpu: CpuId, beside: &[Beside]) -> Result<Self> {
        let start = |one: &Beside| {
            let job = match one {
                Beside::Hog(_) | Beside::GroupHog => {
                    Job::Compute { idle: false, pauses: Pauses::Never }
                }
                Beside::Bursts => Job::Compute { idle: false, pauses: Pauses::Sleeps },
                Beside::IdleHog => Job::Compute { idle: true, pauses: Pauses::Never },
                Beside::Spinner => Job::Compute { idle: true, pauses: Pauses::Yields },
                Beside::Interactive => Job::Interactive,
            };
            let worker = Process::worker(netns, cpu, Nice(0), job)?;
            if let Beside::Hog(nice) = one {
                sched::set_nice(worker.pid(), Nice(*nice))?;
            }
            let group = (*one == Beside::GroupHog).then(|| group_of(worker.pid())).transpose()?;
            Ok((*one, worker, group))
        };
        beside.iter().map(start).collect::<Result<_>>().map(Self)
    }

    /// Ends them; they are waited for when this is dropped.
    pub fn end(&self) {
        for (_, worker, _) in &self.0 {
            let _ = kill_process(worker.pid(), Signal::KILL);
        }
    }

    fn find(&self, is_it: fn(&Beside) -> bool) -> Option<&Process> {
        self.0.iter().find(|(one, ..)| is_it(one)).map(|(_, worker, _)| worker)
    }

    /// The one whose work counts.
    pub fn hog(&self) -> Option<&Process> {
        self.find(|one| !matches!(one, Beside::Spinner | Beside::Interactive))
    }

    pub fn interactive(&self) -> Option<&Process> {
        self.find(|one| *one == Beside::Interactive)
    }
}

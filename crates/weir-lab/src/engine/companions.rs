//! Processes beside the applications, and one that is stopped.

use rustix::process::{Pid, Signal, kill_process};
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

use crate::apps::Job;
use crate::arm::Arm;
use crate::bench::Bench;
use crate::error::{Result, cannot};
use crate::host::group::Group;
use crate::host::process::Worker;
use crate::scene::Beside;
use crate::stop::Undo;

/// Stops a process until what is returned is dropped.
pub(super) fn stopped(pid: Pid) -> Result<Undo<impl FnMut()>> {
    kill_process(pid, Signal::STOP).map_err(cannot("stop", "the flooded application"))?;
    Ok(Undo(move || kill_process(pid, Signal::CONT).unwrap_or_default()))
}

/// The processes beside the applications. The groups go after the processes in them.
pub(super) struct Companions {
    workers: Vec<(Beside, Worker)>,
    _groups: Vec<Group>,
}

impl Companions {
    pub(super) fn start(bench: &Bench, arm: &Arm, beside: &[Beside]) -> Result<Self> {
        let (mut workers, mut groups) = (vec![], vec![]);
        for one in beside {
            let job = match one {
                Beside::Hog(_) | Beside::GroupHog => Job::Compute { idle: false, yields: false },
                Beside::IdleHog => Job::Compute { idle: true, yields: false },
                Beside::Spinner => Job::Compute { idle: true, yields: true },
                Beside::Interactive => Job::Interactive,
            };
            let worker = Worker::start(&bench.sut(arm).host.netns, bench.sut_cpu, job)?;
            match one {
                Beside::Hog(nice) => sched::set_nice(worker.pid(), Nice(*nice))?,
                Beside::GroupHog => groups.push(Group::of(worker.pid())?),
                Beside::IdleHog | Beside::Spinner | Beside::Interactive => {}
            }
            workers.push((*one, worker));
        }
        Ok(Self { workers, _groups: groups })
    }

    /// Ends them; they are waited for when this is dropped.
    pub(super) fn end(&self) {
        for (_, worker) in &self.workers {
            let _ = kill_process(worker.pid(), Signal::KILL);
        }
    }

    /// The one whose work counts.
    pub(super) fn hog(&self) -> Option<&Worker> {
        let works = |one: &Beside| !matches!(one, Beside::Spinner | Beside::Interactive);
        self.workers.iter().find(|(one, _)| works(one)).map(|(_, worker)| worker)
    }

    pub(super) fn interactive(&self) -> Option<&Worker> {
        self.workers.iter().find(|(one, _)| *one == Beside::Interactive).map(|(_, it)| it)
    }
}

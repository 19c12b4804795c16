//! An interface's NAPI threads and the knobs turned on them.
//!
//! They come and go: attaching XDP, taking the interface down and up, or changing its number of
//! queues makes new NAPI instances, with new threads at nice 0.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_bpf::sys::{napi, sched};
use weir_bpf::units::{IfIndex, Nice};

use crate::cpulist::CpuList;
use crate::error::Result;
use crate::journal::{Journal, TurnedKnob};
use crate::knob::Knob;
use crate::task::Task;

/// How long threads may take to appear after threading was switched on. The kernel makes them before
/// the write returns, but those of an interface that is just coming up may follow.
const APPEAR_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What NAPI threads are to be like; `None` leaves alone.
#[derive(Clone, Debug)]
pub struct ThreadSettings {
    /// Their weight.
    pub nice: Option<Nice>,
    /// Where they may run.
    pub cpus: Option<CpuList>,
}

/// The NAPI threads of one interface.
pub struct NapiThreads {
    settings: ThreadSettings,
    tasks: Vec<Task>,
    knobs: Vec<TurnedKnob>,
}

impl NapiThreads {
    /// No threads yet.
    pub fn new(settings: ThreadSettings) -> Self {
        Self { settings, tasks: Vec::new(), knobs: Vec::new() }
    }

    /// Waits until there are threads, and sets them up.
    ///
    /// # Errors
    /// As [`NapiThreads::refresh`]. That none appeared is no error.
    pub fn appear(&mut self, journal: &Rc<Journal>, ifindex: IfIndex) -> Result<()> {
        let deadline = Instant::now() + APPEAR_MAX;
        loop {
            self.refresh(journal, ifindex)?;
            if !self.tasks.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Finds the threads that run now; sets up the new ones and forgets those that have ended.
    ///
    /// # Errors
    /// When the kernel does not name them, or refuses a setting.
    pub fn refresh(&mut self, journal: &Rc<Journal>, ifindex: IfIndex) -> Result<()> {
        let mut tasks = Vec::new();
        for thread in napi::napi_threads(ifindex, &journal.interface())? {
            let task = Task::napi_thread(thread.pid.as_raw_nonzero().get());
            // One that has just ended, or a number from another pid namespace, is not ours to touch.
            tasks.extend(task.filter(|task| !tasks.contains(task)));
        }
        if tasks == self.tasks {
            return Ok(());
        }
        self.knobs.retain(|knob| !knob.is_gone());
        self.tasks.retain(|task| tasks.contains(task));
        for task in tasks {
            if !self.tasks.contains(&task) {
                self.set_up(journal, &task)?;
                self.tasks.push(task);
            }
        }
        Ok(())
    }

    fn set_up(&mut self, journal: &Rc<Journal>, task: &Task) -> Result<()> {
        let Some(pid) = Pid::from_raw(task.pid) else { return Ok(()) };
        if let Some(new) = self.settings.nice {
            let old = sched::nice(pid)?;
            if old != new {
                let knob = Knob::Nice { thread: task.clone(), old, new };
                self.knobs.push(journal.turn(knob)?);
            }
        }
        if let Some(CpuList(new)) = &self.settings.cpus {
            let old = sched::affinity(pid)?;
            if old != *new {
                let knob = Knob::Affinity { thread: task.clone(), old, new: new.clone() };
                self.knobs.push(journal.turn(knob)?);
            }
        }
        Ok(())
    }

    /// The threads' numbers.
    pub fn pids(&self) -> Vec<i32> {
        self.tasks.iter().map(|task| task.pid).collect()
    }

    /// The weight that threads are given.
    pub fn nice(&self) -> Option<Nice> {
        self.settings.nice
    }

    /// Turns every knob back.
    pub fn put_back(&mut self) {
        self.knobs.clear();
        self.tasks.clear();
    }
}

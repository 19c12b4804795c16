//! An interface's NAPI threads and the knobs turned on them.
//!
//! They come and go: attaching XDP, taking the interface down and up, or changing its number of
//! queues makes new NAPI instances, with new threads at nice 0.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use weir_bpf::sys::{napi, sched};
use weir_bpf::units::{IfIndex, Nice};
use weir_policy::{Settings, Weight};

use crate::cpulist::CpuList;
use crate::error::Result;
use crate::governor::deferral::Deferral;
use crate::governor::{Governed, Governors, Observed};
use crate::host::Host;
use crate::journal::{Journal, TurnedKnob};
use crate::knob::Knob;
use crate::task::Task;

/// How long threads may take to appear after threading was switched on. The kernel makes them before
/// the write returns, but those of an interface that is just coming up may follow.
const APPEAR_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What weight NAPI threads are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadWeight {
    /// None: it is left alone.
    Untouched,
    /// The same at all times.
    Fixed(Nice),
    /// What the governor decides.
    Governed,
}

impl ThreadWeight {
    /// The weight that threads keep, if that is weir's to say.
    pub fn fixed(self) -> Option<Nice> {
        match self {
            Self::Fixed(nice) => Some(nice),
            Self::Untouched | Self::Governed => None,
        }
    }

    /// What a new thread is set to.
    fn at_first(self) -> Option<Nice> {
        match self {
            Self::Untouched => None,
            Self::Fixed(nice) => Some(nice),
            Self::Governed => Some(Nice(Weight::LIGHTEST.nice())),
        }
    }
}

impl fmt::Display for ThreadWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untouched => f.write_str("weight left alone"),
            Self::Fixed(nice) => write!(f, "nice {nice}"),
            Self::Governed => f.write_str("governed"),
        }
    }
}

/// What NAPI threads are to be like.
#[derive(Clone, Debug)]
pub struct ThreadSettings {
    /// Their weight.
    pub weight: ThreadWeight,
    /// Where they may run; `None` leaves alone.
    pub cpus: Option<CpuList>,
}

/// The NAPI threads of one interface.
pub struct NapiThreads {
    settings: ThreadSettings,
    governors: Option<Rc<Governors>>,
    governor: Settings,
    tasks: Vec<Task>,
    // These two before the knobs: what goes back is not to be moved again.
    deferral: Option<Arc<Deferral>>,
    governed: Vec<(Task, Governed)>,
    knobs: Vec<TurnedKnob>,
}

impl NapiThreads {
    /// No threads yet.
    pub fn new(
        settings: ThreadSettings,
        governors: Option<Rc<Governors>>,
        governor: Settings,
    ) -> Self {
        Self {
            settings,
            governors,
            governor,
            tasks: Vec::new(),
            deferral: None,
            governed: Vec::new(),
            knobs: Vec::new(),
        }
    }

    /// Lets the governor defer the interface's interrupts.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn allow_deferral(&mut self, host: &Host, journal: &Rc<Journal>) -> Result<()> {
        let governed = self.settings.weight == ThreadWeight::Governed;
        if !governed || self.governors.is_none() {
            return Ok(());
        }
        if let Some((deferral, knob)) = Deferral::open(host, journal)? {
            self.deferral = Some(Arc::new(deferral));
            self.knobs.push(knob);
        }
        Ok(())
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
        self.governed.retain(|(task, _)| tasks.contains(task));
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
        if let Some(new) = self.settings.weight.at_first() {
            let old = sched::nice(pid)?;
            let governed = self.settings.weight == ThreadWeight::Governed;
            if old != new || governed {
                let knob = Knob::Nice { thread: task.clone(), old, new, governed };
                self.knobs.push(journal.turn(knob)?);
            }
            if let Some(governors) = self.governors.as_ref().filter(|_| governed) {
                let governed = governors.govern(task, self.deferral.clone(), self.governor)?;
                self.governed.push((task.clone(), governed));
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

    /// How they are weighed.
    pub fn weight(&self) -> ThreadWeight {
        self.settings.weight
    }

    /// Governs them by these settings from now on.
    pub fn set_governor(&mut self, settings: Settings) {
        self.governor = settings;
        self.governed.iter().for_each(|(_, governed)| governed.set(settings));
    }

    /// What the governor has done with each since this was last asked.
    pub fn observed(&self) -> Vec<Observed> {
        self.governed.iter().map(|(_, governed)| governed.observed()).collect()
    }

    /// Whether channels are held to their share of the threads' CPUs while those are saturated.
    pub fn shares_are_enforced(&self) -> bool {
        let governors = self.governors.as_ref().filter(|_| !self.governed.is_empty());
        governors.is_some_and(|governors| governors.enforces_shares())
    }

    /// Turns every knob back.
    pub fn put_back(&mut self) {
        self.governed.clear();
        self.knobs.clear();
        self.tasks.clear();
    }
}

//! An interface's NAPI threads and the knobs turned on them.
//!
//! They come and go: attaching XDP, taking the interface down and up, or changing its number of
//! queues makes new NAPI instances, with new threads at nice 0.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_bpf::cpulist::CpuList;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::{napi, sched};
use weir_bpf::units::{IfIndex, Nanos};
use weir_policy::Settings;

use crate::config::wanted::{ThreadSettings, ThreadWeight};
use crate::deferral::Deferral;
use crate::error::Result;
use crate::governor::observed::Observed;
use crate::governor::{Governed, Governors};
use crate::journal::{Journal, TurnedKnob};
use crate::knob::{self, Knob};
use crate::task::Task;

/// How long threads may take to appear after threading was switched on. The kernel makes them before
/// the write returns, but those of an interface that is just coming up may follow.
const APPEAR_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The NAPI threads of one interface.
pub struct NapiThreads {
    settings: ThreadSettings,
    governors: Option<Rc<Governors>>,
    governor: Settings,
    threads: Vec<NapiThread>,
    /// Why the last one that was to be governed is not, if it is not.
    ungoverned: Option<String>,
    /// Of the interface, once one of them is governed.
    deferral: Option<(Arc<Deferral>, TurnedKnob)>,
}

/// One that is set up. Dropping it turns its knobs back, in the order of the fields.
struct NapiThread {
    task: Task,
    // Before the knobs: what goes back is not to be moved again.
    governed: Option<Governed>,
    nice: Option<TurnedKnob>,
    cpus: Option<TurnedKnob>,
    /// None of these was online at the last look.
    astray: bool,
}

impl NapiThread {
    /// Once none of its CPUs is online, the kernel lets a thread run anywhere for good (`select_fallback_rq()`). It
    /// gets its own back, unless somebody else has chosen others meanwhile.
    fn follow_cpus(&mut self, CpuList(own): &CpuList) -> Result<()> {
        let online = sched::online_cpus()?;
        let astray = !own.iter().any(|cpu| online.contains(cpu));
        if let Some(cpus) = self.cpus.as_ref().filter(|_| self.astray && !astray) {
            cpus.turn_again()?;
        }
        self.astray = astray;
        Ok(())
    }
}

impl NapiThreads {
    /// No threads yet.
    pub fn new(
        settings: ThreadSettings,
        governors: Option<Rc<Governors>>,
        governor: Settings,
    ) -> Self {
        let (threads, ungoverned, deferral) = (Vec::new(), None, None);
        Self { settings, governors, governor, threads, ungoverned, deferral }
    }

    /// Waits until there are threads, and sets them up.
    ///
    /// # Errors
    /// As [`NapiThreads::refresh`]. That none appeared is no error.
    pub fn appear(&mut self, journal: &Rc<Journal>, ifindex: IfIndex) -> Result<()> {
        let deadline = Instant::now() + APPEAR_MAX;
        loop {
            self.refresh(journal, ifindex)?;
            if !self.threads.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Finds the threads that run now; sets up the new ones and lets the others go.
    pub fn refresh(&mut self, journal: &Rc<Journal>, ifindex: IfIndex) -> Result<()> {
        let mut tasks = Vec::new();
        let were: Vec<_> = self.pids().into_iter().filter_map(Pid::from_raw).collect();
        for thread in napi::napi_threads_after(ifindex, &journal.interface(), &were)? {
            let task = Task::napi_thread(thread.pid.as_raw_nonzero().get());
            // One that has just ended, or a number from another pid namespace, is not ours to touch.
            tasks.extend(task.filter(|task| !tasks.contains(task)));
        }
        self.follow(journal, tasks)
    }

    /// Those that are not listed are put back at once: they may live on, while the interface is down, and be listed again.
    fn follow(&mut self, journal: &Rc<Journal>, tasks: Vec<Task>) -> Result<()> {
        self.threads.retain(|thread| tasks.contains(&thread.task));
        let cpus = self.settings.cpus.as_ref();
        let followed =
            cpus.map(|cpus| self.threads.iter_mut().try_for_each(|each| each.follow_cpus(cpus)));
        for task in tasks {
            if self.threads.iter().any(|thread| thread.task == task) {
                continue;
            }
            match self.set_up(journal, task.clone()) {
                Ok(thread) => self.threads.push(thread),
                // It has ended meanwhile.
                Err(_) if Task::napi_thread(task.pid) != Some(task) => self.ungoverned = None,
                Err(error) => return Err(error),
            }
        }
        followed.unwrap_or(Ok(()))
    }

    /// Lets go of those that the governor no longer looks after; whether there are such.
    pub fn drop_ungoverned(&mut self) -> bool {
        let before = self.threads.len();
        self.threads.retain(|thread| !thread.governed.as_ref().is_some_and(Governed::has_ended));
        self.threads.len() != before
    }

    /// All of it or, if anything is refused, nothing: it is tried again, and what a first try had set would then
    /// be taken for what was there before weir.
    fn set_up(&mut self, journal: &Rc<Journal>, task: Task) -> Result<NapiThread> {
        let pid = Pid::from_raw(task.pid).ok_or_else(|| knob::ended(&task))?;
        let mut thread = NapiThread { task, governed: None, nice: None, cpus: None, astray: false };
        let task = &thread.task;
        if let Some(new) = self.settings.weight.at_first() {
            let old = sched::nice(pid)?;
            let is_governed = self.settings.weight == ThreadWeight::Governed;
            let (old_policy, old_slice) = if is_governed {
                (sched::policy(pid)?, sched::slice(pid)?)
            } else {
                Default::default()
            };
            if old != new || is_governed {
                let (task, governed) = (task.clone(), is_governed);
                let knob = Knob::Nice { thread: task, old, old_policy, old_slice, new, governed };
                thread.nice = Some(journal.turn(knob)?);
            }
            if let Some(governors) = self.governors.as_ref().filter(|_| is_governed) {
                if self.deferral.is_none()
                    && let Some((deferral, old)) =
                        Deferral::of(journal.host(), &journal.interface())
                {
                    let knob = journal.turn(Knob::Deferral { old })?;
                    self.deferral = Some((Arc::new(deferral), knob));
                }
                let deferral = self.deferral.as_ref().map(|(deferral, _)| Arc::clone(deferral));
                let governed = governors.govern((task, old_policy), deferral, self.governor);
                self.ungoverned = governed.as_ref().err().map(ToString::to_string);
                thread.governed = Some(governed?);
            }
        }
        if let Some(CpuList(new)) = &self.settings.cpus {
            let old = sched::allowed_cpus(pid)?;
            if old != *new {
                let knob = Knob::Affinity { thread: task.clone(), old, new: new.clone() };
                thread.cpus = Some(journal.turn(knob)?);
            }
        }
        Ok(thread)
    }

    /// The threads' numbers.
    pub fn pids(&self) -> Vec<i32> {
        self.threads.iter().map(|thread| thread.task.pid).collect()
    }

    /// The CPU time of each, ever, by its number.
    pub fn ran(&self) -> BTreeMap<i32, Nanos> {
        let ran = |pid| Some((pid, sched::cpu_time(Pid::from_raw(pid)?).ok()?));
        self.pids().into_iter().filter_map(ran).collect()
    }

    /// How they are weighed.
    pub fn weight(&self) -> ThreadWeight {
        self.settings.weight
    }

    /// Governs them by these settings from now on.
    pub fn set_governor(&mut self, settings: Settings) {
        self.governor = settings;
        self.governed().for_each(|governed| governed.set(settings));
    }

    /// What the governor has done with each since this was last asked.
    pub fn observed(&self, links: &Links) -> Vec<Observed> {
        self.governed().map(|each| each.observed(links)).collect()
    }

    fn governed(&self) -> impl Iterator<Item = &Governed> {
        self.threads.iter().filter_map(|thread| thread.governed.as_ref())
    }

    /// Why the governor could not take one of them, if so.
    pub fn ungoverned(&self) -> Option<String> {
        self.ungoverned.clone()
    }

    /// What their user should know of the governor.
    pub fn note(&self) -> Option<String> {
        self.governors.as_ref()?.note()
    }

    /// Whether channels are held to their share of the threads' CPUs while those are saturated.
    pub fn shares_are_enforced(&self) -> bool {
        let governors = self.governors.as_ref().filter(|_| self.governed().next().is_some());
        governors.is_some_and(|governors| governors.enforces_shares())
    }

    /// Turns every knob back.
    pub fn put_back(&mut self) {
        self.threads.clear();
        self.deferral = None;
    }
}

#[cfg(test)]
mod tests {
    use weir_bpf::alarm::Alarm;
    use weir_bpf::gate::QueueProbe;
    use weir_bpf::units::{CpuId, Nice};

    use super::*;
    use crate::knob::tests::with_polled;
    use crate::shares::ShareSettings;
    use crate::statefile::State;

    #[test]
    fn a_thread_that_cannot_be_set_up_is_as_before_however_often_it_is_tried() {
        with_polled("wt-threads", |host, ifindex| {
            let state =
                State::new(&host.key(ifindex), "wt-threads", Task::current().unwrap()).unwrap();
            let journal = Journal::start(host, state).unwrap();
            // Its weight can be set, and its CPU is not there.
            let settings = ThreadSettings {
                weight: ThreadWeight::Governed,
                cpus: Some(CpuList(vec![CpuId(1000)])),
            };
            let mut threads = NapiThreads::new(settings, None, Settings::default());
            let pid = napi::napi_threads(ifindex, "wt-threads").unwrap()[0].pid;
            for _ in 0..3 {
                threads.refresh(&journal, ifindex).unwrap_err();
                assert_eq!(sched::nice(pid).unwrap(), Nice(0));
                assert_eq!(journal.knobs(), []);
            }
            threads.put_back();
            assert_eq!(sched::nice(pid).unwrap(), Nice(0));
        });
    }

    /// The threads of most drivers live on while the interface is down, though the kernel lists none.
    #[test]
    fn a_thread_that_is_not_listed_for_a_while_is_as_before_meanwhile_and_in_the_end() {
        with_polled("wt-threads", |host, ifindex| {
            let state = State::new(&host.key(ifindex), "wt-threads", Task::current().unwrap());
            let journal = Journal::start(host, state.unwrap()).unwrap();
            let settings = ThreadSettings { weight: ThreadWeight::Governed, cpus: None };
            let mut threads = NapiThreads::new(settings, None, Settings::default());
            let pid = napi::napi_threads(ifindex, "wt-threads").unwrap()[0].pid;
            let slice = || sched::slice(pid).unwrap();
            let is = || (sched::policy(pid).unwrap(), sched::nice(pid).unwrap());
            let set = |policy, nice, slice| {
                sched::set_weight(pid, policy, Nice(nice), slice).unwrap();
            };
            set(sched::SchedPolicy::Normal, 5, Some(Nanos(7_000_000)));
            let own = slice();
            for _ in 0..2 {
                threads.refresh(&journal, ifindex).unwrap();
                // As a governor would.
                set(sched::SchedPolicy::Batch, 19, None);
                threads.follow(&journal, Vec::new()).unwrap();
                assert_eq!(
                    (is(), journal.knobs()),
                    ((sched::SchedPolicy::Normal, Nice(5)), vec![])
                );
                assert_eq!(slice(), own);
            }
            assert_eq!(journal.report().restored.len(), 1, "told once");
        });
    }

    #[test]
    fn a_thread_whose_governor_has_ended_is_governed_anew() {
        with_polled("wt-threads", |host, ifindex| {
            let probe = QueueProbe::load().unwrap();
            let alarm = Alarm::of(&probe).unwrap();
            let governors = Governors::start(
                (&probe, &alarm),
                &Arc::default(),
                ShareSettings::default(),
                false,
            );
            let state = State::new(&host.key(ifindex), "wt-threads", Task::current().unwrap());
            let journal = Journal::start(host, state.unwrap()).unwrap();
            let settings = ThreadSettings { weight: ThreadWeight::Governed, cpus: None };
            let mut threads = NapiThreads::new(settings, governors.ok(), Settings::default());
            threads.refresh(&journal, ifindex).unwrap();
            let (before, knobs) = (threads.observed(&host.links).len(), journal.knobs().len());
            threads.governed().next().unwrap().end();
            let deadline = Instant::now() + Duration::from_secs(10);
            while !threads.drop_ungoverned() {
                assert!(Instant::now() < deadline);
                std::thread::sleep(LOOK_EVERY);
            }
            assert_eq!(threads.observed(&host.links).len(), before - 1);
            threads.refresh(&journal, ifindex).unwrap();
            assert!(!threads.drop_ungoverned());
            assert_eq!(
                (threads.observed(&host.links).len(), journal.knobs().len()),
                (before, knobs)
            );
        });
    }
}

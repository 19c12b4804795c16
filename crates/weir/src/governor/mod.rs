//! The governor: moves the weight of NAPI threads, one look after the other, by the law of
//! `weir-policy`.
//!
//! Each governed thread has a thread of weir's own that looks after it ([`look`]), on the same CPU and
//! before all normal processes; it looks seldom while nothing is wrong. One more thread listens for the alarm
//! (`bpf/alarm.h`), and wakes them. As long as all of them live, it beats: see [`crate::guardian`].

mod fair;
mod look;
pub mod observed;
mod peers;
mod pinned;
mod receivers;
mod receptions;
mod softirqs;
mod switch_cost;
mod weigher;

use std::collections::BTreeMap;
use std::io::{PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ChildStdin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use weir_bpf::alarm::{Alarm, Rings};
use weir_bpf::gate::QueueProbe;
use weir_bpf::input::Inputs;
use weir_bpf::softirq::Softirqs;
use weir_bpf::sync::lock;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::units::IfIndex;
use weir_policy::Settings;
use weir_policy::governor::REST;

use crate::deferral::Deferral;
use crate::error::{Error, Result};
use crate::joined::Waiting;
use crate::knob;
use crate::ready;
use crate::shares::ShareSettings;
use crate::task::{Held, Task};
use look::{Common, Look};
use observed::{Observed, PRIORITY};
use receivers::{Receivers, call, event};
pub use softirqs::MUCH;
use softirqs::{Limited, Noticed};
use switch_cost::SwitchCost;
pub use weigher::LIGHT;
use weigher::Weigher;

/// How often is looked whether a thread that is to end has: that takes a look's time.
const ENDS_IN: Duration = Duration::from_millis(1);

/// What the listener says to the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Every thread stands at the setting that it has while nothing is wrong.
    Resting,
    /// Threads are governed.
    Governing,
}

impl Beat {
    /// What a byte says.
    pub const fn of(byte: u8) -> Self {
        if byte == Self::Resting as u8 { Self::Resting } else { Self::Governing }
    }

    /// The time to the next.
    const fn every(self) -> Duration {
        match self {
            Self::Resting => Duration::from_secs(1),
            Self::Governing => Duration::from_millis(100),
        }
    }

    /// Without another for this long, the guardian takes the weights back.
    pub const fn patience(self) -> Duration {
        match self {
            Self::Resting => Duration::from_secs(3),
            Self::Governing => Duration::from_millis(500),
        }
    }
}

/// Governs NAPI threads, of any interface. Threads that are given to it are let go when their
/// [`Governed`] is dropped.
pub struct Governors {
    _listener: Waiting,
    inputs: Inputs,
    weigher: Weigher,
    common: Common,
    shared: Arc<Shared>,
}

/// What the listener has in common with the rest.
struct Shared {
    /// Whether the scheduler is watched also while nothing is wrong.
    awake: bool,
    /// Whether the kernel lets the governor's threads preempt processes.
    real_time: OnceLock<weir_bpf::Result<()>>,
    looks: Mutex<BTreeMap<u32, Arc<Look>>>,
    softirqs: Mutex<Option<Limited>>,
    /// Readable once they take much.
    much: OwnedFd,
    /// Where beats go; none before there is a guardian.
    beats: Mutex<Option<ChildStdin>>,
    alarm: Alarm,
}

impl Governors {
    /// Loads the kernel half and starts to listen; `interfaces`: those whose receivers matter; `awake`: the scheduler is
    /// watched also while nothing is wrong.
    pub fn start(
        (probe, alarm): (&QueueProbe, &Alarm),
        interfaces: &Arc<Mutex<Vec<IfIndex>>>,
        shares: ShareSettings,
        awake: bool,
    ) -> Result<Rc<Self>> {
        let inputs = Inputs::load(probe)?;
        let receivers = Arc::new(Receivers::new(shares)?);
        let shared = Arc::new(Shared {
            awake,
            real_time: OnceLock::new(),
            looks: Mutex::default(),
            softirqs: Mutex::default(),
            much: event()?,
            beats: Mutex::default(),
            alarm: alarm.clone(),
        });
        let cpus: Arc<[_]> = sched::allowed_cpus(gettid())?.into();
        let (rings, shares_with) = (Rings::listen(probe)?, Arc::clone(&shared));
        let weigher = Weigher::start(Arc::clone(&receivers), Arc::clone(interfaces))?;
        let listens = move |ended: PipeReader| listen(rings, &ended, &shares_with);
        let listener = Waiting::spawn("weir-listen", listens)?;
        Ok(Rc::new(Self {
            inputs,
            weigher,
            common: Common {
                switch_cost: SwitchCost::measure(&cpus),
                peers: Arc::default(),
                receivers,
                alarm: alarm.clone(),
                cpus,
                awake,
            },
            shared,
            _listener: listener,
        }))
    }

    /// Readable once softirqs take much, until [`Governors::hear`].
    pub fn called(&self) -> BorrowedFd<'_> {
        self.shared.much.as_fd()
    }

    /// Hears what called.
    pub fn hear(&self) {
        let _ = rustix::io::read(&self.shared.much, &mut [0; 8]);
    }

    /// Why it is not known what receivers weigh, if it is not, once.
    pub fn trouble(&self) -> Option<Error> {
        self.weigher.trouble()
    }

    /// What its user should know.
    pub fn note(&self) -> Option<String> {
        let refused = self.shared.real_time.wait().as_ref().err()?;
        Some(format!(
            "the governor is late while processes keep the CPU: {refused}; `cpu.rt_runtime_us` of weir's control group \
             must not be 0, nor its service have `RestrictRealtime=`, and it needs CAP_SYS_NICE"
        ))
    }

    /// Divides saturated CPUs by these settings from now on.
    pub fn set_shares(&self, settings: ShareSettings) {
        self.common.receivers.decide(settings);
        lock(&self.shared.looks).values().for_each(|look| look.wake());
    }

    /// Whether channels are held to their share.
    pub fn enforces_shares(&self) -> bool {
        self.common.receivers.settings().enforce
    }

    /// Has softirqs watched while the gates are awake, from now on, and what they may take of a CPU, 0 to 1; or none.
    pub fn limit_softirqs(&self, limited: Option<(Arc<Softirqs>, f64)>) {
        let mut now = lock(&self.shared.softirqs);
        match (limited, &mut *now) {
            (Some((_, share)), Some(now)) => now.set_share(share),
            (limited, now) => *now = limited.map(|(softirqs, share)| Limited::new(softirqs, share)),
        }
    }

    /// Whether softirqs that are limited take much of a CPU from processes, while something is wrong.
    pub fn softirqs_take_much(&self) -> bool {
        lock(&self.shared.softirqs).as_ref().is_some_and(Limited::takes_much)
    }

    /// Where beats are to go from now on. The first goes at once: a guardian that has heard none waits for one.
    pub fn beat_to(&self, mut guardian: Option<ChildStdin>) {
        let _ = guardian.as_mut().map(|to| to.write_all(&[Beat::Governing as u8]));
        *lock(&self.shared.beats) = guardian;
    }

    /// Governs a NAPI thread, which had this policy, until the answer is dropped. Its weight is then what it was last.
    /// Where its interface's interrupts can be deferred, they are while others want the CPU.
    pub fn govern(
        self: &Rc<Self>,
        (task, old_policy): (&Task, SchedPolicy),
        deferral: Option<Arc<Deferral>>,
        settings: Settings,
    ) -> Result<Governed> {
        let thread = Held::of(task).ok_or_else(|| knob::ended(task))?;
        let input = self.inputs.add(thread.pid)?;
        let number = input.number();
        let look = Arc::new(Look::new(
            input,
            (thread, old_policy),
            self.common.clone(),
            deferral,
            settings,
        ));
        let looking = Arc::clone(&look);
        let thread = std::thread::Builder::new()
            .name("weir-govern".into())
            .spawn(move || looking.run())
            .map_err(|source| Error::unstarted("start the governor's thread", source))?;
        look.belongs_to(thread.thread().clone());
        lock(&self.shared.looks).insert(number, Arc::clone(&look));
        Ok(Governed { number, look, thread: Some(thread), governors: Rc::clone(self) })
    }
}

/// A NAPI thread that is governed, until this is dropped.
pub struct Governed {
    number: u32,
    look: Arc<Look>,
    thread: Option<JoinHandle<()>>,
    governors: Rc<Governors>,
}

impl Governed {
    /// What has been done since this was last asked.
    pub fn observed(&self, links: &Links) -> Observed {
        self.look.observed(links)
    }

    /// Goes by these settings from the next look on.
    pub fn set(&self, settings: Settings) {
        self.look.set(settings);
    }

    /// Whether nobody looks after it any more: what did has panicked.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// As a panic would.
    #[cfg(test)]
    pub fn end(&self) {
        self.look.stop();
    }
}

impl Drop for Governed {
    fn drop(&mut self) {
        lock(&self.governors.shared.looks).remove(&self.number);
        self.look.stop();
        if let Some(thread) = self.thread.take() {
            // It ends elsewhere where it cannot here.
            while !thread.is_finished() {
                self.look.free();
                std::thread::sleep(ENDS_IN);
            }
            let _ = thread.join();
        }
        self.look.forget();
    }
}

/// Wakes all looks when something rings, and beats.
fn listen(mut rings: Rings, ended: &PipeReader, shared: &Shared) {
    // Where that is refused, it hears when it gets to.
    let _ = shared.real_time.set(sched::set_fifo_current_thread(PRIORITY));
    let mut pulse = Pulse::begin();
    loop {
        if ready::comes([ended.as_fd(), rings.as_fd()], pulse.due()) {
            return;
        }
        let looks = lock(&shared.looks);
        match rings.heard() {
            Ok(causes) if causes.is_empty() => {}
            // What cannot be read may have been an alarm.
            Ok(_) | Err(_) => {
                pulse.hear();
                pulse.beat(&looks, shared);
                looks.values().for_each(|look| look.wake());
            }
        }
        pulse.beat(&looks, shared);
        drop(looks);
        let noticed = lock(&shared.softirqs).as_mut().map(|each| each.follow(&shared.alarm));
        match noticed {
            None | Some(Noticed::Nothing) => {}
            // It is over soon.
            Some(Noticed::Trial) => pulse.hear(),
            Some(Noticed::Much) => call(&shared.much),
        }
    }
}

/// When the listener beats: seldom while every look rests until something rings.
struct Pulse {
    next: Instant,
    heard: Instant,
    beaten: Option<(Instant, Beat)>,
    anew_until: Option<Instant>,
}

impl Pulse {
    fn begin() -> Self {
        let now = Instant::now();
        Self { next: now, heard: now, beaten: None, anew_until: None }
    }

    /// Looks are about to do something: the guardian is to know it before.
    fn hear(&mut self) {
        self.heard = Instant::now();
        self.next = self.heard;
    }

    /// The time to the next beat.
    fn due(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn beat(&mut self, looks: &BTreeMap<u32, Arc<Look>>, shared: &Shared) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let rests = !shared.awake
            && now > self.heard + Beat::Governing.patience()
            && looks.values().all(|look| look.rests());
        let beat = if rests { Beat::Resting } else { Beat::Governing };
        self.next = now + beat.every();
        // A trial of the gates is over sooner than the main loop looks, which may still ring for what it finds then.
        shared.alarm.rest(REST * 2);
        let mut late = looks.values().filter(|look| !look.is_lively()).peekable();
        if late.peek().is_some() {
            late.for_each(|look| look.free());
            return;
        }
        let mut beats = lock(&shared.beats);
        // A guardian that has died is the main loop's affair.
        let _ = beats.as_mut().map(|to| to.write_all(&[beat as u8]));
        // So late that the guardian may have taken the weights back, and may be about to.
        let late = |(at, last): (Instant, Beat)| now > at + last.patience() - last.every();
        if self.beaten.is_some_and(late) {
            self.anew_until = Some(now + Beat::Governing.patience());
        }
        self.beaten = Some((now, beat));
        if self.anew_until.is_some_and(|until| now < until) {
            looks.values().for_each(|look| look.set_anew());
        }
    }
}

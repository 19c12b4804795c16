//! The limit of softirq mode: which interfaces have one, and what receive softirqs take. Kernel half and
//! gate keep it by themselves, whether or not the daemon runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use weir_bpf::gate::QueueProbe;
use weir_bpf::softirq::{SoftirqTimes, Softirqs};
use weir_bpf::units::{CpuId, IfIndex, Nanos, Permille};
use weir_policy::Settings;

use crate::error::Result;
use crate::governor::Governors;
use crate::threading::NotThreaded;

/// What the limit does on one interface: for `weir status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitStatus {
    /// What receive softirqs may take of a CPU from processes that want it; a part of 1.
    pub input_share: f64,
    /// Packets that the gate has discarded for it.
    pub discarded: u64,
    /// Receive softirqs since the last status, for whichever interface, on each CPU that had some; nothing is known of
    /// them while the gate sleeps, or they take little.
    pub cpus: Vec<CpuShares>,
}

/// Receive softirqs of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuShares {
    /// The CPU.
    pub cpu: CpuId,
    /// The share of it that they used, 0 to 1.
    pub used: f64,
    /// That they took from processes.
    pub taken: f64,
}

/// Limits interfaces. The kernel half is loaded once there is one that is limited.
pub struct Limiter {
    probe: Rc<QueueProbe>,
    /// Hear what wakes the gates; without them they never sleep.
    governors: Option<Rc<Governors>>,
    running: RefCell<Running>,
}

#[derive(Default)]
struct Running {
    softirqs: Option<Arc<Softirqs>>,
    limits: BTreeMap<IfIndex, (Nanos, f64)>,
}

impl Limiter {
    /// Limits nothing yet.
    pub fn new(probe: Rc<QueueProbe>, governors: Option<Rc<Governors>>) -> Rc<Self> {
        Rc::new(Self { probe, governors, running: RefCell::default() })
    }

    /// Watches receive softirqs for an interface, until the answer is dropped. Its gate has yet to be
    /// told.
    pub fn limit(self: &Rc<Self>, ifindex: IfIndex, settings: &Settings) -> Result<Limit> {
        let mut running = self.running.borrow_mut();
        let softirqs = match &running.softirqs {
            Some(softirqs) => softirqs,
            None => running.softirqs.insert(Arc::new(Softirqs::load(&self.probe)?)),
        };
        softirqs.watch(true)?;
        drop(running);
        let mut limit = Limit {
            limiter: Rc::clone(self),
            ifindex,
            input_share: settings.user_share.rest(),
            last: RefCell::new((Instant::now(), self.times())),
        };
        limit.set(settings);
        Ok(limit)
    }

    /// A CPU has one period, whoever interrupts it: the shortest. And the least share wakes all gates.
    fn follow(&self) {
        let running = self.running.borrow();
        let Some(softirqs) = &running.softirqs else { return };
        let least =
            |one: (Nanos, f64), other: (Nanos, f64)| (one.0.min(other.0), one.1.min(other.1));
        let least = running.limits.values().copied().reduce(least);
        if let Some(governors) = &self.governors {
            governors.limit_softirqs(least.map(|(_, share)| (Arc::clone(softirqs), share)));
        }
        match least {
            Some((period, _)) => softirqs.set_period(period),
            // What cannot be cleared is, before it counts again.
            None => drop(softirqs.watch(false)),
        }
    }

    /// Whether anything tells what they take.
    pub fn tells(&self) -> bool {
        self.governors.is_some()
    }

    /// Whether they take much of a CPU from processes, while something is wrong.
    pub fn takes_much(&self) -> bool {
        self.governors.as_ref().is_some_and(|governors| governors.softirqs_take_much())
    }

    /// Nothing, if it cannot be read: nothing depends on it.
    fn times(&self) -> Vec<SoftirqTimes> {
        let running = self.running.borrow();
        let times = running.softirqs.as_ref().and_then(|softirqs| softirqs.read().ok());
        times.unwrap_or_default()
    }
}

/// An interface that is limited, until this is dropped.
pub struct Limit {
    limiter: Rc<Limiter>,
    ifindex: IfIndex,
    input_share: f64,
    last: RefCell<(Instant, Vec<SoftirqTimes>)>,
}

impl Limit {
    /// Goes by these settings from now on; the gate has yet to be told.
    pub fn set(&mut self, settings: &Settings) {
        self.input_share = settings.user_share.rest();
        let limit = (settings.period, self.input_share);
        self.limiter.running.borrow_mut().limits.insert(self.ifindex, limit);
        self.limiter.follow();
    }

    /// What the gate is to be told.
    pub fn input_share(&self) -> Permille {
        Permille::of(self.input_share)
    }

    /// What has happened since this was last asked.
    pub fn observed(&self, discarded: u64) -> LimitStatus {
        let now = (Instant::now(), self.limiter.times());
        let (at, before) = self.last.replace(now.clone());
        let elapsed = Nanos::from(now.0.duration_since(at));
        // A softirq's time is counted as its polls end.
        let share = |before: Nanos, after: Nanos| (after - before).share_of(elapsed).min(1.0);
        let pairs = now.1.iter().zip(&before).filter(|(after, before)| after != before);
        let cpus = pairs.map(|(after, before)| CpuShares {
            cpu: after.cpu,
            used: share(before.used, after.used),
            taken: share(before.taken, after.taken),
        });
        LimitStatus { input_share: self.input_share, discarded, cpus: cpus.collect() }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.limiter.running.borrow_mut().limits.remove(&self.ifindex);
        self.limiter.follow();
    }
}

/// For a person: why an interface is polled in softirqs, and what becomes of processes beside it.
pub fn in_softirq(why: &NotThreaded, limit: Option<&Limit>, limited: Result<()>) -> String {
    let then = match (limit, limited) {
        (Some(limit), _) => format!(
            "of a CPU that processes want, it takes {}% at most",
            f64::from(limit.input_share().0) / 10.0
        ),
        (None, Ok(())) => {
            "the gate works alone, and input keeps its precedence over processes".into()
        }
        (None, Err(error)) => {
            format!("no limit, input keeps its precedence over processes: {error}")
        }
    };
    format!("NAPI stays in softirq ({why}); {then}")
}

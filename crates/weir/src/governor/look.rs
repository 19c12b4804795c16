//! Looks after one NAPI thread.

use std::mem::replace;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use weir_bpf::alarm::Alarm;
use weir_bpf::channels::Channel;
use weir_bpf::input::{Input, InputCounters};
use weir_bpf::sync::lock;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched::{self, SchedPolicy, SchedStat};
use weir_bpf::units::{CpuId, Nanos, Nice};
use weir_policy::governor::{LOOK_AWAKE, REMEMBERED};
use weir_policy::{Action, Governor, Observation, Regime, Settings};

use super::fair::{Fair, Seen};
use super::observed::{LIVELY, LimitRow, Observed, PRIORITY, name_of};
use super::peers::Peers;
use super::pinned::Pinned;
use super::receivers::Receivers;
use super::receptions::Receptions;
use super::switch_cost::SwitchCost;
use crate::deferral::Deferral;
use crate::knob;
use crate::task::Held;

/// The shortest that the scheduler has (`__setparam_fair()`).
const SHORTEST_SLICE: Nanos = Nanos::from_micros(100);

/// What looks after one NAPI thread.
pub(super) struct Look {
    input: Input,
    thread: Held,
    /// Its policy before.
    old_policy: SchedPolicy,
    common: Common,
    deferral: Option<Arc<Deferral>>,
    settings: Mutex<Settings>,
    stop: AtomicBool,
    anew: AtomicBool,
    own: OnceLock<Thread>,
    pinned: Pinned,
    /// Whether it may run elsewhere since.
    freed: AtomicBool,
    started: Instant,
    /// When it is late, in milliseconds since the start: never while it sleeps until something rings.
    late_ms: AtomicU64,
    /// What it does now, and the counters when this was last told.
    told: Mutex<Told>,
}

/// What all have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) switch_cost: SwitchCost,
    pub(super) peers: Arc<Peers>,
    pub(super) receivers: Arc<Receivers>,
    pub(super) alarm: Alarm,
    /// Where weir's own threads may run.
    pub(super) cpus: Arc<[CpuId]>,
    /// Whether everything is to be counted at all times.
    pub(super) awake: bool,
}

/// Everything that is read at a look.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    counters: InputCounters,
    rung: Nanos,
}

struct Told {
    at: Instant,
    counters: InputCounters,
    /// The thread's times, which are known while nobody watches the scheduler, too.
    thread: SchedStat,
    /// CPU time of this look, until now and until then.
    own_cpu: Nanos,
    own_cpu_then: Nanos,
    /// What strangers have lost to switches since.
    switches: Nanos,
    action: Option<Action>,
    limits: Vec<(Channel, f64)>,
    others_policy: Option<String>,
}

impl Look {
    pub(super) fn new(
        input: Input,
        (thread, old_policy): (Held, SchedPolicy),
        common: Common,
        deferral: Option<Arc<Deferral>>,
        settings: Settings,
    ) -> Self {
        let counters = input.read();
        let told = Told {
            at: Instant::now(),
            counters,
            thread: sched::sched_stat(thread.pid).unwrap_or_default(),
            own_cpu: Nanos::ZERO,
            own_cpu_then: Nanos::ZERO,
            switches: Nanos::ZERO,
            action: None,
            limits: vec![],
            others_policy: None,
        };
        Self {
            input,
            thread,
            old_policy,
            common,
            deferral,
            settings: Mutex::new(settings),
            stop: AtomicBool::new(false),
            anew: AtomicBool::new(false),
            own: OnceLock::new(),
            pinned: Pinned::default(),
            freed: AtomicBool::new(false),
            started: Instant::now(),
            late_ms: AtomicU64::new(u64::MAX),
            told: Mutex::new(told),
        }
    }

    /// Which thread this runs on.
    pub(super) fn belongs_to(&self, own: Thread) {
        let _ = self.own.set(own);
    }

    /// Looks, acts, sleeps, until it is stopped.
    pub(super) fn run(&self) {
        let _running = self.pinned.begin();
        let mut place = Place::default();
        let mut governor = Governor::default();
        let mut last = self.read();
        let mut before: Option<Action> = None;
        let mut joined = None;
        let mut receptions = Receptions::default();
        let mut fair = Fair::new(Arc::clone(&self.common.receivers));
        let number = self.input.number();
        while !self.stop.load(Ordering::Relaxed) {
            if before.is_some_and(|before| before.regime == Regime::Asleep)
                && self.freed.swap(false, Ordering::Relaxed)
            {
                place = Place::default();
            }
            let now = self.read();
            last.counters = last.counters.before(&now.counters);
            let cpu = now.counters.cpu;
            place.follow(cpu);
            let settings = Settings { awake: self.common.awake, ..*lock(&self.settings) };
            let peers = &self.common.peers;
            // The channels' are those of the whole CPU.
            let own = settings.beside(peers.used_by_others(cpu, number));
            let switches =
                interruptions(self.common.switch_cost, before, &last.counters, &now.counters);
            if now.counters.packets != last.counters.packets
                && governor.used() < own.user_share.rest()
                && peers.another_tells_apart(cpu, number)
            {
                joined = Some(now.at);
            }
            let joins = joined.is_some_and(|at| now.at - at < REMEMBERED.into());
            let mut action;
            (governor, action) = governor.decide(&own, &observation(&last, &now, switches, joins));
            peers.note(number, cpu, &governor);
            if action.over_share {
                self.common.alarm.try_gates();
            }
            self.watch(before, action, &settings);
            receptions.look(&self.input, action, now.at);
            let anew = self.anew.swap(false, Ordering::Relaxed);
            self.act(before.filter(|_| !anew), action);
            if action.regime == Regime::Asleep {
                fair.rest(self.input.accounts());
            } else {
                fair.look(self.input.accounts(), cpu, &settings, &last.until(&now));
            }
            let limits = fair.limits();
            if !limits.is_empty() {
                action.look_in = action.look_in.map(|time| time.min(LOOK_AWAKE));
            }
            before = Some(action);
            self.note(action, limits, switches);
            last = now;
            self.rest(action);
        }
        fair.end(self.input.accounts());
    }

    /// What others go by no longer holds. For whoever has seen it end, by a panic, too.
    pub(super) fn forget(&self) {
        self.common.peers.forget(self.input.number());
        self.defer(None, false);
    }

    fn read(&self) -> Reading {
        Reading { at: Instant::now(), counters: self.input.read(), rung: self.common.alarm.rung() }
    }

    /// Has the scheduler watched, or else be told when that is needed.
    fn watch(&self, before: Option<Action>, action: Action, settings: &Settings) {
        let sleeps = |action: Action| action.look_in.is_none();
        if sleeps(action) {
            self.input.alarm(Some((settings.timeout, settings.user_share.rest())));
        } else if before.is_none_or(sleeps) {
            self.input.alarm(None);
        }
        if before.is_some_and(|before| before.watch) != action.watch {
            // Where it is refused now, though not at the start, nothing is counted, and it sleeps again.
            let _ = self.input.watch(action.watch);
        }
    }

    fn act(&self, before: Option<Action>, action: Action) {
        let setting = |action: Action| (action.weight, action.batch, action.poll_every);
        if before.is_some_and(|before| setting(before) == setting(action)) {
            return;
        }
        let (policy, slice) = match action.batch {
            true => (SchedPolicy::Batch, None),
            false => (SchedPolicy::Normal, Some(SHORTEST_SLICE)),
        };
        // That a thread has ended the main loop finds out.
        if let Some(pid) = self.thread.living() {
            let _ = knob::weigh((pid, self.old_policy), policy, action.weight, slice);
        }
        self.defer(action.poll_every, before.is_none());
    }

    fn defer(&self, poll_every: Option<Nanos>, anew: bool) {
        if let Some(deferral) = &self.deferral {
            deferral.want(self.input.number(), poll_every, anew);
        }
    }

    /// Until the next look is due. While it is asleep an alarm ends that.
    fn rest(&self, action: Action) {
        match (action.look_in, action.regime) {
            (None, _) => std::thread::park(),
            (Some(time), Regime::Asleep) => std::thread::park_timeout(time.into()),
            (Some(time), _) => {
                let turn = Duration::from(time) / action.turns;
                (0..action.turns).for_each(|_| std::thread::sleep(turn));
            }
        }
    }

    fn note(&self, action: Action, limits: Vec<(Channel, f64)>, switches: Nanos) {
        let late = action.look_in.map(|time| self.ms_from_start(LIVELY + time.into()));
        self.late_ms.store(late.unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut told = lock(&self.told);
        (told.action, told.limits) = (Some(action), limits);
        told.switches += switches;
        told.own_cpu = sched::own_cpu_time().into();
    }

    /// There is news, and it looks soon.
    pub(super) fn wake(&self) {
        self.late_ms.fetch_min(self.ms_from_start(LIVELY), Ordering::Relaxed);
        if let Some(own) = self.own.get() {
            own.unpark();
        }
    }

    /// The time that it will be so long from now.
    fn ms_from_start(&self, time: Duration) -> u64 {
        u64::try_from((self.started.elapsed() + time).as_millis()).unwrap_or(u64::MAX)
    }

    /// Lets it run on another CPU than its NAPI thread's, where something keeps it from running, until it has slept.
    pub(super) fn free(&self) {
        self.pinned.free(&self.common.cpus);
        self.freed.store(true, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn set(&self, settings: Settings) {
        *lock(&self.settings) = settings;
        self.wake();
    }

    /// Sets the weight with the next look even if it is to be what it was.
    pub(super) fn set_anew(&self) {
        self.anew.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the thread stands at what it has at rest, until something rings.
    pub(super) fn rests(&self) -> bool {
        self.late_ms.load(Ordering::Relaxed) == u64::MAX
    }

    /// Does it look when it should?
    pub(super) fn is_lively(&self) -> bool {
        self.started.elapsed() < Duration::from_millis(self.late_ms.load(Ordering::Relaxed))
    }

    pub(super) fn observed(&self, links: &Links) -> Observed {
        let mut told = lock(&self.told);
        let (at, counters) = (Instant::now(), self.input.read());
        let pid = self.thread.living();
        let thread = pid.and_then(|pid| sched::sched_stat(pid).ok()).unwrap_or(told.thread);
        let others = pid.and_then(|pid| knob::others_policy(pid, self.old_policy).ok().flatten());
        if replace(&mut told.others_policy, others.clone()).is_some() && others.is_none() {
            self.set_anew();
        }
        let whole = Nanos::from(at.duration_since(told.at));
        let share = |now: Nanos, then: Nanos| (now - then).share_of(whole);
        let settings = *lock(&self.settings);
        let c_gate_ns = counters.discard_cost.map(|cost| cost.0 as f64);
        let observed = Observed {
            pid: self.thread.pid.as_raw_nonzero().get(),
            cpu: counters.cpu,
            nice: told.action.map_or(Nice::NORMAL, |action| action.weight),
            doing: told.action.map_or("asleep", |action| name_of(action.regime)).into(),
            used: share(thread.ran, told.thread.ran),
            waited: share(thread.waited, told.thread.waited),
            wasted: share(counters.wasted, told.counters.wasted),
            taken: share(counters.taken + told.switches, told.counters.taken),
            held: share(counters.held, told.counters.held),
            c_gate_ns,
            discarding_ns: counters.wasted.0,
            r_ring_pps: c_gate_ns.map(|ns| settings.user_share.rest() * 1e9 / ns),
            own_cpu: share(told.own_cpu, told.own_cpu_then),
            limits: told.limits.iter().map(|each| LimitRow::of(each, links)).collect(),
            others_policy: others,
        };
        (told.at, told.counters, told.thread) = (at, counters, thread);
        (told.own_cpu_then, told.switches) = (told.own_cpu, Nanos::ZERO);
        observed
    }
}

/// What strangers lost to switches between two readings: to input, and to this look.
fn interruptions(
    cost: SwitchCost,
    before: Option<Action>,
    last: &InputCounters,
    now: &InputCounters,
) -> Nanos {
    let woken = now.woken.saturating_sub(last.woken);
    let picked = now.intruded.saturating_sub(last.intruded).saturating_sub(woken);
    let looked = before.is_some_and(|before| before.watch);
    let by_look =
        if looked && now.strangers > last.strangers { cost.by_timer } else { Nanos::ZERO };
    cost.by_cpu * woken + cost.by_turn * picked + by_look
}

impl Reading {
    /// For the division among channels.
    fn until<'a>(&'a self, now: &'a Self) -> Seen<'a> {
        let elapsed = now.at.duration_since(self.at).into();
        Seen { elapsed, last: &self.counters, now: &now.counters }
    }
}

/// What happened between two readings, with what switches cost besides.
fn observation(last: &Reading, now: &Reading, switches: Nanos, joins: bool) -> Observation {
    let since = |field: fn(&InputCounters) -> Nanos| field(&now.counters) - field(&last.counters);
    let moved = |field: fn(&InputCounters) -> u64| field(&now.counters) != field(&last.counters);
    let beside = moved(|seen| seen.beside) && moved(|seen| seen.discarded);
    Observation {
        elapsed: now.at.duration_since(last.at).into(),
        ran: since(|seen| seen.ran),
        waits: moved(|seen| seen.waits.into()),
        over: moved(|seen| seen.over.into()),
        alarm: now.rung != last.rung,
        wasted: since(|seen| seen.wasted),
        taken: since(|seen| seen.taken) + switches,
        held: since(|seen| seen.held),
        strangers: since(|seen| seen.strangers),
        light: since(|seen| seen.light),
        busy: since(|seen| seen.busy),
        overran: moved(|seen| seen.overruns.into()),
        packets: now.counters.packets.saturating_sub(last.counters.packets),
        discarded: now.counters.discarded.saturating_sub(last.counters.discarded),
        beside: beside || moved(|seen| seen.contended.into()),
        joins,
    }
}

/// Where this thread runs: where the NAPI thread does, so that waking up makes that CPU's scheduler
/// choose again.
#[derive(Default)]
struct Place {
    cpu: Option<CpuId>,
}

impl Place {
    fn follow(&mut self, cpu: CpuId) {
        if self.cpu == Some(cpu) {
            return;
        }
        if self.cpu.is_none() {
            // Where that is refused, it looks when it gets to.
            let _ = sched::set_fifo_current_thread(PRIORITY);
        }
        // A CPU that has gone offline is not followed.
        let _ = sched::pin_current_thread(cpu);
        self.cpu = Some(cpu);
    }
}

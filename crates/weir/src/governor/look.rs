//! Looks after one NAPI thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use weir_bpf::channels::Channel;
use weir_bpf::input::{Input, InputCounters};
use weir_bpf::sys::sched::{self, Policy};
use weir_bpf::units::{CpuId, Nanos};
use weir_policy::governor::LOOK_USUALLY;
use weir_policy::{Action, Doing, Governor, Observation, Patience, Settings};

use super::deferral::Deferral;
use super::fair::{Fair, Seen};
use super::peers::Peers;
use super::receivers::Receivers;
use super::switch_cost::SwitchCost;
use super::{LimitRow, Observed, PRIORITY, name_of, nice_of};

/// How long it sleeps at most, whatever it waits for: news can be lost.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The same while packets come: neither a consumer that computes nor the end of spare time is news.
const SLEEP_BUSY: Duration = Duration::from_millis(10);
/// After news that came to nothing, the next is heard only after this: a process that runs a moment
/// each millisecond is no reason to wake up each time.
const DEAF: Duration = Duration::from_millis(8);
/// Strangers count from this share of the CPU's time on.
const STRANGERS_FROM: f64 = 0.1;
/// Turns of [`Patience::Patient`] and [`Patience::Prompt`]: the longest and the shortest that there are.
const PATIENT: Nanos = Nanos(100_000_000);
const PROMPT: Nanos = Nanos(100_000);

/// What looks after one NAPI thread.
pub(super) struct Look {
    input: Input,
    thread: Pid,
    deferral: Option<Arc<Deferral>>,
    common: Common,
    settings: Mutex<Settings>,
    stop: AtomicBool,
    anew: AtomicBool,
    own: OnceLock<Thread>,
    started: Instant,
    /// When it last ran, in milliseconds since the start.
    lived_ms: AtomicU64,
    own_cpu_ns: AtomicU64,
    /// What strangers lost to switches, until now.
    switches_ns: AtomicU64,
    /// What it does now, and the counters when this was last told.
    told: Mutex<Told>,
}

/// What all have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) switch_cost: SwitchCost,
    pub(super) peers: Arc<Peers>,
    pub(super) receivers: Arc<Receivers>,
}

struct Told {
    at: Instant,
    counters: InputCounters,
    own_cpu_ns: u64,
    switches_ns: u64,
    action: Option<Action>,
    limits: Vec<(Channel, f64)>,
}

impl Look {
    pub(super) fn new(
        input: Input,
        thread: Pid,
        deferral: Option<Arc<Deferral>>,
        common: Common,
        settings: Settings,
    ) -> Self {
        let counters = input.read();
        let told = Told {
            at: Instant::now(),
            counters,
            own_cpu_ns: 0,
            switches_ns: 0,
            action: None,
            limits: vec![],
        };
        Self {
            input,
            thread,
            deferral,
            common,
            settings: Mutex::new(settings),
            stop: AtomicBool::new(false),
            anew: AtomicBool::new(false),
            own: OnceLock::new(),
            started: Instant::now(),
            lived_ms: AtomicU64::new(0),
            own_cpu_ns: AtomicU64::new(0),
            switches_ns: AtomicU64::new(0),
            told: Mutex::new(told),
        }
    }

    /// Which thread this runs on.
    pub(super) fn belongs_to(&self, own: Thread) {
        let _ = self.own.set(own);
    }

    /// Looks, acts, sleeps, until it is stopped.
    pub(super) fn run(&self) {
        let mut place = Place::default();
        let mut governor = Governor::default();
        let mut last = (Instant::now(), self.input.read());
        let mut before = None;
        let mut roused = false;
        let mut fair = Fair::new(Arc::clone(&self.common.receivers));
        let number = self.input.number();
        while !self.stop.load(Ordering::Relaxed) {
            let cpu = self.input.cpu();
            place.follow(cpu);
            let now = (Instant::now(), self.input.read());
            let settings = *lock(&self.settings);
            let switches = interruptions(self.common.switch_cost, before, &last.1, &now.1);
            self.switches_ns.fetch_add(switches.0, Ordering::Relaxed);
            let action;
            let joined =
                now.1.beside != last.1.beside && self.common.peers.another_tells_apart(cpu, number);
            let seen = Observation { joined, ..observation(last, now, switches) };
            (governor, action) = governor
                .decide(&settings.beside(self.common.peers.used_by_others(cpu, number)), &seen);
            self.common.peers.note(number, cpu, &governor);
            let between = Seen { elapsed: seen.elapsed, last: &last.1, now: &now.1 };
            fair.look(self.input.accounts(), cpu, &settings, &between);
            lock(&self.told).limits = fair.limits();
            last = now;
            let anew = self.anew.swap(false, Ordering::Relaxed);
            self.act(before.filter(|_| !anew), action);
            self.defer(before.filter(|_| !anew).map(|before| before.wait), action.wait);
            before = Some(action);
            self.note(action);
            if roused && action.doing == Doing::Yielding && !fair.is_live() {
                std::thread::sleep(DEAF);
            }
            let live = fair.is_live().then_some(LOOK_USUALLY);
            let action = Action { look_in: action.look_in.or(live), ..action };
            roused = self.rest(action, &settings, now.1, longest_sleep(&seen));
        }
        fair.end(self.input.accounts());
        self.defer(None, None);
        self.common.peers.forget(number);
    }

    fn act(&self, before: Option<Action>, action: Action) {
        let same =
            |before: Action| before.weight == action.weight && before.patience == action.patience;
        if before.is_some_and(same) {
            return;
        }
        let (policy, slice) = match action.patience {
            Patience::Usual => (Policy::Normal, None),
            Patience::Patient => (Policy::Normal, Some(PATIENT)),
            Patience::Prompt => (Policy::Normal, Some(PROMPT)),
            Patience::Courteous => (Policy::Batch, None),
        };
        // It fails for a thread that has ended, which the main loop finds out.
        let _ = sched::set_weight(self.thread, policy, nice_of(action.weight), slice);
    }

    /// `before`: what was set last, if that is known.
    fn defer(&self, before: Option<Option<weir_policy::Nanos>>, wait: Option<weir_policy::Nanos>) {
        if let Some(deferral) = self.deferral.as_ref().filter(|_| before != Some(wait)) {
            deferral.set(self.input.number(), wait.map(|wait| Nanos(wait.0)));
        }
    }

    /// Until the next look is due, or there is news: then the answer is yes.
    fn rest(
        &self,
        action: Action,
        settings: &Settings,
        seen: InputCounters,
        longest: Duration,
    ) -> bool {
        if let Some(look_in) = action.look_in {
            std::thread::sleep(look_in.into());
            return false;
        }
        self.input.arm();
        // What came before it was armed would be no news.
        let now = self.input.read();
        let same = |of: fn(&InputCounters) -> u64| of(&now) == of(&seen);
        if same(|seen| seen.held.0)
            && same(|seen| seen.beside)
            && same(|seen| seen.contended.into())
        {
            let asleep = Instant::now();
            std::thread::park_timeout(longest);
            if asleep.elapsed() >= longest {
                return false;
            }
        }
        if action.doing == Doing::Yielding {
            // Who runs a moment is gone by then.
            std::thread::sleep(settings.timeout.into());
        }
        true
    }

    fn note(&self, action: Action) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.lived_ms.store(ms, Ordering::Relaxed);
        lock(&self.told).action = Some(action);
        let own = clock_gettime(ClockId::ThreadCPUTime);
        let own_ns = own.tv_sec.unsigned_abs() * 1_000_000_000 + own.tv_nsec.unsigned_abs();
        self.own_cpu_ns.store(own_ns, Ordering::Relaxed);
    }

    /// There is news.
    pub(super) fn wake(&self) {
        if let Some(own) = self.own.get() {
            own.unpark();
        }
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn set(&self, settings: Settings) {
        *lock(&self.settings) = settings;
        self.input.set_timeout(Nanos(settings.timeout.0));
        self.wake();
    }

    /// Sets the weight with the next look even if it is to be what it was.
    pub(super) fn set_anew(&self) {
        self.anew.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn lived_within(&self, most: Duration) -> bool {
        let lived = Duration::from_millis(self.lived_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(lived) < most
    }

    pub(super) fn observed(&self) -> Observed {
        let mut told = lock(&self.told);
        let (at, counters) = (Instant::now(), self.input.read());
        let own_cpu_ns = self.own_cpu_ns.load(Ordering::Relaxed);
        let switches_ns = self.switches_ns.load(Ordering::Relaxed);
        let whole = at.duration_since(told.at).as_nanos() as f64;
        let share = |now: Nanos, then: Nanos| share(now.0.saturating_sub(then.0), whole);
        let settings = *lock(&self.settings);
        let c_gate_ns = counters.discard_cost.map(|cost| cost.0 as f64);
        let observed = Observed {
            pid: self.thread.as_raw_nonzero().get(),
            cpu: self.input.cpu(),
            nice: told.action.map_or(super::STATIC_WEIGHT, |action| nice_of(action.weight)),
            doing: told.action.map_or("starting", |action| name_of(action.doing)).into(),
            used: share(counters.ran, told.counters.ran),
            wasted: share(counters.wasted, told.counters.wasted),
            taken: share(
                Nanos(counters.taken.0 + switches_ns),
                Nanos(told.counters.taken.0 + told.switches_ns),
            ),
            held: share(counters.held, told.counters.held),
            c_gate_ns,
            discarding_ns: counters.wasted.0,
            r_ring_pps: c_gate_ns.map(|ns| settings.user_share.rest() * 1e9 / ns),
            own_cpu: share(Nanos(own_cpu_ns), Nanos(told.own_cpu_ns)),
            limits: told.limits.iter().map(LimitRow::of).collect(),
        };
        let limits = std::mem::take(&mut told.limits);
        *told = Told { at, counters, own_cpu_ns, switches_ns, action: told.action, limits };
        observed
    }
}

/// After this was seen.
fn longest_sleep(seen: &Observation) -> Duration {
    if seen.packets > 0 { SLEEP_BUSY } else { SLEEP_MAX }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn share(part_ns: u64, whole_ns: f64) -> f64 {
    if whole_ns > 0.0 { part_ns as f64 / whole_ns } else { 0.0 }
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
    let waited = before.is_some_and(|before| before.wait.is_some());
    let by_wake = if waited { cost.by_timer } else { cost.by_cpu };
    let looked = before.is_some_and(|before| before.look_in.is_some());
    let by_look = if looked && now.strangers > last.strangers { cost.by_timer } else { Nanos(0) };
    Nanos(woken * by_wake.0 + picked * cost.by_turn.0 + by_look.0)
}

/// What happened between two readings, with what switches cost besides.
fn observation(
    last: (Instant, InputCounters),
    now: (Instant, InputCounters),
    switches: Nanos,
) -> Observation {
    let elapsed = weir_policy::Nanos::from(now.0.duration_since(last.0));
    let since = |field: fn(&InputCounters) -> Nanos| {
        weir_policy::Nanos(field(&now.1).0.saturating_sub(field(&last.1).0))
    };
    let taken = since(|counters| counters.taken);
    let wanted = since(|counters| counters.strangers) + taken;
    Observation {
        elapsed,
        ran: since(|counters| counters.ran),
        wasted: since(|counters| counters.wasted),
        taken: taken + weir_policy::Nanos(switches.0),
        held: since(|counters| counters.held),
        stalled: since(|counters| counters.stalled),
        strangers: wanted.share_of(elapsed) > STRANGERS_FROM,
        had: since(|counters| counters.strangers),
        entitled: since(|counters| counters.entitled),
        overrun: now.1.overruns != last.1.overruns,
        beside: now.1.beside != last.1.beside && now.1.discarded != last.1.discarded,
        mixed: now.1.mixed != last.1.mixed,
        contended: now.1.contended != last.1.contended,
        idle: since(|counters| counters.idle),
        late: since(|counters| counters.late),
        packets: now.1.packets - last.1.packets,
        shed: 2 * (now.1.shed - last.1.shed) > now.1.discarded - last.1.discarded,
        joined: false,
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

//! The law at work on one NAPI thread: what it is shown, and what is done. After
//! crates/weir/src/governor/look.rs, bpf/input.h and bpf/input.bpf.c.

use weir_policy::governor::LOOK_USUALLY;
use weir_policy::{Action, Doing, Governor, Nanos, Observation, Settings};

/// From a cause that nobody was looking for to the look at it.
const NEWS_TAKES: Nanos = Nanos::from_micros(50);
/// Without news it is looked at what came after so long.
const SLEEP_BUSY: Nanos = Nanos::from_millis(10);
/// Strangers want the CPU if they had it, or were kept from it, for this share of the time.
const STRANGERS_FROM: f64 = 0.1;
/// Input may wait for this part of the timeout with consumers idle: `WEIR_BATCH_PART`.
const BATCH_PART: u64 = 4;
/// Full polls in a row: `WEIR_OVERRUN_POLLS` and `WEIR_CONTENDED_POLLS`.
const OVERRUN_POLLS: u32 = 3;
const CONTENDED_POLLS: u32 = 4;
/// `WEIR_LATE_NS`.
const LATE: Nanos = Nanos::from_micros(500);

/// A thread's governor, and what it will be shown next.
#[derive(Clone, Debug)]
pub struct Watch {
    settings: Settings,
    pub governor: Governor,
    pub seen: Observation,
    last: Nanos,
    /// When the next look is due.
    pub next: Nanos,
    /// Whether news brings it forward.
    armed: bool,
    doing: Doing,
    /// Since when the thread is runnable and does not run, and how long strangers have held it since: with no
    /// consumer runnable, and with one.
    waits_from: Option<Nanos>,
    alone: Nanos,
    with_work: Nanos,
    full_polls: u32,
    admitted: bool,
    /// The heaviest and the lightest that it was, in nice steps.
    pub range: Option<(i32, i32)>,
}

impl Watch {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            governor: Governor::default(),
            seen: Observation::default(),
            last: Nanos::ZERO,
            next: LOOK_USUALLY,
            armed: false,
            doing: Doing::Yielding,
            waits_from: None,
            alone: Nanos::ZERO,
            with_work: Nanos::ZERO,
            full_polls: 0,
            admitted: false,
            range: None,
        }
    }

    /// A poll's packets, by channel: whether any were admitted, and how many were discarded.
    pub fn polled(&mut self, packets: u64, full: bool, channels: &[(bool, u64)]) {
        self.seen.packets += packets;
        self.full_polls = if full { self.full_polls + 1 } else { 0 };
        let admitted = channels.iter().filter(|(admitted, _)| *admitted).count();
        let lost = |at: usize| channels[at].1 > 0;
        let beside = |at: usize| (0..channels.len()).any(|other| other != at && channels[other].0);
        self.seen.overrun |= self.full_polls >= OVERRUN_POLLS;
        if self.full_polls >= OVERRUN_POLLS && admitted > 1 {
            self.seen.mixed = true;
            self.seen.contended |= self.full_polls >= CONTENDED_POLLS;
        }
        self.seen.beside |= (0..channels.len()).any(|at| lost(at) && beside(at));
        self.admitted |= admitted > 0;
    }

    /// The thread ran, so much of it for packets that were discarded.
    pub fn ran(&mut self, time: Nanos, wasted: Nanos, stranger_waits: bool) {
        self.seen.ran += time;
        self.seen.wasted += wasted;
        if stranger_waits {
            self.seen.taken += time;
        }
    }

    /// A stranger ran, all consumers `asleep` or not.
    pub fn stranger_ran(&mut self, time: Nanos, asleep: bool) {
        self.seen.had += time;
        if self.waits_from.is_none() {
            return;
        }
        self.seen.held += time;
        // As `stalled()` has it.
        let (held, most) = if asleep {
            (&mut self.alone, Nanos(self.settings.timeout.0 / BATCH_PART))
        } else {
            (&mut self.with_work, self.settings.timeout)
        };
        let before = *held - most;
        *held += time;
        self.seen.stalled += (*held - most) - before;
    }

    /// The thread is runnable, and somebody else is to run.
    pub fn waits(&mut self, now: Nanos) {
        self.waits_from.get_or_insert(now);
    }

    /// The thread is to run.
    pub fn runs(&mut self, now: Nanos) {
        if let Some(from) = self.waits_from.take() {
            self.seen.late += now - from - LATE;
        }
        (self.alone, self.with_work) = (Nanos::ZERO, Nanos::ZERO);
    }

    /// Something to look at has happened: a stranger holds input, or a flood comes beside another flow.
    pub fn news(&mut self, now: Nanos) {
        if std::mem::take(&mut self.armed) {
            // Who runs a moment is gone by then.
            let later =
                if self.doing == Doing::Yielding { self.settings.timeout } else { NEWS_TAKES };
            self.next = self.next.min(now + later);
        }
    }

    /// Looks, and says what is to be done. `others`: what the CPU's other threads use; `apart`: whether one
    /// of them tells a flood apart.
    pub fn look(&mut self, now: Nanos, others: Vec<f64>, apart: bool) -> Action {
        let seen = &mut self.seen;
        seen.elapsed = now - self.last;
        seen.strangers = (seen.had + seen.taken).share_of(seen.elapsed) > STRANGERS_FROM;
        seen.joined = apart && std::mem::take(&mut self.admitted);
        let (governor, action) = self.governor.decide(&self.settings.beside(others), seen);
        self.governor = governor;
        self.last = now;
        self.next = now + action.look_in.unwrap_or(SLEEP_BUSY);
        self.armed = action.look_in.is_none();
        self.doing = action.doing;
        *seen = Observation::default();
        let nice = action.weight.nice();
        let (heaviest, lightest) = self.range.unwrap_or((nice, nice));
        self.range = Some((heaviest.min(nice), lightest.max(nice)));
        action
    }
}

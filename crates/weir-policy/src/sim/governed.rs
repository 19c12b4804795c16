//! The law at work on one simulated NAPI thread: what it is shown, and what it has done.

use crate::governor::{Action, Doing, Governor, LOOK_USUALLY, Observation, Patience};
use crate::settings::Settings;
use crate::units::{Nanos, Weight};

/// From a cause that nobody was looking for to the look at it.
const NEWS_TAKES: Nanos = Nanos::from_micros(50);
/// A prompt thread's slice: the shortest that `sched_setattr` takes.
const PROMPT_SLICE: Nanos = Nanos::from_micros(100);
/// How many usual slices a patient thread's is.
const PATIENT_SLICES: u64 = 3;
/// Input may wait for this part of the timeout with consumers idle: `WEIR_BATCH_PART` in `bpf/abi.h`.
const BATCH_PART: u64 = 4;

/// As many packets as three full polls take: `WEIR_OVERRUN_POLLS` in `bpf/abi.h`.
const OVERRUN: u64 = 192;

/// One look and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// When.
    pub at: Nanos,
    /// What was seen.
    pub seen: Observation,
    /// What was done.
    pub action: Action,
}

/// A governed thread's governor, and what it will be shown next.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    settings: Settings,
    governor: Governor,
    seen: Observation,
    last: Nanos,
    next: Option<Nanos>,
    /// How long the thread has been held since it last ran: with no consumer runnable, and with one.
    alone: Nanos,
    with_work: Nanos,
    channels: Vec<usize>,
    admitted: Vec<bool>,
    lost: Vec<bool>,
    pub(super) looks: Vec<Look>,
}

impl Watch {
    /// `channels`: where each flow goes.
    pub(super) fn new(settings: Settings, channels: Vec<usize>) -> Self {
        let flows = channels.len();
        Self {
            settings,
            governor: Governor::default(),
            seen: Observation::default(),
            last: Nanos::ZERO,
            next: Some(LOOK_USUALLY),
            alone: Nanos::ZERO,
            with_work: Nanos::ZERO,
            channels,
            admitted: vec![false; flows],
            lost: vec![false; flows],
            looks: Vec::new(),
        }
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.next
    }

    /// The thread ran, so much of it for packets that were discarded.
    pub(super) fn ran(&mut self, time: Nanos, wasted: Nanos, stranger_waits: bool) {
        self.seen.ran += time;
        self.seen.wasted += wasted;
        (self.alone, self.with_work) = (Nanos::ZERO, Nanos::ZERO);
        if stranger_waits {
            self.seen.taken += time;
            self.seen.strangers = true;
        }
    }

    /// So many packets waited as the thread began to poll: as many as a small ring holds?
    pub(super) fn found(&mut self, packets: u64) {
        self.seen.overrun |= packets >= OVERRUN;
    }

    /// What became of a flow's packets; `true` if that is news.
    pub(super) fn counted(&mut self, flow: usize, admitted: bool, lost: bool) {
        self.admitted[flow] |= admitted;
        self.lost[flow] |= lost;
        let of_others = |at: usize| {
            let mut others = self.admitted.iter().enumerate();
            others.any(|(other, &admitted)| admitted && self.channels[other] != self.channels[at])
        };
        self.seen.beside |= self.lost.iter().enumerate().any(|(at, &lost)| lost && of_others(at));
    }

    /// A stranger ran, while the thread wanted to (`waiting`) and its consumers all slept (`asleep`).
    pub(super) fn stranger_ran(&mut self, time: Nanos, waiting: bool, asleep: bool) {
        self.seen.strangers = true;
        self.seen.had += time;
        if !waiting {
            return;
        }
        self.seen.held += time;
        // As `stalled()` of bpf/input.h.
        let (held, most) = if asleep {
            (&mut self.alone, Nanos(self.settings.timeout.0 / BATCH_PART))
        } else {
            (&mut self.with_work, self.settings.timeout)
        };
        let before = *held - most;
        *held += time;
        self.seen.stalled += (*held - most) - before;
    }

    /// Something to look at has happened: a stranger holds input, or a flood comes beside another flow.
    pub(super) fn news(&mut self, now: Nanos) {
        self.next = self.next.or(Some(now + NEWS_TAKES));
    }

    /// Whether a flood was seen beside another flow.
    pub(super) fn beside(&self) -> bool {
        self.seen.beside
    }

    /// Another input of the CPU tells a flood apart; `true` if that is news to this one.
    pub(super) fn join(&mut self) -> bool {
        self.seen.joined |= self.admitted.contains(&true);
        self.seen.joined
    }

    /// Whether it tells a flood apart itself.
    pub(super) fn tells_apart(&self) -> bool {
        self.governor.tells_apart()
    }

    /// What of input's share it uses.
    pub(super) fn used(&self) -> f64 {
        self.governor.used()
    }

    /// Looks, and says what the thread's weight and slice are to be. `others`: what the CPU's other
    /// threads use.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        usual_slice: Nanos,
        others: Vec<f64>,
    ) -> (Weight, Nanos) {
        self.seen.elapsed = now - self.last;
        let settings = self.settings.beside(others);
        let (governor, action) = self.governor.decide(&settings, &self.seen);
        self.looks.push(Look { at: now, seen: self.seen, action });
        self.governor = governor;
        self.last = now;
        self.next = action.look_in.map(|wait| now + wait);
        self.seen = Observation::default();
        self.admitted.fill(false);
        self.lost.fill(false);
        (action.weight, slice_of(action.patience, usual_slice))
    }
}

fn slice_of(patience: Patience, usual: Nanos) -> Nanos {
    match patience {
        // No flood here fills no queue, so none is met with courtesy.
        Patience::Usual | Patience::Courteous => usual,
        Patience::Patient => Nanos(usual.0 * PATIENT_SLICES),
        Patience::Prompt => PROMPT_SLICE.min(usual),
    }
}

/// How a thread's weight moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swing {
    /// The heaviest that it was.
    pub heaviest: Weight,
    /// The lightest.
    pub lightest: Weight,
    /// The mean nice value, by look.
    pub mean: f64,
    /// What the governor was about last.
    pub doing: Doing,
}

impl Swing {
    /// Of some looks; `None` if there were none.
    pub fn of(looks: &[Look]) -> Option<Self> {
        let weights = || looks.iter().map(|look| look.action.weight);
        Some(Self {
            heaviest: weights().min_by_key(|weight| weight.nice())?,
            lightest: weights().max_by_key(|weight| weight.nice())?,
            mean: weights().map(|weight| f64::from(weight.nice())).sum::<f64>()
                / looks.len() as f64,
            doing: looks.last()?.action.doing,
        })
    }

    /// From the heaviest to the lightest, in nice steps.
    pub fn width(&self) -> i32 {
        self.lightest.nice() - self.heaviest.nice()
    }
}

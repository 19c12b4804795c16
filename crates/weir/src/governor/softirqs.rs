//! Receive softirqs, which are watched while the gates are awake.

use std::collections::BTreeMap;
use std::mem::replace;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_bpf::alarm::Alarm;
use weir_bpf::softirq::{SoftirqTimes, Softirqs};
use weir_bpf::units::Nanos;
use weir_policy::shares::IDLE_BELOW;

use crate::cpu_times::{self, CpuTimes};

/// Of input's share: what softirqs take much from processes at, once something is wrong.
pub const MUCH: f64 = 0.25;
/// Over how long that is compared, at least: a heartbeat's time, while something is wrong.
const TAKEN_WINDOW: Duration = Duration::from_millis(90);
/// The time over which the kernel's own account is compared: it knows no finer times than ticks of 10 ms, and what was
/// long ago is no reason now.
const WINDOW: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(2);

/// Softirqs that are limited, and what wakes the gates for that while nobody watches them.
pub(super) struct Limited {
    softirqs: Arc<Softirqs>,
    /// Input's of a CPU, 0 to 1.
    share: f64,
    /// While the gates sleep.
    slept: (Instant, BTreeMap<u32, CpuTimes>),
    /// While they are awake.
    awake: Option<(Instant, Vec<SoftirqTimes>)>,
    takes_much: bool,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    Nothing,
    /// The gates look whether there is something to discard.
    Trial,
    /// They take much since now.
    Much,
}

impl Limited {
    /// The gates are awake at first.
    pub(super) fn new(softirqs: Arc<Softirqs>, share: f64) -> Self {
        let slept = (Instant::now(), BTreeMap::new());
        Self { softirqs, share, slept, awake: None, takes_much: false }
    }

    pub(super) fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    /// Whether they take much from processes, and something is wrong.
    pub(super) fn takes_much(&self) -> bool {
        self.takes_much
    }

    /// Watches them as long as the gates are awake.
    pub(super) fn follow(&mut self, alarm: &Alarm) -> Noticed {
        let tries = alarm.is_asleep() && self.is_over() && alarm.try_gates();
        let awake = !alarm.is_asleep();
        // Where that is refused now, though not at the start, they are not limited.
        let _ = self.softirqs.watch(awake);
        let takes_much = awake && self.take();
        let took_much = replace(&mut self.takes_much, takes_much);
        if !awake {
            self.awake = None;
        }
        match (tries, takes_much && !took_much) {
            (_, true) => Noticed::Much,
            (true, false) => Noticed::Trial,
            (false, false) => Noticed::Nothing,
        }
    }

    /// Whether they take much now, or did when that was last looked at.
    fn take(&mut self) -> bool {
        let elapsed = self.awake.as_ref().map(|(at, _)| at.elapsed());
        if elapsed.is_some_and(|elapsed| elapsed < TAKEN_WINDOW) {
            return self.takes_much;
        }
        let now = self.softirqs.read().unwrap_or_default();
        let before = self.awake.replace((Instant::now(), now.clone()));
        let (Some((_, before)), Some(elapsed)) = (before, elapsed) else { return false };
        let much = |(now, before): (&SoftirqTimes, &SoftirqTimes)| {
            (now.taken - before.taken).share_of(Nanos::from(elapsed)) > self.share * MUCH
        };
        now.iter().zip(&before).any(much)
    }

    /// Whether softirqs have had more than their share of a CPU that was hardly idle. By the kernel's own account, which
    /// has what a process spends by sending to its own host, too: a reason to look, and none to discard.
    fn is_over(&mut self) -> bool {
        let elapsed = self.slept.0.elapsed();
        if elapsed < *WINDOW.start() {
            return false;
        }
        let now = (Instant::now(), cpu_times::read().unwrap_or_default());
        let (_, before) = replace(&mut self.slept, now);
        let is_over = |(cpu, now): (&u32, &CpuTimes)| {
            let Some(before) = before.get(cpu) else { return false };
            let since =
                |field: fn(&CpuTimes) -> u64| field(now).saturating_sub(field(before)) as f64;
            let all = since(|times| times.total);
            since(|times| times.softirq) > all * self.share
                && since(|times| times.idle) < all * IDLE_BELOW
        };
        WINDOW.contains(&elapsed) && self.slept.1.iter().any(is_over)
    }
}

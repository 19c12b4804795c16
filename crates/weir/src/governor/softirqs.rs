//! Receive softirqs, which are watched while the gates are awake.

use std::collections::BTreeMap;
use std::mem::replace;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_bpf::alarm::Alarm;
use weir_bpf::softirq::{SoftirqTimes, Softirqs};
use weir_bpf::sys::cpu_times::{self, CpuTimes};
use weir_bpf::units::Nanos;
use weir_policy::shares::IDLE_BELOW;

/// Of input's share: what softirqs take much from processes at, once something is wrong.
pub const MUCH: f64 = 0.25;
/// ...and little: in a window, it cannot have been all of a period's (10 ms).
const LITTLE: f64 = 0.1;
/// For how long they take little before nobody looks, and over how long the kernel's own account says more then: where
/// each packet has a softirq (veth), looking costs a sender a tenth of its packets (docs/results/ab/local-sender.txt).
/// A flood may have as long until it is limited.
const LITTLE_FOR: Duration = Duration::from_secs(1);
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
    /// The kernel's own account, while nobody looks at softirqs: the gates sleep, or are calm.
    unseen: (Instant, BTreeMap<u32, CpuTimes>),
    /// While somebody does.
    seen: Option<(Instant, Vec<SoftirqTimes>)>,
    /// Since when they take little, where they do.
    little_since: Option<Instant>,
    /// They have for long.
    calm: bool,
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
        let unseen = (Instant::now(), BTreeMap::new());
        let (seen, little_since, calm, takes_much) = (None, None, false, false);
        Self { softirqs, share, unseen, seen, little_since, calm, takes_much }
    }

    pub(super) fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    /// Whether they take much from processes, and something is wrong.
    pub(super) fn takes_much(&self) -> bool {
        self.takes_much
    }

    /// Watches them as long as the gates are awake, but not while they take little.
    pub(super) fn follow(&mut self, alarm: &Alarm) -> Noticed {
        let tries =
            alarm.is_asleep() && self.is_over(self.share, *WINDOW.start()) && alarm.try_gates();
        let awake = !alarm.is_asleep();
        if !awake {
            (self.little_since, self.calm) = (None, false);
        }
        self.calm = self.calm && !self.is_over(LITTLE * self.share, LITTLE_FOR);
        let looks = awake && !self.calm;
        // Where that is refused now, though not at the start, they are not limited.
        let _ = self.softirqs.watch(looks);
        let takes_much = looks && self.take();
        let took_much = replace(&mut self.takes_much, takes_much);
        if !looks {
            self.seen = None;
        }
        match (tries, takes_much && !took_much) {
            (_, true) => Noticed::Much,
            (true, false) => Noticed::Trial,
            (false, false) => Noticed::Nothing,
        }
    }

    /// Whether they take much now, or did when that was last looked at.
    fn take(&mut self) -> bool {
        let elapsed = self.seen.as_ref().map(|(at, _)| at.elapsed());
        if elapsed.is_some_and(|elapsed| elapsed < TAKEN_WINDOW) {
            return self.takes_much;
        }
        let now = self.softirqs.read().unwrap_or_default();
        let before = self.seen.replace((Instant::now(), now.clone()));
        let (Some((_, before)), Some(elapsed)) = (before, elapsed) else { return false };
        let taken = now.iter().zip(&before).map(|(now, before)| now.taken - before.taken);
        let most = taken.max().unwrap_or_default().share_of(Nanos::from(elapsed)) / self.share;
        let now = Instant::now();
        self.little_since = (most <= LITTLE).then(|| self.little_since.unwrap_or(now));
        self.calm = self.little_since.is_some_and(|since| now - since >= LITTLE_FOR);
        most > MUCH
    }

    /// Whether softirqs have had more than this share of a CPU that was hardly idle, over so long at least. By the
    /// kernel's own account, which has what a process spends by sending to its own host, too: a reason to look, and none
    /// to discard.
    fn is_over(&mut self, share: f64, least: Duration) -> bool {
        let elapsed = self.unseen.0.elapsed();
        if elapsed < least {
            return false;
        }
        let now = (Instant::now(), cpu_times::read().unwrap_or_default());
        let (_, before) = replace(&mut self.unseen, now);
        let is_over = |(cpu, now): (&u32, &CpuTimes)| {
            let Some(before) = before.get(cpu) else { return false };
            let since =
                |field: fn(&CpuTimes) -> u64| field(now).saturating_sub(field(before)) as f64;
            let all = since(|times| times.total);
            since(|times| times.softirq) > all * share
                && since(|times| times.idle) < all * IDLE_BELOW
        };
        WINDOW.contains(&elapsed) && self.unseen.1.iter().any(is_over)
    }
}

//! Receive softirqs, which are watched while the gates are awake.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_bpf::alarm::Alarm;
use weir_bpf::softirq::Softirqs;

use crate::cpu_times::{self, CpuTimes};

/// A CPU that is idle for more of the time has some for everybody.
const IDLE: f64 = 0.05;
/// The time over which they are compared: the kernel tells no finer times than ticks of 10 ms, and what was long ago is no
/// reason now.
const WINDOW: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(2);

/// Softirqs that are limited, and what wakes the gates for that while nobody watches them.
pub struct Limited {
    softirqs: Arc<Softirqs>,
    /// Input's of a CPU, 0 to 1.
    share: f64,
    last: (Instant, BTreeMap<u32, CpuTimes>),
}

impl Limited {
    /// The gates are awake at first.
    pub fn new(softirqs: Arc<Softirqs>, share: f64) -> Self {
        Self { softirqs, share, last: (Instant::now(), BTreeMap::new()) }
    }

    /// Watches them as long as the gates are awake. Whether the gates have just been woken.
    pub(super) fn follow(&mut self, alarm: &Alarm) -> bool {
        let wakes = alarm.is_asleep() && self.is_over() && alarm.try_gates();
        // Where that is refused now, though not at the start, they are not limited.
        let _ = self.softirqs.watch(!alarm.is_asleep());
        wakes
    }

    /// Whether softirqs have had more than that of a CPU that was hardly idle. By the kernel's own account, which has what
    /// a process spends by sending to its own host, too: a reason to look, and none to discard.
    fn is_over(&mut self) -> bool {
        let elapsed = self.last.0.elapsed();
        if elapsed < *WINDOW.start() {
            return false;
        }
        let now = (Instant::now(), cpu_times::read().unwrap_or_default());
        let (_, before) = std::mem::replace(&mut self.last, now);
        let is_over = |(cpu, now): (&u32, &CpuTimes)| {
            let Some(before) = before.get(cpu) else { return false };
            let since =
                |field: fn(&CpuTimes) -> u64| field(now).saturating_sub(field(before)) as f64;
            let all = since(|times| times.total);
            since(|times| times.softirq) > all * self.share
                && since(|times| times.idle) < all * IDLE
        };
        WINDOW.contains(&elapsed) && self.last.1.iter().any(is_over)
    }
}

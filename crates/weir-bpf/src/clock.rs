//! The time of day, of what BPF programs have seen.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How far the time of day is ahead of `CLOCK_MONOTONIC`, which BPF programs tell.
#[derive(Default)]
pub(crate) struct Clock {
    ahead: Duration,
    /// On `CLOCK_MONOTONIC`.
    valid_until: Duration,
}

impl Clock {
    /// The time of day may be set.
    const VALID: Duration = Duration::from_millis(100);

    pub(crate) fn real(&mut self, monotonic: Duration) -> Duration {
        if monotonic >= self.valid_until {
            let read = |id| Duration::try_from(clock_gettime(id)).unwrap_or_default();
            let now = read(ClockId::Monotonic);
            self.ahead = read(ClockId::Realtime).saturating_sub(now);
            self.valid_until = now + Self::VALID;
        }
        monotonic + self.ahead
    }
}

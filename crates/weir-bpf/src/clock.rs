//! The time of day, of what BPF programs have seen.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::accounts::monotonic_now;

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
            let now = Duration::from_nanos(monotonic_now().0);
            let real = Duration::try_from(clock_gettime(ClockId::Realtime)).unwrap_or_default();
            self.ahead = real.saturating_sub(now);
            self.valid_until = now + Self::VALID;
        }
        monotonic + self.ahead
    }
}

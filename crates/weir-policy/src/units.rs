//! Numbers with their units.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span of time, or a point on `CLOCK_MONOTONIC`, in nanoseconds. Sums and differences stop at the ends of the range.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// None at all.
    pub const ZERO: Self = Self(0);

    /// So many microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// In milliseconds.
    pub fn as_millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How large a part of `whole` this is; 0 of nothing.
    pub fn share_of(self, whole: Self) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.0 as f64 / whole.0 as f64 }
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, by: u64) -> Self {
        Self(self.0.saturating_mul(by))
    }
}

impl Sub for Nanos {
    type Output = Self;
    /// Never below zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

/// A part of a whole, 0 to 1. Written as a percentage.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(f64);

impl Share {
    /// A share; `None` if it is not between 0 and 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// So many percent; `None` if they are not between 0 and 100.
    pub fn percent(percent: f64) -> Option<Self> {
        Self::new(percent / 100.0)
    }

    /// As a fraction of one.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// What is left of the whole.
    pub fn rest(self) -> f64 {
        1.0 - self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // At most two decimals, and none that say nothing.
        write!(f, "{}%", (self.0 * 1e4).round() / 1e2)
    }
}

/// A process's or thread's scheduling weight, -20 (heaviest) to 19 (lightest); each step is a factor of about 1.25
/// (`sched_prio_to_weight[]`, kernel/sched/core.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nice(pub i32);

impl Nice {
    /// Nice -20.
    pub const HEAVIEST: Self = Self(-20);
    /// Nice 0, the kernel's default.
    pub const NORMAL: Self = Self(0);
    /// Nice 19.
    pub const LIGHTEST: Self = Self(19);

    /// The nearest weight that there is.
    pub fn nearest(nice: f64) -> Self {
        let (heaviest, lightest) = (f64::from(Self::HEAVIEST.0), f64::from(Self::LIGHTEST.0));
        // A nice value of NaN would be 0.
        Self(nice.clamp(heaviest, lightest).round() as i32)
    }
}

impl fmt::Display for Nice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_they_are_written() {
        assert_eq!(Share::percent(50.0).map(|s| s.to_string()).as_deref(), Some("50%"));
        assert_eq!(Share::percent(12.34).map(|s| s.to_string()).as_deref(), Some("12.34%"));
        assert_eq!(Share::percent(100.1), None);
        assert_eq!(Share::new(f64::NAN), None);
    }

    #[test]
    fn weights_stay_in_range() {
        assert_eq!(Nice::nearest(-99.0), Nice::HEAVIEST);
        assert_eq!(Nice::nearest(99.0), Nice::LIGHTEST);
        assert_eq!(Nice::nearest(-0.4), Nice::NORMAL);
    }

    #[test]
    fn time_never_goes_below_zero() {
        assert_eq!(Nanos(1) - Nanos(2), Nanos::ZERO);
        assert!((Nanos(1).share_of(Nanos::ZERO)).abs() < f64::EPSILON);
    }
}

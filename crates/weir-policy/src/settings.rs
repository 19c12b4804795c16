//! What the user may decide.

use serde::{Deserialize, Serialize};

use crate::units::{Nanos, Share};

/// What input's share of the CPU is for when there is more input than it can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    // Druschel & Banga: while several channels are live, input takes up to its share to see as many packets as it can.
    /// Looking at every packet, so that one destination's flood costs the others nothing, as far as the share reaches
    #[default]
    Separation,
    // Mogul & Ramakrishnan: no more is polled than can be used, and what overflows the ring is anybody's.
    /// Delivering as many packets as possible, whatever their destination
    Throughput,
}

/// The governor's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What processes get of a CPU that they want, at least; network input gets the rest at most
    /// (Mogul & Ramakrishnan, section 7).
    pub user_share: Share,
    /// What input's share is for.
    pub prefer: Prefer,
    /// How long a turn of input may be waited for, on average, while input is a batch thread: beyond that it becomes
    /// an ordinary one.
    pub timeout: Nanos,
    /// Over how long shares are averaged.
    pub period: Nanos,
    /// Whether the scheduler is watched at all times.
    pub awake: bool,
}

impl Settings {
    /// What `timeout` may be.
    pub const TIMEOUT_RANGE: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(100));
    /// What `period` may be.
    pub const PERIOD_RANGE: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(1000));
    /// What `user_share` may be, in percent. Input that got nothing would never see that it is wanted.
    pub const USER_SHARE_PERCENT_RANGE: (f64, f64) = (1.0, 99.0);

    /// The settings of one of several NAPI threads of a CPU, which have input's share of it together:
    /// max-min fair, so that what the others do not use is this one's. `others`: what each of them uses, as
    /// shares of the CPU.
    #[must_use]
    pub fn beside(self, mut others: Vec<f64>) -> Self {
        others.sort_by(f64::total_cmp);
        let (mut left, mut threads) = (self.user_share.rest(), others.len() + 1);
        for used in others {
            if used * threads as f64 >= left {
                break;
            }
            left -= used;
            threads -= 1;
        }
        let own = left / threads as f64;
        Self { user_share: Share::new(1.0 - own).unwrap_or(self.user_share), ..self }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            user_share: Share::new(0.5).unwrap_or_else(|| unreachable!("half is a share")),
            prefer: Prefer::Separation,
            timeout: Nanos::from_micros(500),
            period: Nanos::from_millis(10),
            awake: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_cpu_have_one_share_together() {
        let own = |others: &[f64]| Settings::default().beside(others.to_vec()).user_share.rest();
        let is = |others: &[f64], wanted: f64| assert!((own(others) - wanted).abs() < 1e-9);
        is(&[], 0.5);
        is(&[0.0], 0.5);
        is(&[0.1], 0.4);
        // More than a fair part is not theirs, however much they use.
        is(&[0.4], 0.25);
        is(&[0.9, 0.1], 0.2);
        is(&[1.0, 1.0, 1.0], 0.125);
    }
}

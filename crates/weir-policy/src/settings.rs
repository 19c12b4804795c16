//! What the user may decide.

use serde::{Deserialize, Serialize};

use crate::units::{Nanos, Share};

/// What input's share of the CPU is for when there is more input than it can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// Telling packets apart, so that one channel's flood costs another nothing (Druschel & Banga):
    /// while several channels are live, input takes up to its share to see as many packets as it can.
    #[default]
    Separation,
    /// Packets per second to whoever gets them (Mogul & Ramakrishnan): no more is polled than can be
    /// used, and what overflows the ring is anybody's.
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
    /// How long strangers may keep input waiting while consumers still have work
    /// (Mogul & Ramakrishnan, section 6.6.1).
    pub timeout: Nanos,
    /// Over how long shares are averaged.
    pub period: Nanos,
}

impl Settings {
    /// What `timeout` may be.
    pub const TIMEOUT_RANGE: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::from_millis(100));
    /// What `period` may be.
    pub const PERIOD_RANGE: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(1000));
    /// What `user_share` may be, in percent. Input that got nothing would never see that it is wanted.
    pub const USER_SHARE_PERCENT_RANGE: (f64, f64) = (1.0, 99.0);
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            user_share: Share::new(0.5).unwrap_or_else(|| unreachable!("half is a share")),
            prefer: Prefer::Separation,
            timeout: Nanos::from_millis(1),
            period: Nanos::from_millis(10),
        }
    }
}

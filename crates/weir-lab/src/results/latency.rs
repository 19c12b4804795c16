//! What `udp-latency` tells beside the 99th percentile of the round trip.

use serde::{Deserialize, Serialize};

use super::merit::{MeritRun, detail};

/// The whole result.
pub type LatencyRun = MeritRun<Latency>;

/// Round trips of the pings that were sent in the window. Of a point: medians of the trials' percentiles,
/// and sums of the counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Of the pings that had a reply, median, microseconds; absent where none had.
    pub p50_us: Option<f64>,
    /// The same, 99th percentile; absent with fewer than 100 replies.
    pub p99_us: Option<f64>,
    /// The same, 99.9th percentile; absent with fewer than 1,000 replies.
    pub p999_us: Option<f64>,
    /// Pings that were sent.
    pub sent: u64,
    /// Of these, without a reply.
    pub lost: u64,
}

detail! {
    Latency {
        median_of_some: [p50_us, p99_us, p999_us],
        sum: [sent, lost],
    }
}

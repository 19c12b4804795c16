//! What every client reports.

use serde::{Deserialize, Serialize};

/// A client's figures of one run. `None`: the program does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    /// What was answered or received in full: requests per second, answers per second, or Mbit/s.
    pub throughput: f64,
    /// What was sent, in the unit of `throughput`.
    pub offered: Option<f64>,
    /// Share of what was sent that was not answered or received, 0 to 1.
    pub lost: Option<f64>,
    /// Requests, queries or datagrams that were sent.
    pub sent: Option<u64>,
    /// Median time to the answer, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of the time to the answer, microseconds.
    pub p99_us: Option<f64>,
    /// Mean time to the answer, microseconds.
    pub mean_us: Option<f64>,
    /// Failed connections, timeouts and answers that report a failure. A query that was lost is in
    /// `lost` alone.
    pub errors: u64,
}

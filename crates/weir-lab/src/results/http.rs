//! What `http-syn-flood` tells beside requests per second.

use std::iter::Sum;

use serde::{Deserialize, Serialize};

use super::merit::{MeritRun, detail};

/// The whole result.
pub type HttpRun = MeritRun<Http>;

/// Beside requests per second. Of a point: medians, but for the failures, which are summed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// How long requests took that were answered in the window, median, microseconds; from the
    /// connection's first packet where it is for one request. Absent where none was answered.
    pub took_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub took_p99_us: Option<f64>,
    /// Requests that failed in the window.
    pub failures: Failures,
    /// SYNs that were answered by a cookie.
    pub cookies_pps: f64,
    /// The client's own packets that the receive ring refused.
    pub client_lost_pps: f64,
    /// Share of the SUT's CPU that the server had, 0 to 1.
    pub server_cpu: f64,
    /// Share of the SUT's CPU that nobody had, 0 to 1.
    pub idle_cpu: f64,
    /// Share of the generator's CPU that the client had, 0 to 1.
    pub client_cpu: f64,
}

/// Requests that failed, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// Without a whole answer in time.
    pub timeout: u64,
    /// The connection ended before the answer was whole.
    pub reset: u64,
    /// No connection was to be had.
    pub refused: u64,
    /// An answer other than `200 OK`.
    pub answer: u64,
}

impl Failures {
    /// Of any kind.
    pub fn all(&self) -> u64 {
        self.timeout + self.reset + self.refused + self.answer
    }
}

impl Sum for Failures {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            timeout: sum.timeout + one.timeout,
            reset: sum.reset + one.reset,
            refused: sum.refused + one.refused,
            answer: sum.answer + one.answer,
        })
    }
}

detail! {
    Http {
        median_of_some: [took_p50_us, took_p99_us],
        sum: [failures],
        median: [cookies_pps, client_lost_pps, server_cpu, idle_cpu, client_cpu],
    }
}

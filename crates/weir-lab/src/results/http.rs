//! What `http-syn-flood` tells beside requests per second.

use serde::{Deserialize, Serialize};

use super::merit::{Detail, MeritRun};
use crate::stats::{median, median_of_some};

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

impl Detail for Http {
    fn of_trials(trials: &[&Self]) -> Self {
        let mid = |of: fn(&Self) -> f64| median(trials.iter().map(|trial| of(trial)));
        let some = |of: fn(&Self) -> Option<f64>| median_of_some(trials.iter().map(|t| of(t)));
        let sum = |of: fn(&Failures) -> u64| trials.iter().map(|trial| of(&trial.failures)).sum();
        Self {
            took_p50_us: some(|trial| trial.took_p50_us),
            took_p99_us: some(|trial| trial.took_p99_us),
            failures: Failures {
                timeout: sum(|failures| failures.timeout),
                reset: sum(|failures| failures.reset),
                refused: sum(|failures| failures.refused),
                answer: sum(|failures| failures.answer),
            },
            cookies_pps: mid(|trial| trial.cookies_pps),
            client_lost_pps: mid(|trial| trial.client_lost_pps),
            server_cpu: mid(|trial| trial.server_cpu),
            idle_cpu: mid(|trial| trial.idle_cpu),
            client_cpu: mid(|trial| trial.client_cpu),
        }
    }
}

//! What `accounting` tells: whose CPU time receive work is.

use serde::{Deserialize, Serialize};

use super::merit::{Detail, MeritRun, detail};
use crate::stats::{median, median_of_some};

/// The whole result.
pub type AccountingRun = MeritRun<Accounting>;

/// Beside the share of its CPU time that was the bystander's own work: shares of the SUT's CPU over the
/// window, 0 to 1, and what weir's meter charged over the whole trial. Of a point: medians.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accounting {
    /// Passes of the bystander's loop per second.
    pub loops_per_s: f64,
    /// What the kernel charged to the bystander.
    pub bystander_cpu: f64,
    /// What its work took: the passes, at what one is charged without a flood.
    pub work_cpu: f64,
    /// What it was charged and did not work, as a share of what it was charged; less than 0 where the
    /// machine was faster than without a flood.
    pub mischarged: f64,
    /// What the kernel charged to the flooded server.
    pub server_cpu: f64,
    /// The same, to a server that nothing is sent to, over the whole trial.
    pub idle_server_cpu: f64,
    /// What the NAPI threads ran, by perf's task clock; absent where softirq polls. `input_cpu` is what the
    /// scheduler charges them.
    pub threads_cpu: Option<f64>,
    /// Charged by the kernel to `ksoftirqd`; absent where that is not to be seen.
    pub ksoftirqd_cpu: Option<f64>,
    /// Softirqs, as the kernel's ticks found them, wherever they ran.
    pub softirq_cpu: f64,
    /// What weir's meter charged; absent where it does not run.
    pub metered: Option<MeterSum>,
}

/// weir's meter, perf and the scheduler, over a whole trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSum {
    /// What the NAPI threads ran, by perf's task clock, nanoseconds.
    pub input_ns: f64,
    /// What the scheduler charged them for that (`/proc/PID/schedstat`).
    pub scheduler_ns: f64,
    /// Charged to the flooded server's channel.
    pub server_ns: f64,
    /// Charged to all channels.
    pub charged_ns: f64,
    /// Spent on discarding, which is charged to nobody; absent where it is not known.
    pub discarding_ns: Option<f64>,
    /// `charged_ns` and `discarding_ns` together against `input_ns`; absent without a flood.
    pub accounted: Option<f64>,
}

impl Detail for Accounting {
    fn of_trials(trials: &[&Self]) -> Self {
        let mid = |of: fn(&Self) -> f64| median(trials.iter().map(|trial| of(trial)));
        let metered: Vec<&MeterSum> = trials.iter().filter_map(|t| t.metered.as_ref()).collect();
        Self {
            loops_per_s: mid(|trial| trial.loops_per_s),
            bystander_cpu: mid(|trial| trial.bystander_cpu),
            work_cpu: mid(|trial| trial.work_cpu),
            mischarged: mid(|trial| trial.mischarged),
            server_cpu: mid(|trial| trial.server_cpu),
            idle_server_cpu: mid(|trial| trial.idle_server_cpu),
            threads_cpu: median_of_some(trials.iter().map(|trial| trial.threads_cpu)),
            ksoftirqd_cpu: median_of_some(trials.iter().map(|trial| trial.ksoftirqd_cpu)),
            softirq_cpu: mid(|trial| trial.softirq_cpu),
            metered: (!metered.is_empty()).then(|| MeterSum::of_trials(&metered)),
        }
    }
}

detail! {
    MeterSum {
        median: [input_ns, scheduler_ns, server_ns, charged_ns],
        median_of_some: [discarding_ns, accounted],
    }
}

//! The shape of experiments in which several things want the SUT's CPU at once: `udp-overload
//! --neighbour`, `separation`, `separation --kinds`, `user-share`. Each has points, a summary and figures of the whole run
//! of its own.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::whole::whole_result;
use super::{Mode, ModeSetup, Trial, Workload};

/// What is compared: a mode, or a mode with a setting.
pub trait LoadKey: Copy + Ord + Display + 'static {
    /// The mode.
    fn mode(self) -> Mode;

    /// What `weir run` is told beside what the mode says.
    fn options(self) -> &'static [&'static str] {
        &[]
    }
}

impl LoadKey for Mode {
    fn mode(self) -> Mode {
        self
    }
}

whole_result! {
    /// The whole result: `K` is what is compared, `R` what was measured once for the whole run.
    #[serde(bound(deserialize = "K: Deserialize<'de> + Ord, P: Deserialize<'de>, \
                                 S: Deserialize<'de>, R: Deserialize<'de>"))]
    pub struct LoadRun<K, P, S, R> {
        /// The applications and their packets.
        pub workload: Workload,
        /// What ran where.
        pub setup: BTreeMap<K, ModeSetup>,
        /// What was measured once for the whole run.
        pub reference: R,
        /// One point per flood rate, lowest first.
        pub series: BTreeMap<K, Vec<P>>,
        /// What was compared, in some figures each.
        pub summary: BTreeMap<K, S>,
    }
    trials: LoadTrial<K>
}

/// How fast the machine was while a point was measured, and how often that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Speed of the SUT's CPU against the fastest seen in this run, 0 to 1.
    pub sut_speed: f64,
    /// Share of the SUT's CPU that the hypervisor took, 0 to 1.
    pub steal: f64,
    /// The SUT's speed differed by more than 5 % from the run's median.
    pub marked: bool,
    /// How many trials.
    pub repeats: u32,
}

/// A point, whichever experiment's.
pub trait LoadPoint {
    /// Rate of the flood that was asked for; `None`: the generator's top; 0: no flood.
    fn target_pps(&self) -> Option<f64>;
    /// Rate of the flood that was really sent.
    fn flood_pps(&self) -> f64;
    /// How fast the machine was.
    fn conditions(&self) -> &Conditions;
}

/// A point of which one field is the rate that was really sent.
macro_rules! load_point {
    ($point:ident $(<$detail:ident>)?, $sent:ident) => {
        impl $(<$detail>)? $crate::results::load::LoadPoint for $point $(<$detail>)? {
            fn target_pps(&self) -> Option<f64> {
                self.target_pps
            }

            fn flood_pps(&self) -> f64 {
                self.$sent
            }

            fn conditions(&self) -> &Conditions {
                &self.conditions
            }
        }
    };
}
pub(super) use load_point;

/// One run of the generator. CPU times are of the whole trial, as the ledger is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTrial<K> {
    /// What of the comparison it was.
    pub key: K,
    /// The flood, the second application's flow (`bystander`), and where every packet ended.
    pub load: Trial,
    /// Age of the second application's packets at delivery, median, microseconds.
    pub bystander_age_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub bystander_age_p99_us: Option<f64>,
    /// CPU time of the NAPI threads, nanoseconds; absent where softirq polls.
    pub input_cpu_ns: Option<u64>,
    /// CPU time of `weir run`'s threads on the SUT's CPU, nanoseconds; absent where it does not run.
    pub daemon_cpu_ns: Option<u64>,
    /// CPU time of the flooded application, nanoseconds.
    pub flooded_cpu_ns: u64,
    /// CPU time of the second application, nanoseconds.
    pub bystander_cpu_ns: u64,
    /// Passes of its loop per second that the compute-bound process made in the window; absent where
    /// none ran.
    pub neighbour_per_s: Option<f64>,
    /// Share of the SUT's CPU that it had in the window, 0 to 1.
    pub neighbour_cpu: Option<f64>,
    /// The TCP service; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The two receivers of one session, of which the flooded application is the heavier; absent where
    /// there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<Receivers>,
}

/// How two receivers fared in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receivers {
    /// Share of the SUT's CPU that the kernel charged to the heavier, 0 to 1.
    pub heavier_cpu: f64,
    /// The same, to the lighter.
    pub lighter_cpu: f64,
    /// How often the heavier slept, per second: its queue was empty then.
    pub heavier_sleeps_per_s: f64,
    /// The same, the lighter.
    pub lighter_sleeps_per_s: f64,
}

/// What a TCP service did in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Requests answered per second.
    pub answered_per_s: f64,
    /// Time that one took, median, microseconds.
    pub time_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub time_p99_us: Option<f64>,
}

impl<K> LoadTrial<K> {
    /// Packets that the NAPI thread took from the ring.
    pub fn taken(&self) -> u64 {
        self.load.ledger.offered - self.load.ledger.nic_drop
    }

    /// CPU time of input per packet taken, nanoseconds.
    pub fn input_ns_per_packet(&self) -> Option<f64> {
        per(self.input_cpu_ns?, self.taken())
    }
}

/// A quotient, where there is something to divide by.
pub(crate) fn per(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

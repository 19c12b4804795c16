//! The shape of experiments that ask what a service keeps of one figure of merit (requests/s, a
//! round trip) while the host is loaded with something else: `http-syn-flood`.
//!
//! A service may be used in several ways, its *variants*, each with points of its own. `D` is what an
//! experiment tells beside the figure of merit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::load::{Conditions, load_point};
use super::whole::whole_result;
use super::{Mode, ModeSetup, Spread, Trial};

/// What an experiment tells beside its figure of merit, of a trial and of a point.
pub trait Detail: Clone {
    /// Of a point, from its trials'.
    fn of_trials(trials: &[&Self]) -> Self;
}

/// Each field of a [`Detail`], by the function of [`crate::stats`] that makes a point's of its trials'.
macro_rules! detail {
    ($detail:ident { $($statistic:ident: [$($field:ident),+],)+ }) => {
        impl $crate::results::merit::Detail for $detail {
            fn of_trials(trials: &[&Self]) -> Self {
                Self {
                    $($($field: $crate::stats::$statistic(trials.iter().map(|t| t.$field)),)+)+
                }
            }
        }
    };
}
pub(super) use detail;

whole_result! {
    /// The whole result.
    pub struct MeritRun<D> {
        /// What the figure of merit is, with its unit, such as `requests/s`.
        pub merit: String,
        /// The variants, in order.
        pub variants: Vec<String>,
        /// The applications and what they are sent, in reading order.
        pub workload: Vec<Fact>,
        /// What ran where.
        pub setup: BTreeMap<Mode, ModeSetup>,
        /// Points by variant, then by load, lowest first.
        pub series: BTreeMap<Mode, Vec<MeritPoint<D>>>,
        /// What each mode keeps.
        pub summary: BTreeMap<Mode, MeritSummary>,
    }
    trials: MeritTrial<D>
}

/// Something that a reader should know of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What it is about.
    pub name: String,
    /// What it is.
    pub value: String,
}

/// One variant in one mode under one load: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeritPoint<D> {
    /// The variant.
    pub variant: String,
    /// Rate of the flood that was asked for; absent: the generator's top; 0: none.
    pub target_pps: Option<f64>,
    /// Rate of the flood that was really sent.
    pub flood_pps: f64,
    /// The figure of merit.
    pub merit: f64,
    /// Median and range of `merit`.
    pub merit_range: Spread,
    /// `merit` against the same mode's without a flood; absent where that is 0 or was not measured.
    pub of_unloaded: Option<f64>,
    /// Share of the flood that the receive ring refused, 0 to 1.
    pub ring_loss: f64,
    /// Of the flood, refused by the receive ring.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Of the flood, taken by the protocol.
    pub delivered_pps: f64,
    /// Share of the SUT's CPU that the NAPI threads had in the trials; absent where softirq polls.
    pub input_cpu: Option<f64>,
    /// What the experiment tells beside.
    pub detail: D,
    /// How fast the machine was.
    pub conditions: Conditions,
}

load_point!(MeritPoint<D>, flood_pps);

/// What is kept of the figure of merit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Without a flood.
    pub unloaded: f64,
    /// At the highest flood.
    pub overload: f64,
    /// `overload / unloaded`.
    pub retained: f64,
}

/// One mode in some figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeritSummary {
    /// The variant of which least is retained; the three figures that follow are its.
    pub variant: String,
    /// As in [`Kept`].
    pub unloaded: f64,
    /// As in [`Kept`].
    pub overload: f64,
    /// As in [`Kept`].
    pub retained: f64,
    /// Each variant.
    pub variants: BTreeMap<String, Kept>,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeritTrial<D> {
    /// The flood, and where every packet ended; `purpose` is the variant, and the bystander is the
    /// service.
    pub load: Trial,
    /// The figure of merit, over the window.
    pub merit: f64,
    /// CPU time of the NAPI threads over the window, nanoseconds; absent where softirq polls.
    pub input_cpu_ns: Option<u64>,
    /// CPU time of `weir run`'s threads over the window, nanoseconds; absent where it does not run.
    pub daemon_cpu_ns: Option<u64>,
    /// What the experiment tells beside.
    pub detail: D,
}

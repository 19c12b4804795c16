//! What `receivers` yields: two servers of different weight, both flooded.

use serde::{Deserialize, Serialize};

use super::load::{Conditions, LoadRun, load_point};
use super::{Mode, Spread};

/// The whole result.
pub type ReceiversRun = LoadRun<Mode, ReceiversPoint, ReceiversSummary, ReceiversReference>;

/// What holds for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiversReference {
    /// The heavier's nice value.
    pub heavier_nice: i32,
    /// The lighter's.
    pub lighter_nice: i32,
    /// Quotient of their weights (`sched_prio_to_weight[]`, kernel/sched/core.c).
    pub weights_ratio: f64,
    /// Passes of the calibrated loop that either makes for each packet: 5 us or a little more.
    pub passes: u32,
}

/// One mode at one rate of both floods: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiversPoint {
    /// Rate that was asked for, to each of the two.
    pub target_pps: Option<f64>,
    /// Really sent to the heavier.
    pub heavier_offered_pps: f64,
    /// Really sent to the lighter.
    pub lighter_offered_pps: f64,
    /// Received by the heavier.
    pub heavier_pps: f64,
    /// Received by the lighter.
    pub lighter_pps: f64,
    /// Both received less than 95 % of what they were sent.
    pub overloaded: bool,
    /// `heavier_pps / lighter_pps`, median of the trials; absent where the lighter received nothing.
    pub ratio: Option<f64>,
    /// Median and range of the trials in which the lighter received something.
    pub ratio_range: Spread,
    /// Share of the SUT's CPU that the kernel charged to the heavier, 0 to 1.
    pub heavier_cpu: f64,
    /// The same, to the lighter.
    pub lighter_cpu: f64,
    /// Share of the SUT's CPU that the NAPI threads had, 0 to 1; absent where softirq polls.
    pub input_cpu: Option<f64>,
    /// How often the heavier slept, per second: its queue was empty then.
    pub heavier_sleeps_per_s: f64,
    /// The same, the lighter.
    pub lighter_sleeps_per_s: f64,
    /// Share of all packets that the receive ring refused, 0 to 1.
    pub ring_loss: f64,
    /// Lost at the receive ring, packets/s, of both floods.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Dropped after an skb was built.
    pub late_drop_pps: f64,
    /// How fast the machine was.
    pub conditions: Conditions,
}

load_point!(ReceiversPoint, heavier_offered_pps);

/// One mode in some figures, of both receivers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiversSummary {
    /// Highest rate received.
    pub peak_pps: f64,
    /// Received at the highest flood.
    pub overload_pps: f64,
    /// `overload_pps / peak_pps`.
    pub retained: f64,
    /// As in [`ReceiversPoint`], at the highest flood.
    pub overload_ratio: Option<f64>,
}

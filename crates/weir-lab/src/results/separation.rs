//! What `separation` yields: a victim that is sent a light flow while another socket is flooded.

use serde::{Deserialize, Serialize};

use super::load::{Conditions, LoadRun, load_point};
use super::{Mode, Spread};

/// The whole result.
pub type SeparationRun = LoadRun<Mode, SeparationPoint, SeparationSummary, SeparationReference>;

/// What was measured once for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeparationReference {
    /// What the victim is sent, packets/s.
    pub victim_pps: f64,
    /// A bare `XDP_DROP`'s time per packet, nanoseconds.
    pub bare_drop_ns: Spread,
    /// Its rate on a CPU that does nothing else: 1 s / `bare_drop_ns`, packets/s.
    pub bare_drop_pps: f64,
    /// Highest rate that the flooded application received in any mode: the frontier's peak, lest a mode
    /// with a low one of its own had little to keep.
    pub peak_pps: f64,
}

/// One mode at one rate of the flood: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeparationPoint {
    /// Rate of the flood that was asked for; absent: the generator's top; 0: no flood.
    pub target_pps: Option<f64>,
    /// Rate of the flood that was really sent.
    pub flood_pps: f64,
    /// What the victim was sent.
    pub victim_offered_pps: f64,
    /// What it received.
    pub victim_pps: f64,
    /// Range of `victim_pps`.
    pub victim: Spread,
    /// Share of what it was sent that it received, 0 to 1.
    pub goodput: f64,
    /// `goodput` against the same mode's without a flood.
    pub of_unflooded: f64,
    /// Age of the victim's packets at delivery, median, microseconds.
    pub victim_age_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub victim_age_p99_us: Option<f64>,
    /// What the flooded application received.
    pub flooded_pps: f64,
    /// What it is to receive: 0.8 of the run's peak x (1 - flood x c_gate); absent where c_gate is not known.
    pub flooded_wanted_pps: Option<f64>,
    /// Share of all packets that the receive ring refused, 0 to 1: past R_ring everybody's loss.
    pub ring_loss: f64,
    /// Lost at the receive ring, packets/s.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Dropped after an skb was built.
    pub late_drop_pps: f64,
    /// Share of the SUT's CPU that input had, 0 to 1; absent where softirq polls.
    pub input_cpu: Option<f64>,
    /// How fast the machine was.
    pub conditions: Conditions,
}

load_point!(SeparationPoint, flood_pps);

/// One mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeparationSummary {
    /// The victim's goodput without a flood, packets/s.
    pub unloaded: f64,
    /// The same at the highest flood.
    pub overload: f64,
    /// `overload / unloaded`.
    pub retained: f64,
    /// Highest rate that the flooded application received.
    pub peak_pps: f64,
    /// Highest flood at which the victim kept 0.95 of its unflooded goodput; absent: none.
    pub r_ring_pps: Option<f64>,
    /// CPU time of input per packet when nearly all are discarded, nanoseconds; absent where fewer
    /// than 0.9 were.
    pub c_gate_ns: Option<f64>,
}

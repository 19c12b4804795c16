//! What `udp-overload --neighbour` yields: a flooded application and a compute-bound process that
//! share the SUT's CPU.

use serde::{Deserialize, Serialize};

use super::load::{Conditions, LoadRun, load_point};
use super::{Mode, Spread};

/// The whole result.
pub type NeighbourRun = LoadRun<Mode, NeighbourPoint, NeighbourSummary, NeighbourReference>;

/// What was measured once for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourReference {
    /// Passes of the neighbour's loop per second, with the CPU to itself.
    pub unloaded_per_s: Spread,
    /// Share of the CPU that the fair division keeps for processes, 0 to 1.
    pub user_share: f64,
    /// In which mode the next two were measured, without the neighbour; absent where no rate was low
    /// enough to be delivered.
    pub costs_of: Option<Mode>,
    /// CPU time of input per packet, nanoseconds.
    pub c_input_ns: Option<f64>,
    /// CPU time of the application per packet, nanoseconds.
    pub c_app_ns: Option<f64>,
}

/// One mode at one offered rate, with the neighbour and without: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourPoint {
    /// Rate that was asked for; absent: as fast as the generator can.
    pub target_pps: Option<f64>,
    /// Rate that the generator really sent, with the neighbour.
    pub offered_pps: f64,
    /// Received by the application without the neighbour.
    pub alone_pps: f64,
    /// Received by the application beside the neighbour.
    pub delivered_pps: f64,
    /// Range of `delivered_pps`.
    pub delivered: Spread,
    /// Work that the neighbour did, against its unloaded rate, 0 to 1.
    pub work: f64,
    /// Range of `work`.
    pub work_range: Spread,
    /// Share of the SUT's CPU that the neighbour had, 0 to 1.
    pub neighbour_cpu: f64,
    /// Share of the SUT's CPU that input had, 0 to 1; absent where softirq polls.
    pub input_cpu: Option<f64>,
    /// Lost at the receive ring.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Dropped after an skb was built.
    pub late_drop_pps: f64,
    /// Age of a packet at delivery beside the neighbour, median, microseconds.
    pub age_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub age_p99_us: Option<f64>,
    /// Whether input fits into its share and the consumer into half of the rest; absent where the
    /// costs are not known.
    pub fits: Option<bool>,
    /// What the fair division gives the application, packets/s.
    pub fair_pps: Option<f64>,
    /// What it gives the neighbour, against its unloaded rate.
    pub fair_work: Option<f64>,
    /// How fast the machine was.
    pub conditions: Conditions,
}

load_point!(NeighbourPoint, offered_pps);

/// One mode beside the neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourSummary {
    /// Highest delivered rate beside the neighbour.
    pub peak_pps: f64,
    /// Delivered at the highest offered rate.
    pub overload_pps: f64,
    /// `overload_pps / peak_pps`.
    pub retained: f64,
    /// The neighbour's work at the highest offered rate.
    pub overload_work: f64,
}

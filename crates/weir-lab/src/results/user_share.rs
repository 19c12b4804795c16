//! What `user-share` yields (MR, figure 7-1): what user processes keep of a flooded CPU.

use serde::{Deserialize, Serialize};

use super::load::{Conditions, LoadKey, LoadRun, load_point};
use super::{Mode, Spread, shown_by_name};

/// The whole result.
pub type UserShareRun = LoadRun<ShareMode, SharePoint, ShareSummary, ShareReference>;

/// What is compared: the user's share as set, and what two shell commands give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ShareMode {
    /// The kernel's threaded NAPI.
    #[serde(rename = "threaded")]
    Threaded,
    /// Threaded NAPI at nice 19.
    #[serde(rename = "niced")]
    Niced,
    /// `weir run --user-share 25%`.
    #[serde(rename = "weir-25")]
    Weir25,
    /// `weir run --user-share 50%`.
    #[serde(rename = "weir-50")]
    Weir50,
    /// `weir run --user-share 75%`.
    #[serde(rename = "weir-75")]
    Weir75,
    /// `weir run --user-share 25% --napi softirq`.
    #[serde(rename = "softirq-25")]
    Softirq25,
    /// `weir run --user-share 50% --napi softirq`.
    #[serde(rename = "softirq-50")]
    Softirq50,
    /// `weir run --user-share 75% --napi softirq`.
    #[serde(rename = "softirq-75")]
    Softirq75,
}

impl ShareMode {
    /// Each, in column order.
    pub const ALL: [Self; 8] = [
        Self::Threaded,
        Self::Niced,
        Self::Weir25,
        Self::Weir50,
        Self::Weir75,
        Self::Softirq25,
        Self::Softirq50,
        Self::Softirq75,
    ];

    /// As in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threaded => "threaded",
            Self::Niced => "niced",
            Self::Weir25 => "weir-25",
            Self::Weir50 => "weir-50",
            Self::Weir75 => "weir-75",
            Self::Softirq25 => "softirq-25",
            Self::Softirq50 => "softirq-50",
            Self::Softirq75 => "softirq-75",
        }
    }

    /// The share that is set for user processes, 0 to 1, where one is.
    pub const fn setting(self) -> Option<f64> {
        match self {
            Self::Threaded | Self::Niced => None,
            Self::Weir25 | Self::Softirq25 => Some(0.25),
            Self::Weir50 | Self::Softirq50 => Some(0.5),
            Self::Weir75 | Self::Softirq75 => Some(0.75),
        }
    }
}

impl LoadKey for ShareMode {
    fn mode(self) -> Mode {
        match self {
            Self::Threaded => Mode::Threaded,
            Self::Niced => Mode::Niced,
            Self::Weir25 | Self::Weir50 | Self::Weir75 => Mode::Weir,
            Self::Softirq25 | Self::Softirq50 | Self::Softirq75 => Mode::Softirq,
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Threaded | Self::Niced => &[],
            Self::Weir25 | Self::Softirq25 => &["--user-share", "25%"],
            Self::Weir50 | Self::Softirq50 => &["--user-share", "50%"],
            Self::Weir75 | Self::Softirq75 => &["--user-share", "75%"],
        }
    }
}

shown_by_name!(ShareMode);

/// What was measured once for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareReference {
    /// Passes of the neighbour's loop per second, with the CPU to itself.
    pub unloaded_per_s: Spread,
    /// What the second application is sent, packets/s.
    pub second_pps: f64,
    /// CPU time per packet of the second application without a flood, nanoseconds: its work.
    pub c_app_ns: Option<f64>,
}

/// One setting at one rate of the flood: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharePoint {
    /// Rate of the flood that was asked for; absent: the generator's top; 0: no flood.
    pub target_pps: Option<f64>,
    /// Rate of the flood that was really sent.
    pub flood_pps: f64,
    /// The share of the CPU's work that user processes did: the next two together.
    pub user: f64,
    /// Range of `user`.
    pub user_range: Spread,
    /// Work of the compute-bound process, against its unloaded rate.
    pub neighbour: f64,
    /// Work of the second application: packets received x `c_app_ns`.
    pub second: f64,
    /// Share of what it was sent that the second application received, 0 to 1.
    pub second_goodput: f64,
    /// Share of the SUT's CPU that input had, 0 to 1; absent where softirq polls, as is the next.
    pub input_cpu: Option<f64>,
    /// Share that it would need to take every packet: its CPU time per packet x the rate.
    pub input_need: Option<f64>,
    /// The least that user processes are to have here; absent without a setting.
    pub wanted: Option<f64>,
    /// `user` less the setting, in percentage points, where input wants more than its share, or has
    /// more; absent elsewhere.
    pub deviation_points: Option<f64>,
    /// Lost at the receive ring.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Dropped after an skb was built.
    pub late_drop_pps: f64,
    /// How fast the machine was.
    pub conditions: Conditions,
}

load_point!(SharePoint, flood_pps);

/// One setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSummary {
    /// The share as set, 0 to 1; absent in a mode without a setting.
    pub setting: Option<f64>,
    /// The user's share without a flood.
    pub unloaded: f64,
    /// The same at the highest flood.
    pub overload: f64,
    /// `overload / unloaded`.
    pub retained: f64,
    /// The least at any rate.
    pub lowest: f64,
    /// The lowest `deviation_points`; absent where input never wanted more than its share.
    pub lowest_deviation_points: Option<f64>,
    /// The highest.
    pub highest_deviation_points: Option<f64>,
}

//! What the governor says of each NAPI thread.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_bpf::channels::Channel;
use weir_bpf::sys::link::Links;
use weir_bpf::units::{CpuId, Nice};
use weir_policy::Regime;

use crate::channel_name;

/// A thread of the governor's that is so late does not live.
pub const LIVELY: Duration = Duration::from_millis(350);
/// The real-time priority of the governor's threads, the lowest: they preempt processes, and nobody's real-time work.
pub const PRIORITY: u8 = 1;

/// What the governor does with one NAPI thread: for `weir status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    /// The NAPI thread.
    pub pid: i32,
    /// Where it runs.
    pub cpu: CpuId,
    /// Its weight now.
    pub nice: Nice,
    /// What is being done.
    pub doing: String,
    /// The share of its CPU that it used, 0 to 1, since the last status.
    pub used: f64,
    /// How long it was runnable and did not run, as a share of the time. The next three are 0 while nobody watches the
    /// scheduler, as while the law is asleep.
    pub waited: f64,
    /// Of that CPU, for packets that were discarded.
    pub wasted: f64,
    /// Of that CPU, while other processes than consumers waited for it.
    pub taken: f64,
    /// How long it waited while such a process ran, as a share of the time.
    pub held: f64,
    /// What discarding one packet costs, driver included, in nanoseconds.
    pub c_gate_ns: Option<f64>,
    /// What discarding has taken since the thread is governed, nanoseconds.
    pub discarding_ns: u64,
    /// The rate of packets up to which the ring should not overflow: input's share / `c_gate_ns`.
    pub r_ring_pps: Option<f64>,
    /// The share of its CPU that the governor itself uses.
    pub own_cpu: f64,
    /// Channels that are held to a share of that CPU, as it is saturated.
    pub limits: Vec<LimitRow>,
    /// The policy that somebody else has given it, so that it is not governed; else `null`.
    #[serde(default)]
    pub others_policy: Option<String>,
}

impl Observed {
    /// How it is weighed, for a person.
    pub fn weight(&self) -> String {
        match &self.others_policy {
            Some(policy) => format!("not governed, {policy}"),
            None => format!("{}, nice {}", self.doing, self.nice),
        }
    }

    /// Why it is not governed, if it is not.
    pub fn ungoverned(&self) -> Option<String> {
        let (policy, pid) = (self.others_policy.as_ref()?, self.pid);
        Some(format!(
            "somebody has given NAPI thread {pid} {policy}, so it is not governed; `chrt --other --pid 0 {pid}` ends that"
        ))
    }
}

/// A channel that is held to its share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitRow {
    /// What kind of channel it is.
    pub kind: String,
    /// Its local address; `null` of a kind that has none.
    pub address: Option<IpAddr>,
    /// Its local port; of kind `tcp-peer` the peers'; `null` of a kind that has none.
    pub port: Option<u16>,
    /// The interface that packets leave by, of kind `forward`; else `null`.
    pub interface: Option<String>,
    /// What it may take of the CPU, 0 to 1.
    pub share: f64,
}

impl LimitRow {
    /// A channel and its share.
    pub fn of((channel, share): &(Channel, f64), links: &Links) -> Self {
        let name = |ifindex| links.name(ifindex).unwrap_or_else(|_| channel_name::unnamed(ifindex));
        Self {
            kind: channel.kind.name().into(),
            address: channel.local.map(|(address, _)| address),
            port: channel.local.map(|(_, port)| port),
            interface: channel.egress.map(name),
            share: *share,
        }
    }
}

/// For a person.
pub const fn name_of(regime: Regime) -> &'static str {
    match regime {
        Regime::Asleep => "asleep",
        Regime::Isolating => "isolating",
        Regime::Shared => "shared",
    }
}

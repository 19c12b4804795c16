//! What `separation --kinds` yields: a UDP and a TCP service beside floods of all kinds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::load::{Conditions, LoadRun, load_point};
use super::{Mode, Spread, shown_by_name};

/// The whole result.
pub type KindsRun = LoadRun<Mode, KindPoint, KindsSummary, KindsReference>;

/// A kind of flood.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// UDP to a socket that is read as fast as can be.
    Udp,
    /// UDP to a port without a socket.
    Closed,
    /// UDP with a wrong checksum, to a socket.
    BadChecksum,
    /// Connection requests to a listener, none of which is ever completed.
    Syn,
    /// TCP acknowledgements of no connection, to the port of the TCP service.
    Ack,
    /// ICMP echo requests.
    Icmp,
    /// First fragments and last fragments of datagrams that never become whole.
    Fragments,
    /// UDP to the subnet's broadcast address, to a socket.
    Broadcast,
    /// UDP to two multicast groups, one of which a socket has joined.
    Multicast,
    /// An IP packet longer than its frame, an IP header too short, a datagram longer than its packet.
    Malformed,
    /// UDP to another host, by way of this one.
    Forward,
}

impl Kind {
    /// Each, in the order of the tables.
    pub const ALL: [Self; 11] = [
        Self::Udp,
        Self::Closed,
        Self::BadChecksum,
        Self::Syn,
        Self::Ack,
        Self::Icmp,
        Self::Fragments,
        Self::Broadcast,
        Self::Multicast,
        Self::Malformed,
        Self::Forward,
    ];

    /// As on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Closed => "closed",
            Self::BadChecksum => "bad-checksum",
            Self::Syn => "syn",
            Self::Ack => "ack",
            Self::Icmp => "icmp",
            Self::Fragments => "fragments",
            Self::Broadcast => "broadcast",
            Self::Multicast => "multicast",
            Self::Malformed => "malformed",
            Self::Forward => "forward",
        }
    }
}

shown_by_name!(Kind);

/// What holds for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindsReference {
    /// What the UDP service is sent, packets/s.
    pub udp_pps: f64,
    /// How many requests per second the TCP service's client has answered if nothing is late.
    pub tcp_per_s: f64,
}

/// One mode beside one kind of flood at one rate: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindPoint {
    /// The flood; absent: none.
    pub kind: Option<Kind>,
    /// Its rate that was asked for; absent: the generator's top; 0: no flood.
    pub target_pps: Option<f64>,
    /// Its rate that was really sent.
    pub flood_pps: f64,
    /// What the UDP service received.
    pub udp_pps: f64,
    /// Its goodput, received by sent, against the same mode's without a flood.
    pub udp_kept: f64,
    /// Range of `udp_kept`.
    pub udp_range: Spread,
    /// Age of its packets at delivery, median, microseconds.
    pub udp_age_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub udp_age_p99_us: Option<f64>,
    /// Requests per second that the TCP service answered.
    pub tcp_per_s: f64,
    /// The same against the mode's without a flood.
    pub tcp_kept: f64,
    /// Range of `tcp_kept`.
    pub tcp_range: Spread,
    /// Time that a request took, median, microseconds; absent where none was answered.
    pub tcp_time_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub tcp_time_p99_us: Option<f64>,
    /// What of the flood UDP sockets received.
    pub flooded_pps: f64,
    /// Share of all packets that the receive ring refused, 0 to 1.
    pub ring_loss: f64,
    /// Lost at the receive ring, packets/s.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Dropped by UDP after an skb was built.
    pub late_drop_pps: f64,
    /// Share of the SUT's CPU that input had, 0 to 1; absent where softirq polls.
    pub input_cpu: Option<f64>,
    /// How fast the machine was.
    pub conditions: Conditions,
}

impl KindPoint {
    /// The goodput of the service that fared worse.
    pub fn kept(&self) -> f64 {
        self.udp_kept.min(self.tcp_kept)
    }
}

load_point!(KindPoint, flood_pps);

/// One mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindsSummary {
    /// Requests per second that the TCP service answered without a flood.
    pub unloaded: f64,
    /// The fewest that it answered beside any kind at its highest rate.
    pub overload: f64,
    /// `overload / unloaded`.
    pub retained: f64,
    /// Beside each kind of flood.
    pub kinds: BTreeMap<Kind, KindSummary>,
}

/// One mode beside one kind of flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindSummary {
    /// Highest rate that was tried at which, and below which, the ring refused at most 0.5 %; absent:
    /// it refused more at the lowest.
    pub r_ring_pps: Option<f64>,
    /// Lowest `udp_kept` up to there.
    pub udp_kept: Option<f64>,
    /// Lowest `tcp_kept` up to there.
    pub tcp_kept: Option<f64>,
}

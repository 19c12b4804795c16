//! What `gate-cost` yields. Times are nanoseconds per packet on the SUT's CPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::whole::whole_result;
use super::{Spread, shown_by_name};

/// What runs in the driver, and what becomes of the packets. The order is the order of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostMode {
    /// A program that only returns `XDP_DROP`.
    BareDrop,
    /// One that reads the packet's headers and returns `XDP_DROP`, whatever they are: the least that any
    /// demultiplexer costs.
    TouchDrop,
    /// The gate, packets to a socket that is full.
    GateDiscard,
    /// A program that only returns `XDP_PASS`.
    BarePass,
    /// The gate, packets to a socket that has room.
    GatePass,
}

impl CostMode {
    /// Every mode, in column order.
    pub const ALL: [Self; 5] =
        [Self::BareDrop, Self::TouchDrop, Self::GateDiscard, Self::BarePass, Self::GatePass];

    /// As in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareDrop => "bare-drop",
            Self::TouchDrop => "touch-drop",
            Self::GateDiscard => "gate-discard",
            Self::BarePass => "bare-pass",
            Self::GatePass => "gate-pass",
        }
    }

    /// Whether the gate runs.
    pub const fn gated(self) -> bool {
        matches!(self, Self::GateDiscard | Self::GatePass)
    }

    /// Whether packets are to pass.
    pub const fn passes(self) -> bool {
        matches!(self, Self::BarePass | Self::GatePass)
    }
}

shown_by_name!(CostMode);

/// What the packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// TCP SYNs over IPv4; a full socket is a listener whose accept queue is over its limit.
    TcpSyn4,
    /// TCP SYNs over IPv6.
    TcpSyn6,
}

impl Kind {
    /// Every kind, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Udp4, Self::Udp6, Self::TcpSyn4, Self::TcpSyn6];

    /// As in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
            Self::TcpSyn4 => "tcp-syn4",
            Self::TcpSyn6 => "tcp-syn6",
        }
    }

    /// IPv6 rather than IPv4.
    pub const fn ipv6(self) -> bool {
        matches!(self, Self::Udp6 | Self::TcpSyn6)
    }

    /// TCP rather than UDP.
    pub const fn tcp(self) -> bool {
        matches!(self, Self::TcpSyn4 | Self::TcpSyn6)
    }
}

shown_by_name!(Kind);

whole_result! {
    /// The whole result.
    pub struct GateCost {
        /// The path that was measured.
        pub setup: CostSetup,
        /// The real path: packets through the driver, by kind and pattern.
        pub rows: Vec<CostRow>,
        /// One packet over and over (`BPF_PROG_TEST_RUN`): hot caches, no driver.
        pub hot: Vec<HotPoint>,
        /// Socket lookups from XDP.
        pub lookups: Vec<LookupPoint>,
        /// Per kind.
        pub summary: BTreeMap<Kind, CostSummary>,
    }
    trials: CostTrial
}

/// What ran where, as read back from the kernel; the same in every mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostSetup {
    /// Driver of the receiving interface, such as `veth`.
    pub driver: String,
    /// How XDP is attached: `native`.
    pub attach: String,
    /// CPU and context of driver and program, such as `CPU 1, NAPI thread at nice 0`.
    pub driver_poll: String,
    /// Generic receive offload on the receiving interface.
    pub gro: bool,
    /// UDP payload of each packet.
    pub payload_bytes: u32,
    /// Where packets that pass end.
    pub passed_end: String,
}

/// One kind of packets in one pattern, in every mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostRow {
    /// The packets.
    pub kind: Kind,
    /// From how many sources, at random.
    pub flows: u64,
    /// To how many sockets, at random.
    pub sockets: u32,
    /// The figures, by mode.
    pub modes: BTreeMap<CostMode, CostPoint>,
    /// Rate of discarding against the rate of a bare `XDP_DROP`, pair by pair; absent where the gate
    /// did not discard, so that there is nothing to compare.
    pub discard_ratio: Option<Spread>,
    /// What the gate adds to a packet that passes, pair by pair.
    pub pass_added_ns: Option<Spread>,
}

/// One mode of a row: medians over the trials, and ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostPoint {
    /// From the driver's ring to the packet's end: the median of polls that took a whole budget, which
    /// interruptions do not move; where those
    /// had less than 2 % of the packets, `cpu_ns_per_packet`.
    pub ns_per_packet: Spread,
    /// Packets that a CPU handles which does nothing else: 1 s / `ns_per_packet`, packets/s.
    pub capacity_pps: Spread,
    /// Packets that were really handled, packets/s; less where the generator was slower.
    pub handled_pps: f64,
    /// CPU time of the NAPI thread over packets handled, wake-ups included: the cross-check.
    pub cpu_ns_per_packet: f64,
    /// Share of the SUT's CPU that the NAPI thread had, 0 to 1.
    pub busy: f64,
    /// Share of the packets in polls that took a whole budget, 0 to 1.
    pub in_full_polls: f64,
    /// Share of the packets seen that the gate discarded, 0 to 1; absent without the gate.
    pub discarded: Option<f64>,
    /// Speed of the SUT's CPU against the fastest seen in this run, 0 to 1.
    pub sut_speed: f64,
    /// The SUT's speed differed by more than 5 % from the run's median.
    pub marked: bool,
    /// How many trials.
    pub repeats: u32,
}

/// One packet, run through the gate over and over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotPoint {
    /// What the packet is, such as `udp4 to a full socket`.
    pub packet: String,
    /// What the gate counted it under.
    pub reason: String,
    /// The gate's whole time.
    pub gate_ns: Spread,
    /// Time of the bare program with the same verdict.
    pub bare_ns: Spread,
    /// The difference of the medians.
    pub added_ns: f64,
}

/// One socket lookup helper on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookupPoint {
    /// Such as `bpf_sk_lookup_udp`.
    pub helper: String,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// What was looked up: `socket`, `listener`, `connection`, `nothing`.
    pub target: String,
    /// Whether it was found.
    pub found: bool,
    /// One lookup, with the release of what was found.
    pub ns: Spread,
}

/// One kind in four figures, each of its worst row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostSummary {
    /// Demultiplexing and discarding one packet, driver included; absent where it is not discarded.
    pub c_gate_ns: Option<f64>,
    /// A bare `XDP_DROP`, driver included.
    pub bare_drop_ns: f64,
    /// Lowest `discard_ratio`; absent where any row was not discarded.
    pub discard_ratio: Option<f64>,
    /// Highest `pass_added_ns`.
    pub pass_added_ns: Option<f64>,
}

/// Where every packet of a trial ended, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostLedger {
    /// Handed to the generator's device.
    pub offered: u64,
    /// Refused by the full receive ring.
    pub ring_drop: u64,
    /// Taken from the ring by the driver, and shown to the program.
    pub seen: u64,
    /// Counted by the gate; absent without it.
    pub counted: Option<u64>,
    /// Discarded by the gate; absent without it.
    pub discarded: Option<u64>,
    /// Passed by the gate without a look at their destination (diverted, policy off): must be 0; absent
    /// without it.
    pub unjudged: Option<u64>,
    /// `offered - ring_drop - seen`: must be 0.
    pub unaccounted: i64,
}

/// One run of the generator against one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostTrial {
    /// Which row of `rows`, from 0.
    pub row: u32,
    /// Which repeat, from 0: trials of one row and repeat are compared with each other.
    pub repeat: u32,
    /// The mode.
    pub mode: CostMode,
    /// Length of the measured window, seconds.
    pub window_s: f64,
    /// Over the window.
    pub offered_pps: f64,
    /// Over the window.
    pub handled_pps: f64,
    /// As in [`CostPoint`].
    pub ns_per_packet: f64,
    /// A quarter of the same polls were as fast.
    pub ns_p25: f64,
    /// Three quarters of them.
    pub ns_p75: f64,
    /// The mean of the same polls, all but those that were interrupted for long.
    pub mean_ns_per_packet: f64,
    /// As in [`CostPoint`], over the whole trial.
    pub cpu_ns_per_packet: f64,
    /// As in [`CostPoint`], over the whole trial.
    pub busy: f64,
    /// As in [`CostPoint`].
    pub in_full_polls: f64,
    /// Full polls that were interrupted for long, and are not in `ns_per_packet`.
    pub interrupted_polls: u64,
    /// Share of the packets that the gate counted in the window which it discarded; absent without it.
    pub discarded_share: Option<f64>,
    /// Time of the calibrated loop on the SUT's CPU, nanoseconds.
    pub sut_loop_ns: f64,
    /// Share of the SUT's CPU that the hypervisor took, 0 to 1.
    pub steal: f64,
    /// Over the whole trial.
    pub ledger: CostLedger,
}

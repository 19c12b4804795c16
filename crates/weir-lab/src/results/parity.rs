//! The shape of `parity`: a table of figures where nothing is overloaded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::load::Conditions;
use super::merit::Fact;
use super::whole::whole_result;
use super::{Spread, shown_by_name};
use crate::compare::Compared;

whole_result! {
    /// The whole result.
    pub struct ParityRun {
        /// What was sent, in reading order.
        pub workload: Vec<Fact>,
        /// What ran where.
        pub setup: BTreeMap<Arm, ArmSetup>,
        /// What was measured.
        pub rows: Vec<ParityRow>,
    }
    trials: ParityTrial
}

/// What is compared: a mode at an attach point on a kind of wire. The order is the order of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// As behind a NIC: softirq after an interrupt each 50 us.
    Stock,
    /// Softirq on the CPU that sends, protocol on the SUT's by RPS.
    StockRps,
    /// Threaded NAPI.
    Threaded,
    /// The same at nice 19.
    Niced,
    /// weir, native XDP.
    Native,
    /// weir, generic XDP.
    Generic,
    /// weir at tc.
    Tc,
    /// A veth as it is made: by the backlog and RPS.
    VethStock,
    /// The same with weir, generic XDP.
    VethGeneric,
    /// The same with weir at tc.
    VethTc,
}

impl Arm {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Stock,
        Self::StockRps,
        Self::Threaded,
        Self::Niced,
        Self::Native,
        Self::Generic,
        Self::Tc,
        Self::VethStock,
        Self::VethGeneric,
        Self::VethTc,
    ];

    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::StockRps => "stock-rps",
            Self::Threaded => "threaded",
            Self::Niced => "niced",
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Tc => "tc",
            Self::VethStock => "veth-stock",
            Self::VethGeneric => "veth-generic",
            Self::VethTc => "veth-tc",
        }
    }

    /// Where `weir run` is to attach its gate; `None` where it does not run.
    pub const fn attach(self) -> Option<&'static str> {
        match self {
            Self::Native => Some("native"),
            Self::Generic | Self::VethGeneric => Some("generic"),
            Self::Tc | Self::VethTc => Some("tc"),
            _ => None,
        }
    }

    /// Whether the wire is a veth as it is made, with TSO.
    pub const fn is_plain_veth(self) -> bool {
        matches!(self, Self::VethStock | Self::VethGeneric | Self::VethTc)
    }

    /// What it is held against: the stocks of its wire.
    pub const fn stocks(self) -> &'static [Self] {
        if self.is_plain_veth() { &[Self::VethStock] } else { &[Self::Stock, Self::StockRps] }
    }
}

shown_by_name!(Arm);

/// What ran where, as read back from the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmSetup {
    /// How the gate is attached, or `none`.
    pub attach: String,
    /// CPU and context of the driver's poll.
    pub driver_poll: String,
    /// Transmit segmentation offload of the sending end, as it is while the gate is attached.
    pub tso: bool,
    /// Generic receive offload of the receiving end.
    pub gro: bool,
    /// Receive packet steering of the receiving end, hexadecimal.
    pub rps_cpus: String,
}

/// What is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Round trip of one byte by UDP, microseconds.
    UdpRoundTrip,
    /// Payload that a sliding window of full datagrams brings, Mbit/s.
    UdpWindow,
    /// Round trip of one byte by TCP, microseconds.
    TcpRoundTrip,
    /// Payload of TCP, Mbit/s.
    TcpStream,
}

impl Measure {
    /// All.
    pub const ALL: [Self; 4] =
        [Self::UdpRoundTrip, Self::UdpWindow, Self::TcpRoundTrip, Self::TcpStream];

    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpRoundTrip => "udp-round-trip",
            Self::UdpWindow => "udp-window",
            Self::TcpRoundTrip => "tcp-round-trip",
            Self::TcpStream => "tcp-stream",
        }
    }

    /// Its figure's unit.
    pub const fn unit(self) -> &'static str {
        if self.is_time() { "us" } else { "Mbit/s" }
    }

    /// Whether less is better.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::TcpRoundTrip)
    }

    /// Whether it is by UDP.
    pub const fn is_udp(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::UdpWindow)
    }
}

/// One measure by so many flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParityRow {
    /// What was measured.
    pub measure: Measure,
    /// Sockets at either end.
    pub flows: u32,
    /// `us` (less is better) or `Mbit/s`.
    pub unit: String,
    /// What was compared.
    pub arms: BTreeMap<Arm, ArmPoint>,
}

/// One arm in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmPoint {
    /// The figure, over the trials.
    pub figure: Spread,
    /// How good it is against the others, by trials of the same repeat; more than 1 is better.
    pub against: BTreeMap<Arm, Compared>,
    /// The machine meanwhile.
    pub conditions: Conditions,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParityTrial {
    /// Which repeat, from 0; trials of one are compared with one another.
    pub repeat: u32,
    /// As in [`ParityRow`].
    pub measure: Measure,
    /// As in [`ParityRow`].
    pub flows: u32,
    /// What was measured.
    pub arm: Arm,
    /// Microseconds or Mbit/s.
    pub figure: f64,
    /// Length of the window, seconds.
    pub window_s: f64,
    /// Of round trips, 99th percentile.
    pub p99_us: Option<f64>,
    /// Time of the calibrated loop on the SUT's CPU, nanoseconds.
    pub sut_loop_ns: f64,
    /// Share of the SUT's CPU that the hypervisor took, 0 to 1.
    pub steal: f64,
    /// Share of the SUT's CPU that nobody had, 0 to 1.
    pub idle_cpu: f64,
    /// Where the SUT's packets ended.
    pub lost: Lost,
}

/// What came to nothing at the SUT over a whole trial; packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// UDP datagrams that the client sent; absent for TCP, which counts segments and sends again.
    pub offered: Option<u64>,
    /// Those that the server received; absent for TCP.
    pub delivered: Option<u64>,
    /// Refused by the receive ring or the backlog.
    pub ring: u64,
    /// Discarded at the gate.
    pub discarded: u64,
    /// Dropped at a socket or elsewhere in UDP.
    pub late: u64,
    /// Of UDP datagrams, in no counter: must be 0.
    pub unaccounted: i64,
}

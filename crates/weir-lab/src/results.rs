//! What an experiment yields: the JSON that `weir lab run --json` prints and `--out` keeps.
//!
//! Rates are packets per second over the measured window. Counts in a [`Ledger`] are packets over
//! a whole trial, from before its first packet until everything has drained, and add up exactly.

pub mod accounting;
pub mod gate_cost;
pub mod http;
pub mod kinds;
pub mod latency;
pub mod load;
pub mod merit;
pub mod neighbour;
mod outcome;
pub mod parity;
pub mod receivers;
pub mod rpc;
pub mod separation;
pub mod user_share;
mod whole;

use std::collections::BTreeMap;

pub use outcome::Outcome;
use serde::{Deserialize, Serialize};
use whole::whole_result;
pub use whole::{Head, Whole};

/// Something whose name is how it is printed.
macro_rules! shown_by_name {
    ($named:ty) => {
        impl std::fmt::Display for $named {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use shown_by_name;

/// Version of the results' schemas, of every experiment's.
pub const SCHEMA: u32 = 1;

/// How the system under test is set up. The order is the order of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The kernel's default: receive processing in softirq.
    Stock,
    /// The kernel's threaded NAPI.
    Threaded,
    /// Threaded NAPI at nice 19: the strongest thing that two shell commands buy.
    Niced,
    /// The gate alone (the paper's Early-Demux), threaded NAPI at nice 0.
    Gate,
    /// weir attached with its policy off: what merely being there costs.
    IdleWeir,
    /// The gate and the lowered weight of the NAPI threads.
    Weir,
    /// weir where softirqs poll, as in `stock`: the gate and its limit, the fallback.
    Softirq,
}

impl Mode {
    /// Every mode, in column order.
    pub const ALL: [Self; 7] = [
        Self::Stock,
        Self::Threaded,
        Self::Niced,
        Self::Gate,
        Self::IdleWeir,
        Self::Weir,
        Self::Softirq,
    ];
    /// What weir is judged against: the best of these.
    pub const BASELINES: [Self; 3] = [Self::Stock, Self::Threaded, Self::Niced];

    /// As written on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Threaded => "threaded",
            Self::Niced => "niced",
            Self::Gate => "gate",
            Self::IdleWeir => "idle-weir",
            Self::Weir => "weir",
            Self::Softirq => "softirq",
        }
    }

    /// Whether softirqs poll, after interrupts, rather than threads.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::Stock | Self::Softirq)
    }
}

shown_by_name!(Mode);

whole_result! {
    /// A sweep of offered rates on one machine: `udp-overload`.
    pub struct Experiment {
        /// The application and its packets.
        pub workload: Workload,
        /// What ran where, per mode.
        pub setup: BTreeMap<Mode, ModeSetup>,
        /// Per mode, one point per offered rate, lowest first.
        pub series: BTreeMap<Mode, Vec<Point>>,
        /// Per mode, a second socket that is sent a light flow beside the flood.
        pub bystander: BTreeMap<Mode, Vec<BystanderPoint>>,
        /// Per mode.
        pub summary: BTreeMap<Mode, Summary>,
    }
    trials: Trial
}

/// The machine and what of its settings matters to a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Model name of the CPU.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Whether this is a virtual machine (the `hypervisor` CPU flag).
    pub virtual_machine: bool,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Preemption model in force, such as `none`, `voluntary`, `full`, `lazy`, or `unknown`.
    pub preemption: String,
    /// Timer interrupts per second, where it is known.
    pub hz: Option<u32>,
    /// EEVDF base slice, nanoseconds, where it is known.
    pub scheduler_slice_ns: Option<u64>,
    /// Vulnerability mitigations that are not "Not affected", by name.
    pub mitigations: BTreeMap<String, String>,
    /// CPU of the system under test.
    pub sut_cpu: u32,
    /// CPU of the generator and the controller.
    pub generator_cpu: u32,
    /// Whether these two are hardware threads of one core.
    pub shared_core: bool,
}

/// The application and the packets that it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// `recv` or `recvmmsg`.
    pub application: String,
    /// `udp4` or `udp6`.
    pub packets: String,
    /// UDP payload of each packet.
    pub payload_bytes: u32,
    /// The sockets' receive buffer, `SO_RCVBUF` as the kernel reports it.
    pub rcvbuf_bytes: u32,
    /// How many of these packets the buffer holds, counted; the smallest of the modes.
    pub queue_depth_packets: u32,
    /// Highest rate that the generator was seen to reach, packets/s; absent unless it was tried.
    pub generator_top_pps: Option<f64>,
}

/// What ran where in one mode, as read back from the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeSetup {
    /// CPU and context of the driver's poll, such as `CPU 1, NAPI thread at nice 19`.
    pub driver_poll: String,
    /// CPU and context of IP and UDP processing.
    pub protocol: String,
    /// CPU and context of the gate, or `none`.
    pub gate: String,
    /// CPU of the application.
    pub application: String,
    /// How XDP is attached: `none`, `native` or `generic`.
    pub attach: String,
    /// Generic receive offload on the receiving interface.
    pub gro: bool,
    /// Receive packet steering mask of the receiving interface, hexadecimal.
    pub rps_cpus: String,
    /// How many packets of this run the application's buffer holds on this path, counted.
    pub queue_depth_packets: u32,
}

/// Median and range over a point's trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Median.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

/// One mode at one offered rate: medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Rate that was asked for; absent: as fast as the generator can.
    pub target_pps: Option<f64>,
    /// Rate that the generator really sent.
    pub offered_pps: f64,
    /// Lost at the receive ring, which costs the system under test nothing.
    pub nic_drop_pps: f64,
    /// Discarded at the gate.
    pub discarded_pps: f64,
    /// Dropped after an skb was built.
    pub late_drop_pps: f64,
    /// Received by the application.
    pub delivered_pps: f64,
    /// Range of `delivered_pps` over the trials.
    pub delivered: Spread,
    /// Replies of an echo server, flooded in place of the application, that arrived at the far end;
    /// absent where that was not measured.
    pub echo_pps: Option<f64>,
    /// Their lowest rate in a slice of 10 ms against the median one, 0 to 1; absent as well where most
    /// slices had none.
    pub echo_steady: Option<f64>,
    /// Share of the SUT's CPU that the kernel charged to the application, 0 to 1.
    pub user_cpu: f64,
    /// Speed of the SUT's CPU against the fastest seen in this run, 0 to 1.
    pub sut_speed: f64,
    /// Share of the SUT's CPU that the hypervisor took, 0 to 1.
    pub steal: f64,
    /// The SUT's speed differed by more than 5 % from the run's median.
    pub marked: bool,
    /// Age of a packet at delivery, median, microseconds; absent where nothing was delivered.
    pub age_p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub age_p99_us: Option<f64>,
    /// How many trials.
    pub repeats: u32,
}

/// A second socket on the host that is sent a light flow beside the flood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BystanderPoint {
    /// Rate of the flood that was asked for; absent: the generator's top.
    pub flood_target_pps: Option<f64>,
    /// Rate of the flood that was really sent.
    pub flood_pps: f64,
    /// What the bystander was sent.
    pub offered_pps: f64,
    /// What it received.
    pub goodput_pps: f64,
    /// Range of `goodput_pps`.
    pub goodput: Spread,
    /// What the flooded application received meanwhile.
    pub flooded_delivered_pps: f64,
    /// How many trials.
    pub repeats: u32,
}

/// One mode's sweep in five figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Highest rate with at most 0.5 % loss (PDR), by bisection.
    pub mlfrr_pps: Option<f64>,
    /// Highest rate without any loss (NDR), by bisection.
    pub ndr_pps: Option<f64>,
    /// Highest delivered rate.
    pub peak_pps: f64,
    /// Delivered at the highest offered rate.
    pub overload_pps: f64,
    /// `overload_pps / peak_pps`.
    pub retained: f64,
}

/// What was wanted of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// What it is about.
    pub name: String,
    /// The wanted figure, with its comparison, such as `<= 0.2`.
    pub want: String,
    /// The measured one.
    pub got: String,
    /// Whether it was met.
    pub met: bool,
}

/// Where every packet of a trial ended, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// Handed to the generator's device.
    pub offered: u64,
    /// Refused by the full receive ring.
    pub nic_drop: u64,
    /// Discarded at the gate.
    pub discarded: u64,
    /// Dropped between the driver and UDP: no memory for an skb, or a full backlog queue.
    pub late_backlog: u64,
    /// Dropped at the full socket, skb built (UDP `RcvbufErrors`).
    pub late_socket: u64,
    /// Any other drop of the UDP layer (`InErrors` that are not `RcvbufErrors`, `NoPorts`).
    pub late_other: u64,
    /// Received by the applications.
    pub delivered: u64,
    /// Received by IP and not for UDP: TCP, ICMP, fragments, malformed, forwarded, to a group that nobody
    /// has joined. Counted beside floods of several kinds; else 0, and absent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beyond_udp: u64,
    /// In no counter: must be 0.
    pub unaccounted: i64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What an echo server replied, and what the far end had of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replies {
    /// Arrivals at the far end, packets/s over the window.
    pub arrived_pps: f64,
    /// As `echo_steady` in [`Point`].
    pub steady: Option<f64>,
    /// Packets that the server has sent over the whole trial.
    pub sent: u64,
    /// Packets that the far end's interface received, over the whole trial.
    pub arrived: u64,
    /// Packets that did not leave, because the far end had no room.
    pub refused: u64,
}

/// One run of the generator against one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// The mode.
    pub mode: Mode,
    /// What the trial was for: `sweep`, `echo`, `bystander` or `mlfrr`.
    pub purpose: String,
    /// Rate that was asked for; absent: as fast as the generator can.
    pub target_pps: Option<f64>,
    /// Length of the measured window, seconds.
    pub window_s: f64,
    /// Over the window.
    pub offered_pps: f64,
    /// Over the window.
    pub nic_drop_pps: f64,
    /// Over the window.
    pub discarded_pps: f64,
    /// Over the window.
    pub late_drop_pps: f64,
    /// Over the window.
    pub delivered_pps: f64,
    /// Offered to the bystander, over the window.
    pub bystander_offered_pps: f64,
    /// Received by the bystander, over the window.
    pub bystander_delivered_pps: f64,
    /// As in [`Point`].
    pub user_cpu: f64,
    /// Time of the calibrated loop on the SUT's CPU, nanoseconds.
    pub sut_loop_ns: f64,
    /// As in [`Point`].
    pub steal: f64,
    /// As in [`Point`].
    pub age_p50_us: Option<f64>,
    /// As in [`Point`].
    pub age_p99_us: Option<f64>,
    /// Packets that fell due while the generator was not running: not sent, not offered.
    pub missed_by_generator: u64,
    /// Over the whole trial.
    pub ledger: Ledger,
    /// Replies of the application, if it was an echo server.
    pub replies: Option<Replies>,
}

//! What a simulated host is made of.

use super::packets::{Bursts, PacketsPerSec};
use crate::settings::Settings;
use crate::units::{Nanos, Share, Weight};

/// What each step costs its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// An interrupt.
    pub interrupt: Nanos,
    /// A poll of the ring, whatever it finds.
    pub poll: Nanos,
    /// The kernel's processing of a packet, to the socket or to a late drop.
    pub input: Nanos,
    /// The gate's look at a packet: all that a discarded one costs.
    pub gate: Nanos,
    /// Waking a consumer.
    pub wake: Nanos,
    /// Changing from one task to another.
    pub switch: Nanos,
    /// The governor's look at one thread.
    pub look: Nanos,
}

/// Where packets are received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Receive {
    /// In softirqs, before any task: at each interrupt, or at a timer's.
    Softirq {
        /// How often the timer interrupts, if packets do not.
        timer: Option<Nanos>,
    },
    /// In a NAPI thread of a fixed weight.
    Thread(Weight),
    /// In a NAPI thread that the governor moves.
    Governed(Settings),
}

/// A flow of packets to one consumer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowSpec {
    /// Index of the consumer.
    pub to: usize,
    /// How many come while they come.
    pub rate: PacketsPerSec,
    /// When they come; `None`: always.
    pub bursts: Option<Bursts>,
}

impl FlowSpec {
    /// A constant flow.
    pub fn constant(to: usize, rate: PacketsPerSec) -> Self {
        Self { to, rate, bursts: None }
    }
}

/// A queue of a NIC.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// The CPU that receives from it.
    pub cpu: usize,
    /// Entries of its ring.
    pub entries: u64,
    /// What is sent to it.
    pub flows: Vec<FlowSpec>,
}

/// A process that receives packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConsumerSpec {
    /// The CPU that it is pinned to.
    pub cpu: usize,
    /// Its nice value.
    pub weight: Weight,
    /// What a packet costs it.
    pub cost: Nanos,
    /// How many packets its socket holds.
    pub depth: u64,
}

/// A process that computes and never sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NeighbourSpec {
    /// The CPU that it is pinned to.
    pub cpu: usize,
    /// Its nice value.
    pub weight: Weight,
}

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// How many CPUs it has.
    pub cpus: usize,
    /// What steps cost.
    pub costs: Costs,
    /// Where packets are received.
    pub receive: Receive,
    /// Whether the gate discards what finds no room, before an skb exists.
    pub gate: bool,
    /// How long after a NAPI thread slept the next interrupt may come (`gro_flush_timeout` with
    /// `napi_defer_hard_irqs`, or a NIC's coalescing).
    pub deferral: Nanos,
    /// How often the scheduler's tick comes.
    pub tick: Nanos,
    /// The scheduler's usual slice.
    pub slice: Nanos,
    /// How much of its weight a process has on its CPU. Less than all where its session (autogroup) or
    /// cgroup has processes on other CPUs too: the group's weight is divided among the CPUs.
    pub session: Share,
    /// Queues of its NICs.
    pub queues: Vec<QueueSpec>,
    /// Who receives.
    pub consumers: Vec<ConsumerSpec>,
    /// Who computes.
    pub neighbours: Vec<NeighbourSpec>,
    /// What chance begins with.
    pub seed: u64,
}

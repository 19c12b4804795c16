//! What became of the packets, and of the CPUs' time.

use super::packets::PacketsPerSec;
use crate::units::{Nanos, Share};

/// What became of a flow's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Sent.
    pub offered: u64,
    /// Found no entry in the ring.
    pub ring_dropped: u64,
    /// Discarded by the gate.
    pub discarded: u64,
    /// Dropped at the socket, after all of the kernel's work.
    pub late_dropped: u64,
    /// Put into the socket.
    pub admitted: u64,
}

/// What became of a CPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Receiving.
    pub input: Nanos,
    /// Of it, for packets that were discarded or dropped late.
    pub wasted: Nanos,
    /// Consuming.
    pub consumers: Nanos,
    /// Computing.
    pub neighbours: Nanos,
    /// Switches, wake-ups and interrupts.
    pub overhead: Nanos,
    /// The governor's looks.
    pub looks: Nanos,
}

/// What happened in a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it was.
    pub elapsed: Nanos,
    /// By queue and flow.
    pub flows: Vec<Vec<FlowCounts>>,
    /// Packets received, by consumer.
    pub delivered: Vec<u64>,
    /// Packets in rings and sockets at its end.
    pub waiting: u64,
    /// By CPU.
    pub cpus: Vec<CpuTime>,
}

impl Outcome {
    /// What happened after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut after = self.clone();
        after.elapsed = self.elapsed - earlier.elapsed;
        for (now, then) in after.flows.iter_mut().flatten().zip(earlier.flows.iter().flatten()) {
            now.offered -= then.offered;
            now.ring_dropped -= then.ring_dropped;
            now.discarded -= then.discarded;
            now.late_dropped -= then.late_dropped;
            now.admitted -= then.admitted;
        }
        for (now, then) in after.delivered.iter_mut().zip(&earlier.delivered) {
            *now -= then;
        }
        for (now, then) in after.cpus.iter_mut().zip(&earlier.cpus) {
            now.input = now.input - then.input;
            now.wasted = now.wasted - then.wasted;
            now.consumers = now.consumers - then.consumers;
            now.neighbours = now.neighbours - then.neighbours;
            now.overhead = now.overhead - then.overhead;
            now.looks = now.looks - then.looks;
        }
        after
    }

    /// How fast packets were received by one consumer.
    pub fn rate_of(&self, consumer: usize) -> PacketsPerSec {
        self.rate(self.delivered[consumer])
    }

    /// How fast packets were received by all.
    pub fn delivered_rate(&self) -> PacketsPerSec {
        self.rate(self.delivered.iter().sum())
    }

    /// How fast packets were sent.
    pub fn offered_rate(&self) -> PacketsPerSec {
        self.rate(self.flows.iter().flatten().map(|flow| flow.offered).sum())
    }

    /// What part of all CPUs' time `of` was.
    pub fn share(&self, of: impl Fn(&CpuTime) -> Nanos) -> Share {
        let used: u64 = self.cpus.iter().map(|cpu| of(cpu).0).sum();
        let whole = self.elapsed.0 * self.cpus.len() as u64;
        Share::new(Nanos(used).share_of(Nanos(whole)).min(1.0))
            .unwrap_or_else(|| unreachable!("a part of the whole is a share"))
    }

    /// Packets that are nowhere, of a host's whole life; anything but 0 is a fault of the simulation.
    pub fn unaccounted(&self) -> i64 {
        let ended: u64 = self.delivered.iter().sum::<u64>() + self.waiting;
        let all = self.flows.iter().flatten();
        let (offered, dropped) = all.fold((0, 0), |(offered, dropped), flow| {
            let lost = flow.ring_dropped + flow.discarded + flow.late_dropped;
            (offered + flow.offered, dropped + lost)
        });
        offered as i64 - (ended + dropped) as i64
    }

    fn rate(&self, packets: u64) -> PacketsPerSec {
        PacketsPerSec(packets as f64 * 1e9 / self.elapsed.0.max(1) as f64)
    }
}

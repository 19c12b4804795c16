//! Counters, and the rates between two looks at them.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use weir_bpf::counters::{Counter, Counters};
use weir_bpf::gate::{Gate, Policy};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::snmp::UdpStats;
use weir_bpf::units::{IfIndex, PacketsPerSec};
use weir_bpf::verdict::Verdict;

/// What became of packets. With the policy `shadow`, what is decided to be discarded passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Handed to the kernel, or answered or sent on at the gate.
    pub passed: Counter,
    /// Dropped at the gate.
    pub discarded: Counter,
    /// Of those that were handed to the kernel: would have been dropped with the policy `on`.
    pub would_discard: Counter,
}

impl Outcome {
    /// Of packets that the gate decided to pass, and others that it decided to discard.
    pub fn of(pass: Counter, discard: Counter, policy: Policy) -> Self {
        if policy != Policy::Shadow {
            return Self { passed: pass, discarded: discard, would_discard: Counter::default() };
        }
        let mut passed = pass;
        passed += discard;
        Self { passed, discarded: Counter::default(), would_discard: discard }
    }

    /// Of everything that a gate has seen.
    pub fn of_all(counters: &Counters, policy: Policy) -> Self {
        Self::of(counters.verdict(Verdict::Pass), counters.verdict(Verdict::Discard), policy)
    }
}

/// Everything that is counted for one interface, at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When the counters were read.
    pub at: Instant,
    /// The gate's.
    pub gate: Counters,
    /// What it does with what it decides.
    pub policy: Policy,
    /// What was dropped elsewhere.
    pub drops: Drops,
    /// What the interface counts as received: `rx_packets`.
    pub received: u64,
}

/// Packets dropped outside the gate; where the kernel counts them, not since protection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// The NIC's receive ring had no room.
    pub ring: u64,
    /// The interface received and dropped them.
    pub interface: u64,
    /// UDP, at sockets, in the whole network namespace.
    pub udp_late: u64,
    /// Counted as `forwarded`, and not taken by the egress's driver; since protection began.
    pub unsent: u64,
}

impl Sample {
    /// Reads everything but the late drops, which are the namespace's.
    ///
    /// # Errors
    /// If the interface is gone, or the kernel does not answer.
    pub fn read(
        links: &Links,
        ifindex: IfIndex,
        gate: &Gate,
        policy: Policy,
        udp_late: u64,
    ) -> weir_bpf::Result<Self> {
        let link = links.stats(ifindex)?;
        Ok(Self {
            at: Instant::now(),
            gate: gate.counters()?,
            policy,
            drops: Drops {
                ring: link.ring_dropped(),
                interface: link.rx_dropped,
                udp_late,
                unsent: gate.unsent(),
            },
            received: link.rx_packets,
        })
    }
}

/// Drivers that count a full ring neither as missed nor as fifo errors.
const RING_UNCOUNTED: [&str; 5] = ["ena", "gve", "veth", "virtio_net", "vmxnet3"];

/// Whether interfaces of a driver count for how many packets their ring had no room.
pub fn counts_ring_drops(driver: Option<&str>) -> bool {
    driver.is_none_or(|driver| !RING_UNCOUNTED.contains(&driver))
}

/// How much a counter has grown in a second. One that went backwards was made anew: an interface's or a driver's, by taking
/// it down, or a deleted channel's.
pub fn rate(before: u64, after: u64, secs: f64) -> f64 {
    if secs > 0.0 { after.saturating_sub(before) as f64 / secs } else { 0.0 }
}

/// UDP packets dropped at a full socket or for want of memory.
pub fn late_drops(udp: UdpStats) -> u64 {
    udp.rcvbuf_errors.saturating_add(udp.mem_errors)
}

/// What happened per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Packets that reached the gate.
    pub seen_pps: PacketsPerSec,
    /// Packets handed to the kernel, or answered or sent on at the gate.
    pub passed_pps: PacketsPerSec,
    /// Packets put on lazy sockets' rings, past the kernel.
    #[serde(default)]
    pub lazy_pps: PacketsPerSec,
    /// Packets dropped at the gate.
    pub discarded_pps: PacketsPerSec,
    /// Of the packets handed to the kernel: those that would be dropped with the policy `on`.
    pub would_discard_pps: PacketsPerSec,
    /// Packets for which the NIC's receive ring had no room: `rx_missed_errors` and
    /// `rx_fifo_errors` of the interface. A veth has no such counters: what does not fit into its
    /// ring is its peer's `tx_dropped`.
    pub ring_drop_pps: PacketsPerSec,
    /// Whether the interface's driver counts them: for who knows the interface to fill in.
    #[serde(default)]
    pub ring_drops_counted: bool,
    /// Packets that the interface counts as received but dropped: its `rx_dropped`. Some drivers
    /// (`virtio_net`) count the gate's discards here too.
    pub interface_drop_pps: PacketsPerSec,
    /// UDP packets that the kernel dropped at full sockets or for want of memory, in the whole network namespace.
    pub late_drop_pps: PacketsPerSec,
    /// Of the packets that are counted as `forwarded`: those that the egress's driver did not take.
    pub unsent_pps: PacketsPerSec,
}

impl Rates {
    /// From one sample to a later one.
    pub fn between(earlier: &Sample, later: &Sample) -> Self {
        let secs = later.at.duration_since(earlier.at).as_secs_f64();
        let rate = |before, after| PacketsPerSec(rate(before, after, secs));
        let outcome = |sample: &Sample| Outcome::of_all(&sample.gate, sample.policy);
        let (before, after) = (outcome(earlier), outcome(later));
        let lazy = |sample: &Sample| sample.gate.verdict(Verdict::Deliver).packets;
        Self {
            seen_pps: rate(earlier.gate.total().packets, later.gate.total().packets),
            passed_pps: rate(before.passed.packets, after.passed.packets),
            lazy_pps: rate(lazy(earlier), lazy(later)),
            discarded_pps: rate(before.discarded.packets, after.discarded.packets),
            would_discard_pps: rate(before.would_discard.packets, after.would_discard.packets),
            ring_drop_pps: rate(earlier.drops.ring, later.drops.ring),
            interface_drop_pps: rate(earlier.drops.interface, later.drops.interface),
            late_drop_pps: rate(earlier.drops.udp_late, later.drops.udp_late),
            unsent_pps: rate(earlier.drops.unsent, later.drops.unsent),
            ..Self::default()
        }
    }

    /// Ring drops; none where the driver does not count them.
    pub fn ring_drops(&self) -> Option<PacketsPerSec> {
        self.ring_drops_counted.then_some(self.ring_drop_pps)
    }

    /// Each as `tell` writes it, or `?` where it is not counted; those of lazy sockets and of the fast path of forwarding
    /// only where there are such packets.
    pub fn told(
        &self,
        policy: Policy,
        (lazy, forwarded): (bool, bool),
        tell: impl Fn(&str, PacketsPerSec) -> String,
    ) -> Vec<String> {
        let all = [
            ("seen", Some(self.seen_pps), true),
            ("passed", Some(self.passed_pps), true),
            ("to lazy sockets", Some(self.lazy_pps), lazy),
            ("discarded", Some(self.discarded_pps), true),
            ("would discard", Some(self.would_discard_pps), policy == Policy::Shadow),
            ("ring drops", self.ring_drops(), true),
            ("interface drops", Some(self.interface_drop_pps), true),
            ("UDP late drops", Some(self.late_drop_pps), true),
            ("unsent", Some(self.unsent_pps), forwarded),
        ];
        let told = all.into_iter().filter(|(.., is_told)| *is_told);
        let text = |(what, rate, _): (&str, Option<_>, _)| {
            rate.map_or_else(|| format!("{what} ?"), |rate| tell(what, rate))
        };
        told.map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ring_drops_are_not_said_to_be_none_where_they_are_not_counted() {
        let told = |driver| {
            let ring_drops_counted = counts_ring_drops(driver);
            let rates = Rates { ring_drops_counted, ..Rates::default() };
            let tell = |what: &str, rate: PacketsPerSec| format!("{what} {:.0}/s", rate.0);
            rates.told(Policy::On, (false, false), tell)[3].clone()
        };
        for driver in [Some("veth"), Some("virtio_net")] {
            assert_eq!(told(driver), "ring drops ?");
        }
        for driver in [Some("igb"), None] {
            assert_eq!(told(driver), "ring drops 0/s");
        }
    }

    #[test]
    fn rates_are_per_second_and_never_negative() {
        let at = Instant::now();
        let earlier = Sample {
            policy: Policy::On,
            at,
            gate: Counters::default(),
            drops: Drops { ring: 100, interface: 10, udp_late: 7, unsent: 0 },
            received: 0,
        };
        let later = Sample {
            at: at + Duration::from_millis(500),
            drops: Drops { ring: 150, interface: 30, udp_late: 3, unsent: 0 },
            ..earlier.clone()
        };
        let rates = Rates::between(&earlier, &later);
        assert_eq!(rates.ring_drop_pps, PacketsPerSec(100.0));
        assert_eq!(rates.interface_drop_pps, PacketsPerSec(40.0));
        assert_eq!(rates.late_drop_pps, PacketsPerSec(0.0));
        assert_eq!(rates.seen_pps, PacketsPerSec(0.0));
        assert_eq!(Rates::between(&later, &later).ring_drop_pps, PacketsPerSec(0.0));
        assert_eq!(later.gate.since(&earlier.gate).top_discard(), None);
    }
}

//! Channels with their counts and rates, for programs and people.

use serde::Serialize;
use weir_bpf::accounts::Charge;
use weir_bpf::channels::{Channel, Seen};
use weir_bpf::counters::Counter;
use weir_bpf::gate::Policy;
use weir_bpf::sys::divert::PortProtocol;
use weir_bpf::units::{IfIndex, PacketsPerSec};
use weir_bpf::verdict::{Kind, Reason, Verdict};

use super::look::Look;
use super::sockets::{Behind, OwnerRow, SocketsRow};
use super::sources::{Sources, SourcesRow};
use crate::channel_name::{ChannelName, Namer};
use crate::sample::{Outcome, rate};
use crate::status::{DiversionStatus, InterfaceStatus};

/// What `weir channels --json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this shape.
    pub schema: u32,
    /// In the order in which they were looked at.
    pub interfaces: Vec<InterfaceChannels>,
}

/// One protected interface's channels.
#[derive(Debug, Serialize)]
pub struct InterfaceChannels {
    /// The interface's name.
    pub interface: String,
    /// What its gate does with what it decides.
    pub policy: Policy,
    /// The interface's number.
    pub ifindex: IfIndex,
    /// The time that the rates are of, in seconds; `null` if there are none.
    pub interval_secs: Option<f64>,
    /// Those that packets have been seen of, most packets first.
    pub channels: Vec<ChannelRow>,
    /// The channels beyond the number that is counted one by one, together.
    pub overflow: Figures,
    /// The channels that were deleted because they had gone quiet when there were many.
    pub retired: RetiredRow,
    /// Those for lazy sockets, which are in no channel, together.
    pub lazy: Figures,
    /// Every packet, by the counters of reasons.
    pub total: Figures,
    /// What was discarded of all channels, by reason.
    pub discards: Vec<Discards>,
}

/// One channel.
#[derive(Debug, Serialize)]
pub struct ChannelRow {
    /// Which one.
    #[serde(flatten)]
    pub name: ChannelName,
    /// What was seen of it.
    #[serde(flatten)]
    pub figures: Figures,
    /// What was discarded, by reason.
    pub discards: Vec<Discards>,
    /// What its packets that were admitted have cost the CPUs that received them; `null` if nothing is
    /// known.
    pub cpu: Option<CpuRow>,
    /// Whether rules translate what comes to its port (NAT), so that it may go elsewhere than to the sockets here.
    pub translated: bool,
    /// The sockets that its packets are for; `null` of a kind that has none, and of what is translated.
    pub sockets: Option<SocketsRow>,
    /// Whose they are; `null` where `sockets` is.
    pub owner: Option<OwnerRow>,
    /// Who sends what is discarded; `null` if nothing was between the two looks, or without `--sources`.
    pub sources: Option<SourcesRow>,
}

/// CPU time of receive work, on all CPUs, for a channel of whichever interface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuRow {
    /// Since it was last quiet for a second, at least.
    pub charged_ns: u64,
    /// Between the two looks, of one CPU; `null` if there was one only, or it was quiet.
    pub share: Option<f64>,
    /// Of one packet; `null` if there was none.
    pub packet_ns: Option<u64>,
}

impl CpuRow {
    fn of(charge: &Charge, earlier: Option<&Charge>, elapsed: Option<f64>) -> Self {
        let share = elapsed.zip(earlier).filter(|(secs, earlier)| {
            // Less than before: its account was another's meanwhile.
            *secs > 0.0 && earlier.time <= charge.time
        });
        Self {
            charged_ns: charge.time.0,
            share: share.map(|(secs, earlier)| (charge.time - earlier.time).0 as f64 / 1e9 / secs),
            packet_ns: charge.time.0.checked_div(charge.packets),
        }
    }
}

/// Packets that were discarded for one reason.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Discards {
    /// Why.
    pub reason: &'static str,
    /// How many.
    #[serde(flatten)]
    pub counter: Counter,
}

/// Channels that are no longer listed.
#[derive(Debug, Serialize)]
pub struct RetiredRow {
    /// How many.
    pub channels: u64,
    /// What was seen of them.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Both of the following.
    pub offered: Counter,
    /// Handed to the kernel, answered or sent on at the gate, or put on a lazy socket's ring.
    pub passed: Counter,
    /// Dropped at the gate.
    pub discarded: Counter,
    /// Of those handed to the kernel: would be dropped with the policy `on`.
    pub would_discard: Counter,
    /// What happened meanwhile; `null` if nobody waited.
    pub rates: Option<Rates>,
}

/// What happened per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Packets of both of the following.
    pub offered_pps: PacketsPerSec,
    /// Packets handed to the kernel.
    pub passed_pps: PacketsPerSec,
    /// Packets dropped at the gate.
    pub discarded_pps: PacketsPerSec,
    /// Of those handed to the kernel: would be dropped with the policy `on`.
    pub would_discard_pps: PacketsPerSec,
    /// Bytes of Ethernet frames of both, per second.
    pub bytes_per_sec: f64,
}

impl Rates {
    fn and(&self, other: &Self) -> Self {
        let sum = |one: PacketsPerSec, other: PacketsPerSec| PacketsPerSec(one.0 + other.0);
        Self {
            offered_pps: sum(self.offered_pps, other.offered_pps),
            passed_pps: sum(self.passed_pps, other.passed_pps),
            discarded_pps: sum(self.discarded_pps, other.discarded_pps),
            would_discard_pps: sum(self.would_discard_pps, other.would_discard_pps),
            bytes_per_sec: self.bytes_per_sec + other.bytes_per_sec,
        }
    }
}

impl Figures {
    /// What was seen at last, and how fast it came since `earlier`.
    pub fn of(seen: Seen, earlier: Option<Seen>, secs: f64, policy: Policy) -> Self {
        let outcome = |seen: &Seen| Outcome::of(seen.passed, seen.discarded, policy);
        let Outcome { passed, discarded, would_discard } = outcome(&seen);
        let rate = |before, after| rate(before, after, secs);
        let rates = earlier.map(|earlier| {
            let before = outcome(&earlier);
            let of = |before: Counter, after: Counter| {
                PacketsPerSec(rate(before.packets, after.packets))
            };
            Rates {
                offered_pps: PacketsPerSec(rate(earlier.packets(), seen.packets())),
                passed_pps: of(before.passed, passed),
                discarded_pps: of(before.discarded, discarded),
                would_discard_pps: of(before.would_discard, would_discard),
                bytes_per_sec: rate(earlier.bytes(), seen.bytes()),
            }
        });
        let offered = Counter { packets: seen.packets(), bytes: seen.bytes() };
        Self { offered, passed, discarded, would_discard, rates }
    }

    /// Of several channels.
    pub fn together<'all>(all: impl Iterator<Item = &'all Self>) -> Option<Self> {
        all.copied().reduce(|mut sum, each| {
            sum.offered += each.offered;
            sum.passed += each.passed;
            sum.discarded += each.discarded;
            sum.would_discard += each.would_discard;
            sum.rates = sum.rates.zip(each.rates).map(|(sum, each)| sum.and(&each));
            sum
        })
    }

    /// What is dropped per second, or would be with the policy `on`.
    pub fn discarded_pps(&self) -> PacketsPerSec {
        let sum = |rates: &Rates| rates.discarded_pps.0 + rates.would_discard_pps.0;
        PacketsPerSec(self.rates.as_ref().map_or(0.0, sum))
    }
}

impl Look {
    /// By the counters of reasons.
    fn discards(&self, of: impl Fn(Reason) -> bool) -> Vec<Discards> {
        let discards = self.counters.discards().filter(|(reason, _)| of(*reason));
        let named = |(reason, counter): (Reason, _)| Discards { reason: reason.name(), counter };
        discards.map(named).collect()
    }

    /// Of a kind whose channels have addresses, what was discarded for its queue and for its share of the CPU is
    /// counted apart. For the queue UDP has two reasons, which are not: both go by the first, `udp-full`.
    fn discards_of(&self, channel: &Channel) -> Vec<Discards> {
        if !channel.kind.is_addressed() {
            return self.discards(|reason| reason.kind() == channel.kind);
        }
        let seen = self.of(channel);
        let full = Counter {
            packets: seen.discarded.packets - seen.shed.packets,
            bytes: seen.discarded.bytes - seen.shed.bytes,
        };
        let of = |share: bool, counter: Counter| {
            let discards = |reason: Reason| Discards { reason: reason.name(), counter };
            reason_to_discard(channel.kind, share).filter(|_| counter.packets > 0).map(discards)
        };
        of(false, full).into_iter().chain(of(true, seen.shed)).collect()
    }
}

/// For its share of the CPU, or else for its queue. `None`: there is none.
fn reason_to_discard(kind: Kind, share: bool) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| {
        let discards = reason.kind() == kind && reason.verdict() == Verdict::Discard;
        discards && reason.is_share() == share
    })
}

/// Whether rules translate what comes to a channel's port. Whoever publishes a container's port holds a socket on it to
/// keep it free, which gets none of its packets.
fn translates(diversions: &[DiversionStatus], channel: &Channel) -> bool {
    let of = match channel.kind {
        Kind::Udp => PortProtocol::Udp,
        Kind::Tcp | Kind::TcpRequest | Kind::TcpStray => PortProtocol::Tcp,
        _ => return false,
    };
    let Some(port) = channel.local_port() else { return false };
    let mut ports = diversions.iter().flat_map(|each| &each.ports);
    ports.any(|ports| ports.protocol == of && (ports.first..=ports.last).contains(&port))
}

impl InterfaceChannels {
    /// From one or two looks at an interface's gate.
    pub fn new(
        status: &InterfaceStatus,
        earlier: Option<&Look>,
        later: &Look,
        namer: &Namer,
        behind: Option<&Behind>,
        sources: Option<&Sources>,
    ) -> Self {
        let elapsed = earlier.map(|earlier| later.at.duration_since(earlier.at).as_secs_f64());
        let secs = elapsed.unwrap_or_default();
        let figures = |of: &dyn Fn(&Look) -> Seen| {
            Figures::of(of(later), earlier.map(of), secs, status.policy)
        };
        let row = |(channel, _): (Channel, Seen)| {
            let figures = figures(&|look| look.of(&channel));
            let translated = translates(&status.diversions, &channel);
            let behind = behind.filter(|_| !translated);
            let behind = behind.and_then(|behind| behind.of(&channel, status.ifindex, &figures));
            let (sockets, owner) = behind.unzip();
            let discards = later.discards_of(&channel);
            let cpu = later.charges.get(&channel).map(|charge| {
                let before = earlier.and_then(|earlier| earlier.charges.get(&channel));
                CpuRow::of(charge, before, elapsed)
            });
            let sources = sources.and_then(|sources| sources.of(&channel, figures.discarded_pps()));
            let name = namer.name(&channel);
            ChannelRow { name, figures, discards, cpu, translated, sockets, owner, sources }
        };
        let mut channels: Vec<ChannelRow> = later.each().map(row).collect();
        channels.sort_by(|a, b| {
            let packets = |row: &ChannelRow| row.figures.offered.packets;
            packets(b).cmp(&packets(a)).then_with(|| a.name.name.cmp(&b.name.name))
        });
        Self {
            interface: status.interface.clone(),
            policy: status.policy,
            ifindex: status.ifindex,
            interval_secs: elapsed,
            channels,
            overflow: figures(&|look| look.channels.overflow),
            retired: RetiredRow {
                channels: later.retired.channels,
                figures: figures(&|look| look.retired.seen),
            },
            lazy: figures(&Look::lazy),
            total: figures(&Look::total),
            discards: later.discards(|_| true),
        }
    }
}

//! Channels with their counts and rates, for programs and people.

use serde::Serialize;
use weir_bpf::channels::{Channel, Seen};
use weir_bpf::counters::Counter;
use weir_bpf::units::{IfIndex, PacketsPerSec};

use super::look::Look;
use crate::channel_name::{ChannelName, Namer};
use crate::status::InterfaceStatus;

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
    /// Every packet, by the counters of reasons.
    pub total: Figures,
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
    /// Handed to the kernel.
    pub passed: Counter,
    /// Dropped at the gate.
    pub discarded: Counter,
    /// What happened meanwhile; `null` if nobody waited.
    pub rates: Option<Rates>,
}

/// What happened per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Packets handed to the kernel.
    pub passed_pps: PacketsPerSec,
    /// Packets dropped at the gate.
    pub discarded_pps: PacketsPerSec,
    /// Bytes of Ethernet frames of both, per second.
    pub bytes_per_sec: f64,
}

impl Figures {
    /// What was seen at last, and how fast it came since `earlier`.
    pub fn of(seen: Seen, earlier: Option<Seen>, secs: f64) -> Self {
        let rate = |before: u64, after: u64| {
            // Fewer than before: the channel has been deleted meanwhile.
            if secs > 0.0 { after.saturating_sub(before) as f64 / secs } else { 0.0 }
        };
        let rates = earlier.map(|earlier| Rates {
            passed_pps: PacketsPerSec(rate(earlier.passed.packets, seen.passed.packets)),
            discarded_pps: PacketsPerSec(rate(earlier.discarded.packets, seen.discarded.packets)),
            bytes_per_sec: rate(earlier.bytes(), seen.bytes()),
        });
        Self { passed: seen.passed, discarded: seen.discarded, rates }
    }

    /// Packets, whatever became of them.
    pub fn packets(&self) -> u64 {
        self.passed.packets + self.discarded.packets
    }
}

impl InterfaceChannels {
    /// From one or two looks at an interface's gate.
    pub fn new(
        status: &InterfaceStatus,
        earlier: Option<&Look>,
        later: &Look,
        namer: &Namer,
    ) -> Self {
        let elapsed = earlier.map(|earlier| later.at.duration_since(earlier.at).as_secs_f64());
        let secs = elapsed.unwrap_or_default();
        let figures = |of: &dyn Fn(&Look) -> Seen| Figures::of(of(later), earlier.map(of), secs);
        let row = |(channel, _): (Channel, Seen)| ChannelRow {
            name: namer.name(&channel),
            figures: figures(&|look| look.of(&channel)),
        };
        let mut channels: Vec<ChannelRow> = later.each().map(row).collect();
        channels.sort_by(|a, b| {
            let packets = |row: &ChannelRow| row.figures.packets();
            packets(b).cmp(&packets(a)).then_with(|| a.name.name.cmp(&b.name.name))
        });
        Self {
            interface: status.interface.clone(),
            ifindex: status.ifindex,
            interval_secs: elapsed,
            channels,
            overflow: figures(&|look| look.channels.overflow),
            retired: RetiredRow {
                channels: later.retired.channels,
                figures: figures(&|look| look.retired.seen),
            },
            total: figures(&Look::total),
        }
    }
}

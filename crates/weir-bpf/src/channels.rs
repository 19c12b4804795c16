//! What a gate has seen, channel by channel.
//!
//! Kinds of channel that have an address of their own (a UDP socket, a listener, an egress interface)
//! are counted one by one; the others by reason alone, see [`crate::counters`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use crate::counters::Counter;
use crate::error::{Error, Result};
use crate::object::open_map;
use crate::record::record;
use crate::skeleton::gate::types;
use crate::units::IfIndex;
use crate::verdict::Kind;

pub(crate) const CHANNELS: &str = "the gate's channels";

/// Where a packet is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// What it is.
    pub kind: Kind,
    /// Local address and port; of a [`Kind::TcpPeer`] channel the port is the peers'. None of kinds that have
    /// none ([`Kind::is_addressed`]), nor of a [`Kind::Forward`] channel.
    pub local: Option<(IpAddr, u16)>,
    /// Where packets leave the host; of a [`Kind::Forward`] channel only.
    pub egress: Option<IfIndex>,
}

impl Channel {
    /// The only channel of a kind that has no address of its own.
    pub fn of_kind(kind: Kind) -> Self {
        Self { kind, local: None, egress: None }
    }

    /// This host's port, if packets to one are what the channel is.
    pub fn local_port(&self) -> Option<u16> {
        let (_, port) = self.local?;
        (self.kind != Kind::TcpPeer).then_some(port)
    }
}

/// What was seen of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Handed to the kernel.
    pub passed: Counter,
    /// Dropped at the gate.
    pub discarded: Counter,
    /// Of those, because the channel was over its share of a saturated CPU.
    #[serde(default)]
    pub shed: Counter,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.discarded += other.discarded;
        self.shed += other.shed;
    }
}

impl Seen {
    /// Packets, whatever became of them.
    pub fn packets(&self) -> u64 {
        self.passed.packets + self.discarded.packets
    }

    /// Bytes of their Ethernet frames.
    pub fn bytes(&self) -> u64 {
        self.passed.bytes + self.discarded.bytes
    }

    pub(crate) fn add(&mut self, counters: &[types::weir_counter; 3]) {
        let counter = |counter: &types::weir_counter| Counter {
            packets: counter.packets,
            bytes: counter.bytes,
        };
        // In the order of `enum weir_seen`.
        let [passed, full, shed] = counters.each_ref().map(counter);
        self.passed += passed;
        self.discarded += full;
        self.discarded += shed;
        self.shed += shed;
    }
}

/// The kernel's numbers of the maps that a gate counts channels in, for [`ChannelsReader::open`] in
/// another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelMapIds {
    /// Channel by channel.
    pub channels: u32,
    /// Those beyond [`crate::abi::CHANNELS`], together.
    pub overflow: u32,
    /// What each CPU has counted lately.
    pub destinations: u32,
    /// What channels are charged ([`crate::accounts`]).
    pub accounts: u32,
    /// Samples of what is discarded ([`crate::samples`]).
    #[serde(default)]
    pub samples: u32,
}

/// Another process's gate's channels, read where the kernel keeps them. They stay readable after the
/// gate has gone.
pub struct ChannelsReader {
    channels: MapHandle,
    overflow: MapHandle,
    destinations: MapHandle,
}

impl ChannelsReader {
    /// Opens the channels of the gate whose [`Gate::channel_map_ids`](crate::gate::Gate::channel_map_ids) these are.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where there are no such maps any more.
    pub fn open(ids: ChannelMapIds) -> Result<Self> {
        let open = |id| open_map(id, CHANNELS);
        Ok(Self {
            channels: open(ids.channels)?,
            overflow: open(ids.overflow)?,
            destinations: open(ids.destinations)?,
        })
    }

    /// As [`Gate::channels`](crate::gate::Gate::channels).
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn channels(&self) -> Result<Channels> {
        read(&self.channels, &self.overflow, &self.destinations)
    }
}

/// Every channel with an address of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// One by one.
    pub by_channel: BTreeMap<Channel, Seen>,
    /// Those beyond the first [`crate::abi::CHANNELS`], together.
    pub overflow: Seen,
}

/// Reads what has been folded into the channels' map and what the CPUs' destination caches still hold. Not one
/// instant: what is folded meanwhile may be missing or there twice, until the next look.
pub(crate) fn read(
    channels: &impl MapCore,
    overflow: &impl MapCore,
    destinations: &impl MapCore,
) -> Result<Channels> {
    let mut found = Channels::default();
    // Once each: where a key is deleted meanwhile, the kernel begins again (`htab_map_get_next_key`).
    for key in channels.keys().collect::<BTreeSet<_>>() {
        let Some(channel) = channel_of_key(&key) else { continue };
        let seen = found.by_channel.entry(channel).or_default();
        per_cpu(channels, &key)?.iter().for_each(|entry| add_entry(seen, entry));
    }
    for entry in per_cpu(overflow, &0_u32.to_ne_bytes())? {
        add_entry(&mut found.overflow, &entry);
    }
    for place in 0..destinations.max_entries() {
        for value in per_cpu(destinations, &place.to_ne_bytes())? {
            let Some(entry) = record::<types::weir_destination>(&value) else { continue };
            if entry.seen.iter().any(|counter| counter.packets > 0)
                && let Some(channel) = channel_of_destination(&entry)
            {
                found.by_channel.entry(channel).or_default().add(&entry.seen);
            }
        }
    }
    Ok(found)
}

fn per_cpu(map: &impl MapCore, key: &[u8]) -> Result<Vec<Vec<u8>>> {
    let values = map.lookup_percpu(key, MapFlags::ANY).map_err(Error::libbpf("read", CHANNELS))?;
    // Deleted since its key was listed.
    Ok(values.unwrap_or_default())
}

/// What was seen, in one CPU's part of a channel's entry.
pub(crate) fn add_entry(seen: &mut Seen, entry: &[u8]) {
    if let Some(entry) = record::<types::weir_channel>(entry) {
        seen.add(&entry.seen);
    }
}

/// The channel that the kernel half has counted under a key.
pub(crate) fn channel_of_key(key: &[u8]) -> Option<Channel> {
    let key = record::<types::weir_channel_key>(key)?;
    let kind = Kind::of(key.kind.into())?;
    Some(channel(kind, key.family.into(), &key.address, key.port, key.egress_ifindex))
}

fn channel_of_destination(entry: &types::weir_destination) -> Option<Channel> {
    let kind = Kind::of(entry.kind.into())?;
    let (port, egress) = (entry.channel_port, entry.egress_ifindex);
    kind.is_addressed().then(|| channel(kind, entry.family.0, &entry.address, port, egress))
}

pub(crate) fn channel(
    kind: Kind,
    family: u32,
    address: &[u32; 4],
    port: u16,
    egress: u32,
) -> Channel {
    if kind == Kind::Forward {
        return Channel { kind, local: None, egress: Some(IfIndex(egress)) };
    }
    let mut octets = [0; 16];
    for (to, word) in octets.chunks_exact_mut(4).zip(address) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let ip = if family == types::weir_family::WEIR_FAMILY_IPV4.0 {
        IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    Channel { kind, local: Some((ip, port)), egress: None }
}

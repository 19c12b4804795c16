//! What a gate has seen, channel by channel.
//!
//! Kinds of channel that have an address of their own (a UDP socket, a listener, an egress interface)
//! are counted one by one; the others by reason alone, see [`crate::counters`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libbpf_rs::{MapCore, MapFlags};

use crate::counters::Counter;
use crate::error::{Error, Result};
use crate::skeleton::gate::types;
use crate::units::IfIndex;
use crate::verdict::{Kind, Reason, Verdict};

/// A channel with an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// What it is.
    pub kind: Kind,
    /// Local address and port; not of a [`Kind::Forward`] channel.
    pub local: Option<(IpAddr, u16)>,
    /// Where packets leave the host; of a [`Kind::Forward`] channel only.
    pub egress: Option<IfIndex>,
}

/// What was seen of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Handed to the kernel.
    pub passed: Counter,
    /// Dropped at the gate.
    pub discarded: Counter,
}

impl Seen {
    fn add(&mut self, counters: &[types::weir_counter; 2]) {
        let counter = |verdict: Verdict| {
            let counter = &counters[verdict as usize];
            Counter { packets: counter.packets, bytes: counter.bytes }
        };
        self.passed += counter(Verdict::Pass);
        self.discarded += counter(Verdict::Discard);
    }
}

/// Every channel with an address of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// One by one.
    pub by_channel: BTreeMap<Channel, Seen>,
    /// Those beyond the first `WEIR_CHANNELS` (4,096), together.
    pub overflow: Seen,
}

/// Reads what has been folded into the channels' map and what the CPUs' memories still hold. Not one
/// instant: what is folded meanwhile may be missing or there twice, until the next look.
pub(crate) fn read(
    channels: &impl MapCore,
    overflow: &impl MapCore,
    memories: &impl MapCore,
) -> Result<Channels> {
    let mut found = Channels::default();
    for key in channels.keys() {
        let Some(channel) = record::<types::weir_channel_key>(&key).and_then(channel_of_key) else {
            continue;
        };
        let seen = found.by_channel.entry(channel).or_default();
        for value in per_cpu(channels, &key)? {
            if let Some(value) = record::<types::weir_channel>(&value) {
                seen.add(&value.seen);
            }
        }
    }
    for value in per_cpu(overflow, &0_u32.to_ne_bytes())? {
        if let Some(value) = record::<types::weir_channel>(&value) {
            found.overflow.add(&value.seen);
        }
    }
    for place in 0..memories.max_entries() {
        for value in per_cpu(memories, &place.to_ne_bytes())? {
            let Some(memory) = record::<types::weir_memory>(&value) else { continue };
            if memory.seen.iter().any(|counter| counter.packets > 0)
                && let Some(channel) = channel_of_memory(&memory)
            {
                found.by_channel.entry(channel).or_default().add(&memory.seen);
            }
        }
    }
    Ok(found)
}

fn per_cpu(map: &impl MapCore, key: &[u8]) -> Result<Vec<Vec<u8>>> {
    let values = map.lookup_percpu(key, MapFlags::ANY).map_err(|source| Error::Bpf {
        operation: "read",
        object: "the gate's channels".into(),
        source,
        remedy: None,
    })?;
    // Deleted since its key was listed.
    Ok(values.unwrap_or_default())
}

/// A plain record out of the kernel's bytes.
#[allow(unsafe_code)]
fn record<T: Copy>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and the types of this module that it is used for are the kernel
    // half's own, integers throughout, of which every pattern of bits is a value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn channel_of_key(key: types::weir_channel_key) -> Option<Channel> {
    let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == u32::from(key.kind))?;
    Some(channel(kind, key.family.into(), &key.address, key.port, key.egress_ifindex))
}

fn channel_of_memory(memory: &types::weir_memory) -> Option<Channel> {
    let reason = Reason::ALL.into_iter().find(|reason| *reason as u32 == memory.reason)?;
    let kind = reason.kind();
    if !matches!(kind, Kind::Udp | Kind::Multicast | Kind::Tcp | Kind::Forward) {
        return None;
    }
    let port = u16::from_be(memory.port_be);
    Some(channel(kind, memory.family.0, &memory.address, port, memory.egress_ifindex))
}

fn channel(kind: Kind, family: u32, address: &[u32; 4], port: u16, egress: u32) -> Channel {
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

//! What a gate has seen: each packet once, under one reason.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::skeleton::gate::types;
use crate::verdict::{Reason, Verdict};

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes of their Ethernet frames, without FCS.
    pub bytes: u64,
}

impl std::ops::AddAssign for Counter {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What the gate has seen since it was loaded: each packet once, under one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    by_reason: [Counter; Reason::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self { by_reason: [Counter::default(); Reason::ALL.len()] }
    }
}

impl Counters {
    /// Packets under one reason.
    pub fn get(&self, reason: Reason) -> Counter {
        self.by_reason[reason as usize]
    }

    /// Counts one more packet of so many bytes.
    pub fn count(&mut self, reason: Reason, bytes: u64) {
        self.by_reason[reason as usize] += Counter { packets: 1, bytes };
    }

    /// Packets under one verdict.
    pub fn verdict(&self, verdict: Verdict) -> Counter {
        let mut sum = Counter::default();
        for reason in Reason::ALL.into_iter().filter(|reason| reason.verdict() == verdict) {
            sum += self.get(reason);
        }
        sum
    }

    /// Every packet seen.
    pub fn total(&self) -> Counter {
        let mut sum = Counter::default();
        self.by_reason.iter().for_each(|counter| sum += *counter);
        sum
    }
}

/// Another process's gate's counters, read where the kernel keeps them. They stay readable after the
/// gate has gone.
pub struct CountersReader {
    map: MapHandle,
}

impl CountersReader {
    /// Opens the counters of the gate whose [`Gate::counters_map_id`](crate::gate::Gate::counters_map_id) this is.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where there is no such map any more.
    pub fn open(map_id: u32) -> Result<Self> {
        let map = MapHandle::from_map_id(map_id).map_err(|source| Error::Bpf {
            operation: "open",
            object: format!("the gate's counters, BPF map {map_id}"),
            source,
            remedy: None,
        })?;
        Ok(Self { map })
    }

    /// As [`Gate::counters`](crate::gate::Gate::counters).
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn counters(&self) -> Result<Counters> {
        read(&self.map)
    }
}

/// The counters of a gate's map, summed over CPUs.
pub(crate) fn read(map: &impl MapCore) -> Result<Counters> {
    let mut counters = Counters::default();
    for reason in Reason::ALL {
        let key = (reason as u32).to_ne_bytes();
        let per_cpu = map
            .lookup_percpu(&key, MapFlags::ANY)
            .map_err(|source| Error::Bpf {
                operation: "read the gate's counter",
                object: reason.name().into(),
                source,
                remedy: None,
            })?
            .unwrap_or_default();
        for value in per_cpu {
            counters.by_reason[reason as usize] += counter_from(&value);
        }
    }
    Ok(counters)
}

fn counter_from(value: &[u8]) -> Counter {
    let word = |at: usize| {
        value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    };
    const _: () = assert!(size_of::<types::weir_counter>() == 16);
    Counter { packets: word(0), bytes: word(8) }
}

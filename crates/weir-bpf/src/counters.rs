//! What a gate has seen: each packet once, under one reason.

use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys, num_possible_cpus};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::object::open_map;
use crate::skeleton::gate::types;
use crate::verdict::{Reason, Verdict};

pub(crate) const COUNTERS: &str = "the gate's counters";

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

    /// What was discarded, by reason; those that nothing was discarded for are left out.
    pub fn discards(&self) -> impl Iterator<Item = (Reason, Counter)> {
        let reasons = Reason::ALL.into_iter().filter(|reason| reason.verdict() == Verdict::Discard);
        let discards = reasons.map(|reason| (reason, self.get(reason)));
        discards.filter(|(_, counter)| counter.packets > 0)
    }

    /// The reason of most discards; `None` if nothing was discarded.
    pub fn top_discard(&self) -> Option<Reason> {
        let most = self.discards().max_by_key(|(_, counter)| counter.packets);
        most.map(|(reason, _)| reason)
    }

    /// What was seen after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (counter, before) in since.by_reason.iter_mut().zip(earlier.by_reason) {
            counter.packets = counter.packets.saturating_sub(before.packets);
            counter.bytes = counter.bytes.saturating_sub(before.bytes);
        }
        since
    }

    /// Every packet seen.
    pub fn total(&self) -> Counter {
        let mut sum = Counter::default();
        self.by_reason.iter().for_each(|counter| sum += *counter);
        sum
    }
}

impl FromIterator<(Reason, Counter)> for Counters {
    fn from_iter<T: IntoIterator<Item = (Reason, Counter)>>(counted: T) -> Self {
        let mut counters = Self::default();
        for (reason, counter) in counted {
            counters.by_reason[reason as usize] += counter;
        }
        counters
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
        Ok(Self { map: open_map(map_id, COUNTERS)? })
    }

    /// As [`Gate::counters`](crate::gate::Gate::counters).
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn counters(&self) -> Result<Counters> {
        read(&self.map)
    }
}

/// The counters of a gate's map, summed over CPUs. One call for all of them, which libbpf-rs does not make of a per-CPU
/// map.
#[allow(unsafe_code)]
pub(crate) fn read(map: &impl MapCore) -> Result<Counters> {
    const LEN: usize = size_of::<types::weir_counter>();
    // The kernel rounds each CPU's value up to 8 bytes.
    const { assert!(LEN.is_multiple_of(8)) };
    let failed = Error::libbpf("read", COUNTERS);
    if map.map_type() != MapType::PercpuArray || map.value_size() as usize != LEN {
        return Err(failed(io::Error::from(io::ErrorKind::InvalidData).into()));
    }
    let cpus = num_possible_cpus().map_err(&failed)?;
    let mut count = Reason::ALL.len() as u32;
    let (mut next, mut keys) = (0_u32, [0_u32; Reason::ALL.len()]);
    let mut counted = vec![types::weir_counter::default(); Reason::ALL.len() * cpus];
    // SAFETY: there is room for `count` keys, and for every possible CPU's value of each; all outlive the call.
    let answer = unsafe {
        libbpf_sys::bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            std::ptr::null_mut(),
            (&raw mut next).cast(),
            keys.as_mut_ptr().cast(),
            counted.as_mut_ptr().cast(),
            &raw mut count,
            std::ptr::null(),
        )
    };
    // ENOENT: the map has no more.
    if answer < 0 && answer != -Errno::NOENT.raw_os_error() {
        return Err(failed(io::Error::from_raw_os_error(-answer).into()));
    }
    let mut counters = Counters::default();
    for (counter, of_reason) in counters.by_reason.iter_mut().zip(counted.chunks_exact(cpus)) {
        for each in of_reason {
            *counter += Counter { packets: each.packets, bytes: each.bytes };
        }
    }
    Ok(counters)
}

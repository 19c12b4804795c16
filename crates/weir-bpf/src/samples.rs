//! Samples of what gates discard: `bpf/sample.h`.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::MapCore;

use crate::abi;
use crate::error::Result;
use crate::mapped::Mapped;
use crate::object::open_map;
use crate::skeleton::queue::types;
use crate::units::IfIndex;
use crate::verdict::Reason;

/// How many of each CPU are kept.
pub(crate) const SAMPLES: u32 = abi::SAMPLES as u32;
/// What a CPU takes of a flood, in the mean.
const PER_SECOND: u64 = (abi::SAMPLES_WANTED * 1_000_000_000 / abi::SAMPLE_PERIOD_NS) as u64;

/// In this time a CPU fills half of its places. Who reads so often misses none.
pub const READ_EVERY: Duration = Duration::from_millis((SAMPLES as u64 / 2) * 1000 / PER_SECOND);

/// A discarded packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// For how many discards it stands: those on its CPU since the last sample, itself included.
    pub packets: u64,
    /// Where it came in.
    pub ifindex: IfIndex,
    /// Why it was discarded.
    pub reason: Reason,
    /// The first bytes of its Ethernet frame; none if they could not be read.
    pub frame: Vec<u8>,
}

/// Reads the samples of all gates of one probe. Any number of readers may.
pub struct Samples {
    mapped: Mapped<types::weir_sample>,
    /// By CPU, the number of the last one that was read.
    seen: Vec<u64>,
}

impl Samples {
    /// Another process's, by [`ChannelMapIds::samples`](crate::channels::ChannelMapIds). What was sampled so far
    /// is passed over.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where there is no such map any more.
    pub fn open(map_id: u32) -> Result<Self> {
        let map = open_map(map_id, "the gate's samples")?;
        let places = map.max_entries();
        let mapped = Mapped::of(map.as_fd(), places as usize)?;
        let mut samples = Self { mapped, seen: vec![0; (places / SAMPLES) as usize] };
        samples.take();
        Ok(samples)
    }

    /// Those that were taken since the last call. The oldest are missing if more were taken than are kept.
    pub fn take(&mut self) -> Vec<Sample> {
        let mut taken = Vec::new();
        for (cpu, seen) in self.seen.iter_mut().enumerate() {
            let (first, before) = (cpu as u32 * SAMPLES, *seen);
            for place in first..first + SAMPLES {
                let number = || self.mapped.get(place, offset_of!(types::weir_sample, number));
                let earlier: u64 = number();
                if earlier <= before {
                    continue;
                }
                let sample = self.mapped.read(place);
                // Overwritten meanwhile.
                if number() != earlier || sample.number != earlier {
                    continue;
                }
                *seen = earlier.max(*seen);
                taken.extend(sample_of(&sample));
            }
        }
        taken
    }
}

fn sample_of(sample: &types::weir_sample) -> Option<Sample> {
    let len = (sample.len as usize).min(sample.bytes.len());
    Some(Sample {
        packets: sample.packets.into(),
        ifindex: IfIndex(sample.ifindex),
        reason: Reason::of(sample.reason)?,
        frame: sample.bytes[..len].to_vec(),
    })
}

//! Room for new channels: those that have gone quiet are deleted, and what they had counted is kept
//! together.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapMut, libbpf_sys, num_possible_cpus};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::abi;
use crate::channels::{self, CHANNELS, Channel, Seen};
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::skeleton::gate::types;

/// Channels that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// How many. One that has been deleted twice counts twice.
    pub channels: u64,
    /// What was seen of them until then.
    #[serde(flatten)]
    pub seen: Seen,
}

/// Deletes a gate's channels that have not changed for a while, once there are many.
#[derive(Debug)]
pub struct Pruner {
    many: usize,
    quiet_for: Duration,
    /// What was seen of each channel when it last changed, and when that was noticed. Empty while
    /// channels are few.
    watched: HashMap<Channel, (Seen, Instant)>,
    retired: Retired,
}

impl Default for Pruner {
    /// Channels are many when more than three quarters of their places are taken, and quiet after a
    /// minute.
    fn default() -> Self {
        Self::new(abi::CHANNELS / 4 * 3, Duration::from_secs(60))
    }
}

impl Pruner {
    /// More than `many` channels are many; one that is seen to be unchanged for `quiet_for` is quiet.
    pub fn new(many: usize, quiet_for: Duration) -> Self {
        Self { many, quiet_for, watched: HashMap::new(), retired: Retired::default() }
    }

    /// What the deleted channels had counted: with the channels that are left, every packet.
    pub fn retired(&self) -> Retired {
        self.retired
    }

    /// Notes what has been seen so far; whether that has been so for long.
    fn is_quiet(&mut self, channel: Channel, seen: Seen, now: Instant) -> bool {
        let noted = self.watched.entry(channel).or_insert((seen, now));
        if noted.0 != seen {
            *noted = (seen, now);
        }
        now.saturating_duration_since(noted.1) >= self.quiet_for
    }
}

impl Gate {
    /// Looks at the channels at the time `now`, and deletes the quiet ones if there are many. Each look
    /// costs a few milliseconds of CPU time if there are.
    ///
    /// What the gate counts for a channel in the very moment in which it is deleted may be lost: some
    /// nanoseconds, of a channel that had been quiet for a minute.
    ///
    /// # Errors
    /// When the kernel refuses a look at its maps.
    pub fn prune_channels(&self, pruner: &mut Pruner, now: Instant) -> Result<()> {
        let map = &self.skel().maps.channels;
        let keys: Vec<Vec<u8>> = map.keys().collect();
        if keys.len() <= pruner.many {
            pruner.watched.clear();
            return Ok(());
        }
        // With what the CPUs' destination caches hold: a busy channel's entry may stand still.
        let seen = self.channels()?.by_channel;
        for key in keys {
            let Some(channel) = channels::channel_of_key(&key) else { continue };
            let seen = seen.get(&channel).copied().unwrap_or_default();
            if pruner.is_quiet(channel, seen, now) && take(map, &key, &mut pruner.retired.seen)? {
                pruner.retired.channels += 1;
                pruner.watched.remove(&channel);
            }
        }
        pruner.watched.retain(|channel, _| seen.contains_key(channel));
        Ok(())
    }
}

/// Deletes an entry, and adds what it held to a sum, in one step (`htab_map_lookup_and_delete_elem`);
/// whether there was one. libbpf-rs does not know how long a per-CPU map's value is here.
#[allow(unsafe_code)]
fn take(map: &MapMut<'_>, key: &[u8], sum: &mut Seen) -> Result<bool> {
    const ENTRY_LEN: usize = size_of::<types::weir_channel>();
    // The kernel rounds each CPU's value up to 8 bytes.
    const { assert!(ENTRY_LEN.is_multiple_of(8)) };
    let failed = Error::libbpf("delete from", CHANNELS);
    debug_assert_eq!(key.len(), size_of::<types::weir_channel_key>());
    let cpus = num_possible_cpus().map_err(&failed)?;
    let mut entries = vec![0_u8; ENTRY_LEN * cpus];
    // SAFETY: the key is one that this map has given, so as long as its keys are, and the buffer has
    // room for every possible CPU's value; both outlive the call.
    let answer = unsafe {
        libbpf_sys::bpf_map_lookup_and_delete_elem(
            map.as_fd().as_raw_fd(),
            key.as_ptr().cast(),
            entries.as_mut_ptr().cast(),
        )
    };
    if answer < 0 {
        let errno = Errno::from_raw_os_error(-answer);
        return if errno == Errno::NOENT {
            Ok(false)
        } else {
            Err(failed(io::Error::from(errno).into()))
        };
    }
    entries.chunks_exact(ENTRY_LEN).for_each(|entry| channels::add_entry(sum, entry));
    Ok(true)
}

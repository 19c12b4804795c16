//! What those weigh who receive a channel's packets: as the scheduler weighs them, so do their packets (Druschel
//! & Banga, section 3: processing at the receiver's priority).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_bpf::channels::Channel;

/// Asked for by the threads that look after a saturated CPU; answered by the daemon's main loop, as finding owners
/// takes milliseconds.
#[derive(Default)]
pub(super) struct Receivers {
    wanted: Mutex<BTreeSet<Channel>>,
    weights: Mutex<BTreeMap<Channel, f64>>,
}

impl Receivers {
    /// Weights of these channels are wanted.
    pub(super) fn want(&self, channels: impl Iterator<Item = Channel>) {
        lock(&self.wanted).extend(channels);
    }

    /// Those that have been asked for since this was last called.
    pub(super) fn take_wanted(&self) -> BTreeSet<Channel> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// What is known from now on; 1 is a process of nice 0.
    pub(super) fn set(&self, weights: BTreeMap<Channel, f64>) {
        *lock(&self.weights) = weights;
    }

    /// A channel's; 1 where nobody is known.
    pub(super) fn weight(&self, channel: &Channel) -> f64 {
        lock(&self.weights).get(channel).copied().unwrap_or(1.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

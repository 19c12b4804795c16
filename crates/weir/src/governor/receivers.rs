//! What those weigh who receive a channel's packets: as the scheduler weighs them, so do their packets (Druschel
//! & Banga, section 3: processing at the receiver's priority).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weir_bpf::channels::Channel;
use weir_bpf::sync::lock;

use crate::shares::ShareSettings;

/// Asked for by the threads that look after a saturated CPU; answered by the daemon's main loop, as finding owners
/// takes milliseconds.
#[derive(Default)]
pub(super) struct Receivers {
    settings: Mutex<Arc<ShareSettings>>,
    wanted: Mutex<BTreeSet<Channel>>,
    weights: Mutex<BTreeMap<Channel, f64>>,
}

impl Receivers {
    /// Who weighs what, if the user says so.
    pub(super) fn new(settings: ShareSettings) -> Self {
        Self { settings: Mutex::new(Arc::new(settings)), ..Self::default() }
    }

    /// What the user has decided.
    pub(super) fn settings(&self) -> Arc<ShareSettings> {
        Arc::clone(&lock(&self.settings))
    }

    /// What he has decided now. What was known went by what he had decided before.
    pub(super) fn decide(&self, settings: ShareSettings) {
        *lock(&self.settings) = Arc::new(settings);
        self.set(BTreeMap::new());
    }

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

    /// A channel's; as far as the user has said, if its receivers are not known.
    pub(super) fn weight(&self, channel: &Channel) -> Option<f64> {
        let known = lock(&self.weights).get(channel).copied();
        known.or_else(|| self.settings().weight(channel, &[]))
    }
}

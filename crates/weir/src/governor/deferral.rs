//! Interrupt deferral while input separates: packets wait a moment in the ring, and each poll takes
//! more of them, so that one costs less (`napi_defer_hard_irqs`, `gro_flush_timeout`:
//! Documentation/networking/napi.rst, "Software IRQ coalescing").
//!
//! How long follows from the law ([`weir_policy::Action::wait`]). Where the operator has set either value, both stay
//! as they are.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use weir_bpf::sys::sysfs::AttributeWriter;
use weir_bpf::units::Nanos;

use crate::error::Result;
use crate::host::Host;
use crate::journal::{Journal, TurnedKnob};
use crate::knob::Knob;

/// How many polls without a packet end the waiting.
const EMPTY_POLLS: &str = "2";
/// Neither is set.
const OFF: &str = "0";

/// The attribute for how long.
pub const FLUSH_TIMEOUT: &str = "gro_flush_timeout";
/// The attribute for how many polls.
pub const DEFER_HARD_IRQS: &str = "napi_defer_hard_irqs";

/// One interface's two attributes, for all of its NAPI threads.
pub struct Deferral {
    wait: AttributeWriter,
    polls: AttributeWriter,
    /// By thread. The shortest holds for all, so that no ring overflows.
    wanted: Mutex<BTreeMap<u32, Nanos>>,
}

impl Deferral {
    /// Records the interface's knob, which stays as it is; `None` if it is not weir's to turn.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn open(host: &Host, journal: &Rc<Journal>) -> Result<Option<(Self, TurnedKnob)>> {
        let interface = journal.interface();
        let is_off = |attribute| {
            host.sysfs.read(&interface, attribute).is_ok_and(|value| value.trim() == OFF)
        };
        // Older kernels have no such attributes.
        if !is_off(FLUSH_TIMEOUT) || !is_off(DEFER_HARD_IRQS) {
            return Ok(None);
        }
        let knob = journal.turn(Knob::Deferral { old: OFF.into() })?;
        let writer = |attribute| host.sysfs.writer(&interface, attribute);
        let (wait, polls) = (writer(FLUSH_TIMEOUT)?, writer(DEFER_HARD_IRQS)?);
        Ok(Some((Self { wait, polls, wanted: Mutex::default() }, knob)))
    }

    /// What one thread wants from now on, even if that is nothing new: another may have changed it.
    pub fn set(&self, thread: u32, wait: Option<Nanos>) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let were = wanted.len();
        match wait {
            Some(wait) => drop(wanted.insert(thread, wait)),
            None => drop(wanted.remove(&thread)),
        }
        match wanted.values().min() {
            Some(wait) => self.write(&wait.0.to_string(), EMPTY_POLLS),
            None if were > 0 => self.write(OFF, OFF),
            None => {}
        }
    }

    /// An interface that is going away refuses, and has nothing to defer.
    fn write(&self, wait: &str, polls: &str) {
        let _ = self.wait.write(wait);
        let _ = self.polls.write(polls);
    }
}

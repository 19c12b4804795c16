//! Interrupt deferral while input separates: packets wait a moment in the ring, and each poll takes
//! more of them, so that one costs less (`napi_defer_hard_irqs`, `gro_flush_timeout`:
//! Documentation/networking/napi.rst, "Software IRQ coalescing").
//!
//! How long follows from the law ([`weir_policy::Action::wait`]). Where the operator has set either value, both stay
//! as they are.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weir_bpf::sys::sysfs::AttributeWriter;
use weir_bpf::units::Nanos;

use crate::error::{Error, Result};
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
    /// By thread. The shortest holds for all, so that no ring overflows.
    wanted: Mutex<BTreeMap<u32, Nanos>>,
    to_write: Arc<ToWrite>,
    /// `None` once it has been joined.
    writer: Option<JoinHandle<()>>,
}

/// What the writing thread is to do next.
#[derive(Default)]
struct ToWrite {
    /// How long; 0: not at all.
    wait_ns: AtomicU64,
    /// Grows with each wish, as the same value may be wanted anew.
    wishes: AtomicU64,
    stop: AtomicBool,
}

impl Deferral {
    /// Records the interface's knob, which stays as it is; `None` if it is not weir's to turn.
    ///
    /// # Errors
    /// When the record cannot be written, or no thread can be started.
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
        let attributes =
            Attributes { wait: writer(FLUSH_TIMEOUT)?, polls: writer(DEFER_HARD_IRQS)? };
        let to_write = Arc::new(ToWrite::default());
        let for_writer = Arc::clone(&to_write);
        let spawned = std::thread::Builder::new()
            .name("weir-deferral".into())
            .spawn(move || attributes.keep(&for_writer));
        let writer = spawned
            .map_err(|source| Error::system("start the thread that defers interrupts", source))?;
        Ok(Some((Self { wanted: Mutex::default(), to_write, writer: Some(writer) }, knob)))
    }

    /// What one thread wants from now on, even if that is nothing new: another may have changed it.
    ///
    /// Another thread writes it, a moment later. This one is a real-time thread, and older kernels make a
    /// writer try again and again while somebody holds the lock of all interfaces (`netdev_store()`,
    /// `rtnl_trylock()`): who has that lock might wait for this thread's CPU.
    pub fn set(&self, thread: u32, wait: Option<Nanos>) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let were = wanted.len();
        match wait {
            Some(wait) => drop(wanted.insert(thread, wait)),
            None => drop(wanted.remove(&thread)),
        }
        if wanted.is_empty() && were == 0 {
            return;
        }
        let wait = wanted.values().min().copied().unwrap_or(Nanos(0));
        self.to_write.wait_ns.store(wait.0, Ordering::Relaxed);
        self.to_write.wishes.fetch_add(1, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(writer) = &self.writer {
            writer.thread().unpark();
        }
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        self.to_write.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(writer) = self.writer.take() {
            // It cannot panic; and if it did, the knob is put back all the same.
            let _ = writer.join();
        }
    }
}

struct Attributes {
    wait: AttributeWriter,
    polls: AttributeWriter,
}

impl Attributes {
    /// Writes what is wished for until it is stopped, and nothing is left.
    fn keep(&self, wished: &ToWrite) {
        let mut done = 0;
        loop {
            let stop = wished.stop.load(Ordering::Acquire);
            let wishes = wished.wishes.load(Ordering::Acquire);
            if wishes != done {
                done = wishes;
                match wished.wait_ns.load(Ordering::Relaxed) {
                    0 => self.write(OFF, OFF),
                    wait => self.write(&wait.to_string(), EMPTY_POLLS),
                }
            } else if stop {
                return;
            } else {
                std::thread::park();
            }
        }
    }

    /// An interface that is going away refuses, and has nothing to defer.
    fn write(&self, wait: &str, polls: &str) {
        let _ = self.wait.write(wait);
        let _ = self.polls.write(polls);
    }
}

//! Whether gates sleep, and what wakes them: `bpf/alarm.h`.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use crate::abi;
use crate::accounts::{monotonic_now, until};
use crate::error::{Error, Result};
use crate::gate::QueueProbe;
use crate::mapped::Mapped;
use crate::object::{id_of, open_map};
use crate::ring::Reader;
use crate::skeleton::queue::types;
use crate::sync::lock;
use crate::units::Nanos;
pub use crate::verdict::Cause;

const ALARM: &str = "what wakes the gate";
/// For how long gates look whether there is something to discard, where CPU time alone is short.
pub const TRIAL: Nanos = Nanos(abi::TRIAL_NS as u64);

/// The alarm of one probe's gates. At first they are awake.
#[derive(Clone)]
pub struct Alarm {
    shared: Arc<Mapped<types::weir_alarm>>,
    map_id: u32,
    rests: Arc<Mutex<Rests>>,
}

/// What those know of it who put the gates to sleep.
#[derive(Default)]
struct Rests {
    forbidden: bool,
    slept: u64,
}

impl Alarm {
    /// That of this process's gates.
    ///
    /// # Errors
    /// When the kernel refuses to map it.
    pub fn of(probe: &QueueProbe) -> Result<Self> {
        let map = &probe.maps().alarm;
        Self::over(map.as_fd(), id_of(map, ALARM)?)
    }

    fn over(map: BorrowedFd<'_>, map_id: u32) -> Result<Self> {
        Ok(Self { shared: Arc::new(Mapped::of(map, 1)?), map_id, rests: Arc::default() })
    }

    /// Another process's, by [`Alarm::map_id`].
    ///
    /// # Errors
    /// When it is not there, or without the privilege.
    pub fn open(map_id: u32) -> Result<Self> {
        Self::over(open_map(map_id, ALARM)?.as_fd(), map_id)
    }

    /// The kernel's number of the map.
    pub fn map_id(&self) -> u32 {
        self.map_id
    }

    /// Whether the gates let everything pass unseen.
    pub fn is_asleep(&self) -> bool {
        self.shared.read(0).asleep != 0
    }

    /// When something was last wrong (`CLOCK_MONOTONIC`); of what goes on, up to 0.1 s ago.
    pub fn rung(&self) -> Nanos {
        Nanos(self.shared.read(0).rung_ns)
    }

    /// How often each cause has woken the gates.
    pub fn woken(&self) -> impl Iterator<Item = (Cause, u64)> {
        let counts = self.shared.read(0).woken;
        Cause::ALL.into_iter().zip(counts)
    }

    /// Something is wrong that user space has found out.
    pub fn ring(&self, cause: Cause) {
        self.shared.set(0, offset_of!(types::weir_alarm, rung_ns), monotonic_now().0);
        self.wake(cause);
    }

    /// CPU time is short: has the gates look whether there is something to discard, unless they have a short while
    /// ago. Whether they do.
    pub fn try_gates(&self) -> bool {
        let now = monotonic_now().0;
        let tries = now.saturating_sub(self.shared.read(0).tried_ns) > abi::TRY_AGAIN_NS as u64;
        if tries {
            self.shared.set(0, offset_of!(types::weir_alarm, tried_ns), now);
            self.wake(Cause::CpuShare);
        }
        tries
    }

    fn wake(&self, cause: Cause) {
        if self.is_asleep() {
            self.set_asleep(false);
            let at = offset_of!(types::weir_alarm, woken) + 8 * cause as usize;
            self.shared.set(0, at, self.shared.read(0).woken[cause as usize] + 1);
        }
    }

    /// Wakes the gates' counters, for so long at least: somebody is going to read them.
    pub fn watch(&self, time: Nanos) {
        self.shared.set(0, offset_of!(types::weir_alarm, watched_until_ns), until(time).0);
        self.set_asleep(false);
    }

    /// Has the gates sample what they discard ([`crate::samples`]), for so long from now or as long as another asks
    /// for. It ends by itself.
    pub fn sample(&self, time: Nanos) {
        let until = until(time).0.max(self.shared.read(0).sampled_until_ns);
        self.shared.set(0, offset_of!(types::weir_alarm, sampled_until_ns), until);
    }

    /// Puts the gates to sleep if they may, nothing has been wrong for so long, nothing is tried ([`TRIAL`]), and
    /// nobody watches. Whether they sleep now.
    pub fn rest(&self, quiet: Nanos) -> bool {
        let mut rests = lock(&self.rests);
        let now = monotonic_now().0;
        let seen = self.shared.read(0);
        if seen.asleep != 0 {
            return true;
        }
        let since = |then: u64| now.saturating_sub(then);
        if rests.forbidden
            || now < seen.watched_until_ns
            || since(seen.rung_ns) < quiet.0
            || since(seen.tried_ns) < TRIAL.0.min(quiet.0)
        {
            return false;
        }
        self.set_asleep(true);
        fence(Ordering::SeqCst);
        // Who rang meanwhile found them awake.
        let rung = |it: types::weir_alarm| (it.rung_ns, it.tried_ns, it.watched_until_ns);
        if rung(self.shared.read(0)) != rung(seen) {
            self.set_asleep(false);
            return false;
        }
        rests.slept += 1;
        true
    }

    /// Whether the gates look at every packet, whatever happens.
    pub fn keep_awake(&self, awake: bool) {
        let mut rests = lock(&self.rests);
        rests.forbidden = awake;
        if awake {
            self.set_asleep(false);
        }
    }

    /// How often they fell asleep.
    pub fn slept(&self) -> u64 {
        lock(&self.rests).slept
    }

    fn set_asleep(&self, asleep: bool) {
        self.shared.set(0, offset_of!(types::weir_alarm, asleep), u32::from(asleep));
    }
}

/// What wakes the gates, as it does.
pub struct Rings {
    ring: Reader<'static>,
    causes: Arc<Mutex<Vec<Cause>>>,
}

impl Rings {
    /// Listens from now on. Each ring is heard by one listener.
    ///
    /// # Errors
    /// For want of memory.
    pub fn listen(probe: &QueueProbe) -> Result<Self> {
        let causes = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&causes);
        let heard = move |bytes: &[u8]| {
            let number = bytes.try_into().map(u32::from_ne_bytes);
            lock(&into).extend(number.ok().and_then(Cause::of));
            0
        };
        let ring =
            Reader::of(&probe.maps().rings, heard).map_err(Error::bpf("listen to", ALARM))?;
        Ok(Self { ring, causes })
    }

    /// Says what has rung since this was last asked. Does not wait: see [`Rings::as_fd`].
    ///
    /// # Errors
    /// When the library finds the ring in disorder.
    pub fn heard(&mut self) -> Result<Vec<Cause>> {
        let read = self.ring.read(usize::MAX).map_err(libbpf_rs::Error::from);
        read.map_err(Error::bpf("listen to", ALARM))?;
        Ok(std::mem::take(&mut *lock(&self.causes)))
    }
}

impl AsFd for Rings {
    /// Readable once something has rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

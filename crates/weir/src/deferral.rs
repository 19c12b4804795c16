//! Interrupts of an interface, deferred while one of its governed threads wants that: after a poll the next one comes by
//! a timer, and not by the next packet (`napi_defer_hard_irqs`, `gro_flush_timeout`).

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use weir_bpf::sync::lock;
use weir_bpf::sys::napi;
use weir_bpf::sys::sysfs::Attribute;
use weir_policy::Nanos;
use weir_policy::governor::POLL_INTERVALS;

use crate::error::Result;
use crate::host::Host;

/// Polls that find nothing before interrupts are on again.
const POLLS: &str = "napi_defer_hard_irqs";
/// The time between two polls, nanoseconds.
const INTERVAL: &str = "gro_flush_timeout";
const DEFERRED_POLLS: &str = "1";

/// Both attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    polls: String,
    interval_ns: String,
}

impl Values {
    /// Deferred by so much, until a poll has found nothing; or not at all.
    fn new(interval: Option<Nanos>) -> Self {
        let polls = if interval.is_some() { DEFERRED_POLLS } else { "0" };
        Self { polls: polls.into(), interval_ns: interval.unwrap_or(Nanos::ZERO).0.to_string() }
    }

    /// What an interface has now.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn read(host: &Host, interface: &str) -> Result<Self> {
        let read = |attribute| host.sysfs.read(interface, attribute);
        Ok(Self { polls: read(POLLS)?, interval_ns: read(INTERVAL)? })
    }

    /// Sets the attributes that nobody else has set.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn write(&self, host: &Host, interface: &str) -> Result<()> {
        let present = Self::read(host, interface)?;
        if present.polls_are_own() {
            host.sysfs.write(interface, POLLS, &self.polls)?;
        }
        if present.interval_is_own() {
            host.sysfs.write(interface, INTERVAL, &self.interval_ns)?;
        }
        Ok(())
    }

    /// Whether the governor sets these, one attribute after the other.
    pub fn are_the_governors(&self) -> bool {
        self.polls_are_own() && self.interval_is_own()
    }

    fn polls_are_own(&self) -> bool {
        Self::own().any(|own| own.polls == self.polls)
    }

    fn interval_is_own(&self) -> bool {
        Self::own().any(|own| own.interval_ns == self.interval_ns)
    }

    fn own() -> impl Iterator<Item = Self> {
        POLL_INTERVALS.map(Some).into_iter().chain([None]).map(Self::new)
    }
}

impl std::fmt::Display for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{POLLS} {}, {INTERVAL} {}", self.polls, self.interval_ns)
    }
}

/// One interface's.
pub struct Deferral {
    polls: Attribute,
    interval_ns: Attribute,
    /// By how much each thread, by its number with the governor, wants them deferred.
    wanted: Mutex<BTreeMap<u32, Nanos>>,
}

impl Deferral {
    /// What was there before, too. `None` where the kernel has no such thing, or somebody has set it already, of the
    /// interface or of one of its NAPI instances alone.
    pub fn of(host: &Host, interface: &str) -> Option<(Self, Values)> {
        if napi::has_deferral(host.links.index(interface).ok()?).unwrap_or(true) {
            return None;
        }
        let old = Values::read(host, interface).ok().filter(|old| *old == Values::new(None))?;
        let open = |attribute| host.sysfs.attribute(interface, attribute).ok();
        let (polls, interval_ns) = (open(POLLS)?, open(INTERVAL)?);
        Some((Self { polls, interval_ns, wanted: Mutex::default() }, old))
    }

    /// A thread wants interrupts deferred by so much from now on. The shortest time of all counts. `anew`: somebody may
    /// have put back what it wanted before.
    pub fn want(&self, number: u32, interval: Option<Nanos>, anew: bool) {
        let mut wanted = lock(&self.wanted);
        let shortest = |wanted: &BTreeMap<u32, Nanos>| wanted.values().min().copied();
        let before = shortest(&wanted);
        match interval {
            Some(interval) => wanted.insert(number, interval),
            None => wanted.remove(&number),
        };
        let now = shortest(&wanted);
        if now != before || anew && now.is_some() {
            // It fails for an interface that is gone.
            let _ = self.set(now);
        }
    }

    /// What somebody else has set meanwhile stays; nothing is deferred by the other attribute then.
    fn set(&self, interval: Option<Nanos>) -> weir_bpf::Result<()> {
        let present = Values { polls: self.polls.read()?, interval_ns: self.interval_ns.read()? };
        let values = Values::new(interval.filter(|_| present.are_the_governors()));
        if present.interval_is_own() {
            self.interval_ns.write(&values.interval_ns)?;
        }
        if present.polls_are_own() {
            self.polls.write(&values.polls)?;
        }
        Ok(())
    }
}

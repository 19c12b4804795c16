//! Interrupts of an interface, deferred while one of its governed threads wants that: after a poll the next one comes by
//! a timer, and not by the next packet (`napi_defer_hard_irqs`, `gro_flush_timeout`).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use weir_bpf::sync::lock;
use weir_bpf::sys::napi;
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::sys::sysfs::Attribute;
use weir_bpf::units::Nice;
use weir_policy::Nanos;
use weir_policy::governor::POLL_INTERVALS;

use crate::error::Result;
use crate::host::Host;
use crate::joined::Joined;

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

    /// Sets the attributes that nobody else has set. What one has already is not written: that would end what somebody
    /// has set of single NAPI instances ([`napi::has_deferral`]).
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn write(&self, host: &Host, interface: &str) -> Result<()> {
        let present = Self::read(host, interface)?;
        // Polls first: whose they are is told by the interval beside them.
        if present.polls_are_own() && present.polls != self.polls {
            host.sysfs.write(interface, POLLS, &self.polls)?;
        }
        if present.interval_is_own() && present.interval_ns != self.interval_ns {
            host.sysfs.write(interface, INTERVAL, &self.interval_ns)?;
        }
        Ok(())
    }

    /// Each by its name in sysfs.
    pub fn attributes(&self) -> [(&'static str, &str); 2] {
        [(POLLS, &self.polls), (INTERVAL, &self.interval_ns)]
    }

    /// Whether the governor sets these, one attribute after the other.
    pub fn are_the_governors(&self) -> bool {
        self.polls_are_own() && self.interval_is_own()
    }

    /// Its intervals are nobody else's; polls are told by the interval beside them.
    fn polls_are_own(&self) -> bool {
        self.polls == Self::new(None).polls || Self::deferred().any(|own| own == *self)
    }

    fn interval_is_own(&self) -> bool {
        let mut own = Self::deferred().chain([Self::new(None)]);
        own.any(|own| own.interval_ns == self.interval_ns)
    }

    fn deferred() -> impl Iterator<Item = Self> {
        POLL_INTERVALS.map(Some).into_iter().map(Self::new)
    }
}

impl std::fmt::Display for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [(polls, of_polls), (interval, of_interval)] = self.attributes();
        write!(f, "{polls} {of_polls}, {interval} {of_interval}")
    }
}

/// One interface's. A thread of ordinary weight sets what is wanted: before Linux 6.14 whoever writes these attributes
/// spins as long as somebody holds the lock of all changes to interfaces (`netdev_store()`, `restart_syscall()`), and
/// the governor's threads run before everybody else on the NAPI thread's CPU.
pub struct Deferral {
    wishes: Arc<Wishes>,
    _setter: Joined,
}

#[derive(Default)]
struct Wishes {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    /// By how much each thread, by its number with the governor, wants them deferred.
    intervals: BTreeMap<u32, Nanos>,
    /// Whether that is still to be set.
    due: bool,
    over: bool,
}

impl Wanted {
    /// The shortest time of all counts.
    fn shortest(&self) -> Option<Nanos> {
        self.intervals.values().min().copied()
    }
}

impl Wishes {
    /// What is to be set now, as soon as something is; `None` at the end.
    fn next(&self) -> Option<Option<Nanos>> {
        let waits = |wanted: &mut Wanted| !wanted.due && !wanted.over;
        let wanted = self.changed.wait_while(lock(&self.wanted), waits);
        let mut wanted = wanted.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut wanted.due).then(|| wanted.shortest())
    }

    fn want(&self, number: u32, interval: Option<Nanos>, anew: bool) {
        self.change(|wanted| {
            let before = wanted.shortest();
            match interval {
                Some(interval) => wanted.intervals.insert(number, interval),
                None => wanted.intervals.remove(&number),
            };
            let now = wanted.shortest();
            wanted.due |= now != before || anew && now.is_some();
        });
    }

    fn end(&self) {
        self.change(|wanted| wanted.over = true);
    }

    fn change(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = lock(&self.wanted);
        change(&mut wanted);
        if wanted.due || wanted.over {
            self.changed.notify_one();
        }
    }
}

impl Deferral {
    /// What was there before, too. `None` where the kernel has no such thing, where somebody has set it already, of the
    /// interface or of one of its NAPI instances alone, and where no thread can be started.
    pub fn of(host: &Host, interface: &str) -> Option<(Self, Values)> {
        if napi::has_deferral(host.links.index(interface).ok()?).unwrap_or(true) {
            return None;
        }
        let old = Values::read(host, interface).ok().filter(|old| *old == Values::new(None))?;
        let open = |attribute| host.sysfs.attribute(interface, attribute).ok();
        let (polls, interval_ns) = (open(POLLS)?, open(INTERVAL)?);
        let mut attributes = Attributes { polls, interval_ns, last: old.clone() };
        let wishes = Arc::new(Wishes::default());
        let heard = Arc::clone(&wishes);
        let set = move || {
            // The daemon's own is less, which may mean to wait for long.
            let own = rustix::thread::gettid();
            let _ = sched::set_weight(own, SchedPolicy::Normal, Nice(0), None);
            while let Some(interval) = heard.next() {
                // It fails for an interface that is gone.
                let _ = attributes.set(interval);
            }
        };
        let setter = Joined::spawn("weir-defer", set).ok()?;
        Some((Self { wishes, _setter: setter }, old))
    }

    /// A thread wants interrupts deferred by so much from now on. `anew`: somebody may have put back what it wanted
    /// before.
    pub fn want(&self, number: u32, interval: Option<Nanos>, anew: bool) {
        self.wishes.want(number, interval, anew);
    }
}

impl Drop for Deferral {
    /// The setter, which is waited for next, sets everything that was wanted.
    fn drop(&mut self) {
        self.wishes.end();
    }
}

struct Attributes {
    polls: Attribute,
    interval_ns: Attribute,
    /// What was last to be set.
    last: Values,
}

impl Attributes {
    /// What somebody else has set meanwhile stays; nothing is deferred by the other attribute then.
    fn set(&mut self, interval: Option<Nanos>) -> weir_bpf::Result<()> {
        let present = Values { polls: self.polls.read()?, interval_ns: self.interval_ns.read()? };
        let usual = Values::new(None);
        // The guardian may have put back what was last set.
        let polls_are_own = [&self.last.polls, &usual.polls].contains(&&present.polls);
        let interval_is_own =
            [&self.last.interval_ns, &usual.interval_ns].contains(&&present.interval_ns);
        let values = Values::new(interval.filter(|_| polls_are_own && interval_is_own));
        let mut order = [
            polls_are_own.then_some((&self.polls, &values.polls)),
            interval_is_own.then_some((&self.interval_ns, &values.interval_ns)),
        ];
        // weir's polls are told by the interval beside them: it comes first, and goes last.
        if values != usual {
            order.reverse();
        }
        order.into_iter().flatten().try_for_each(|(attribute, value)| attribute.write(value))?;
        self.last = values;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_wish_counts_and_the_last_is_heard_before_the_end() {
        const LONG: Option<Nanos> = Some(Nanos::from_micros(200));
        const SHORT: Option<Nanos> = Some(Nanos::from_micros(100));
        let wishes = Wishes::default();
        let heard = || {
            assert!(lock(&wishes.wanted).due);
            wishes.next()
        };
        wishes.want(1, LONG, false);
        wishes.want(2, SHORT, false);
        assert_eq!(heard(), Some(SHORT));
        wishes.want(2, None, false);
        assert_eq!(heard(), Some(LONG));
        wishes.want(1, LONG, false);
        assert!(!lock(&wishes.wanted).due, "nothing changes");
        wishes.want(1, LONG, true);
        assert_eq!(heard(), Some(LONG));
        wishes.want(1, None, false);
        wishes.end();
        assert_eq!((heard(), wishes.next()), (Some(None), None));
    }
}

//! Who polls an interface: threads, or softirqs, which are then limited.

use std::collections::BTreeMap;
use std::mem::replace;
use std::time::{Duration, Instant};

use weir_bpf::gate::Policy;
use weir_bpf::sys::{ethtool, napi};
use weir_bpf::units::Nanos;

use super::{FOLLOW_UP_TICKS, LOOK_ANYWAY_TICKS, Protected, TICK};
use crate::choice::Napi;
use crate::console::Console;
use crate::error::{Error, Result};
use crate::governor::MUCH;
use crate::journal::TurnedKnob;
use crate::knob::Knob;
use crate::softirq::{Limit, in_softirq};
use crate::task;
use crate::threading::{self, NotThreaded, THREADED};

/// Hardly any packet takes softirqs longer, whatever it passes on its way.
const PACKET_MAX: Duration = Duration::from_micros(20);

/// By what an interface is polled.
#[derive(Default)]
pub(super) struct Polled {
    /// As the settings say, or it was.
    switched: bool,
    /// Its threads would have no names: `threaded` is left as it is.
    nameless: bool,
    /// Why threads do not, if they do not.
    pub(super) not_threaded: Option<NotThreaded>,
    /// The CPU time of each of its threads until the last tick, and what one of them took at most in the second before.
    ran: BTreeMap<i32, Nanos>,
    took: Nanos,
    /// Packets had come by then, and that time had not changed.
    came_for_nothing: bool,
    /// When they were needed, and something went wrong.
    failed: Option<Instant>,
}

impl Polled {
    /// Whether threads do not, and will not.
    pub(super) fn never_by_threads(&self) -> bool {
        self.not_threaded.as_ref().is_some_and(|why| *why != NotThreaded::Resting)
    }
}

impl Protected {
    /// Has it polled as the settings say, if that is possible, and says so if it is not.
    pub(super) fn begin_polling(&mut self, console: &mut Console) -> Result<()> {
        self.switch_napi()?;
        let Some(why) = self.polled.not_threaded.clone() else { return Ok(()) };
        if self.settings.policy == Policy::Shadow {
            return Ok(());
        }
        let said = if self.gate.is_polled() {
            let limited = self.limit();
            in_softirq(&why, self.limit.as_ref(), limited)
        } else {
            why.to_string()
        };
        console.say(&format!("{}: {said}", self.interface()));
        Ok(())
    }

    /// Switches NAPI to threads, or to softirq, as soon as that is possible. From then on the setting is others' to change.
    fn switch_napi(&mut self) -> Result<()> {
        if self.polled.switched {
            return Ok(());
        }
        if self.settings.policy == Policy::Shadow {
            self.polled.switched = true;
            self.polled.not_threaded = (!self.is_threaded()).then_some(NotThreaded::InShadow);
            return Ok(());
        }
        // Where nothing tells when threads are needed, they are from the start.
        let tells = self.gate.is_polled() && self.limiter.tells();
        let wanted = match self.settings.napi {
            Napi::Auto if self.settings.policy == Policy::On && !tells => Napi::Threads,
            wanted => wanted,
        };
        self.polled.not_threaded = match self.poll_by(wanted) {
            Err(error) if !self.polled.switched => Some(self.refusal(&error)),
            polled => polled?,
        };
        Ok(())
    }

    /// Why threads do not, if they do not.
    fn poll_by(&mut self, wanted: Napi) -> Result<Option<NotThreaded>> {
        if napi::is_nameless(&self.interface()) {
            (self.polled.switched, self.polled.nameless) = (true, true);
            let chosen = wanted == Napi::Softirq && !self.is_threaded();
            return Ok(Some(if chosen { NotThreaded::Chosen } else { NotThreaded::Nameless }));
        }
        let turned = self.turn(wanted);
        // It is tried again after a change of the interface.
        self.polled.switched = turned.is_ok();
        self.threaded = turned?;
        match wanted {
            Napi::Softirq => Ok(Some(NotThreaded::Chosen)),
            Napi::Auto if !self.is_threaded() && self.settings.policy == Policy::On => {
                // One that is down may have no NAPI instances yet, and is asked when it is up.
                let up = self.is_up();
                let refused = up.then(|| self.set_again().err()).flatten();
                let refused = refused.map(|error| self.refusal(&error));
                self.polled.switched = up && refused.is_none();
                Ok(Some(refused.unwrap_or(NotThreaded::Resting)))
            }
            Napi::Auto if !self.is_threaded() => Ok(Some(NotThreaded::Chosen)),
            Napi::Threads | Napi::Auto => {
                let appeared = self.threads.appear(&self.claim.journal, self.claim.ifindex);
                self.unless_refused(appeared, true)
            }
        }
    }

    /// What looking for threads came to: softirqs poll if they are refused, or none is there and they are `due`; why.
    fn unless_refused(&mut self, looked: Result<()>, due: bool) -> Result<Option<NotThreaded>> {
        match looked {
            Err(Error::Kernel(refused @ weir_bpf::Error::Refused { .. })) => {
                let why = NotThreaded::Refused(refused.to_string());
                Ok(Some(self.go_without_threads(why)))
            }
            Err(error) => Err(error),
            Ok(()) if due && self.threads.pids().is_empty() && self.is_up() => {
                let sees = task::sees_kernel_threads()?;
                let unseen = || NotThreaded::Refused(task::unseen().to_string());
                let why = if sees { NotThreaded::Nameless } else { unseen() };
                Ok(Some(self.go_without_threads(why)))
            }
            Ok(()) => Ok(None),
        }
    }

    fn refusal(&self, error: &Error) -> NotThreaded {
        threading::refusal(&self.claim.interface(), error)
    }

    fn is_threaded(&self) -> bool {
        self.read_threaded().is_ok_and(|now| now != "0")
    }

    fn turn(&self, wanted: Napi) -> Result<Option<TurnedKnob>> {
        let old = self.read_threaded()?;
        let new = match wanted {
            Napi::Threads | Napi::Auto if old == "0" && !task::sees_kernel_threads()? => {
                // Threads that nobody can weigh are no better than softirqs.
                return Err(task::unseen());
            }
            Napi::Threads if old == "0" && self.has_threaded()? => {
                return Err(threading::set_of_instances());
            }
            Napi::Threads if old == "0" => "1",
            Napi::Softirq if old != "0" => "0",
            Napi::Threads | Napi::Softirq | Napi::Auto => return Ok(None),
        };
        let knob = Knob::Threaded { old, new: new.into() };
        self.claim.journal.turn(knob).map(Some)
    }

    /// Whether somebody has set of single NAPI instances that threads poll.
    fn has_threaded(&self) -> Result<bool> {
        Ok(napi::has_threaded(self.claim.ifindex)?)
    }

    fn is_up(&self) -> bool {
        self.host.links.info(self.claim.ifindex).is_ok_and(|link| link.up)
    }

    fn read_threaded(&self) -> Result<String> {
        threading::read(&self.host, &self.claim.interface())
    }

    /// Sets `threaded` to what it is: that is refused, too, where there is no NAPI (`modify_napi_threaded()`).
    fn set_again(&self) -> Result<()> {
        let now = self.read_threaded()?;
        if now == "0" && self.has_threaded()? {
            return Ok(());
        }
        Ok(self.host.sysfs.write(&self.claim.interface(), THREADED, &now)?)
    }

    /// Lets softirqs poll where threads do that cannot be governed; why.
    fn go_without_threads(&mut self, why: NotThreaded) -> NotThreaded {
        self.threads.put_back();
        if let Err(error) = self.set_again() {
            return self.refusal(&error);
        }
        self.threaded = None;
        let old = self.read_threaded().ok().filter(|old| old != "0");
        let knob = old.map(|old| Knob::Threaded { old, new: "0".into() });
        self.threaded = knob.and_then(|knob| self.claim.journal.turn(knob).ok());
        why
    }

    /// After a change of the interface.
    pub(super) fn follow_napi(&mut self) -> Result<()> {
        if self.polled.not_threaded.is_some() {
            self.switch_napi()?;
            self.limit()?;
        }
        self.look_for_threads()
    }

    /// Follows which threads there are, and whether they poll as far as `threaded` says it: of that the kernel does not
    /// tell.
    pub(super) fn look_for_threads(&mut self) -> Result<()> {
        let threaded = self.read_threaded()? != "0" && !self.polled.nameless;
        let looked = if threaded {
            self.threads.refresh(&self.claim.journal, self.claim.ifindex)
        } else {
            // Some kernels keep those that poll no more, and name them.
            self.threads.put_back();
            Ok(())
        };
        let some = looked.is_ok() && !self.threads.pids().is_empty();
        let why = match &self.polled.not_threaded {
            None if !threaded && self.settings.napi == Napi::Softirq => Some(NotThreaded::Chosen),
            None if !threaded => Some(NotThreaded::SetBack),
            None if self.settings.policy != Policy::Shadow => {
                match self.unless_refused(looked, self.ticks_since_change >= FOLLOW_UP_TICKS)? {
                    None => return Ok(()),
                    why => why,
                }
            }
            Some(why) if *why != NotThreaded::Unpolled && threaded && some => None,
            _ => return looked,
        };
        self.be_polled_by(why);
        Ok(())
    }

    /// Follows whether a veth's threads poll it; `came`: packets have, since the last tick. A thread's time tells of
    /// them with the next one, at the latest.
    pub(super) fn follow_polls(&mut self, came: bool) {
        let before = replace(&mut self.polled.ran, self.threads.ran());
        // What a new one has taken so far may be what it took to make it.
        let took = |(pid, ran): (&i32, &Nanos)| *ran - *before.get(pid).unwrap_or(ran);
        self.polled.took = self.polled.ran.iter().map(took).max().unwrap_or_default();
        let still = self.polled.took == Nanos::ZERO;
        // Of one that is new, nothing can be told yet.
        let ran = &self.polled.ran;
        let idle = still && !ran.is_empty() && ran.keys().all(|pid| before.contains_key(pid));
        let for_nothing = replace(&mut self.polled.came_for_nothing, idle && came) && idle;
        let is_veth = || ethtool::driver(&self.interface()).is_ok_and(|driver| driver == "veth");
        match &self.polled.not_threaded {
            None if for_nothing && is_veth() => {
                self.be_polled_by(Some(NotThreaded::Unpolled));
            }
            Some(NotThreaded::Unpolled) if !still => self.be_polled_by(None),
            _ => {}
        }
    }

    /// Has threads poll from now on, if they are to while they are needed, and are. Only that they cannot is told: a
    /// flood that comes and goes is not to fill a log.
    ///
    /// # Errors
    /// When that did not succeed, and is tried again.
    pub fn follow_need(&mut self) -> Result<()> {
        let rests = self.polled.not_threaded == Some(NotThreaded::Resting) && self.limit.is_some();
        let waits = self.polled.failed.is_some_and(|at| at.elapsed() < LOOK_ANYWAY_TICKS * TICK);
        let much = self.limiter.takes_much() && self.may_take_much();
        if !rests || waits || !much || !self.is_up() {
            return Ok(());
        }
        self.polled.failed = None;
        match self.poll_by(Napi::Threads) {
            Ok(None) => drop(self.set_polled(None)),
            Ok(why) => self.be_polled_by(why),
            Err(error) if threading::is_refusal(&error) => {
                let why = self.refusal(&error);
                let why = self.go_without_threads(why);
                self.be_polled_by(Some(why));
            }
            Err(error) => {
                self.threads.put_back();
                self.threaded = None;
                self.polled.failed = Some(Instant::now());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether what softirqs take much of a CPU for may have come by this interface: they are known by their CPU.
    fn may_take_much(&self) -> bool {
        let Ok(now) = self.gate.counters() else { return true };
        let packets = now.since(&self.last.gate).total().packets as f64;
        // A burst is no rate.
        let lately = packets / self.last.at.elapsed().max(TICK).as_secs_f64();
        let takes = lately.max(self.rates.seen_pps.0) * PACKET_MAX.as_secs_f64();
        takes >= self.settings.governor.user_share.rest() * MUCH
    }

    /// Has softirqs poll again that threads have taken over from, once those are not needed any more: `asleep`, the gate,
    /// and none of them has taken much since the last tick.
    pub(super) fn follow_rest(&mut self, asleep: bool) {
        let is_auto = self.settings.napi == Napi::Auto && self.threaded.is_some();
        let polls = is_auto && self.polled.not_threaded.is_none();
        let much = self.settings.governor.user_share.rest() * MUCH;
        if !polls || !asleep || self.polled.took.share_of(TICK.into()) >= much || !self.is_up() {
            return;
        }
        self.threads.put_back();
        self.threaded = None;
        if let Err(error) = self.set_polled(Some(NotThreaded::Resting)) {
            self.news.push(in_softirq(&NotThreaded::Resting, None, Err(error)));
        }
    }

    fn set_polled(&mut self, not_threaded: Option<NotThreaded>) -> Result<()> {
        self.polled.not_threaded = not_threaded;
        self.limit()
    }

    /// By threads from now on, or by softirqs, and why.
    fn be_polled_by(&mut self, not_threaded: Option<NotThreaded>) {
        let limited = self.set_polled(not_threaded);
        self.news.push(match &self.polled.not_threaded {
            Some(why) => in_softirq(why, self.limit.as_ref(), limited),
            None => "its threads poll now".into(),
        });
    }

    /// Tries again what did not succeed, and was told.
    pub(super) fn regain_limit(&mut self) {
        let lacks = self.polled.not_threaded.clone().filter(|_| self.limit.is_none());
        let Some(why) = lacks else { return };
        let limited = self.limit();
        if self.limit.is_some() {
            self.news.push(in_softirq(&why, self.limit.as_ref(), limited));
        }
    }

    /// Limits what receive softirqs take from processes, as long as they poll this interface.
    pub(super) fn limit(&mut self) -> Result<()> {
        let in_softirq = self.polled.not_threaded.is_some() && self.gate.is_polled();
        if !in_softirq || self.settings.policy != Policy::On {
            self.gate.limit_input(None);
            self.limit = None;
            return Ok(());
        }
        match &mut self.limit {
            Some(limit) => limit.set(&self.settings.governor),
            None => {
                let limited = self.limiter.limit(self.claim.ifindex, &self.settings.governor)?;
                self.limit = Some(limited);
            }
        }
        self.gate.limit_input(self.limit.as_ref().map(Limit::input_share));
        Ok(())
    }
}

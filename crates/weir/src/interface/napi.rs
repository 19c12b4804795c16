//! Who polls an interface: threads, or softirqs, which are then limited.

use weir_bpf::gate::Policy;
use weir_bpf::sys::ethtool;

use super::Protected;
use crate::cli::Napi;
use crate::error::{Error, Result};
use crate::knob::Knob;
use crate::softirq::{Limit, in_softirq};
use crate::task;
use crate::threading;

/// Why NAPI is in softirq where nothing refuses threads.
const CHOSEN: &str = "as `napi` says";
/// Why it is not switched in shadow.
const IN_SHADOW: &str = "the policy is shadow, which turns nothing";
/// Why it is not where none of its threads could be governed (`NAPI_STATE_NO_BUSY_POLL`: WireGuard, `gro_cells_init()`).
const NAMELESS: &str =
    "the driver's NAPI instances have no numbers, by which the kernel would name their threads";
/// Why they do not poll although they are there: the kernel keeps packets whose sender could have had TSO from a veth's
/// NAPI (`veth_skb_is_eligible_for_napi()`).
const UNPOLLED: &str = "its peer has TSO, and a veth's NAPI then gets no packets: `ethtool -K PEER tso off` changes that";

/// Threads that nobody can weigh are no better than softirqs.
fn unseen() -> Error {
    Error::refused(
        "NAPI threads cannot be seen from this PID namespace",
        "run weir in the host's (`docker run --pid=host`)",
    )
}

impl Protected {
    /// Switches NAPI to threads, or to softirq, where that is possible and not done yet.
    pub(super) fn switch_napi(&mut self) {
        let interface = self.claim.interface();
        // Asked once: each time, threads poll for as long as it is looked for them. Others are known by what they do.
        if matches!(self.not_threaded.as_deref(), Some(NAMELESS | UNPOLLED)) {
            return;
        }
        if self.settings.policy == Policy::Shadow {
            let threaded = threading::read(&self.host, &interface).is_ok_and(|old| old != "0");
            self.not_threaded = (!threaded).then(|| IN_SHADOW.into());
            return;
        }
        let turn = || {
            let old = threading::read(&self.host, &interface)?;
            let new = match self.settings.napi {
                Napi::Threads if old == "0" && !task::sees_kernel_threads() => return Err(unseen()),
                Napi::Threads if old == "0" => "1",
                Napi::Softirq if old != "0" => "0",
                Napi::Threads | Napi::Softirq => return Ok(None),
            };
            let knob = Knob::Threaded { old, new: new.into() };
            self.claim.journal.turn(knob).map(Some)
        };
        match (turn(), self.settings.napi) {
            (Ok(Some(turned)), Napi::Threads) if self.has_nameless_threads() => {
                drop(turned);
                self.not_threaded = Some(NAMELESS.into());
            }
            (Ok(turned), napi) => {
                // Already switched by us: the guard stays.
                self.threaded = self.threaded.take().or(turned);
                self.not_threaded = (napi == Napi::Softirq).then(|| CHOSEN.into());
            }
            (Err(error), _) => self.not_threaded = Some(threading::refusal(&interface, &error)),
        }
    }

    /// Follows whether a veth's threads poll it; `came`: packets have, since the last tick. A thread's time tells of
    /// them with the next one, at the latest.
    pub(super) fn follow_polls(&mut self, came: bool) -> Result<()> {
        let ran = self.threads.ran();
        let still = std::mem::replace(&mut self.threads_ran, ran) == ran;
        let for_nothing = std::mem::replace(&mut self.came_for_nothing, still && came) && still;
        let is_veth = || ethtool::driver(&self.interface()).is_ok_and(|driver| driver == "veth");
        let unpolled = match self.not_threaded.as_deref() {
            None if for_nothing && !self.threads.pids().is_empty() && is_veth() => true,
            Some(UNPOLLED) if !still => false,
            _ => return Ok(()),
        };
        self.not_threaded = unpolled.then(|| UNPOLLED.into());
        self.limit()?;
        let why = self.not_threaded.as_ref();
        self.news.push(why.map_or("its threads poll now".into(), |why| {
            in_softirq(why, self.limit.as_ref(), Ok(()))
        }));
        Ok(())
    }

    /// Whether threads poll it that the kernel does not name: their NAPI instances have no number.
    fn has_nameless_threads(&mut self) -> bool {
        let is_up = self.host.links.info(self.claim.ifindex).is_ok_and(|link| link.up);
        let looked = is_up && self.threads.appear(&self.claim.journal, self.claim.ifindex).is_ok();
        looked && self.threads.pids().is_empty()
    }

    /// Limits what receive softirqs take from processes, as long as they poll this interface.
    pub(super) fn limit(&mut self) -> Result<()> {
        let in_softirq = self.not_threaded.is_some() && self.gate.is_polled();
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

    pub(super) fn look_for_threads(&mut self) -> Result<()> {
        if self.not_threaded.is_some() {
            self.switch_napi();
            self.limit()?;
        }
        self.threads.refresh(&self.claim.journal, self.claim.ifindex)
    }
}

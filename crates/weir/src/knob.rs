//! A knob: one setting of the host, its old value and the new one.
//!
//! The daemon, its guardian and `weir reset` all put a knob back by the same code, from the same
//! record.

use std::fmt;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use weir_bpf::clsact::{FilterRecord, Removed};
use weir_bpf::sys::sched::{self, Policy};
use weir_bpf::units::{CpuId, Nice};

use crate::cpulist::CpuList;
use crate::error::{Error, Result};
use crate::governor::STATIC_WEIGHT;
use crate::governor::deferral::{DEFER_HARD_IRQS, FLUSH_TIMEOUT};
use crate::host::Host;
use crate::rps;
use crate::task::Task;
use crate::threading::{self, THREADED};

/// A setting that weir turns, on a known interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "knob", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Knob {
    /// Whether the interface's NAPI instances are polled by threads: `threaded` in sysfs.
    Threaded {
        /// The file's contents before.
        old: String,
        /// What weir writes.
        new: String,
    },
    /// A NAPI thread's nice value, and where it is governed its policy and slice.
    Nice {
        /// The thread.
        thread: Task,
        /// Its nice value before.
        old: Nice,
        /// Its policy before; records of earlier versions have none.
        #[serde(default)]
        old_policy: Policy,
        /// What weir sets first.
        new: Nice,
        /// Whether the governor moves it from there.
        #[serde(default)]
        governed: bool,
    },
    /// The CPUs that a NAPI thread may run on.
    Affinity {
        /// The thread.
        thread: Task,
        /// Its CPUs before.
        old: Vec<CpuId>,
        /// What weir sets.
        new: Vec<CpuId>,
    },
    /// Interrupt deferral: `gro_flush_timeout` and `napi_defer_hard_irqs` in sysfs, which the governor
    /// sets while it needs them.
    Deferral {
        /// Both files' contents before.
        old: String,
    },
    /// Receive packet steering of one receive queue.
    Rps {
        /// The queue, such as `rx-0`.
        queue: String,
        /// Its CPUs before, as a mask.
        old: String,
    },
    /// The gate's filter at tc ingress, on a kernel that has no link for it.
    TcFilter {
        /// What is to be removed.
        filter: FilterRecord,
    },
}

/// What came of putting a knob back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has its old value.
    Restored,
    /// What it belonged to no longer exists, and the knob with it.
    Gone,
}

impl Knob {
    /// Gives the knob its new value.
    ///
    /// # Errors
    /// When the kernel refuses, or the thread has ended.
    pub fn turn(&self, host: &Host, interface: &str) -> Result<()> {
        let gone = |thread: &Task| {
            Error::refused(
                format!("the NAPI thread {} ({}) has ended", thread.comm, thread.pid),
                "weir looks for its successor within a second",
            )
        };
        match self {
            Self::Threaded { new, .. } => Ok(host.sysfs.write(interface, THREADED, new)?),
            Self::Nice { thread, new, .. } => {
                Ok(sched::set_nice(living(thread).ok_or_else(|| gone(thread))?, *new)?)
            }
            Self::Affinity { thread, new, .. } => {
                Ok(sched::set_affinity(living(thread).ok_or_else(|| gone(thread))?, new)?)
            }
            Self::Rps { queue, .. } => {
                Ok(host.sysfs.write(interface, &rps::attribute(queue), rps::OFF)?)
            }
            // Turned later, by the governor; attached by the gate, as soon as this is on record.
            Self::Deferral { .. } | Self::TcFilter { .. } => Ok(()),
        }
    }

    /// Gives the knob its old value. Doing so twice is the same as once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn turn_back(&self, host: &Host, interface: &str) -> Result<Outcome> {
        let put_back = match self {
            Self::Threaded { old, .. } => threading::put_back(host, interface, old),
            Self::Rps { queue, old } => {
                host.sysfs.write(interface, &rps::attribute(queue), old).map_err(Error::from)
            }
            Self::Deferral { old } => [FLUSH_TIMEOUT, DEFER_HARD_IRQS]
                .into_iter()
                .try_for_each(|attribute| host.sysfs.write(interface, attribute, old))
                .map_err(Error::from),
            Self::Nice { thread, old, old_policy, governed, .. } => match living(thread) {
                Some(pid) => weigh_back(pid, *old, governed.then_some(*old_policy)),
                None => return Ok(Outcome::Gone),
            },
            Self::Affinity { thread, old, .. } => match living(thread) {
                Some(pid) => sched::set_affinity(pid, old).map_err(Error::from),
                None => return Ok(Outcome::Gone),
            },
            Self::TcFilter { filter } => {
                match host.links.index(interface).and_then(|at| filter.remove(at)) {
                    Ok(Removed::Nothing) => return Ok(Outcome::Gone),
                    removed => removed.map(drop).map_err(Error::from),
                }
            }
        };
        match put_back {
            Ok(()) => Ok(Outcome::Restored),
            // It may have vanished between our look and our write.
            Err(_) if self.is_gone(host, interface) => Ok(Outcome::Gone),
            Err(error) => Err(error),
        }
    }

    /// Gives what the governor moves the value that it is to have while no governor lives. Other knobs
    /// stay.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn leave_to_itself(&self, host: &Host, interface: &str) -> Result<()> {
        match self {
            Self::Nice { thread, governed: true, .. } => match living(thread) {
                Some(pid) => Ok(sched::set_weight(pid, Policy::Normal, STATIC_WEIGHT, None)?),
                None => Ok(()),
            },
            Self::Deferral { .. } => self.turn_back(host, interface).map(drop),
            _ => Ok(()),
        }
    }

    /// Whether what the knob belongs to no longer exists.
    pub fn is_gone(&self, host: &Host, interface: &str) -> bool {
        match self {
            Self::Threaded { .. }
            | Self::Rps { .. }
            | Self::Deferral { .. }
            | Self::TcFilter { .. } => host.links.index(interface).is_err(),
            Self::Nice { thread, .. } | Self::Affinity { thread, .. } => living(thread).is_none(),
        }
    }

    /// What is turned.
    pub fn object(&self) -> String {
        match self {
            Self::Threaded { .. } => THREADED.into(),
            Self::Nice { thread, .. } => format!("nice of {}", thread.comm),
            Self::Affinity { thread, .. } => format!("CPUs of {}", thread.comm),
            Self::Rps { queue, .. } => format!("receive packet steering of {queue}"),
            Self::Deferral { .. } => "interrupt deferral".into(),
            Self::TcFilter { .. } => "tc ingress filter".into(),
        }
    }

    /// The value before.
    pub fn old_value(&self) -> String {
        match self {
            Self::Threaded { old, .. } => old.clone(),
            Self::Nice { old, .. } => old.to_string(),
            Self::Affinity { old, .. } => CpuList(old.clone()).to_string(),
            Self::Rps { old, .. } | Self::Deferral { old } => old.clone(),
            Self::TcFilter { .. } => "none".into(),
        }
    }

    /// The value that weir sets.
    pub fn new_value(&self) -> String {
        match self {
            Self::Threaded { new, .. } => new.clone(),
            Self::Nice { governed: true, .. } => "governed".into(),
            Self::Nice { new, .. } => new.to_string(),
            Self::Affinity { new, .. } => CpuList(new.clone()).to_string(),
            Self::Rps { .. } => rps::OFF.into(),
            Self::Deferral { .. } => "governed".into(),
            Self::TcFilter { filter } => format!("program {}", filter.prog_id),
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.object(), self.new_value(), self.old_value())
    }
}

/// As it was; where it was governed, with its policy, and the usual slice.
fn weigh_back(pid: Pid, nice: Nice, governed: Option<Policy>) -> Result<()> {
    // A real-time policy takes no nice value with it, but keeps one.
    sched::set_nice(pid, nice)?;
    if let Some(policy) = governed {
        sched::set_weight(pid, policy, nice, None)?;
    }
    Ok(())
}

/// The thread's number, if that number still means this NAPI thread. A thread that has ended may have
/// been followed by anybody's process.
fn living(thread: &Task) -> Option<Pid> {
    let same = Task::napi_thread(thread.pid).as_ref() == Some(thread);
    same.then(|| Pid::from_raw(thread.pid)).flatten()
}

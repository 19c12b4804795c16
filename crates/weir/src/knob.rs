//! A knob: one setting of the host, its old value and the new one.
//!
//! The daemon, its guardian and `weir reset` all put a knob back by the same code, from the same
//! record.

use std::fmt;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use weir_bpf::clsact::{FilterRecord, Removed};
use weir_bpf::cpulist::CpuList;
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::units::{CpuId, Nanos, Nice};

use crate::deferral::Values;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::rps;
use crate::task::{self, Task};
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
        old_policy: SchedPolicy,
        /// How long it ran at a time, be that its own or the kernel's usual time; kernels before 6.12 and records of
        /// earlier versions do not tell.
        #[serde(default)]
        old_slice: Option<Nanos>,
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
    /// Receive packet steering of one receive queue.
    Rps {
        /// The queue, such as `rx-0`.
        queue: String,
        /// Its CPUs before, as a mask.
        old: String,
    },
    /// Whether interrupts are deferred, which the governor decides.
    Deferral {
        /// What was there before.
        old: Values,
    },
    /// The gate's filter at tc ingress, on a kernel that has no link for it.
    TcFilter {
        /// What is to be removed.
        filter: FilterRecord,
    },
}

/// What came of putting a knob back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has its old value.
    Restored,
    /// Somebody else has changed it since weir did. It stays as it is, at this value.
    Theirs(String),
    /// What it belonged to no longer exists, and the knob with it.
    Gone,
    /// Its interface is not there any more; where it has been moved to, the knob stays turned.
    TakenAlong,
}

/// What became of the knobs that were turned back, in the order of events.
#[derive(Clone, Debug, Default)]
pub struct Returns {
    /// Those that have their old values.
    pub restored: Vec<String>,
    /// Those that stay as somebody else has set them.
    pub left: Vec<String>,
    /// Those that could not be turned back.
    pub failures: Vec<String>,
    /// Those that an interface has taken along, and is known by when it is back: a new one has their old values.
    pub taken: Vec<Knob>,
}

impl Returns {
    /// Takes note of one; whether that is all there is to do about it.
    pub fn note(&mut self, knob: &Knob, outcome: Result<Outcome>) -> bool {
        match outcome {
            // An interface that goes down and up has the same ones put back each time.
            Ok(Outcome::Restored) if self.restored.contains(&knob.to_string()) => {}
            Ok(Outcome::Restored) => self.restored.push(knob.to_string()),
            Ok(Outcome::Theirs(value)) => {
                self.left.push(format!("{}: left as set by somebody else ({value})", knob.object()))
            }
            Ok(Outcome::Gone) => {}
            Ok(Outcome::TakenAlong) => {
                let (object, old) = (knob.object(), knob.old_value());
                let mut left = format!(
                    "{object} was {old}, and stays as it is if the interface has been moved"
                );
                let is_threaded = matches!(knob, Knob::Threaded { old, .. } if old == "0");
                let commands = match knob {
                    Knob::Threaded { old, .. } => vec![(THREADED, old.as_str())],
                    Knob::Deferral { old } => old.attributes().to_vec(),
                    _ => vec![],
                };
                let commands = commands.iter().map(|(attribute, value)| {
                    format!("`echo {value} > /sys/class/net/NAME/{attribute}`")
                });
                let commands: Vec<String> = commands.collect();
                if !commands.is_empty() {
                    left += &format!(": {} there", commands.join(", "));
                }
                self.left.push(left);
                if matches!(knob, Knob::Deferral { .. }) || is_threaded {
                    self.taken.push(knob.clone());
                }
            }
            Err(error) => {
                self.failures.push(format!("{knob}: {error}"));
                return false;
            }
        }
        true
    }
}

impl Knob {
    /// Gives the knob its new value.
    pub fn turn(&self, host: &Host, interface: &str) -> Result<()> {
        match self {
            Self::Threaded { new, .. } => Ok(host.sysfs.write(interface, THREADED, new)?),
            Self::Nice { thread, new, .. } => Ok(sched::set_nice(living(thread)?, *new)?),
            Self::Affinity { thread, new, .. } => Ok(sched::set_affinity(living(thread)?, new)?),
            Self::Rps { queue, .. } => {
                Ok(host.sysfs.write(interface, &rps::attribute(queue), rps::OFF)?)
            }
            // By the governor, and attached by the gate, once this is on record.
            Self::Deferral { .. } | Self::TcFilter { .. } => Ok(()),
        }
    }

    /// Gives a thread its CPUs again, where the kernel lets it run on others now: on all, if not on its old ones.
    pub fn turn_again(&self, host: &Host, interface: &str) -> Result<()> {
        let Self::Affinity { thread, old, new } = self else { return Ok(()) };
        let turned = living(thread).and_then(|pid| {
            let all = CpuList(sched::online_cpus()?).to_string();
            let others = others_cpus(pid, old, new)?.filter(|cpus| *cpus != all);
            if others.is_none() { Ok(sched::set_affinity(pid, new)?) } else { Ok(()) }
        });
        match turned {
            Err(_) if self.is_gone(host, interface) => Ok(()),
            turned => turned,
        }
    }

    /// Gives the knob its old value, unless somebody else has changed it. Doing so twice is the same as
    /// once.
    pub fn turn_back(&self, host: &Host, interface: &str) -> Result<Outcome> {
        let outcome = match self.others_value(host, interface) {
            Ok(Some(value)) => {
                self.leave_to_others(host, interface).map(|()| Outcome::Theirs(value))
            }
            Ok(None) => self.put_back(host, interface),
            Err(error) => Err(error),
        };
        match outcome {
            // What it belongs to may also have vanished between our look and our write.
            Err(_) if self.is_gone(host, interface) => Ok(Outcome::Gone),
            outcome => outcome,
        }
    }

    /// The value that somebody else has given the knob. `None` if it has the one that weir set, or the old
    /// one.
    fn others_value(&self, host: &Host, interface: &str) -> Result<Option<String>> {
        let others = match self {
            Self::Threaded { old, new } => {
                let present = threading::read(host, interface)?;
                (present != *new && present != *old).then_some(present)
            }
            Self::Rps { queue, old } => {
                let present = host.sysfs.read(interface, &rps::attribute(queue))?;
                (rps::is_on(&present) && present != *old).then_some(present)
            }
            Self::Deferral { old } => {
                let present = Values::read(host, interface)?;
                (present != *old && !present.are_the_governors()).then(|| present.to_string())
            }
            Self::Nice { thread, old_policy, governed: true, .. } => {
                others_policy(living(thread)?, *old_policy)?
            }
            Self::Nice { thread, old, new, .. } => {
                let present = sched::nice(living(thread)?)?;
                (present != *new && present != *old).then(|| present.to_string())
            }
            Self::Affinity { thread, old, new } => others_cpus(living(thread)?, old, new)?,
            Self::TcFilter { .. } => None,
        };
        Ok(others)
    }

    /// Takes back what weir has set beside the value that stays. A governed thread under somebody else's
    /// policy still has the governor's nice value, which would count again with the usual policy.
    fn leave_to_others(&self, host: &Host, interface: &str) -> Result<()> {
        match self {
            Self::Deferral { old } => old.write(host, interface),
            Self::Nice { thread, old, governed: true, .. } => {
                Ok(sched::set_nice(living(thread)?, *old)?)
            }
            _ => Ok(()),
        }
    }

    fn put_back(&self, host: &Host, interface: &str) -> Result<Outcome> {
        match self {
            Self::Threaded { old, .. } => threading::put_back(host, interface, old)?,
            Self::Rps { queue, old } => host.sysfs.write(interface, &rps::attribute(queue), old)?,
            Self::Deferral { old } => old.write(host, interface)?,
            Self::Nice { thread, old, old_policy, old_slice, governed, .. } => {
                let governed = governed.then_some((*old_policy, *old_slice));
                weigh_back(living(thread)?, *old, governed)?;
            }
            Self::Affinity { thread, old, .. } => sched::set_affinity(living(thread)?, old)?,
            Self::TcFilter { filter } => {
                let removed = filter.remove(host.links.index(interface)?)?;
                if matches!(removed, Removed::Nothing) {
                    return Ok(Outcome::Gone);
                }
            }
        }
        Ok(Outcome::Restored)
    }

    /// Gives what the governor moves the value that it is to have while no governor lives. Other knobs
    /// stay, and so does what somebody else has changed.
    pub fn leave_to_itself(&self, host: &Host, interface: &str) -> Result<()> {
        match self {
            Self::Deferral { old } => old.write(host, interface),
            Self::Nice { thread, old_policy, governed: true, .. } => {
                weigh((living(thread)?, *old_policy), SchedPolicy::Normal, Nice::NORMAL, None)
            }
            _ => Ok(()),
        }
    }

    /// Whether it is a thread's, not the interface's own.
    pub fn is_of_a_thread(&self) -> bool {
        matches!(self, Self::Nice { .. } | Self::Affinity { .. })
    }

    /// Whether what the knob belongs to no longer exists; not if that cannot be told.
    pub fn is_gone(&self, host: &Host, interface: &str) -> bool {
        use weir_bpf::Error::NoInterface;
        let no_interface = || matches!(host.links.index(interface), Err(NoInterface(_)));
        match self {
            Self::Threaded { .. } | Self::Deferral { .. } | Self::TcFilter { .. } => no_interface(),
            Self::Rps { queue, .. } => {
                let exists = host.sysfs.exists(interface, &rps::attribute(queue));
                no_interface() || matches!(exists, Ok(false))
            }
            Self::Nice { thread, .. } | Self::Affinity { thread, .. } => {
                matches!((thread.lives(), task::sees_kernel_threads()), (Ok(false), Ok(true)))
            }
        }
    }

    /// What is turned.
    pub fn object(&self) -> String {
        match self {
            Self::Threaded { .. } => THREADED.into(),
            Self::Nice { thread, .. } => format!("nice of {}", thread.comm),
            Self::Affinity { thread, .. } => format!("CPUs of {}", thread.comm),
            Self::Rps { queue, .. } => format!("receive packet steering of {queue}"),
            Self::Deferral { .. } => "deferral of interrupts".into(),
            Self::TcFilter { .. } => "tc ingress filter".into(),
        }
    }

    /// The value before.
    pub fn old_value(&self) -> String {
        match self {
            Self::Threaded { old, .. } => old.clone(),
            Self::Nice { old, .. } => old.to_string(),
            Self::Affinity { old, .. } => CpuList(old.clone()).to_string(),
            Self::Rps { old, .. } => old.clone(),
            Self::Deferral { old } => old.to_string(),
            Self::TcFilter { .. } => "none".into(),
        }
    }

    /// The value that weir sets.
    pub fn new_value(&self) -> String {
        match self {
            Self::Threaded { new, .. } => new.clone(),
            Self::Nice { governed: true, .. } | Self::Deferral { .. } => "governed".into(),
            Self::Nice { new, .. } => new.to_string(),
            Self::Affinity { new, .. } => CpuList(new.clone()).to_string(),
            Self::Rps { .. } => rps::OFF.into(),
            Self::TcFilter { filter } => format!("program {}", filter.prog_id),
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.object(), self.new_value(), self.old_value())
    }
}

/// Gives a governed thread this weight, unless somebody else has given it another policy than the governor's and its
/// old one.
pub fn weigh(
    (pid, old): (Pid, SchedPolicy),
    policy: SchedPolicy,
    nice: Nice,
    slice: Option<Nanos>,
) -> Result<()> {
    if others_policy(pid, old)?.is_none() {
        sched::set_weight(pid, policy, nice, slice)?;
    }
    Ok(())
}

/// As it was; where it was governed, with its policy and its slice.
fn weigh_back(pid: Pid, nice: Nice, old: Option<(SchedPolicy, Option<Nanos>)>) -> Result<()> {
    // A real-time policy takes no nice value with it, but keeps one.
    sched::set_nice(pid, nice)?;
    if let Some((policy, slice)) = old {
        sched::set_weight(pid, policy, nice, None)?;
        // The kernel does not tell a slice of the thread's own from the usual one, which it has now.
        if slice.is_some() && sched::slice(pid)? != slice {
            sched::set_weight(pid, policy, nice, slice)?;
        }
    }
    Ok(())
}

/// A governed thread's policy, if it is neither one of the governor's nor the old one.
pub fn others_policy(pid: Pid, old: SchedPolicy) -> Result<Option<String>> {
    match sched::policy(pid) {
        Ok(SchedPolicy::Normal | SchedPolicy::Batch) => Ok(None),
        Ok(policy) if policy == old => Ok(None),
        Ok(policy) => Ok(Some(policy.to_string())),
        Err(weir_bpf::Error::Refused { .. }) => Ok(Some("another policy".into())),
        Err(error) => Err(error.into()),
    }
}

/// The kernel tells a thread's CPUs without those that are offline.
fn others_cpus(pid: Pid, old: &[CpuId], new: &[CpuId]) -> Result<Option<String>> {
    let (online, present) = (sched::online_cpus()?, sched::affinity(pid)?);
    let is = |cpus: &[CpuId]| cpus.iter().filter(|cpu| online.contains(cpu)).eq(&present);
    let is_known = is(new) || is(old);
    Ok((!is_known).then(|| CpuList(present).to_string()))
}

/// The thread's number, if that number still means this NAPI thread. A thread that has ended may have
/// been followed by anybody's process.
fn living(thread: &Task) -> Result<Pid> {
    let lives = thread.lives()?;
    match Pid::from_raw(thread.pid).filter(|_| lives) {
        Some(pid) => Ok(pid),
        None if task::sees_kernel_threads()? => Err(ended(thread)),
        None => Err(task::unseen()),
    }
}

/// Why nothing is turned of a thread.
pub fn ended(thread: &Task) -> Error {
    Error::refused(
        format!("the NAPI thread {} ({}) has ended", thread.comm, thread.pid),
        "weir looks for its successor within a second",
    )
}

#[cfg(test)]
pub mod tests {
    use std::rc::Rc;

    use weir_bpf::sys::ethtool;
    use weir_bpf::sys::link::Links;
    use weir_bpf::sys::netns::NetNs;
    use weir_bpf::units::IfIndex;

    use super::*;

    const NAME: &str = "wt-knob";

    /// In a network namespace of its own, with an interface that is polled by threads.
    pub fn with_polled(name: &str, test: impl FnOnce(&Rc<Host>, IfIndex) + Send) {
        let tested = NetNs::create().unwrap().run(|| {
            let host = Rc::new(Host::open().unwrap());
            let links = Links::open().unwrap();
            links.create_veth(name, "peer", None).unwrap();
            let ifindex = links.index(name).unwrap();
            ethtool::set_gro(name, true).unwrap();
            links.set_up(ifindex).unwrap();
            host.sysfs.write(name, THREADED, "1").unwrap();
            test(&host, ifindex);
        });
        tested.unwrap();
    }

    pub fn with_thread(test: impl FnOnce(&Host, &Task, Pid) + Send) {
        with_polled(NAME, |host, ifindex| {
            let pid = weir_bpf::sys::napi::napi_threads(ifindex, NAME).unwrap()[0].pid;
            test(host, &Task::napi_thread(pid.as_raw_nonzero().get()).unwrap(), pid);
        });
    }

    /// A third value needs a kernel that knows one; here it is weir's record that has others.
    #[test]
    fn threading_is_put_back_only_from_what_weir_set() {
        with_thread(|host, _, _| {
            let knob = |old: &str, new: &str| Knob::Threaded { old: old.into(), new: new.into() };
            let present = || threading::read(host, NAME).unwrap();
            let theirs = Outcome::Theirs("1".into());
            assert_eq!(knob("2", "0").turn_back(host, NAME).unwrap(), theirs);
            assert_eq!(present(), "1");
            for _ in 0..2 {
                assert_eq!(knob("0", "1").turn_back(host, NAME).unwrap(), Outcome::Restored);
                assert_eq!(present(), "0");
            }
            assert_eq!(knob("0", "1").turn_back(host, "none").unwrap(), Outcome::Gone);
        });
    }

    #[test]
    fn a_thread_that_the_kernel_lets_run_anywhere_gets_its_cpus_again() {
        with_thread(|host, task, pid| {
            let online = sched::online_cpus().unwrap();
            let one = |at: usize| online[at..=at].to_vec();
            let knob = Knob::Affinity { thread: task.clone(), old: one(0), new: one(1) };
            for present in [&online, &one(0), &one(1)] {
                sched::set_affinity(pid, present).unwrap();
                knob.turn_again(host, NAME).unwrap();
                assert_eq!(sched::affinity(pid).unwrap(), one(1));
            }
            // Of a thread that has ended nothing is left to do.
            let earlier = Task { start_ticks: task.start_ticks - 1, ..task.clone() };
            let knob = Knob::Affinity { thread: earlier, old: one(1), new: one(0) };
            knob.turn_again(host, NAME).unwrap();
            assert_eq!(sched::affinity(pid).unwrap(), one(1));
        });
    }

    #[test]
    fn a_thread_gets_its_own_slice_back() {
        with_thread(|host, task, pid| {
            for own in [None, Some(Nanos(7_000_000))] {
                sched::set_weight(pid, SchedPolicy::Normal, Nice(0), own).unwrap();
                let old_slice = sched::slice(pid).unwrap();
                let knob = Knob::Nice {
                    thread: task.clone(),
                    old: Nice(0),
                    old_policy: SchedPolicy::Normal,
                    old_slice,
                    new: Nice(0),
                    governed: true,
                };
                let governors = Some(Nanos(100_000));
                sched::set_weight(pid, SchedPolicy::Batch, Nice(3), governors).unwrap();
                assert_eq!(knob.turn_back(host, NAME).unwrap(), Outcome::Restored);
                assert_eq!(sched::slice(pid).unwrap(), old_slice);
                assert!(old_slice.is_none() || own.is_none() || old_slice == own);
            }
        });
    }

    #[test]
    fn threads_are_put_back_only_from_what_weir_set() {
        with_thread(|host, task, pid| {
            let nice = |governed| Knob::Nice {
                thread: task.clone(),
                old: Nice(3),
                old_policy: SchedPolicy::RoundRobin(5),
                old_slice: None,
                new: Nice(19),
                governed,
            };
            let outcome = |knob: Knob| knob.turn_back(host, NAME).unwrap();
            let present = || (sched::policy(pid).unwrap(), sched::nice(pid).unwrap());
            for (set, stays) in [(19, false), (3, false), (7, true)] {
                sched::set_nice(pid, Nice(set)).unwrap();
                let left = Outcome::Theirs(set.to_string());
                assert_eq!(outcome(nice(false)), if stays { left } else { Outcome::Restored });
                assert_eq!(present(), (SchedPolicy::Normal, Nice(if stays { set } else { 3 })));
            }

            // The governor moves all but the policies that it does not use.
            let governors = [SchedPolicy::Normal, SchedPolicy::Batch];
            for policy in governors {
                sched::set_weight(pid, policy, Nice(-7), None).unwrap();
                assert_eq!(outcome(nice(true)), Outcome::Restored);
                assert_eq!(present(), (SchedPolicy::RoundRobin(5), Nice(3)));
                assert_eq!(outcome(nice(true)), Outcome::Restored);
            }
            // Another thread that has its number now.
            let earlier = Task { start_ticks: task.start_ticks - 1, ..task.clone() };
            for (whose, policy) in
                [(&earlier, SchedPolicy::RoundRobin(5)), (task, SchedPolicy::Batch)]
            {
                let weigh = |pid| {
                    weigh((pid, SchedPolicy::RoundRobin(5)), SchedPolicy::Batch, Nice(3), None)
                };
                let done = living(whose).and_then(weigh);
                assert_eq!((done.is_ok(), present()), (whose == task, (policy, Nice(3))));
            }
            for policy in [SchedPolicy::Fifo(5), SchedPolicy::RoundRobin(6), SchedPolicy::Idle] {
                sched::set_weight(pid, SchedPolicy::Normal, Nice(19), None).unwrap();
                sched::set_weight(pid, policy, Nice(19), None).unwrap();
                nice(true).leave_to_itself(host, NAME).unwrap();
                assert_eq!(present(), (policy, Nice(19)));
                assert_eq!(outcome(nice(true)), Outcome::Theirs(policy.to_string()));
                assert_eq!(present(), (policy, Nice(3)));
            }

            let cpus = |of: &[u32]| of.iter().copied().map(CpuId).collect::<Vec<_>>();
            // CPU 1000 is offline.
            let knob = Knob::Affinity {
                thread: task.clone(),
                old: cpus(&[0, 1, 1000]),
                new: cpus(&[1, 1000]),
            };
            for (set, stays) in [(cpus(&[1]), false), (cpus(&[0, 1]), false), (cpus(&[0]), true)] {
                sched::set_affinity(pid, &set).unwrap();
                let left = Outcome::Theirs("0".into());
                assert_eq!(outcome(knob.clone()), if stays { left } else { Outcome::Restored });
                assert_eq!(sched::affinity(pid).unwrap(), cpus(if stays { &[0] } else { &[0, 1] }));
            }
        });
    }
}

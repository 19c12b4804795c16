//! Which processes have which sockets open, and what those processes are.
//!
//! The kernel keeps no way back from a socket to the processes that have it open, so every look goes
//! through all open files: by BPF iterators (`bpf/holders.bpf.c`), or, where the kernel refuses those, by
//! `/proc/PID/fd`.

mod iterate;
mod proc;

use std::collections::HashSet;

use self::iterate::Iterators;
use crate::error::Result;
use crate::units::{Nice, SocketInode, Uid};

/// A process, told from a later one with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// When it started; only good to be compared.
    pub started: Started,
    /// Its number, in the looking process's pid namespace.
    pub pid: i32,
}

/// When a process started, in a unit of the source's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Started(pub u64);

/// Tells whether a process has been moved to other control groups since the last look: it is in the same
/// ones if this is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupMark {
    set: u64,
    group: u64,
}

/// How a thread is scheduled (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By its nice value.
    Fair(Nice),
    /// `SCHED_IDLE`: when nothing else runs, or nearly so.
    Idle,
    /// `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE` and whatever else is before all fair ones.
    RealTime,
}

impl Policy {
    fn of(policy: u32, nice: Nice) -> Self {
        // include/uapi/linux/sched.h
        const SCHED_NORMAL: u32 = 0;
        const SCHED_BATCH: u32 = 3;
        const SCHED_IDLE: u32 = 5;
        const SCHED_EXT: u32 = 7;
        match policy {
            SCHED_NORMAL | SCHED_BATCH | SCHED_EXT => Self::Fair(nice),
            SCHED_IDLE => Self::Idle,
            _ => Self::RealTime,
        }
    }
}

/// A process that has sockets open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which one.
    pub id: ProcessId,
    /// Its name, as it has given it to itself: any bytes.
    pub comm: Vec<u8>,
    /// Whose rights it has (its effective user).
    pub uid: Uid,
    /// Its threads' scheduling, each kind that there is once: of the first thread and of those that differ
    /// from it.
    pub policies: Vec<Policy>,
    /// `None`: the source does not tell.
    pub groups: Option<GroupMark>,
}

/// What one look has found. A process that ends meanwhile may be missing, with what it had open.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Who has what open; several times, if it is open several times.
    pub holders: Vec<(SocketInode, ProcessId)>,
    /// Those processes.
    pub processes: Vec<Process>,
}

/// Looks for those that have sockets open.
pub struct Holders {
    /// `None`: the kernel refuses.
    iterators: Option<Iterators>,
}

impl Holders {
    /// By iterators, if the kernel lets it.
    pub fn open() -> Self {
        Self::by_iterators().unwrap_or(Self::by_proc())
    }

    /// By iterators alone.
    ///
    /// # Errors
    ///
    /// Without the privilege, or on a kernel that lacks them.
    pub fn by_iterators() -> Result<Self> {
        Ok(Self { iterators: Some(Iterators::load()?) })
    }

    /// By `/proc` in any case.
    pub fn by_proc() -> Self {
        Self { iterators: None }
    }

    /// The processes of this pid namespace and those in it that have one of these sockets open.
    ///
    /// The sockets must be UDP's or listeners of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to tell.
    pub fn look(&self, sockets: &HashSet<SocketInode>) -> Result<Found> {
        match &self.iterators {
            Some(iterators) => iterators.look(sockets),
            None => proc::look(sockets),
        }
    }
}

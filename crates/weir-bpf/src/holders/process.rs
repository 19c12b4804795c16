//! What a look tells of processes.

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
    pub(super) set: u64,
    pub(super) group: u64,
}

/// How a thread is scheduled (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedClass {
    /// By its nice value.
    Fair(Nice),
    /// `SCHED_IDLE`: when nothing else runs, or nearly so.
    Idle,
    /// `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE` and whatever else is before all fair ones.
    RealTime,
}

impl SchedClass {
    pub(super) fn of(policy: u32, nice: Nice) -> Self {
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
    pub policies: Vec<SchedClass>,
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

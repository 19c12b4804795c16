//! What a look tells of processes.

use std::collections::HashMap;

use crate::units::{Nice, SocketInode, Uid};

/// How many of the processes that have one socket open a look tells. Whoever has a socket may have any number of them.
/// A server has few, or one for each CPU, and those weigh alike.
pub const HOLDERS_MAX: usize = 64;

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
    /// Who has what open, each once, and at most [`HOLDERS_MAX`] of one socket.
    pub holders: Vec<(SocketInode, ProcessId)>,
    /// Those processes.
    pub processes: Vec<Process>,
}

/// Who has what open, as it is found; bounded by how many sockets there are. A process may have one open a million
/// times, and any number of others may share what it has open.
#[derive(Debug, Default)]
pub(super) struct Holdings(HashMap<SocketInode, Vec<ProcessId>>);

impl Holdings {
    /// Whether that is one more to be told.
    pub(super) fn add(&mut self, socket: SocketInode, process: ProcessId) -> bool {
        let holders = self.0.entry(socket).or_default();
        // From the last: what one process has open comes in one go.
        let is_new =
            holders.len() < HOLDERS_MAX && !holders.iter().rev().any(|known| *known == process);
        if is_new {
            holders.push(process);
        }
        is_new
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (SocketInode, ProcessId)> {
        self.0
            .iter()
            .flat_map(|(socket, holders)| holders.iter().map(move |process| (*socket, *process)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_told_once_of_each_process_and_of_a_bounded_number() {
        let id = |pid| ProcessId { started: Started(1), pid };
        let mut holdings = Holdings::default();
        let added = (0..1000).filter(|_| holdings.add(SocketInode(3), id(7))).count();
        assert_eq!((added, holdings.pairs().count()), (1, 1));
        for pid in 0..100 {
            holdings.add(SocketInode(3), id(pid));
            holdings.add(SocketInode(4), id(pid));
        }
        for socket in [3, 4].map(SocketInode) {
            let of_socket = || holdings.pairs().filter(|(inode, _)| *inode == socket);
            assert_eq!(of_socket().count(), HOLDERS_MAX);
        }
        assert!(holdings.pairs().any(|pair| pair == (SocketInode(3), id(7))));
        assert!(!holdings.add(SocketInode(4), id(100)) && holdings.add(SocketInode(5), id(100)));
    }
}

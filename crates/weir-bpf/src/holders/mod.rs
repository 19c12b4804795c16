//! Which processes have which sockets open, and what those processes are.
//!
//! The kernel keeps no way back from a socket to the processes that have it open, so every look goes
//! through all open files: by BPF iterators (`bpf/holders.bpf.c`), or, where the kernel refuses those, by
//! `/proc/PID/fd`.

mod iterate;
mod proc;
mod process;

use std::collections::HashSet;

use self::iterate::Iterators;
pub use self::process::{Found, GroupMark, HOLDERS_MAX, Process, ProcessId, SchedClass, Started};
use crate::error::Result;
use crate::units::SocketInode;

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
    /// When the kernel refuses to tell.
    pub fn look(&self, sockets: &HashSet<SocketInode>) -> Result<Found> {
        self.look_while(sockets, || true)
    }

    /// The same, or what has been found until `goes_on` says no: any user may open so many files that a look takes
    /// many seconds.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn look_while(
        &self,
        sockets: &HashSet<SocketInode>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Found> {
        match &self.iterators {
            Some(iterators) => iterators.look(sockets, goes_on),
            None => proc::look(sockets, goes_on),
        }
    }
}

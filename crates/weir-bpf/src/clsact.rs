//! tc ingress where the kernel has no tcx (before Linux 6.6): a direct-action BPF filter in the
//! interface's `clsact` queueing discipline.
//!
//! Such a filter outlives the process that made it. So whoever attaches one first writes down what
//! is to be removed ([`FilterRecord`]), and removal trusts nothing but that: the filter is weir's if
//! it has weir's handle and priority and the very program that was written down, and the queueing
//! discipline is removed only if weir made it and nobody else's filter is in it.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attach_mode::{AttachMode, failed};
use crate::error::{Error, Result};
use crate::sys::link::Links;
use crate::sys::tc::{FilterId, Hook};
use crate::tc_bpf;
use crate::units::IfIndex;

/// The last priority there is: filters of others come first, and what they divert never gets here. "weir", in ASCII.
const FILTER: FilterId = FilterId { chain: 0, priority: 0xffff, handle: 0x7765_6972 };

/// What one attached filter leaves behind if it is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterRecord {
    /// The kernel's number of the gate's program.
    pub prog_id: u32,
    /// Whether weir made the `clsact` queueing discipline.
    pub made_qdisc: bool,
}

impl FilterRecord {
    /// What attaching this program now would leave behind.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub(crate) fn plan(links: &Links, ifindex: IfIndex, prog_id: u32) -> Result<Self> {
        Ok(Self { prog_id, made_qdisc: !links.has_ingress_qdisc(ifindex)? })
    }

    /// Removes what is there of it, by whoever attached it. Twice is the same as once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(self, ifindex: IfIndex) -> Result<Removed> {
        let links = Links::open()?;
        if !links.has_ingress_qdisc(ifindex)? {
            return Ok(Removed::Nothing);
        }
        let mut removed = Removed::Nothing;
        if self.is_attached(&links, ifindex)? {
            match FILTER.detach(ifindex) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => Ok(()),
                done => done.map_err(|source| refused("remove weir's tc filter from", source)),
            }?;
            removed = Removed::Filter;
        }
        // A list that cannot be read may have somebody's filter in it.
        if self.made_qdisc && !links.has_filters(ifindex)? {
            tc_bpf::destroy_hook(ifindex)
                .map_err(|source| refused("remove weir's clsact from", source))?;
            removed = Removed::Filter;
        }
        Ok(removed)
    }

    /// Whether the filter with weir's handle and priority runs the recorded program.
    fn is_attached(self, links: &Links, ifindex: IfIndex) -> Result<bool> {
        // Where the list cannot be read, libbpf asks for the one filter; it would complain on
        // standard error if that is not there.
        let may_be =
            links.filters(ifindex, Hook::Ingress).map_or(true, |all| all.contains(&FILTER));
        Ok(may_be && FILTER.program(ifindex)? == Some(self.prog_id))
    }
}

/// What was found to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// A filter, or the queueing discipline that was made for it.
    Filter,
    /// None: it had been removed already.
    Nothing,
}

/// An attached filter. Dropping it removes it.
pub(crate) struct Filter {
    record: FilterRecord,
    ifindex: IfIndex,
}

impl Filter {
    /// Attaches a loaded program as was planned.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        ifindex: IfIndex,
        ifname: &str,
        record: FilterRecord,
    ) -> Result<Self> {
        let wrong = |source| failed(ifname, AttachMode::Clsact, source);
        if record.made_qdisc {
            // EEXIST: somebody else has just made one, which is not weir's to remove.
            tc_bpf::create_hook(ifindex).map_err(wrong)?;
        }
        let filter = Self { record, ifindex };
        // On failure, dropping the filter removes the queueing discipline.
        FILTER.attach(program, ifindex, 0).map_err(wrong)?;
        Ok(filter)
    }

    /// Whether it is still there.
    pub(crate) fn is_attached(&self) -> Result<bool> {
        self.record.is_attached(&Links::open()?, self.ifindex)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Whoever has written it down tries again, and can tell of a failure.
        let _ = self.record.remove(self.ifindex);
    }
}

fn refused(operation: &'static str, source: io::Error) -> Error {
    Error::system(operation, "the interface", source)
}

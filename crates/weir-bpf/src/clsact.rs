//! tc ingress where the kernel has no tcx (before Linux 6.6): a direct-action BPF filter in the
//! interface's `clsact` queueing discipline.
//!
//! Such a filter outlives the process that made it. So whoever attaches one first writes down what
//! is to be removed ([`FilterRecord`]), and removal trusts nothing but that: the filter is weir's if
//! it has weir's handle and priority and the very program that was written down, and the queueing
//! discipline is removed only if weir made it and nobody else's filter is in it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attach::{AttachMode, failed};
use crate::error::{Error, Result};
use crate::sys::link::Links;
use crate::sys::tc::{FilterId, Hook};
use crate::units::IfIndex;

/// The last priority there is: filters of others come first, and what they divert never gets here.
const PRIORITY: u32 = 0xffff;
/// "weir", in ASCII.
const HANDLE: u32 = 0x7765_6972;

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
        if self.is_attached(&links, ifindex) {
            detach(ifindex).map_err(|source| refused("remove weir's tc filter from", source))?;
            removed = Removed::Filter;
        }
        let is_empty = |hook| links.filters(ifindex, hook).map(|filters| filters.is_empty());
        // A list that cannot be read may have somebody's filter in it.
        if self.made_qdisc && is_empty(Hook::Ingress)? && is_empty(Hook::Egress)? {
            destroy(ifindex).map_err(|source| refused("remove weir's clsact from", source))?;
            removed = Removed::Filter;
        }
        Ok(removed)
    }

    /// Whether the filter with weir's handle and priority runs the recorded program.
    fn is_attached(self, links: &Links, ifindex: IfIndex) -> bool {
        let id = FilterId { priority: PRIORITY, handle: HANDLE };
        // Where the list cannot be read, libbpf asks for the one filter; it would complain on
        // standard error if that is not there.
        let may_be = links.filters(ifindex, Hook::Ingress).map_or(true, |all| all.contains(&id));
        may_be && query(ifindex) == Some(self.prog_id)
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
            create(ifindex).map_err(wrong)?;
        }
        let filter = Self { record, ifindex };
        // On failure, dropping the filter removes the queueing discipline.
        attach(program, ifindex).map_err(wrong)?;
        Ok(filter)
    }
}

impl Filter {
    /// Whether it is still there.
    pub(crate) fn is_attached(&self) -> Result<bool> {
        Ok(self.record.is_attached(&Links::open()?, self.ifindex))
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

fn hook(
    ifindex: IfIndex,
    attach_point: libbpf_sys::bpf_tc_attach_point,
) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex: ifindex.0.cast_signed(),
        attach_point,
        ..Default::default()
    }
}

fn filter_options() -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as libbpf_sys::size_t,
        handle: HANDLE,
        priority: PRIORITY,
        ..Default::default()
    }
}

fn result(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

#[allow(unsafe_code)]
fn create(ifindex: IfIndex) -> io::Result<()> {
    let mut hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
    // SAFETY: the hook outlives the call, with its own size in it.
    result(unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) })
}

#[allow(unsafe_code)]
fn destroy(ifindex: IfIndex) -> io::Result<()> {
    // Both points: the queueing discipline itself.
    let mut hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS);
    // SAFETY: the hook outlives the call, with its own size in it.
    result(unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) })
}

#[allow(unsafe_code)]
fn attach(program: BorrowedFd<'_>, ifindex: IfIndex) -> io::Result<()> {
    let hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
    let mut options = filter_options();
    options.prog_fd = program.as_raw_fd();
    // SAFETY: both outlive the call, with their own sizes in them; the program is open.
    result(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut options) })
}

#[allow(unsafe_code)]
fn detach(ifindex: IfIndex) -> io::Result<()> {
    let hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
    let options = filter_options();
    // SAFETY: both outlive the call, with their own sizes in them.
    match result(unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) }) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(()),
        done => done,
    }
}

/// The program of the filter with weir's handle and priority.
#[allow(unsafe_code)]
fn query(ifindex: IfIndex) -> Option<u32> {
    let hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
    let mut options = filter_options();
    // SAFETY: both outlive the call, with their own sizes in them.
    let found = result(unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) });
    found.is_ok().then_some(options.prog_id)
}

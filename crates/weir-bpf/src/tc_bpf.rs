//! Direct-action BPF filters at tc ingress, by libbpf.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sys::tc::FilterId;
use crate::units::IfIndex;

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

/// The kernel's answer to a call.
pub(crate) fn result(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// Makes the `clsact` queueing discipline.
#[allow(unsafe_code)]
pub(crate) fn create_hook(ifindex: IfIndex) -> io::Result<()> {
    let mut hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
    // SAFETY: the hook outlives the call, with its own size in it.
    result(unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) })
}

/// Removes it, whoever made it.
#[allow(unsafe_code)]
pub(crate) fn destroy_hook(ifindex: IfIndex) -> io::Result<()> {
    // Both points: the queueing discipline itself.
    let mut hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS);
    // SAFETY: the hook outlives the call, with its own size in it.
    result(unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) })
}

impl FilterId {
    fn options(self) -> libbpf_sys::bpf_tc_opts {
        libbpf_sys::bpf_tc_opts {
            sz: size_of::<libbpf_sys::bpf_tc_opts>() as libbpf_sys::size_t,
            handle: self.handle,
            priority: self.priority,
            ..Default::default()
        }
    }

    /// Has the filter run a loaded program.
    #[allow(unsafe_code)]
    pub(crate) fn attach(
        self,
        program: BorrowedFd<'_>,
        ifindex: IfIndex,
        flags: u32,
    ) -> io::Result<()> {
        let hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
        let prog_fd = program.as_raw_fd();
        let mut options = libbpf_sys::bpf_tc_opts { prog_fd, flags, ..self.options() };
        // SAFETY: both outlive the call, with their own sizes in them; the program is open.
        result(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut options) })
    }

    /// Removes the filter.
    #[allow(unsafe_code)]
    pub(crate) fn detach(self, ifindex: IfIndex) -> io::Result<()> {
        let (hook, options) = (hook(ifindex, libbpf_sys::BPF_TC_INGRESS), self.options());
        // SAFETY: both outlive the call, with their own sizes in them.
        result(unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) })
    }

    /// The number of the program that the filter runs, if it is there.
    ///
    /// # Errors
    /// When the kernel does not tell.
    #[allow(unsafe_code)]
    pub(crate) fn program(self, ifindex: IfIndex) -> Result<Option<u32>> {
        let hook = hook(ifindex, libbpf_sys::BPF_TC_INGRESS);
        let mut options = self.options();
        // SAFETY: both outlive the call, with their own sizes in them.
        let found = result(unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut options) });
        match found.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(()) => Ok(Some(options.prog_id)),
            // No filter; no queueing discipline that could have one; no interface.
            Err((Some(Errno::NOENT | Errno::INVAL | Errno::NODEV), _)) => Ok(None),
            Err((_, error)) => Err(Error::system("look for a filter at", "tc", error)),
        }
    }
}

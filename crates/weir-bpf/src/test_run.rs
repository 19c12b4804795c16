//! Timing a program on one packet, over and over (`BPF_PROG_TEST_RUN` with `repeat`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use libbpf_rs::{Program, libbpf_sys};

use crate::error::{Error, Result};
use crate::units::{IfIndex, Nanos};

/// One timed test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedRun {
    /// Mean time of one run, whole nanoseconds (the kernel divides), without what ran between two
    /// runs where the kernel let others have the CPU (`bpf_test_timer_continue()`).
    pub mean: Nanos,
    /// What the last run returned, such as `XDP_DROP`, 1, or `XDP_PASS`, 2.
    pub returned: u32,
}

/// A loaded XDP program, anybody's.
pub struct XdpProgram(OwnedFd);

impl XdpProgram {
    /// The program with this number, such as [`XdpAttached::prog_id`](crate::sys::link::XdpAttached).
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where there is no such program any more.
    pub fn by_id(id: u32) -> Result<Self> {
        let fd = Program::fd_from_id(id);
        fd.map(Self).map_err(Error::libbpf("open", format!("BPF program {id}")))
    }

    /// Runs it `repeat` times on a packet as if it had come in on `ifindex`, an interface of the
    /// calling thread's network namespace with XDP attached; on the calling thread's CPU.
    ///
    /// # Errors
    /// As [`timed`].
    pub fn timed(&self, packet: &[u8], ifindex: IfIndex, repeat: u32) -> Result<TimedRun> {
        timed(self.0.as_fd(), packet, ifindex, repeat)
    }
}

/// Runs a program `repeat` times on one packet.
///
/// # Errors
/// When the kernel refuses the run, such as for a packet shorter than 14 bytes.
pub(crate) fn timed(
    program: BorrowedFd<'_>,
    packet: &[u8],
    ifindex: IfIndex,
    repeat: u32,
) -> Result<TimedRun> {
    let options = libbpf_sys::bpf_test_run_opts {
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        ..Default::default()
    };
    let run = run(program, packet, &xdp_context(packet.len(), ifindex), options);
    let run = run.map_err(|cause| {
        Error::system("time a program on", format!("a packet of {} bytes", packet.len()), cause)
    })?;
    Ok(TimedRun { mean: Nanos(run.duration.into()), returned: run.retval })
}

/// `struct xdp_md`: `data`, `data_end`, `data_meta`, `ingress_ifindex`, `rx_queue_index`, `egress_ifindex`.
pub(crate) fn xdp_context(data_end: usize, ifindex: IfIndex) -> [u8; 24] {
    let mut context = [0; 24];
    let data_end = u32::try_from(data_end).unwrap_or(u32::MAX);
    context[4..8].copy_from_slice(&data_end.to_ne_bytes());
    context[12..16].copy_from_slice(&ifindex.0.to_ne_bytes());
    context
}

/// The same of `struct __sk_buff`, as far as `ifindex`: what is read of it is `ingress_ifindex`.
pub(crate) fn skb_context(ifindex: IfIndex) -> [u8; 44] {
    let mut context = [0; 44];
    context[36..40].copy_from_slice(&ifindex.0.to_ne_bytes());
    context[40..].copy_from_slice(&ifindex.0.to_ne_bytes());
    context
}

/// Runs a program on a packet, in a context that may be empty, with the rest of the options as they are given.
#[allow(unsafe_code)]
pub(crate) fn run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    context: &[u8],
    options: libbpf_sys::bpf_test_run_opts,
) -> io::Result<libbpf_sys::bpf_test_run_opts> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        ctx_in: if context.is_empty() { ptr::null() } else { context.as_ptr().cast() },
        ctx_size_in: context.len() as u32,
        ..options
    };
    // SAFETY: the descriptor is an open program's; packet, context and options outlive the call, as does what the
    // caller has put into these.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) } {
        0.. => Ok(options),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

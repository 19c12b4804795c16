//! The system calls that rustix does not have, or not as they are needed.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// Less than any packet is charged: an `sk_buff` and a `skb_shared_info` alone are more.
const CHARGED_MIN: u32 = 512;

/// At most so many datagrams wait at a socket.
pub(crate) fn waiting_max(socket: BorrowedFd<'_>) -> rustix::io::Result<u32> {
    // SK_MEMINFO_RMEM_ALLOC is the first; a kernel that has more than there is room for leaves them out.
    let mut memory = [0_u32; 16];
    get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut memory)?;
    Ok(memory[0].div_ceil(CHARGED_MIN))
}

/// A number of the network namespace that a socket is in; since Linux 5.14.
pub(crate) fn netns_cookie(socket: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let mut cookie = [0_u64];
    get(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(cookie[0])
}

/// A descriptor of the process that connected a Unix socket, which tells it from a later one with its number; since Linux
/// 6.5.
#[allow(unsafe_code)]
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let mut pidfd = [-1];
    get(socket, libc::SOL_SOCKET, libc::SO_PEERPIDFD, &mut pidfd)?;
    // SAFETY: the kernel has just opened it for this caller, with the flag for close-on-exec, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd[0]) })
}

/// Whether each signal handler of the process has the kernel go on with the call that it interrupts (`SA_RESTART`). Which
/// one has run, only the kernel knows.
#[allow(unsafe_code)]
pub(crate) fn handlers_restart_calls() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only asks. The C library refuses those that are its own.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
        if asked != 0 {
            return true;
        }
        // SAFETY: it has been filled in.
        let action = unsafe { action.assume_init() };
        matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
            || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Reads an option that is integers.
#[allow(unsafe_code)]
pub(crate) fn get<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    to: &mut [T],
) -> rustix::io::Result<()> {
    let mut length = size_of_val(to) as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), to.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `length` bytes to the numbers; both outlive the call.
    let result = unsafe { libc::getsockopt(fd, level, option, to, &raw mut length) };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

//! The system calls that rustix does not have.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

const SO_NETNS_COOKIE: i32 = 71;

/// A number of the network namespace that a socket is in; since Linux 5.14.
#[allow(unsafe_code)]
pub(crate) fn netns_cookie(socket: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the number; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        return Ok(cookie);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

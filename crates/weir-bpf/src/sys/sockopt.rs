//! Socket options that rustix does not know.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// Reads an option into a buffer, which may hold the question and is of the length that the kernel
/// expects. `BADMSG` if the kernel writes less.
#[allow(unsafe_code)]
pub(super) fn get(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    buffer: &mut [u8],
) -> rustix::io::Result<()> {
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(|_| Errno::MSGSIZE)?;
    let (fd, to) = (socket.as_fd().as_raw_fd(), buffer.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `length` bytes, which is the buffer's length, and both
    // outlive the call.
    let result = unsafe { libc::getsockopt(fd, level, option, to, &raw mut length) };
    if result != 0 {
        return Err(last_error());
    }
    if length as usize == buffer.len() { Ok(()) } else { Err(Errno::BADMSG) }
}

/// Sets an option that is a number, or a structure of numbers as C has it.
#[allow(unsafe_code)]
pub(super) fn set<T: Copy>(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    value: T,
) -> rustix::io::Result<()> {
    let (fd, length) = (socket.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads the value, which outlives the call.
    let result = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

//! The same for C: `include/weir_socket.h`.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::sockopt;

use crate::attach::Ordinary;
use crate::channel::{Channel, How};
use crate::message::{Options, fill};
use crate::socket::DEFAULT_RING_BYTES;

type Table = RwLock<std::collections::BTreeMap<RawFd, Arc<(Channel, Options)>>>;

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::default)
}

fn find(fd: RawFd) -> Option<Arc<(Channel, Options)>> {
    table().read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
}

fn fail(errno: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller says that it is open; if not, system calls fail with EBADF.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Makes a bound UDP socket lazy. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_attach(fd: c_int, ring_bytes: u64) -> c_int {
    if fd < 0 {
        return fail(libc::EBADF);
    }
    let bytes = if ring_bytes == 0 { DEFAULT_RING_BYTES } else { ring_bytes };
    match Channel::attach(borrow(fd), bytes) {
        Ok(channel) => {
            let entry = Arc::new((channel, Options::of(fd)));
            table().write().unwrap_or_else(PoisonError::into_inner).insert(fd, entry);
            0
        }
        Err(Ordinary::NotRunning) => fail(libc::ENOENT),
        Err(Ordinary::Refused(_)) => fail(libc::EPERM),
        Err(Ordinary::Impostor(_) | Ordinary::Malformed(_)) => fail(libc::EPROTO),
        Err(Ordinary::System { source, .. }) => fail(source.raw_os_error()),
    }
}

/// The socket is an ordinary one from now on. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_detach(fd: c_int) -> c_int {
    let gone = table().write().unwrap_or_else(PoisonError::into_inner).remove(&fd);
    if gone.is_some() { 0 } else { fail(libc::EBADF) }
}

/// A descriptor to be polled. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_ready_fd(fd: c_int) -> c_int {
    find(fd).map_or(fd, |entry| entry.0.ready_fd().as_raw_fd())
}

/// As recvfrom(2). See the header.
///
/// # Safety
/// As recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    let mut part = libc::iovec { iov_base: buffer, iov_len: length };
    let mut header = empty_header();
    header.msg_name = address.cast();
    if !address.is_null() && !address_length.is_null() {
        // SAFETY: the caller's, as for recvfrom(2).
        header.msg_namelen = unsafe { *address_length };
    }
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    // SAFETY: the header points to what the caller has given, and to `part`.
    let received = unsafe { weir_recvmsg(fd, &raw mut header, flags) };
    if received >= 0 && !address.is_null() && !address_length.is_null() {
        // SAFETY: as above.
        unsafe { *address_length = header.msg_namelen };
    }
    received
}

fn empty_header() -> libc::msghdr {
    // SAFETY: a header of zeros has no address, no parts and no control messages.
    unsafe { std::mem::zeroed() }
}

/// As recvmsg(2). See the header.
///
/// # Safety
/// As recvmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_recvmsg(
    fd: c_int,
    header: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    let kernel = |flags| {
        // SAFETY: as the caller promises.
        let received = unsafe { libc::recvmsg(fd, header, flags) };
        if received < 0 { Err(io::Error::last_os_error()) } else { Ok(received) }
    };
    let Some(entry) = find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { libc::recvmsg(fd, header, flags) };
    };
    if header.is_null() || flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: as the caller promises.
        return unsafe { libc::recvmsg(fd, header, flags) };
    }
    let (channel, options) = &*entry;
    let received = channel.receive(
        borrow(fd),
        how(fd, flags),
        // SAFETY: as the caller promises.
        |datagram| unsafe { fill(&mut *header, datagram, options, flags) },
        || kernel(flags | libc::MSG_DONTWAIT),
    );
    received.unwrap_or_else(|error| {
        fail(error.raw_os_error().unwrap_or(libc::EAGAIN));
        -1
    })
}

/// How a call with these flags is to receive from a socket.
pub(crate) fn how(fd: RawFd, flags: c_int) -> How {
    let socket = borrow(fd);
    let nonblocking = flags & libc::MSG_DONTWAIT != 0
        || fcntl_getfl(socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    let timeout = || sockopt::socket_timeout(socket, sockopt::Timeout::Recv).ok().flatten();
    How {
        nonblocking,
        peek: flags & libc::MSG_PEEK != 0,
        timeout: if nonblocking { None } else { timeout() },
    }
}

/// As recvmmsg(2). See the header.
///
/// # Safety
/// As recvmmsg(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let Some(entry) = find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { libc::recvmmsg(fd, messages, count, flags, timeout) };
    };
    if messages.is_null() || count == 0 || flags & (libc::MSG_ERRQUEUE | libc::MSG_PEEK) != 0 {
        // SAFETY: as the caller promises.
        return unsafe { libc::recvmmsg(fd, messages, count, flags, timeout) };
    }
    let (channel, options) = &*entry;
    let most = (count as usize).min(libc::UIO_MAXIOV as usize);
    // SAFETY: the caller has so many of them.
    let messages = unsafe { std::slice::from_raw_parts_mut(messages, most) };
    let mut taken = 0;
    let mut waiting = |from: usize, messages: &mut [libc::mmsghdr]| {
        let mut at = from;
        channel.receive_waiting(borrow(fd), most - from, |datagram| {
            let message = &mut messages[at];
            // SAFETY: as the caller promises.
            let length = unsafe { fill(&mut message.msg_hdr, datagram, options, flags) };
            message.msg_len = u32::try_from(length).unwrap_or(u32::MAX);
            at += 1;
        })
    };
    taken += waiting(0, messages);
    while taken == 0 || taken < most {
        // After the first, only what is there; all of them, if that is wanted.
        let wait_for_all = flags & libc::MSG_WAITFORONE == 0 && timeout.is_null();
        let dontwait = if taken > 0 && !wait_for_all { libc::MSG_DONTWAIT } else { 0 };
        let flags = flags & !libc::MSG_WAITFORONE | dontwait;
        // SAFETY: as the caller promises.
        let length = unsafe { weir_recvmsg(fd, &raw mut messages[taken].msg_hdr, flags) };
        let Ok(length) = u32::try_from(length) else { break };
        messages[taken].msg_len = length;
        taken += 1;
        taken += waiting(taken, messages);
    }
    if taken == 0 { -1 } else { c_int::try_from(taken).unwrap_or(c_int::MAX) }
}

//! Lazy UDP sockets for programs that do not know of them: `LD_PRELOAD=libweir_preload.so program`.
//!
//! A UDP socket becomes lazy when the program binds it to a port. The calls that receive from it, wait for it,
//! duplicate or close it are answered here; all others, and all other descriptors, go to the C library. See
//! docs/lazy.md for what is left to the kernel's socket.
//!
//! Each exported function is the C library's of that name, with its contract. Where that is a cancellation point
//! (pthreads(7)), a thread that ends there unwinds through this library, which lets go of what it had: hence `C-unwind`.

#![allow(unsafe_code, reason = "it stands in for the C library")]

mod attach;
mod direct;
#[macro_use]
mod fortify;
mod next;
mod past;
mod say;
mod slots;
mod wait;

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::fs::DirEntry;
use std::sync::Arc;

use libc::{iovec, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t, timespec};
use weir_socket::message::{RecvMsg, as_recvfrom, borrow, fail, receive, receive_many};

use crate::next::next;
use crate::slots::Lazy;

/// A name for each open descriptor.
const OPEN: &str = "/proc/self/fd";

unsafe extern "C-unwind" {
    /// Ends this thread if it is to be cancelled (pthread_cancel(3)): a receive does before it looks for anything.
    safe fn pthread_testcancel();
}

fn real_recvmsg() -> RecvMsg {
    next!(recvmsg: RecvMsg)
}

fn find_to_receive(fd: c_int) -> Option<Arc<Lazy>> {
    let found = slots::find_to_receive(fd);
    if found.is_some() {
        pthread_testcancel();
    }
    found
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let real = next!(bind: unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int);
    // SAFETY: as the caller promises.
    let result = unsafe { real(fd, address, length) };
    // sin_port and sin6_port both follow the family. Where the kernel chooses it, few packets come.
    // SAFETY: the kernel has read as many bytes, and accepted them as an address.
    let has_port = || unsafe { address.cast::<[u16; 2]>().read_unaligned() }[1] != 0;
    if result == 0 && length >= 4 && has_port() {
        attach::consider(fd);
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, header: *mut msghdr, flags: c_int) -> ssize_t {
    match find_to_receive(fd) {
        // SAFETY: as the caller promises.
        Some(lazy) => unsafe {
            receive(&lazy.channel, &lazy.options(), fd, header, flags, real_recvmsg())
        },
        // SAFETY: as the caller promises.
        None => unsafe { real_recvmsg()(fd, header, flags) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let real = next!(recvmmsg: unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int);
    let Some(lazy) = find_to_receive(fd).filter(|_| !messages.is_null()) else {
        // SAFETY: as the caller promises.
        return unsafe { real(fd, messages, count, flags, timeout) };
    };
    let (options, messages) = (lazy.options(), (messages, count));
    // SAFETY: as the caller promises.
    unsafe { receive_many(&lazy.channel, &options, fd, messages, flags, timeout, real_recvmsg()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    let real = next!(recvfrom: unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t);
    let Some(lazy) = find_to_receive(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real(fd, buffer, length, flags, address, address_length) };
    };
    // SAFETY: as the caller promises.
    unsafe {
        as_recvfrom(buffer, length, address, address_length, |header| {
            receive(&lazy.channel, &lazy.options(), fd, header, flags, real_recvmsg())
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller promises; so the C library has it, too.
    unsafe { recvfrom(fd, buffer, length, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

fortified!(__recvfrom_chk: recvfrom(fd: c_int, buffer: *mut c_void, length: usize;
    flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> ssize_t, length);

fortified!(__recv_chk: recv(fd: c_int, buffer: *mut c_void, length: usize; flags: c_int) -> ssize_t, length);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, length: usize) -> ssize_t {
    if slots::find(fd).is_some() {
        // sock_read_iter(): nothing asked for is nothing read.
        // SAFETY: as the caller promises.
        return if length == 0 { 0 } else { unsafe { recv(fd, buffer, length, 0) } };
    }
    let real = next!(read: unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> ssize_t);
    // SAFETY: as the caller promises.
    unsafe { real(fd, buffer, length) }
}

fortified!(__read_chk: read(fd: c_int, buffer: *mut c_void, length: usize;) -> ssize_t, length);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the caller promises.
    if slots::find(fd).is_some() && unsafe { has_room(parts, count) } {
        // SAFETY: a header of zeros has no address and no control messages.
        let mut header: msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.cast_mut();
        header.msg_iovlen = count as _;
        // SAFETY: as the caller promises.
        return unsafe { recvmsg(fd, &raw mut header, 0) };
    }
    let real = next!(readv: unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t);
    // SAFETY: as the caller promises.
    unsafe { real(fd, parts, count) }
}

/// Whether readv(2) would receive; if not, the kernel answers.
///
/// # Safety
/// As readv(2).
unsafe fn has_room(parts: *const iovec, count: c_int) -> bool {
    !parts.is_null() && (1..=libc::UIO_MAXIOV).contains(&count) && {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(parts, count as usize) }
            .iter()
            .any(|part| part.iov_len > 0)
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn close(fd: c_int) -> c_int {
    if slots::OWN.has(fd) {
        return fail(libc::EBADF);
    }
    slots::forget(fd);
    let real = next!(close: unsafe extern "C-unwind" fn(c_int) -> c_int);
    // SAFETY: a system call.
    unsafe { real(fd) }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let real = next!(close_range: unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int);
    // Of none, which tells whether the kernel refuses it.
    // SAFETY: a system call.
    if unsafe { real(c_uint::MAX, c_uint::MAX, flags) } != 0 {
        return -1;
    }
    slots::around_own(first, last, |first, last| {
        // Before others can have the numbers; with CLOSE_RANGE_CLOEXEC nothing is closed now.
        if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC == 0 {
            slots::forget_range(first, last);
        }
        // SAFETY: a system call.
        unsafe { real(first, last, flags) }
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn closefrom(first: c_int) {
    if close_range(first.max(0).unsigned_abs(), c_uint::MAX, 0) == 0 {
        return;
    }
    // A kernel before Linux 5.9, or a seccomp filter, refuses that.
    match std::fs::read_dir(OPEN) {
        Ok(open) => {
            let number =
                |entry: std::io::Result<DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
            let open: Vec<c_int> = open.filter_map(number).collect();
            open.into_iter().filter(|fd| *fd >= first).for_each(|fd| _ = close(fd));
        }
        Err(_) => {
            let real = next!(closefrom: unsafe extern "C-unwind" fn(c_int));
            // SAFETY: a system call.
            unsafe { real(first) }
        }
    }
}

#[unsafe(no_mangle)]
extern "C-unwind" fn dup(fd: c_int) -> c_int {
    let real = next!(dup: unsafe extern "C-unwind" fn(c_int) -> c_int);
    // SAFETY: a system call.
    duplicated(fd, unsafe { real(fd) })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    let real = next!(dup2: unsafe extern "C-unwind" fn(c_int, c_int) -> c_int);
    // SAFETY: a system call.
    duplicated_to(fd, to, || unsafe { real(fd, to) })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let real = next!(dup3: unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int);
    // SAFETY: a system call.
    duplicated_to(fd, to, || unsafe { real(fd, to, flags) })
}

fn duplicated_to(fd: c_int, to: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    match slots::give_way(to) {
        Ok(()) => duplicated(fd, duplicate()),
        Err(error) => fail(error.raw_os_error().unwrap_or(libc::EMFILE)),
    }
}

fn duplicated(fd: c_int, to: c_int) -> c_int {
    if to >= 0 {
        slots::duplicate(fd, to);
    }
    to
}

/// fcntl(2), by either of its names. Its third argument is a number or a pointer, or there is none.
macro_rules! fcntl {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
            let real = next!($name: unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int);
            // SAFETY: as the caller promises.
            let result = unsafe { real(fd, command, argument) };
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
                _ => result,
            }
        }
    };
}
fcntl!(fcntl);
fcntl!(fcntl64);

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let real = next!(ioctl: unsafe extern "C-unwind" fn(c_int, c_ulong, ...) -> c_int);
    if request == libc::FIONREAD
        && !argument.is_null()
        && let Some(lazy) = slots::find(fd)
        && let Ok(bytes) = lazy.channel.next_bytes(borrow(fd))
    {
        // SAFETY: the caller's number.
        unsafe { *argument.cast::<c_int>() = bytes as c_int };
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { real(fd, request, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let real = next!(setsockopt: unsafe extern "C-unwind" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int);
    // SAFETY: as the caller promises.
    let result = unsafe { real(fd, level, option, value, length) };
    // After a failure the error number is the program's to read.
    if result == 0
        && let Some(lazy) = slots::find(fd)
    {
        lazy.look_again(fd);
    }
    result
}

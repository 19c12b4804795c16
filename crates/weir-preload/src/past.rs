//! Calls after which a socket is read past this library: by the C library's own calls, or by another program. It becomes
//! an ordinary one.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{FILE, iovec, mmsghdr, msghdr, off64_t, ssize_t};

use crate::next::{Next, next};
use crate::say::say_once;
use crate::{readv, slots};

/// The libraries that make io_uring's system calls themselves.
const LIBURING: &[&CStr] = &[c"liburing.so.2", c"liburing-ffi.so.2", c"liburing.so.1"];
const BY_IO_URING: &str =
    "the program has an io_uring, and what it receives by that cannot be seen";
static HAS_IO_URING: AtomicBool = AtomicBool::new(false);

/// Why no socket of this process may be lazy.
pub(crate) fn is_past() -> Option<&'static str> {
    HAS_IO_URING.load(Ordering::Relaxed).then_some(BY_IO_URING)
}

/// liburing's calls that make an io_uring. One that the kernel refuses changes nothing.
macro_rules! liburing {
    ($($name:ident, $text:literal: ($($argument:ident: $type:ty),+);)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),+) -> c_int {
            static NEXT: Next = Next::named($text);
            let found = NEXT.find(LIBURING);
            type Real = unsafe extern "C-unwind" fn($($type),+) -> c_int;
            // SAFETY: liburing's function of that name has that type.
            let real = unsafe { std::mem::transmute::<*mut c_void, Option<Real>>(found) };
            // SAFETY: as the caller promises.
            let result = real.map_or(-libc::ENOSYS, |real| unsafe { real($($argument),+) });
            if result >= 0 {
                HAS_IO_URING.store(true, Ordering::Relaxed);
                slots::all().for_each(|fd| give_up(fd, BY_IO_URING));
            }
            result
        }
    )+};
}
liburing! {
    io_uring_queue_init, c"io_uring_queue_init": (entries: c_uint, ring: *mut c_void, flags: c_uint);
    io_uring_queue_init_params, c"io_uring_queue_init_params":
        (entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
    io_uring_queue_init_mem, c"io_uring_queue_init_mem":
        (entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, length: usize);
    io_uring_setup, c"io_uring_setup": (entries: c_uint, parameters: *mut c_void);
}

fn give_up(fd: c_int, why: &str) {
    if let Some(lazy) = slots::find(fd) {
        lazy.channel.leave();
        say_once(&format!("a UDP port has an ordinary socket: {why}"));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    let real = next!(fdopen: unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut FILE);
    // SAFETY: as the caller promises.
    let file = unsafe { real(fd, mode) };
    // SAFETY: the C library has read it, too.
    let reads = || unsafe { CStr::from_ptr(mode) }.to_bytes().iter().any(|it| b"r+".contains(it));
    if !file.is_null() && reads() {
        give_up(fd, "it is read as a stream (fdopen)");
    }
    file
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn splice(
    fd: c_int,
    from: *mut off64_t,
    to: c_int,
    at: *mut off64_t,
    length: usize,
    flags: c_uint,
) -> ssize_t {
    let real = next!(splice: unsafe extern "C-unwind" fn(c_int, *mut off64_t, c_int, *mut off64_t, usize, c_uint) -> ssize_t);
    give_up(fd, "it is spliced");
    // SAFETY: as the caller promises.
    unsafe { real(fd, from, to, at, length, flags) }
}

/// preadv2(2), by either of its names.
macro_rules! preadv2 {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            fd: c_int,
            parts: *const iovec,
            count: c_int,
            offset: off64_t,
            flags: c_int,
        ) -> ssize_t {
            let real = next!($name: unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t);
            if offset == -1 && flags == 0 {
                // SAFETY: as the caller promises.
                return unsafe { readv(fd, parts, count) };
            }
            // A socket has no other offset.
            if offset == -1 {
                give_up(fd, "it is read with flags (preadv2)");
            }
            // SAFETY: as the caller promises.
            unsafe { real(fd, parts, count, offset, flags) }
        }
    };
}
preadv2!(preadv2);
preadv2!(preadv64v2);

/// Whoever is passed a socket does not know of its ring. A message without control messages costs a look at two fields.
///
/// # Safety
/// As sendmsg(2).
unsafe fn give_up_passed(header: &msghdr) {
    if header.msg_control.is_null() || header.msg_controllen == 0 {
        return;
    }
    let end = header.msg_control.cast::<u8>().wrapping_add(header.msg_controllen);
    // SAFETY: as the caller promises.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: within the caller's, or null.
    while let Some(control) = unsafe { at.as_ref() } {
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: as above.
            let first = unsafe { libc::CMSG_DATA(control) }.cast::<c_int>();
            let its_end = at.cast::<u8>().wrapping_add(control.cmsg_len).min(end);
            let bytes = (its_end as usize).saturating_sub(first as usize);
            for each in 0..bytes / size_of::<c_int>() {
                // SAFETY: within what the caller has.
                let fd = unsafe { first.add(each).read_unaligned() };
                give_up(fd, "it is passed on (SCM_RIGHTS)");
            }
        }
        // SAFETY: as above.
        at = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    header: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller promises.
    if let Some(header) = unsafe { header.as_ref() } {
        // SAFETY: as the caller promises.
        unsafe { give_up_passed(header) };
    }
    let real = next!(sendmsg: unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t);
    // SAFETY: as the caller promises.
    unsafe { real(fd, header, flags) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    for at in 0..if messages.is_null() { 0 } else { count as usize } {
        // SAFETY: as the caller promises.
        unsafe { give_up_passed(&(*messages.add(at)).msg_hdr) };
    }
    let real =
        next!(sendmmsg: unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int);
    // SAFETY: as the caller promises.
    unsafe { real(fd, messages, count, flags) }
}

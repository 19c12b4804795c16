//! The same for C: `include/weir_socket.h`.

#![allow(unsafe_code, reason = "C calls in")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustix::net::sockopt;

use crate::attach::Ordinary;
use crate::channel::Channel;
use crate::message::{Options, borrow, fail, receive, receive_many};
use crate::socket::DEFAULT_RING_BYTES;

unsafe extern "C-unwind" {
    fn recvmsg(fd: c_int, header: *mut libc::msghdr, flags: c_int) -> isize;
    fn recvmmsg(
        fd: c_int,
        messages: *mut libc::mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut libc::timespec,
    ) -> c_int;
}

/// A lazy socket, and the kernel's number of it, which it never gives twice.
type Lazy = (Channel, Options, Option<u64>);
type Table = BTreeMap<RawFd, Arc<Lazy>>;

/// Not behind a lock, which another thread might have when a process forks: the child would wait for it for ever.
static TABLE: ArcSwapOption<Table> = ArcSwapOption::const_empty();

thread_local! {
    /// Why the last socket was left ordinary.
    static WHY: RefCell<CString> = RefCell::default();
}

fn find(fd: RawFd) -> Option<Arc<Lazy>> {
    TABLE.load().as_ref()?.get(&fd).cloned()
}

/// Changes the table, and returns what it was.
fn change(change: impl Fn(&mut Table)) -> Option<Arc<Table>> {
    TABLE.rcu(|table| {
        let mut table = table.as_deref().cloned().unwrap_or_default();
        change(&mut table);
        Some(Arc::new(table))
    })
}

impl Ordinary {
    /// As C is told.
    fn errno(&self) -> c_int {
        match self {
            Self::NotRunning => libc::ENOENT,
            Self::NotAllowed => libc::EACCES,
            Self::Refused(_) => libc::EPERM,
            Self::Impostor(_) | Self::Malformed(_) => libc::EPROTO,
            Self::Unanswered => libc::ETIMEDOUT,
            Self::Descriptors => libc::EMFILE,
            Self::AddressSpace => libc::ENOMEM,
            Self::System { source, .. } => source.raw_os_error(),
        }
    }
}

/// Makes a bound UDP socket lazy. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_attach(fd: c_int, ring_bytes: u64) -> c_int {
    if fd < 0 {
        return fail(libc::EBADF);
    }
    let bytes = if ring_bytes == 0 { DEFAULT_RING_BYTES } else { ring_bytes };
    let cookie = sockopt::socket_cookie(borrow(fd)).ok();
    match Channel::attach(borrow(fd), bytes) {
        Ok(channel) => {
            let entry = Arc::new((channel, Options::of(fd), cookie));
            change(|table| drop(table.insert(fd, Arc::clone(&entry))));
            0
        }
        Err(why) => {
            // Another may have had the number, and have been closed without being detached.
            change(|table| table.retain(|other, entry| *other != fd || entry.2 == cookie));
            WHY.set(CString::new(why.to_string()).unwrap_or_default());
            fail(why.errno())
        }
    }
}

/// Why a socket was left ordinary. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_why() -> *const c_char {
    WHY.with_borrow(|why| why.as_ptr())
}

/// The socket is an ordinary one from now on. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_detach(fd: c_int) -> c_int {
    let before = change(|table| drop(table.remove(&fd)));
    let was_lazy = before.is_some_and(|table| table.contains_key(&fd));
    if was_lazy { 0 } else { fail(libc::EBADF) }
}

/// The socket's packets go to the kernel's from now on. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_leave(fd: c_int) -> c_int {
    find(fd).map_or_else(
        || fail(libc::EBADF),
        |entry| {
            entry.0.leave();
            0
        },
    )
}

/// A descriptor to be polled. See the header.
#[unsafe(no_mangle)]
pub extern "C" fn weir_socket_ready_fd(fd: c_int) -> c_int {
    find(fd).map_or(fd, |entry| entry.0.ready_fd().as_raw_fd())
}

/// As recvfrom(2). See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn weir_recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    // SAFETY: as the caller promises.
    unsafe {
        crate::message::as_recvfrom(buffer, length, address, address_length, |header| {
            weir_recvmsg(fd, header, flags)
        })
    }
}

/// As recvmsg(2). See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn weir_recvmsg(
    fd: c_int,
    header: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(entry) => unsafe { receive(&entry.0, &entry.1, fd, header, flags, recvmsg) },
        // SAFETY: as the caller promises.
        None => unsafe { recvmsg(fd, header, flags) },
    }
}

/// As recvmmsg(2). See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn weir_recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let Some(entry) = find(fd).filter(|_| !messages.is_null()) else {
        // SAFETY: as the caller promises.
        return unsafe { recvmmsg(fd, messages, count, flags, timeout) };
    };
    let (channel, options, _) = &*entry;
    // SAFETY: as the caller promises.
    unsafe { receive_many(channel, options, fd, (messages, count), flags, timeout, recvmsg) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_child_of_fork_waits_for_no_thread_of_its_parent() {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    weir_socket_detach(-1);
                }
            });
            let ends = (0..1000).map(|_| {
                let mut status = 0;
                // SAFETY: the child ends here, by the call or by the alarm.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::alarm(10);
                        libc::_exit(c_int::from(weir_socket_detach(-1) != -1));
                    }
                    libc::waitpid(child, &raw mut status, 0);
                }
                status
            });
            let failed = ends.into_iter().find(|status| *status != 0);
            done.store(true, Ordering::Relaxed);
            assert_eq!(failed, None);
        });
    }
}

//! What the user is told, on standard error; the program must not notice.

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_socket::message::borrow;

/// Device and inode of standard error when the library was loaded.
static STDERR: OnceLock<Option<(u64, u64)>> = OnceLock::new();

fn stderr() -> Option<(u64, u64)> {
    rustix::fs::fstat(borrow(2)).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

extern "C" fn note_stderr() {
    STDERR.get_or_init(stderr);
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = note_stderr;

/// A program may have a thousand sockets.
pub(crate) fn say_once(what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(what);
    }
}

/// Says it if standard error is what it was, not a file that the program has opened under that number, and has room.
pub(crate) fn say(what: &str) {
    let at_load = STDERR.get().copied().flatten();
    let mut fds = [PollFd::from_borrowed_fd(borrow(2), PollFlags::OUT)];
    let _ = poll(&mut fds, Some(&Timespec::default()));
    if at_load.is_some() && at_load == stderr() && fds[0].revents().contains(PollFlags::OUT) {
        write(format!("weir: {what}\n").as_bytes());
    }
}

/// Where nobody reads a pipe, SIGPIPE would end the program.
fn write(text: &[u8]) {
    // SAFETY: sets of signals, of this function's own.
    unsafe {
        let (mut pipe, mut before, mut pending): (libc::sigset_t, _, _) =
            (zeroed(), zeroed(), zeroed());
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        libc::sigpending(&raw mut pending);
        let is_broken = rustix::io::write(borrow(2), text) == Err(Errno::PIPE);
        // Another's stays.
        if is_broken && libc::sigismember(&raw const pending, libc::SIGPIPE) == 0 {
            libc::sigtimedwait(
                &raw const pipe,
                null_mut(),
                &libc::timespec { tv_sec: 0, tv_nsec: 0 },
            );
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
    }
}

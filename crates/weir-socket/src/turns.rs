//! One thread at a time waits for a channel, and those that would wait as well wait for their turn: a BPF ring wakes
//! all who wait for it (`bpf_ringbuf_notify()`), where a datagram is for one.
//!
//! Not by waiting in one epoll set, of which one thread is woken: epoll_wait(2) fails with EINTR when the process is
//! continued or has been suspended (signal(7)), though it has no handler.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::getpid;
use rustix::thread::futex;

/// Others wait for their turn, or may.
const OTHERS: u32 = 1 << 31;

/// Whose turn it is, of this process's threads.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// A thread, and [`OTHERS`]; 0: nobody's.
    whose: AtomicU32,
    /// A child of fork(2) has none of its parent's threads.
    process: AtomicU32,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'turns>(&'turns Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.0.whose.swap(0, Ordering::SeqCst) & OTHERS != 0 {
            self.0.wake(1);
        }
    }
}

impl Turns {
    /// Waits for a turn, at most as long as it is told each time that it asks.
    ///
    /// # Errors
    /// If a signal handler has run, or as what it asks.
    pub(crate) fn take(
        &self,
        left: impl Fn() -> io::Result<Option<Timespec>>,
    ) -> io::Result<Turn<'_>> {
        let process = getpid().as_raw_nonzero().get().unsigned_abs();
        if self.process.swap(process, Ordering::SeqCst) != process {
            self.whose.store(0, Ordering::SeqCst);
            self.wake(u32::MAX >> 1);
        }
        let this = this_thread();
        let mut taken = this;
        loop {
            let Err(whose) =
                self.whose.compare_exchange(0, taken, Ordering::SeqCst, Ordering::SeqCst)
            else {
                return Ok(Turn(self));
            };
            // It is in a signal handler, or has left a receive by one: siglongjmp(3).
            if whose & !OTHERS == this {
                return Ok(Turn(self));
            }
            let wanted = whose | OTHERS;
            let told =
                self.whose.compare_exchange(whose, wanted, Ordering::SeqCst, Ordering::SeqCst);
            if told.is_err() {
                continue;
            }
            match futex::wait(&self.whose, futex::Flags::PRIVATE, wanted, left()?.as_ref()) {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::TIMEDOUT) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(errno) => return Err(errno.into()),
            }
            // It may have been woken alone, and others wait on.
            taken = this | OTHERS;
        }
    }

    fn wake(&self, most: u32) {
        let _ = futex::wake(&self.whose, futex::Flags::PRIVATE, most);
    }
}

/// Never 0. If two threads ever look the same, both wait.
#[allow(unsafe_code)]
fn this_thread() -> u32 {
    // SAFETY: only asks. It is an address, of which threads have no two within some KiB.
    let address = unsafe { libc::pthread_self() } as u64;
    (address >> 6) as u32 & !OTHERS | 1
}

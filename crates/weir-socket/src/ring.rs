//! A BPF ring buffer, as the kernel lays it out (`kernel/bpf/ringbuf.c`): a page that the consumer writes, a page
//! that the producer writes, and the data, twice in a row, so that no record is cut in two.
//!
//! Of the consumer's page the kernel reads only the position. The rest holds what all who read this ring share:
//! threads, and processes that have forked.

use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;

/// What the consumer's page holds.
#[repr(C)]
struct Page {
    position: AtomicU64,
    pad: [u64; 7],
    lock: MaybeUninit<libc::pthread_mutex_t>,
    state: SharedState,
}

/// What readers of one ring share, besides its position; changed by whoever holds the lock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedState {
    /// From this position on, the kernel's socket comes first, for...
    pub(crate) kernel_from: u64,
    /// ...so many packets.
    pub(crate) kernel_left: u64,
    /// Packets taken since the kernel's socket was last looked at.
    pub(crate) since_look: u64,
    /// Bytes of the first record's payload that have been read: of merged packets those before the next.
    pub(crate) consumed: u64,
    /// Packets that were dropped here, as the kernel drops them: by a wrong checksum.
    pub(crate) dropped: u64,
}

impl SharedState {
    /// The kernel's socket is going to be read.
    pub(crate) fn spend_turn(&mut self, peek: bool) {
        if !peek {
            self.kernel_left -= 1;
        }
    }
}

/// A ring in this process's memory.
#[derive(Debug)]
pub(crate) struct Ring {
    page: NonNull<Page>,
    producer: NonNull<AtomicU64>,
    data: NonNull<u8>,
    bytes: usize,
    page_bytes: usize,
    fd: OwnedFd,
}

#[allow(unsafe_code)]
// SAFETY: the mappings belong to the process; who reads and moves the position holds the lock.
unsafe impl Send for Ring {}

#[allow(unsafe_code)]
// SAFETY: as for `Send`.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps a ring of so many bytes of data.
    pub(crate) fn map(fd: OwnedFd, bytes: usize) -> rustix::io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let rest = page_bytes + 2 * bytes;
        let page = map_part(fd.as_fd(), page_bytes, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let producer = match map_part(fd.as_fd(), rest, ProtFlags::READ, page_bytes as u64) {
            Ok(producer) => producer,
            Err(errno) => {
                unmap(page, page_bytes);
                return Err(errno);
            }
        };
        #[allow(unsafe_code)]
        // SAFETY: within the mapping of `rest` bytes.
        let data = unsafe { producer.add(page_bytes) };
        let ring =
            Self { page: page.cast(), producer: producer.cast(), data, bytes, page_bytes, fd };
        ring.make_lock()?;
        Ok(ring)
    }

    #[allow(unsafe_code)]
    fn make_lock(&self) -> rustix::io::Result<()> {
        const { assert!(size_of::<Page>() <= 4096 && offset_of!(Page, lock) % 64 == 0) };
        let failed = |errno: i32| rustix::io::Errno::from_raw_os_error(errno);
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call; the lock lies in the mapped page, of which
        // nobody else knows yet.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            let steps = [
                libc::pthread_mutexattr_init(attributes),
                libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(self.lock_pointer(), attributes),
                libc::pthread_mutexattr_destroy(attributes),
            ];
            if let Some(errno) = steps.into_iter().find(|result| *result != 0) {
                return Err(failed(errno));
            }
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn page(&self) -> &Page {
        // SAFETY: mapped, of that size, as long as `self`; atomics, and what is only reached by pointers.
        unsafe { self.page.as_ref() }
    }

    #[allow(unsafe_code)]
    fn lock_pointer(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: within the page.
        unsafe { (&raw mut (*self.page.as_ptr()).lock).cast() }
    }

    /// Its descriptor, readable while there is a record.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes of data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a record waits; without the lock, as of a moment ago.
    pub(crate) fn may_have_records(&self) -> bool {
        self.produced() != self.page().position.load(Ordering::Relaxed)
    }

    /// How far the producer is.
    #[allow(unsafe_code)]
    pub(crate) fn produced(&self) -> u64 {
        // SAFETY: mapped as long as `self`.
        unsafe { self.producer.as_ref() }.load(Ordering::Acquire)
    }

    /// Keeps all other readers out until it is dropped.
    #[allow(unsafe_code)]
    pub(crate) fn lock(&self) -> Reader<'_> {
        // SAFETY: made in `map`, and in memory as long as `self`.
        let result = unsafe { libc::pthread_mutex_lock(self.lock_pointer()) };
        if result == libc::EOWNERDEAD {
            // A process that read was killed. What it had read of a record may be another's, which it had not yet
            // given back.
            // SAFETY: as above; this thread has the lock.
            unsafe {
                libc::pthread_mutex_consistent(self.lock_pointer());
                (*self.page.as_ptr()).state.consumed = 0;
            }
        }
        let position = self.page().position.load(Ordering::Relaxed);
        Reader { ring: self, position, given_back: position }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        unmap(self.producer.cast(), self.page_bytes + 2 * self.bytes);
        unmap(self.page.cast(), self.page_bytes);
    }
}

#[allow(unsafe_code)]
fn map_part(
    fd: BorrowedFd<'_>,
    bytes: usize,
    protection: ProtFlags,
    offset: u64,
) -> rustix::io::Result<NonNull<u8>> {
    // SAFETY: a new mapping, placed by the kernel.
    let at =
        unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, offset) }?;
    NonNull::new(at.cast()).ok_or(rustix::io::Errno::NOMEM)
}

#[allow(unsafe_code)]
fn unmap(at: NonNull<u8>, bytes: usize) {
    // SAFETY: mapped by `map_part` with this length; nothing of it is handed out any more.
    let _ = unsafe { munmap(at.as_ptr().cast(), bytes) };
}

/// The one who reads. What it has passed is given back to the kernel when it is dropped, or told to.
pub(crate) struct Reader<'ring> {
    ring: &'ring Ring,
    position: u64,
    /// What the kernel knows of it.
    given_back: u64,
}

impl<'ring> Reader<'ring> {
    /// The first record that waits.
    #[allow(unsafe_code)]
    pub(crate) fn peek(&mut self) -> Option<&'ring [u8]> {
        loop {
            let produced = self.ring.produced();
            let waiting = produced.wrapping_sub(self.position);
            // More than there can be: the positions are void, which is this process's own doing.
            if waiting > self.ring.bytes as u64 {
                return None;
            }
            if waiting == 0 {
                if self.has_caught_up() {
                    return None;
                }
                continue;
            }
            let at = self.position as usize & (self.ring.bytes - 1);
            // SAFETY: within the data, aligned to 8 bytes as the kernel's positions are; it is atomic because the
            // kernel clears the busy bit when the record is whole.
            let length = unsafe {
                AtomicU32::from_ptr(self.ring.data.as_ptr().add(at & !7).cast())
                    .load(Ordering::Acquire)
            };
            if length & BUSY != 0 {
                if self.has_caught_up() {
                    return None;
                }
                continue;
            }
            let bytes = (length & !DISCARDED) as usize;
            if bytes + HEADER_BYTES > self.ring.bytes {
                return None;
            }
            if length & DISCARDED != 0 {
                self.pass(bytes);
                continue;
            }
            // SAFETY: within the data and its second copy, whole, and not written again before the position moves
            // past it, which nobody does but the one who has the lock.
            return Some(unsafe {
                std::slice::from_raw_parts(
                    self.ring.data.as_ptr().add((at & !7) + HEADER_BYTES),
                    bytes,
                )
            });
        }
    }

    /// Goes past a record of so many bytes.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.position += (bytes + HEADER_BYTES).next_multiple_of(8) as u64;
    }

    /// Gives back what has been passed.
    fn give_back(&mut self) {
        self.given_back = self.position;
        self.ring.page().position.store(self.position, Ordering::SeqCst);
    }

    /// Whether the kernel knows that the reader has seen all. It wakes a reader only if it sees that: so the reader
    /// must look once more after saying so.
    fn has_caught_up(&mut self) -> bool {
        if self.given_back == self.position {
            return true;
        }
        self.give_back();
        fence(Ordering::SeqCst);
        false
    }

    /// How far this reader is.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// How far the producer is.
    pub(crate) fn produced(&self) -> u64 {
        self.ring.produced()
    }

    /// What readers share.
    #[allow(unsafe_code)]
    pub(crate) fn state(&mut self) -> &mut SharedState {
        // SAFETY: within the page; whoever has the lock is alone with it.
        unsafe { &mut (*self.ring.page.as_ptr()).state }
    }
}

impl Drop for Reader<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.give_back();
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.ring.lock_pointer()) };
    }
}

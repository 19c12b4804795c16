//! A BPF ring buffer, as the kernel lays it out (`kernel/bpf/ringbuf.c`): a page that the consumer writes, a page
//! that the producer writes, and the data, twice in a row, so that no record is cut in two.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::attach::Own;

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;

/// What all who read one ring share, besides its position: threads, and processes that have forked. In memory of its
/// own: the kernel refuses a futex that processes share in a BPF map's page (`get_futex_key()`).
#[repr(C)]
struct Shared {
    lock: MaybeUninit<libc::pthread_mutex_t>,
    state: SharedState,
    /// Packets that were dropped here, as the kernel drops them: by a wrong checksum.
    dropped: AtomicU64,
}

/// What is changed by whoever holds the lock, and lies in one cache line with it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedState {
    /// From this position on, the kernel's socket comes first, for...
    pub(crate) kernel_from: u64,
    /// ...so many packets.
    pub(crate) kernel_left: u32,
    /// Packets taken since the kernel's socket was last looked at.
    pub(crate) since_look: u32,
    /// Bytes of the first record's payload that have been read: of merged packets those before the next.
    pub(crate) consumed: u32,
    /// With what the kernel's turn begins, if it is not 0.
    pub(crate) errno: i32,
}

/// Memory that is mapped as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    #[allow(unsafe_code)]
    fn of(
        fd: BorrowedFd<'_>,
        bytes: usize,
        protection: ProtFlags,
        offset: u64,
    ) -> rustix::io::Result<Self> {
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping, placed by the kernel.
        let at = unsafe { mmap(anywhere, bytes, protection, MapFlags::SHARED, fd, offset) }?;
        Ok(Self { at: NonNull::new(at.cast()).ok_or(Errno::NOMEM)?, bytes })
    }

    /// Zeros.
    #[allow(unsafe_code)]
    fn anonymous(bytes: usize, protection: ProtFlags, flags: MapFlags) -> rustix::io::Result<Self> {
        // SAFETY: a new mapping, placed by the kernel.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        Ok(Self { at: NonNull::new(at.cast()).ok_or(Errno::NOMEM)?, bytes })
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped with this length; nothing of it is handed out any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// A ring in this process's memory.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The consumer's page, of which the kernel reads only the position.
    consumer: Mapping,
    shared: Mapping,
    /// The producer's page and the data.
    producer: Mapping,
    data: NonNull<u8>,
    bytes: usize,
    fd: Own,
}

#[allow(unsafe_code)]
// SAFETY: the mappings belong to the process; who reads and moves the position holds the lock.
unsafe impl Send for Ring {}

#[allow(unsafe_code)]
// SAFETY: as for `Send`.
unsafe impl Sync for Ring {}

impl Ring {
    /// The address space that a ring of so many bytes of data takes.
    pub(crate) fn room(bytes: usize) -> rustix::io::Result<Mapping> {
        let bytes = 3 * rustix::param::page_size() + 2 * bytes;
        Mapping::anonymous(bytes, ProtFlags::empty(), MapFlags::PRIVATE)
    }

    /// Maps a ring of so many bytes of data.
    pub(crate) fn map(fd: Own, bytes: usize) -> rustix::io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let consumer = Mapping::of(fd.as_fd(), page_bytes, both, 0)?;
        let rest = page_bytes + 2 * bytes;
        let producer = Mapping::of(fd.as_fd(), rest, ProtFlags::READ, page_bytes as u64)?;
        let shared = Mapping::anonymous(size_of::<Shared>(), both, MapFlags::SHARED)?;
        #[allow(unsafe_code)]
        // SAFETY: within the mapping of `rest` bytes.
        let data = unsafe { producer.at.add(page_bytes) };
        let ring = Self { consumer, shared, producer, data, bytes, fd };
        ring.make_lock()?;
        Ok(ring)
    }

    #[allow(unsafe_code)]
    fn make_lock(&self) -> rustix::io::Result<()> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised by the first call; the lock lies in mapped memory, of which nobody
        // else knows yet.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            let steps = [
                libc::pthread_mutexattr_init(attributes),
                libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK),
                libc::pthread_mutex_init(self.lock_pointer(), attributes),
                libc::pthread_mutexattr_destroy(attributes),
            ];
            if let Some(errno) = steps.into_iter().find(|result| *result != 0) {
                return Err(Errno::from_raw_os_error(errno));
            }
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn position(&self) -> &AtomicU64 {
        // SAFETY: at the beginning of the consumer's page, mapped as long as `self`.
        unsafe { self.consumer.at.cast().as_ref() }
    }

    fn shared(&self) -> *mut Shared {
        self.shared.at.as_ptr().cast()
    }

    #[allow(unsafe_code)]
    fn lock_pointer(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: within what is shared.
        unsafe { (&raw mut (*self.shared()).lock).cast() }
    }

    /// Packets that were dropped here, as the kernel drops them: by a wrong checksum.
    #[allow(unsafe_code)]
    pub(crate) fn dropped(&self) -> &AtomicU64 {
        // SAFETY: within what is shared, mapped as long as `self`.
        unsafe { &(*self.shared()).dropped }
    }

    /// Its descriptor, readable while there is a record.
    pub(crate) fn fd(&self) -> &Own {
        &self.fd
    }

    /// Whether a record waits; without the lock, as of a moment ago.
    pub(crate) fn may_have_records(&self) -> bool {
        self.produced() != self.position().load(Ordering::Relaxed)
    }

    /// How far the producer is.
    #[allow(unsafe_code)]
    pub(crate) fn produced(&self) -> u64 {
        // SAFETY: mapped as long as `self`.
        unsafe { self.producer.at.cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire)
    }

    /// Keeps all other readers out until it is dropped.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if this thread has it: a signal handler receives while what it has interrupted does.
    #[allow(unsafe_code)]
    pub(crate) fn lock(&self) -> rustix::io::Result<Reader<'_>> {
        // SAFETY: made in `map`, and in memory as long as `self`.
        let result = unsafe { libc::pthread_mutex_lock(self.lock_pointer()) };
        if result == libc::EDEADLK {
            return Err(Errno::AGAIN);
        }
        if result == libc::EOWNERDEAD {
            // A process that read was killed. What it had read of a record may be another's, which it had not yet
            // given back.
            // SAFETY: as above; this thread has the lock.
            unsafe {
                libc::pthread_mutex_consistent(self.lock_pointer());
                (*self.shared()).state.consumed = 0;
            }
        }
        let position = self.position().load(Ordering::Relaxed);
        Ok(Reader { ring: self, position, given_back: position })
    }
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
        self.ring.position().store(self.position, Ordering::SeqCst);
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

    /// A packet is dropped, as the kernel drops it.
    pub(crate) fn count_dropped(&self) {
        self.ring.dropped().fetch_add(1, Ordering::Relaxed);
    }

    /// What readers share.
    #[allow(unsafe_code)]
    pub(crate) fn state(&mut self) -> &mut SharedState {
        // SAFETY: within what is shared; whoever has the lock is alone with it.
        unsafe { &mut (*self.ring.shared()).state }
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

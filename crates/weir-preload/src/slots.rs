//! Which of the program's descriptors are lazy sockets. Nothing here waits for another thread, so that a child of
//! fork(2) finds it as usable as its parent.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use weir_socket::Channel;
use weir_socket::message::Options;

/// Descriptors beyond this are left to the kernel.
const SLOTS: usize = 1 << 16;

/// A lazy socket. Its duplicates share it.
pub(crate) struct Lazy {
    pub(crate) channel: Channel,
    /// Of setsockopt(2), packed.
    options: AtomicPtr<Options>,
}

/// Descriptors of lazy sockets' own, a bit each: a program that closes all that it does not know must not close
/// them.
static OWN: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

fn mark(channel: &Channel, own: bool) {
    for fd in channel.descriptors() {
        let fd = fd.as_raw_fd() as usize;
        let Some(word) = OWN.get(fd / 64) else { continue };
        match own {
            true => word.fetch_or(1 << (fd % 64), Ordering::Relaxed),
            false => word.fetch_and(!(1 << (fd % 64)), Ordering::Relaxed),
        };
    }
}

/// Whether a descriptor is not the program's.
pub(crate) fn is_own(fd: c_int) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| OWN.get(fd / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (fd % 64) & 1 != 0)
}

impl Drop for Lazy {
    fn drop(&mut self) {
        mark(&self.channel, false);
    }
}

impl Lazy {
    pub(crate) fn new(channel: Channel, fd: c_int) -> Self {
        mark(&channel, true);
        Self { channel, options: AtomicPtr::new(Box::into_raw(Box::new(Options::of(fd)))) }
    }

    pub(crate) fn options(&self) -> Options {
        // SAFETY: made from a box, and never given back: there are few of them.
        unsafe { *self.options.load(Ordering::Acquire) }
    }

    /// Something was set.
    pub(crate) fn look_again(&self, fd: c_int) {
        let options = Options::of(fd);
        if options != self.options() {
            // The old ones stay, as another thread may be reading them.
            self.options.store(Box::into_raw(Box::new(options)), Ordering::Release);
        }
    }
}

/// One descriptor's. A socket that is closed while somebody receives from it is given back by the last who does.
struct Slot {
    users: AtomicU32,
    socket: AtomicPtr<Lazy>,
    closed: AtomicPtr<Lazy>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        users: AtomicU32::new(0),
        socket: AtomicPtr::new(null_mut()),
        closed: AtomicPtr::new(null_mut()),
    }
}; SLOTS];

fn slot(fd: c_int) -> Option<&'static Slot> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// A lazy socket in use.
pub(crate) struct InUse {
    slot: &'static Slot,
    lazy: &'static Lazy,
}

impl std::ops::Deref for InUse {
    type Target = Lazy;

    fn deref(&self) -> &Lazy {
        self.lazy
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.slot.leave();
    }
}

impl Slot {
    fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            give_back(self.closed.swap(null_mut(), Ordering::AcqRel));
        }
    }
}

fn give_back(socket: *mut Lazy) {
    if !socket.is_null() {
        // SAFETY: from `Arc::into_raw`, and nobody else has it any more.
        drop(unsafe { Arc::from_raw(socket.cast_const()) });
    }
}

/// The lazy socket of a descriptor.
pub(crate) fn find(fd: c_int) -> Option<InUse> {
    let slot = slot(fd)?;
    // All other descriptors cost this.
    if slot.socket.load(Ordering::Relaxed).is_null() {
        return None;
    }
    slot.users.fetch_add(1, Ordering::AcqRel);
    let socket = slot.socket.load(Ordering::Acquire);
    if socket.is_null() {
        slot.leave();
        return None;
    }
    // SAFETY: it is not given back while there are users.
    Some(InUse { slot, lazy: unsafe { &*socket } })
}

/// Whether the table has a place for a descriptor.
pub(crate) fn has_place(fd: c_int) -> bool {
    slot(fd).is_some()
}

/// A descriptor is a lazy socket from now on.
pub(crate) fn put(fd: c_int, lazy: Arc<Lazy>) {
    forget(fd);
    if let Some(slot) = slot(fd) {
        slot.socket.store(Arc::into_raw(lazy).cast_mut(), Ordering::Release);
    }
}

/// A descriptor is a duplicate of another.
pub(crate) fn duplicate(from: c_int, to: c_int) {
    if from == to {
        return;
    }
    match find(from) {
        None => forget(to),
        Some(in_use) => {
            let raw: *const Lazy = in_use.lazy;
            // SAFETY: from `Arc::into_raw`, and in use.
            let lazy = unsafe {
                Arc::increment_strong_count(raw);
                Arc::from_raw(raw)
            };
            put(to, lazy);
        }
    }
}

/// A descriptor is no lazy socket any more.
pub(crate) fn forget(fd: c_int) {
    let Some(slot) = slot(fd) else { return };
    if slot.socket.load(Ordering::Relaxed).is_null() {
        return;
    }
    slot.users.fetch_add(1, Ordering::AcqRel);
    let socket = slot.socket.swap(null_mut(), Ordering::AcqRel);
    // One that was there before is lost: its reader has not come back.
    slot.closed.store(socket, Ordering::Release);
    slot.leave();
}

/// Descriptors of this range are being closed all together, perhaps those of rings among them.
pub(crate) fn forget_all() {
    for fd in 0..SLOTS {
        forget(fd as c_int);
    }
}

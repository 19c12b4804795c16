//! Which of the program's descriptors are lazy sockets. Nothing here waits for another thread, so that a child of
//! fork(2) finds it as usable as its parent.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use libc::epoll_event;
use rustix::net::sockopt;
use weir_socket::Channel;
use weir_socket::message::{Options, borrow};

use crate::wait::{epoll_ctl, of_channel};

/// Descriptors beyond this are left to the kernel.
const SLOTS: usize = 1 << 16;

/// A bit for each descriptor.
pub(crate) struct Bits([AtomicU64; SLOTS / 64]);

impl Bits {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS / 64])
    }

    pub(crate) fn has(&self, fd: c_int) -> bool {
        let fd = fd as usize;
        self.0.get(fd / 64).is_some_and(|word| word.load(Ordering::Acquire) >> (fd % 64) & 1 != 0)
    }

    pub(crate) fn set(&self, fd: c_int, value: bool) {
        let fd = fd as usize;
        let Some(word) = self.0.get(fd / 64) else { return };
        match value {
            true => word.fetch_or(1 << (fd % 64), Ordering::AcqRel),
            false => word.fetch_and(!(1 << (fd % 64)), Ordering::AcqRel),
        };
    }

    /// All that are set.
    fn all(&self) -> impl Iterator<Item = c_int> {
        let words = self.0.iter().map(|word| word.load(Ordering::Acquire)).enumerate();
        words.filter(|(_, word)| *word != 0).flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (at * 64 + bit) as c_int)
        })
    }
}

/// The descriptors that are lazy sockets: all others cost a look at this.
static LAZY: Bits = Bits::new();
/// Descriptors of lazy sockets' own: a program that closes all that it does not know must not close them.
pub(crate) static OWN: Bits = Bits::new();
/// Descriptors that have been in an epoll set, but for lazy sockets: a ring could not be added to that set any more.
pub(crate) static WATCHED: Bits = Bits::new();

/// Descriptors that are, or were, duplicates of others, or have such.
static DUPLICATES: Bits = Bits::new();

static TABLE: [ArcSwapOption<Lazy>; SLOTS] = [const { ArcSwapOption::const_empty() }; SLOTS];

/// Whose descriptors these are. A child of vfork(2) has this memory, and descriptors of its own.
static PID: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_pid() {
    PID.store(rustix::process::getpid().as_raw_nonzero().get(), Ordering::Relaxed);
}

/// When the library is loaded, and the program has one thread: a child of fork(2) would wait for ever for another that
/// had begun with this.
extern "C" fn remember_process() {
    note_pid();
    // SAFETY: the function lives as long as this library, which nothing unloads; vfork(2) does not call it.
    unsafe { libc::pthread_atfork(None, None, Some(note_pid)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = remember_process;

fn is_this_process() -> bool {
    PID.load(Ordering::Relaxed) == rustix::process::getpid().as_raw_nonzero().get()
}

/// A lazy socket. Its duplicates share it, and whoever receives from it keeps it while it is closed.
pub(crate) struct Lazy {
    pub(crate) channel: Channel,
    /// The kernel's number of the socket, which it never gives twice.
    cookie: u64,
    /// What it was bound to.
    address: SocketAddr,
    /// Of setsockopt(2).
    options: ArcSwap<Options>,
    /// What the program waits for by epoll(7): the set, the descriptor, the event.
    watches: ArcSwap<Vec<(c_int, c_int, epoll_event)>>,
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.mark(false);
    }
}

impl Lazy {
    pub(crate) fn new(channel: Channel, fd: c_int, address: SocketAddr) -> Self {
        let options = ArcSwap::from_pointee(Options::of(fd));
        let cookie = cookie_of(fd).unwrap_or_default();
        let lazy = Self { channel, cookie, address, options, watches: ArcSwap::default() };
        lazy.mark(true);
        lazy
    }

    /// Whether it may be given what is sent to a socket of this address. One of IPv6 that takes IPv4 as well is not seen
    /// to share those.
    fn shares(&self, other: SocketAddr) -> bool {
        let (one, other_ip) = (self.address.ip(), other.ip());
        self.address.port() == other.port()
            && one.is_ipv4() == other_ip.is_ipv4()
            && (one == other_ip || one.is_unspecified() || other_ip.is_unspecified())
    }

    fn mark(&self, own: bool) {
        self.channel.descriptors().iter().for_each(|fd| OWN.set(fd.as_raw_fd(), own));
    }

    pub(crate) fn options(&self) -> Options {
        **self.options.load()
    }

    /// Something was set.
    pub(crate) fn look_again(&self, fd: c_int) {
        self.options.store(Arc::new(Options::of(fd)));
    }

    /// The program waits for an event from now on, or for none any more.
    pub(crate) fn watch(&self, epoll: c_int, fd: c_int, event: Option<epoll_event>) {
        self.watches.rcu(|watches| {
            let others = watches.iter().filter(|one| (one.0, one.1) != (epoll, fd)).copied();
            others.chain(event.map(|event| (epoll, fd, event))).collect::<Vec<_>>()
        });
    }

    /// Leaves the number of one of its own descriptors, also in the sets that this is in. Whether it was one.
    fn vacate(&self, number: c_int) -> io::Result<bool> {
        let Some(moved) = self.channel.vacate(number)? else { return Ok(false) };
        OWN.set(moved, true);
        for &(epoll, _, event) in self.watches.load().iter() {
            let mut event = of_channel(event);
            // SAFETY: an event of our own.
            unsafe {
                if epoll_ctl(epoll, libc::EPOLL_CTL_DEL, number, &raw mut event) == 0 {
                    epoll_ctl(epoll, libc::EPOLL_CTL_ADD, moved, &raw mut event);
                }
            }
        }
        OWN.set(number, false);
        Ok(true)
    }
}

fn cookie_of(fd: c_int) -> Option<u64> {
    sockopt::socket_cookie(borrow(fd)).ok()
}

/// What the table has for a descriptor.
fn known(fd: c_int) -> Option<Arc<Lazy>> {
    LAZY.has(fd).then(|| TABLE.get(fd as usize)?.load_full()).flatten()
}

/// The lazy socket of a descriptor. One that was closed past the C library is forgotten: the number may be anything's by
/// now.
pub(crate) fn find(fd: c_int) -> Option<Arc<Lazy>> {
    let found = known(fd);
    let cookie = found.as_ref()?.cookie;
    if cookie_of(fd) == Some(cookie) {
        return found;
    }
    if is_this_process() {
        // But not what another thread has put there meanwhile.
        TABLE[fd as usize].compare_and_swap(&found, None);
    }
    None
}

/// The same for a call that receives. One that finds a datagram on the ring makes no system call, this one neither.
pub(crate) fn find_to_receive(fd: c_int) -> Option<Arc<Lazy>> {
    known(fd).filter(|lazy| lazy.channel.may_have_datagrams()).or_else(|| find(fd))
}

/// All descriptors that are lazy sockets.
pub(crate) fn all() -> impl Iterator<Item = c_int> {
    LAZY.all()
}

/// Whether the table has a place for a descriptor of this process.
pub(crate) fn has_place(fd: c_int) -> bool {
    usize::try_from(fd).is_ok_and(|fd| fd < SLOTS) && is_this_process()
}

/// A descriptor is a lazy socket from now on.
pub(crate) fn put(fd: c_int, lazy: Arc<Lazy>) {
    let Some(place) = TABLE.get(fd as usize).filter(|_| is_this_process()) else { return };
    place.store(Some(lazy));
    LAZY.set(fd, true);
}

/// A descriptor is a duplicate of another.
pub(crate) fn duplicate(from: c_int, to: c_int) {
    if from == to {
        return;
    }
    match find(from) {
        None => {
            forget(to);
            // Also in a child of vfork(2): one too many is only looked at in vain.
            [from, to].into_iter().for_each(|fd| DUPLICATES.set(fd, true));
        }
        Some(lazy) => put(to, lazy),
    }
}

/// How many lazy sockets share an address; a socket and its duplicates are one.
pub(crate) fn sharing(address: SocketAddr) -> usize {
    let share = LAZY.all().filter(|fd| known(*fd).is_some_and(|lazy| lazy.shares(address)));
    share.filter_map(find).map(|lazy| lazy.cookie).collect::<BTreeSet<_>>().len()
}

/// A descriptor, and those of the process that are its duplicates.
pub(crate) fn with_duplicates(fd: c_int) -> Vec<c_int> {
    let mut all = vec![fd];
    if DUPLICATES.has(fd)
        && let Some(cookie) = cookie_of(fd)
    {
        let others = DUPLICATES.all().filter(|other| *other != fd);
        all.extend(others.filter(|other| cookie_of(*other) == Some(cookie)));
    }
    all
}

/// A descriptor is not what it was any more.
pub(crate) fn forget(fd: c_int) {
    for bits in [&WATCHED, &DUPLICATES] {
        if bits.has(fd) && is_this_process() {
            bits.set(fd, false);
        }
    }
    if LAZY.has(fd) && is_this_process() {
        LAZY.set(fd, false);
        TABLE[fd as usize].store(None);
    }
}

/// A number is going to be another descriptor's. If a lazy socket has one of its own there, that gets another.
pub(crate) fn give_way(to: c_int) -> io::Result<()> {
    if !OWN.has(to) || !is_this_process() {
        return Ok(());
    }
    for lazy in (0..SLOTS as c_int).filter_map(known) {
        if lazy.vacate(to)? {
            break;
        }
    }
    Ok(())
}

/// Closes a range of descriptors but for lazy sockets' own: each part between these.
pub(crate) fn around_own(first: u32, last: u32, close: impl Fn(u32, u32) -> c_int) -> c_int {
    let mut from = first;
    for own in (first..=last.min(SLOTS as u32 - 1)).filter(|fd| OWN.has(*fd as c_int)) {
        if from < own && close(from, own - 1) != 0 {
            return -1;
        }
        from = own + 1;
    }
    // A range that ends before it begins is the kernel's to refuse.
    if from > last && first <= last { 0 } else { close(from, last) }
}

/// All descriptors of this range are not what they were any more.
pub(crate) fn forget_range(first: u32, last: u32) {
    (first..=last.min(SLOTS as u32 - 1)).for_each(|fd| forget(fd as c_int));
}

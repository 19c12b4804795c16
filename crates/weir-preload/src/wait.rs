//! Waiting: where the program waits for a lazy socket, its ring is waited for as well.

use std::ffi::{c_int, c_ulong};
use std::os::fd::AsRawFd;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::next::next;
use crate::say::say_once;
use crate::slots;

const READABLE: i16 = libc::POLLIN | libc::POLLRDNORM;
const EPOLL_READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
/// A channel has nothing to write, and no errors; EPOLLEXCLUSIVE is not for what is an epoll set itself.
const EPOLL_OF_CHANNEL: u32 =
    EPOLL_READABLE | (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP) as u32;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let real = next!(poll: unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int);
    // SAFETY: as the caller promises.
    unsafe { with_rings(fds, count, |fds, count| real(fds, count, timeout)) }
}

fortified!(__poll_chk: poll(fds: *mut pollfd, count: nfds_t, timeout: c_int;) -> c_int,
    (count as usize).saturating_mul(size_of::<pollfd>()));

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    let real = next!(ppoll: unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int);
    // SAFETY: as the caller promises.
    unsafe { with_rings(fds, count, |fds, count| real(fds, count, timeout, signals)) }
}

fortified!(__ppoll_chk: ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec,
    signals: *const sigset_t;) -> c_int, (count as usize).saturating_mul(size_of::<pollfd>()));

/// # Safety
/// There are so many of them.
unsafe fn with_rings(
    fds: *mut pollfd,
    count: nfds_t,
    wait: impl FnOnce(*mut pollfd, nfds_t) -> c_int,
) -> c_int {
    if fds.is_null() || count == 0 {
        return wait(fds, count);
    }
    // SAFETY: as the caller promises.
    let asked = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let rings: Vec<(usize, pollfd)> = asked
        .iter()
        .enumerate()
        .filter(|(_, one)| one.events & READABLE != 0)
        .filter_map(|(at, one)| {
            let ring = slots::find(one.fd)?.channel.ring_fd().as_raw_fd();
            Some((at, pollfd { fd: ring, events: libc::POLLIN, revents: 0 }))
        })
        .collect();
    if rings.is_empty() {
        return wait(fds, count);
    }
    // The kernel allows no more places than descriptors, and an empty one counts (do_sys_poll()).
    let is_empty = |one: &pollfd| one.fd < 0;
    let mut all: Vec<pollfd> = asked.iter().filter(|one| !is_empty(one)).copied().collect();
    all.extend(rings.iter().map(|(_, ring)| *ring));
    let result = wait(all.as_mut_ptr(), all.len() as nfds_t);
    if result < 0 {
        return result;
    }
    let mut answers = all.iter();
    for one in asked.iter_mut() {
        let answered = if is_empty(one) { None } else { answers.next() };
        one.revents = answered.map_or(0, |answered| answered.revents);
    }
    for ((at, _), answered) in rings.iter().zip(answers) {
        if answered.revents & libc::POLLIN != 0 {
            asked[*at].revents |= asked[*at].events & READABLE;
        }
    }
    asked.iter().filter(|one| one.revents != 0).count() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let real = next!(select: unsafe extern "C-unwind" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
    // SAFETY: as the caller promises.
    unsafe {
        with_ring_bits(count, [readable, writable, exceptional], |count, [read, write, except]| {
            real(count, read, write, except, timeout)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    exceptional: *mut fd_set,
    timeout: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    let real = next!(pselect: unsafe extern "C-unwind" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int);
    // SAFETY: as the caller promises.
    unsafe {
        with_ring_bits(count, [readable, writable, exceptional], |count, [read, write, except]| {
            real(count, read, write, except, timeout, signals)
        })
    }
}

/// Waits with sets of its own, as long as the rings' descriptors need: a program's end where its own do.
///
/// # Safety
/// Each set has a bit for as many descriptors, rounded up to whole words, or is null.
unsafe fn with_ring_bits(
    count: c_int,
    sets: [*mut fd_set; 3],
    wait: impl FnOnce(c_int, [*mut fd_set; 3]) -> c_int,
) -> c_int {
    const WORD: usize = c_ulong::BITS as usize;
    if sets[0].is_null() || !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
        return wait(count, sets);
    }
    let words = (count as usize).div_ceil(WORD);
    let bit = |fd: c_int| (fd as usize / WORD, 1 << (fd as usize % WORD));
    let has = |set: &[c_ulong], fd| set[bit(fd).0] & bit(fd).1 != 0;
    // SAFETY: as the caller promises.
    let asked = unsafe { std::slice::from_raw_parts(sets[0].cast(), words) };
    let ring = |fd| Some((fd, slots::find(fd)?.channel.ring_fd().as_raw_fd()));
    let rings: Vec<_> = (0..count).filter(|fd| has(asked, *fd)).filter_map(ring).collect();
    if rings.is_empty() {
        return wait(count, sets);
    }
    let asked_for = count;
    let count = rings.iter().map(|(_, ring)| *ring + 1).fold(count, c_int::max);
    let mut own: [Vec<c_ulong>; 3] = [const { Vec::new() }; 3];
    let mut at = sets;
    for ((own, at), set) in own.iter_mut().zip(&mut at).zip(sets).filter(|(_, set)| !set.is_null())
    {
        // SAFETY: as the caller promises.
        own.extend_from_slice(unsafe { std::slice::from_raw_parts(set.cast(), words) });
        // The kernel looks at no bit from the program's count on.
        if !(asked_for as usize).is_multiple_of(WORD) {
            own[words - 1] &= bit(asked_for).1 - 1;
        }
        own.resize((count as usize).div_ceil(WORD), 0);
        *at = own.as_mut_ptr().cast();
    }
    rings.iter().for_each(|(_, ring)| own[0][bit(*ring).0] |= bit(*ring).1);
    let result = wait(count, at);
    if result < 0 {
        return result;
    }
    for (fd, ring) in &rings {
        if has(&own[0], *ring) {
            own[0][bit(*fd).0] |= bit(*fd).1;
        }
    }
    rings.iter().for_each(|(_, ring)| own[0][bit(*ring).0] &= !bit(*ring).1);
    for (own, set) in own.iter().zip(sets).filter(|(_, set)| !set.is_null()) {
        // SAFETY: as the caller promises, and a copy is not shorter.
        unsafe { std::ptr::copy_nonoverlapping(own.as_ptr(), set.cast(), words) };
    }
    own.iter().flatten().map(|word| word.count_ones() as c_int).sum()
}

/// Whether an event is told of once, whichever half it comes by. The kernel tells of errors unasked.
fn is_once_for_both(events: u32) -> bool {
    let of_one = EPOLL_OF_CHANNEL | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
    events & libc::EPOLLONESHOT as u32 != 0 && events & !of_one != 0
}

/// What is waited for at a channel where the program waits for this.
pub(crate) fn of_channel(asked: epoll_event) -> epoll_event {
    epoll_event { events: asked.events & EPOLL_OF_CHANNEL, ..asked }
}

/// epoll_ctl(2): what is readable beside the socket, under the program's own name for it, is the channel; the socket
/// itself is for all else. So epoll_wait(2) tells once what comes by either.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let real = next!(epoll_ctl: unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int);
    let Some(lazy) = slots::find(fd) else {
        // SAFETY: as the caller promises.
        let result = unsafe { real(epoll, operation, fd, event) };
        // Until it is closed: one set that it leaves may not be the only one.
        if result == 0 && operation == libc::EPOLL_CTL_ADD {
            slots::WATCHED.set(fd, true);
        }
        return result;
    };
    // SAFETY: as the caller promises.
    let asked = unsafe { event.as_ref() }.copied().unwrap_or(epoll_event { events: 0, u64: 0 });
    let mut rest = epoll_event { events: asked.events & !EPOLL_READABLE, ..asked };
    let mut readable = of_channel(asked);
    // To remove it, a program may name no event.
    let rest = if event.is_null() { event } else { &raw mut rest };
    let ready = lazy.channel.ready_fd().as_raw_fd();
    let once = operation != libc::EPOLL_CTL_DEL && is_once_for_both(asked.events);
    // SAFETY: as the caller promises, and events of our own.
    let (result, told) = unsafe {
        let result = real(epoll, operation, fd, rest);
        (result, result != 0 || !once && real(epoll, operation, ready, &raw mut readable) == 0)
    };
    let why = std::io::Error::last_os_error();
    if result == 0 {
        lazy.watch(epoll, fd, (operation != libc::EPOLL_CTL_DEL).then_some(asked));
    }
    if told {
        return result;
    }
    let errno = why.raw_os_error().filter(|_| !once);
    // A duplicate's is in the set, or the ring alone is.
    if !matches!(errno, Some(libc::EEXIST | libc::ENOENT)) {
        lazy.channel.leave();
        let why = match once {
            true => "EPOLLONESHOT is asked for with more than EPOLLIN".into(),
            false => format!("its ring cannot be added to an epoll set: {why}"),
        };
        say_once(&format!("a UDP port has an ordinary socket: {why}"));
    }
    // SAFETY: as above.
    unsafe {
        // Not modified: it may be one of EPOLLEXCLUSIVE.
        if real(epoll, libc::EPOLL_CTL_DEL, fd, event) == 0 {
            real(epoll, libc::EPOLL_CTL_ADD, fd, event);
        }
        if once {
            real(epoll, libc::EPOLL_CTL_DEL, ready, &raw mut readable);
        }
        // The ring alone is not a set in a set. It is there for what it still has.
        let ring = lazy.channel.ring_fd().as_raw_fd();
        if errno != Some(libc::EEXIST)
            && real(epoll, operation, ring, &raw mut readable) != 0
            && once
        {
            real(epoll, libc::EPOLL_CTL_ADD, ring, &raw mut readable);
        }
    }
    result
}

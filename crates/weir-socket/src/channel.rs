//! One socket's channel: its ring, and the kernel's socket beside it, read in order.
//!
//! What the gate leaves to the kernel (fragments, options, multicast, errors; everything, once weir has ended) waits
//! at the kernel's socket. It is looked at when the ring is empty, and each [`LOOK_EVERY`] packets while it is not.
//! If something waits there, what is on the ring by then comes first, and then the kernel's: so where weir ends in
//! mid-flow, nothing is overtaken.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{Shutdown, shutdown};

use crate::attach::{self, Ordinary, Own};
use crate::datagram::{Datagram, Record};
use crate::ring::{Reader, Ring};
use crate::sys;
use crate::turns::{Turn, Turns};

/// How many packets may come from the ring before the kernel's socket is looked at.
const LOOK_EVERY: u32 = 64;

/// How long at most before a thread that waits asks the kernel's socket: where it is cancelled (pthread_cancel(3)), the C
/// library ends it there, and nothing wakes it.
const LOOK: Duration = Duration::from_millis(250);

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What to do while nothing has come; asked for only then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// Fail with `WouldBlock` rather than wait.
    pub nonblocking: bool,
    /// Fail with `WouldBlock` after so long.
    pub timeout: Option<Duration>,
}

/// Where the next datagram is.
enum Next<T> {
    /// It was on the ring.
    Taken(T),
    /// The kernel's socket is to be read first.
    Kernel,
    /// The call fails, with this of errno(3).
    Failed(i32),
    /// The ring is empty.
    Empty,
}

/// The channel of one lazy socket. Threads may share it, and processes that have forked.
#[derive(Debug)]
pub struct Channel {
    ring: Ring,
    /// Readable while the ring or the kernel's socket has something.
    ready: Own,
    connection: Own,
    turns: Turns,
}

impl Channel {
    /// Makes a bound UDP socket lazy, with a ring of so many bytes: a power of two from 64 KiB to 64 MiB.
    ///
    /// # Errors
    /// If it stays an ordinary one.
    pub fn attach(socket: BorrowedFd<'_>, ring_bytes: u64) -> Result<Self, Ordinary> {
        Self::with(socket, ring_bytes, |ready| Ok(Own::told(ready)))
    }

    /// The same of a program that is not told of [`Channel::ready_fd`], whose number select(2) may not take.
    ///
    /// # Errors
    /// If it stays an ordinary one.
    pub fn attach_untold(socket: BorrowedFd<'_>, ring_bytes: u64) -> Result<Self, Ordinary> {
        Self::with(socket, ring_bytes, Own::of)
    }

    fn with(
        socket: BorrowedFd<'_>,
        ring_bytes: u64,
        own: impl FnOnce(OwnedFd) -> Result<Own, Ordinary>,
    ) -> Result<Self, Ordinary> {
        let failed = |operation| move |source| Ordinary::System { operation, source };
        let poll = failed("make a descriptor that can be polled");
        let ready = own(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll)?)?;
        let add = |fd: BorrowedFd<'_>| {
            epoll::add(&ready, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
        };
        add(socket).map_err(poll)?;
        // From here on, what fails costs what has come to the ring by then.
        let (ring, connection) = attach::attach(socket, ring_bytes)?;
        add(ring.fd().as_fd()).map_err(poll)?;
        // What has come before stays before, but not all that the socket is sent from now on: it may never be empty.
        let kernel_left = sys::waiting_max(socket).map_err(failed("see what waits"))?;
        let mut reader = ring.lock().map_err(failed("lock the ring"))?;
        *reader.state() = crate::ring::SharedState { kernel_left, ..Default::default() };
        drop(reader);
        Ok(Self { ring, ready, connection, turns: Turns::default() })
    }

    /// A descriptor that is readable while a receive call would not block: to be polled, and for nothing else.
    pub fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// The ring's own, readable while the ring is not empty: for who polls the socket as well.
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.ring.fd().as_fd()
    }

    /// All that it has open.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.own().map(AsFd::as_fd)
    }

    fn own(&self) -> [&Own; 3] {
        [self.ring.fd(), &self.ready, &self.connection]
    }

    /// Leaves the number of one of its descriptors, which stays open, to the caller. The descriptor's new number, if
    /// that was one.
    ///
    /// # Errors
    /// If the process may have no more.
    pub fn vacate(&self, number: RawFd) -> io::Result<Option<RawFd>> {
        let its = self.own().into_iter().find(|own| own.as_fd().as_raw_fd() == number);
        Ok(its.map(Own::vacate).transpose()?)
    }

    /// Has weir leave the socket: within milliseconds, its packets go to the kernel's socket. This goes on to receive
    /// what is on the ring, and then those, as where weir has ended; so nothing is lost.
    pub fn leave(&self) {
        // weir sees a hang-up. If there is no weir any more, it has left.
        let _ = shutdown(&self.connection, Shutdown::Both);
    }

    /// Datagrams with a wrong checksum, which were dropped here as the kernel drops them.
    pub fn dropped(&self) -> u64 {
        self.ring.dropped().load(Ordering::Relaxed)
    }

    /// Whether something is on the ring; as of a moment ago, if others receive as well.
    pub fn may_have_datagrams(&self) -> bool {
        self.ring.may_have_records()
    }

    /// Bytes of the next datagram's payload, 0 if there is none (`FIONREAD`).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn next_bytes(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut reader = self.ring.lock()?;
        let is_kernels = is_kernels_turn(&mut reader, socket);
        let on_ring = take(&mut reader, true, &mut |datagram| datagram.payload.len());
        drop(reader);
        if let Some(bytes) = on_ring.filter(|_| !is_kernels) {
            return Ok(bytes);
        }
        match ioctl_fionread(socket)? {
            0 => Ok(on_ring.unwrap_or_default()),
            bytes => self.kept(true, Ok(bytes as usize)),
        }
    }

    /// The next datagram, from wherever it waits; where it stays if it is only to be peeked at. `kernel` reads the
    /// kernel's socket; unless it is told that it may, it must not block: if it fails with `WouldBlock`, nothing waits
    /// there.
    ///
    /// # Errors
    /// With `WouldBlock` if there is none in time; else whatever `kernel` fails with.
    pub fn receive<T>(
        &self,
        socket: BorrowedFd<'_>,
        peek: bool,
        wait: impl Fn() -> Wait,
        mut lazily: impl FnMut(&Datagram<'_>) -> T,
        mut kernel: impl FnMut(bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut deadline, mut arrivals) = (None, None);
        // Until a datagram is taken: who waits next does not find the same one.
        let mut turn = None;
        loop {
            match self.next(socket, peek, &mut lazily) {
                Next::Taken(taken) => return Ok(taken),
                Next::Failed(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Next::Kernel => match kernel(false) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.end_turn();
                        continue;
                    }
                    other => return other,
                },
                Next::Empty => {}
            }
            let wait = wait();
            if wait.nonblocking {
                return self.kept(peek, kernel(false));
            }
            deadline = deadline
                .or_else(|| wait.timeout.and_then(|timeout| Instant::now().checked_add(timeout)));
            if !self.wait(socket, arrivals.as_ref(), deadline, &mut turn)? {
                continue;
            }
            match kernel(false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return self.kept(peek, other),
            }
            let state = polled(socket, PollFlags::RDHUP);
            // Shut down: the kernel says so to who would wait.
            if state.contains(PollFlags::RDHUP) {
                return kernel(true);
            }
            // Errors that only MSG_ERRQUEUE reads (`IP_RECVERR`): poll(2) tells of them until then,
            // and without a descriptor for this, the call does not sleep meanwhile.
            if state.contains(PollFlags::ERR) && arrivals.is_none() {
                arrivals = arrivals_at(socket).ok();
            }
        }
    }

    /// As many as are on the ring and are wanted, without waiting; how many those were. 0 also when it is the
    /// kernel's turn, so that the others must be had by [`Channel::receive`].
    pub fn receive_waiting(
        &self,
        socket: BorrowedFd<'_>,
        most: usize,
        mut lazily: impl FnMut(&Datagram<'_>),
    ) -> usize {
        if !self.ring.may_have_records() {
            return 0;
        }
        let Ok(mut reader) = self.ring.lock() else { return 0 };
        let mut count = 0;
        while count < most
            && !is_kernels_turn(&mut reader, socket)
            && take(&mut reader, false, &mut lazily).is_some()
        {
            count += 1;
        }
        count
    }

    fn next<T>(
        &self,
        socket: BorrowedFd<'_>,
        peek: bool,
        lazily: &mut impl FnMut(&Datagram<'_>) -> T,
    ) -> Next<T> {
        let mut reader = match self.ring.lock() {
            Ok(reader) => reader,
            Err(errno) => return Next::Failed(errno.raw_os_error()),
        };
        if is_kernels_turn(&mut reader, socket) {
            let state = reader.state();
            if !peek {
                state.kernel_left -= 1;
            }
            return match std::mem::take(&mut state.errno) {
                0 => Next::Kernel,
                errno => Next::Failed(errno),
            };
        }
        take(&mut reader, peek, lazily).map_or(Next::Empty, Next::Taken)
    }

    /// What the kernel's socket gave while the ring was empty; if it was only peeked at, it is the next one, whatever
    /// comes to the ring.
    fn kept<T>(&self, peek: bool, given: io::Result<T>) -> io::Result<T> {
        if peek && given.is_ok() {
            self.begin_turn(0);
        }
        given
    }

    /// The next call fails with this of errno(3), which had come behind what this call has received.
    pub(crate) fn fail_next(&self, errno: i32) {
        self.begin_turn(errno);
    }

    /// The kernel's socket is the next, with this of errno(3) first if it is not 0.
    fn begin_turn(&self, errno: i32) {
        let Ok(mut reader) = self.ring.lock() else { return };
        reader.state().kernel_from = reader.position();
        let state = reader.state();
        state.kernel_left = state.kernel_left.max(1);
        if errno != 0 {
            state.errno = errno;
        }
    }

    fn end_turn(&self) {
        if let Ok(mut reader) = self.ring.lock() {
            reader.state().kernel_left = 0;
        }
    }

    /// Whether the kernel's socket may have something; if not, the ring may. One thread of a process waits at a time.
    fn wait<'channel>(
        &'channel self,
        socket: BorrowedFd<'_>,
        arrivals: Option<&OwnedFd>,
        deadline: Option<Instant>,
        turn: &mut Option<Turn<'channel>>,
    ) -> io::Result<bool> {
        let look = Instant::now().checked_add(LOOK);
        let until = deadline.into_iter().chain(look).min();
        self.wait_until(socket, arrivals, until, turn).or_else(|error| match error.kind() {
            io::ErrorKind::WouldBlock if left(deadline).is_ok() => Ok(true),
            // sock_intr_errno()
            io::ErrorKind::Interrupted if deadline.is_none() && sys::handlers_restart_calls() => {
                Ok(false)
            }
            _ => Err(error),
        })
    }

    fn wait_until<'channel>(
        &'channel self,
        socket: BorrowedFd<'_>,
        arrivals: Option<&OwnedFd>,
        deadline: Option<Instant>,
        turn: &mut Option<Turn<'channel>>,
    ) -> io::Result<bool> {
        if turn.is_none() {
            *turn = Some(self.turns.take(|| left(deadline))?);
        }
        let timeout = left(deadline)?;
        let mut fds = [
            PollFd::new(self.ring.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(arrivals.map_or(socket, AsFd::as_fd), PollFlags::IN),
        ];
        if poll(&mut fds, timeout.as_ref())? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // What the ring has may be older.
        if !fds[0].revents().is_empty() {
            return Ok(false);
        }
        if let Some(arrivals) = arrivals {
            epoll::wait(arrivals, &mut [MaybeUninit::uninit()], Some(&NOW))?;
        }
        Ok(true)
    }
}

/// The time until then, if there is an end to it.
fn left(deadline: Option<Instant>) -> io::Result<Option<Timespec>> {
    let Some(deadline) = deadline else { return Ok(None) };
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::WouldBlock.into()),
        left => Ok(Timespec::try_from(left).ok()),
    }
}

/// A descriptor that is readable while something has come to the socket since it was last asked.
fn arrivals_at(socket: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&arrivals, socket, epoll::EventData::new_u64(0), flags)?;
    Ok(arrivals)
}

/// Whether the kernel's socket is to be read before the ring.
fn is_kernels_turn(reader: &mut Reader<'_>, socket: BorrowedFd<'_>) -> bool {
    let position = reader.position();
    let state = *reader.state();
    if state.kernel_left > 0 {
        return position >= state.kernel_from;
    }
    if state.since_look < LOOK_EVERY {
        return false;
    }
    reader.state().since_look = 0;
    let waiting = !polled(socket, PollFlags::IN).is_empty();
    let produced = reader.produced();
    if waiting {
        let state = reader.state();
        state.kernel_from = produced;
        state.kernel_left = LOOK_EVERY;
    }
    waiting && position >= produced
}

/// The next datagram on the ring that the kernel would not drop.
fn take<T>(
    reader: &mut Reader<'_>,
    peek: bool,
    lazily: &mut impl FnMut(&Datagram<'_>) -> T,
) -> Option<T> {
    loop {
        let bytes = reader.peek()?;
        let consumed = reader.state().consumed as usize;
        let found = Record::read(bytes)
            .and_then(|record| record.input())
            .and_then(|datagrams| datagrams.at(consumed));
        let Some((datagram, next)) = found else {
            reader.count_dropped();
            reader.state().consumed = 0;
            reader.pass(bytes.len());
            continue;
        };
        let taken = lazily(&datagram);
        if !peek {
            reader.state().since_look += 1;
            reader.state().consumed = next.unwrap_or_default() as u32;
            if next.is_none() {
                reader.pass(bytes.len());
            }
        }
        return Some(taken);
    }
}

/// What a socket is ready for, of this and of what poll(2) tells unasked.
fn polled(socket: BorrowedFd<'_>, events: PollFlags) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(socket, events)];
    match poll(&mut fds, Some(&NOW)) {
        Ok(_) => fds[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

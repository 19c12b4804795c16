//! Asking the daemon for a ring.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
    sockopt,
};
use rustix::process::{Resource, getrlimit};

use crate::protocol::{
    HEADER_BYTES, Peer, RING_BYTES_MAX, Reply, Request, TEXT_BYTES_MAX, receive, send, socket_path,
};
use crate::ring::Ring;
use crate::sys;

/// The daemon has so long to answer: it may have to read many firewall rules.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A daemon that has not answered is not asked again for so long: each time would take as long as the first.
const REST: Duration = Duration::from_secs(10);

/// The network namespace whose daemon has not answered, and when. Not behind a lock, as a process may fork.
static SILENT: ArcSwapOption<(u64, Instant)> = ArcSwapOption::const_empty();

/// Own descriptors have the last eighth of the numbers that the limit allows, but not far above this: the kernel has a
/// place in memory for each number below the highest.
const OWN_FROM_MAX: u64 = 8192;

/// The first number of a descriptor that the program is told of: it does not give itself such, and select(2) takes it.
const TOLD_FROM: RawFd = 512;

/// Why a socket is not lazy: it is an ordinary one, then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ordinary {
    /// No weir offers lazy sockets in this network namespace, or where it listens is hidden.
    #[error(
        "no weir offers lazy sockets in this network namespace, or this program does not see the host's /run/weir: start \
         `weir run --lazy IFACE`, or bind-mount /run/weir into the program's container"
    )]
    NotRunning,
    /// One does, but not to this user.
    #[error(
        "weir gives lazy sockets to root's programs alone, and to those of the group of `weir run --lazy-group`"
    )]
    NotAllowed,
    /// It has refused, and says why.
    #[error("weir leaves this socket ordinary: {0}")]
    Refused(String),
    /// What listens is not root's, so nothing is told to it.
    #[error("what listens in place of weir belongs to {}", owner(*.0))]
    Impostor(u32),
    /// The answer did not come in time, now or a moment ago.
    #[error(
        "weir does not answer: it is stopped or overloaded (continue or restart it, or give it CPU time); \
         it is not asked again for {} seconds", REST.as_secs()
    )]
    Unanswered,
    /// The program has opened too many.
    #[error(
        "lazy sockets' own descriptors have at most an eighth of the program's limit of open files; a higher one \
         (`ulimit -n`, LimitNOFILE=) lets more sockets be lazy"
    )]
    Descriptors,
    /// The program has too little address space.
    #[error(
        "its ring would leave the program less than half of its limit of address space; a higher one (`ulimit -v`, \
         LimitAS=) or a smaller ring lets it be lazy"
    )]
    AddressSpace,
    /// The conversation failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// The answer is not one of weir's.
    #[error("weir's answer cannot be read: {0}")]
    Malformed(#[from] crate::protocol::Malformed),
}

/// What users look like whom a user namespace does not map (`kernel.overflowuid`).
const UNMAPPED: u32 = 65534;

fn owner(uid: u32) -> String {
    let root = match uid {
        UNMAPPED => {
            "; or to the host's root, whom this user namespace does not map: start the program outside of it"
        }
        _ => "",
    };
    format!("uid {uid}, not to root{root}")
}

/// Asks for a ring of so many bytes for a bound UDP socket. The ring lasts as long as the connection.
pub(crate) fn attach(socket: BorrowedFd<'_>, ring_bytes: u64) -> Result<(Ring, Own), Ordinary> {
    let failed = |operation| move |source| Ordinary::System { operation, source };
    let cookie = sys::netns_cookie(socket).map_err(failed("identify the network namespace"))?;
    let silent = SILENT.load();
    if silent.as_ref().is_some_and(|silent| silent.0 == cookie && silent.1.elapsed() < REST) {
        return Err(Ordinary::Unanswered);
    }
    match ask(socket, ring_bytes, cookie) {
        Err(Ordinary::System { source: Errno::TIMEDOUT, .. }) => {
            SILENT.store(Some(Arc::new((cookie, Instant::now()))));
            Err(Ordinary::Unanswered)
        }
        answered => answered,
    }
}

fn ask(socket: BorrowedFd<'_>, ring_bytes: u64, cookie: u64) -> Result<(Ring, Own), Ordinary> {
    let failed = |operation| move |source| Ordinary::System { operation, source };
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    // A socket that a daemon does not take is open, and its port taken, until it does, also when the program has ended.
    // So it is asked first without one: it refuses that, but answers.
    converse(&connect(cookie, deadline)?, ring_bytes, &[], deadline)?;
    // A ring that cannot be taken costs what has come to it: so whether it can is tried before.
    let bytes = usize::try_from(ring_bytes.min(RING_BYTES_MAX)).unwrap_or(usize::MAX);
    if !leaves_address_space(bytes) {
        return Err(Ordinary::AddressSpace);
    }
    drop(Ring::room(bytes).map_err(failed("map the ring"))?);
    let connection = Own::of(connect(cookie, deadline)?)?;
    let for_ring = out_of_the_way(connection.as_fd())?;
    drop(fcntl_dupfd_cloexec(&connection, 0).map_err(failed("take the ring"))?);
    drop(for_ring);
    match converse(&connection, ring_bytes, &[socket], deadline)? {
        (Reply::Refused(why), _) => Err(Ordinary::Refused(why)),
        (Reply::Ring { .. }, None) => Err(crate::protocol::Malformed::Foreign.into()),
        (Reply::Ring { bytes }, Some(fd)) => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let fd = out_of_the_way(fd.as_fd()).unwrap_or(fd);
            let ring = Ring::map(Own::at(fd), bytes).map_err(failed("map the ring"))?;
            Ok((ring, connection))
        }
    }
}

/// A request, and its answer.
fn converse(
    connection: &impl AsFd,
    ring_bytes: u64,
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(Reply, Option<OwnedFd>), Ordinary> {
    let failed = |operation| move |source| Ordinary::System { operation, source };
    let peer = Peer::of(connection).map_err(failed("see who listens"))?;
    if peer.uid != 0 {
        return Err(Ordinary::Impostor(peer.uid));
    }
    let request = Request { ring_bytes }.encode();
    let ask = || send(connection, &request, fds, SendFlags::empty());
    within(connection, Timeout::Send, deadline, ask).map_err(failed("ask weir"))?;
    let mut reply = [0; HEADER_BYTES + TEXT_BYTES_MAX];
    let hear = || receive(connection, &mut reply, RecvFlags::empty());
    let (bytes, fds) =
        within(connection, Timeout::Recv, deadline, hear).map_err(failed("read weir's answer"))?;
    Ok((Reply::decode(&reply[..bytes])?, fds.into_iter().next()))
}

/// Whether half of the program's limit of address space is left beside a ring of so many bytes.
fn leaves_address_space(bytes: usize) -> bool {
    let Some(limit) = getrlimit(Resource::As).current else { return true };
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|pages| pages.split(' ').next()?.parse::<u64>().ok());
    let used = pages.map(|pages| pages * rustix::param::page_size() as u64);
    used.is_some_and(|used| used + 2 * bytes as u64 <= limit / 2)
}

fn out_of_the_way(fd: BorrowedFd<'_>) -> Result<OwnedFd, Ordinary> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let from = (limit - limit / 8).min(OWN_FROM_MAX);
    fcntl_dupfd_cloexec(fd, from as RawFd).map_err(|_| Ordinary::Descriptors)
}

/// A descriptor of a channel's own, out of the program's way.
#[derive(Debug)]
pub(crate) struct Own(AtomicI32);

impl Own {
    pub(crate) fn of(fd: OwnedFd) -> Result<Self, Ordinary> {
        out_of_the_way(fd.as_fd()).map(Self::at)
    }

    /// One that the program is told of.
    pub(crate) fn told(fd: OwnedFd) -> Self {
        Self::at(fcntl_dupfd_cloexec(&fd, TOLD_FROM).unwrap_or(fd))
    }

    fn at(fd: OwnedFd) -> Self {
        Self(AtomicI32::new(fd.into_raw_fd()))
    }

    /// Takes another number, and leaves its own, still open, to the caller.
    pub(crate) fn vacate(&self) -> rustix::io::Result<RawFd> {
        let moved = out_of_the_way(self.as_fd());
        // Where there is none, anywhere.
        let moved = moved.or_else(|_| fcntl_dupfd_cloexec(self, 0))?.into_raw_fd();
        self.0.store(moved, Ordering::Release);
        Ok(moved)
    }
}

#[allow(unsafe_code)]
impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as this lives. A number that it leaves meanwhile is the program's, and only system calls
        // are made with it, as if the program had closed it and opened it again.
        unsafe { BorrowedFd::borrow_raw(self.0.load(Ordering::Acquire)) }
    }
}

#[allow(unsafe_code)]
impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: its own, and nobody has it any more.
        drop(unsafe { OwnedFd::from_raw_fd(*self.0.get_mut()) });
    }
}

/// Has a call end by a deadline. bind(2) fails for no signal, but a call with a timeout does, and is not restarted
/// (signal(7)).
fn within<T>(
    connection: &impl AsFd,
    which: Timeout,
    deadline: Instant,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        sockopt::set_socket_timeout(connection, which, Some(left))?;
        match call() {
            Err(Errno::INTR | Errno::AGAIN) => {}
            done => return done,
        }
    }
}

fn connect(netns_cookie: u64, deadline: Instant) -> Result<OwnedFd, Ordinary> {
    let failed = |source| Ordinary::System { operation: "connect to weir", source };
    let connection =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(failed)?;
    let address = SocketAddrUnix::new(socket_path(netns_cookie)).map_err(failed)?;
    match within(&connection, Timeout::Send, deadline, || {
        rustix::net::connect(&connection, &address)
    }) {
        Ok(()) => Ok(connection),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Err(Ordinary::NotRunning),
        Err(Errno::ACCESS) => Err(Ordinary::NotAllowed),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_whom_the_namespace_does_not_map_may_be_root() {
        let told = |uid| Ordinary::Impostor(uid).to_string();
        assert!(told(UNMAPPED).contains("this user namespace does not map"), "{}", told(UNMAPPED));
        assert!(told(1000).ends_with("belongs to uid 1000, not to root"), "{}", told(1000));
    }
}

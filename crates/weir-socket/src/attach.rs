//! Asking the daemon for a ring.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
    sockopt,
};

use crate::protocol::{
    HEADER_BYTES, Peer, RING_BYTES_MAX, Reply, Request, TEXT_BYTES_MAX, receive, send, socket_path,
};
use crate::ring::Ring;
use crate::sys;

/// The daemon has so long to answer: it may have to read many firewall rules.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The first number of a channel's own descriptors: programs do not give themselves such, and select(2) takes them.
const OWN_DESCRIPTORS: i32 = 512;

/// Why a socket is not lazy: it is an ordinary one, then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ordinary {
    /// No weir offers lazy sockets in this network namespace.
    #[error("no weir offers lazy sockets in this network namespace; `weir run --lazy IFACE` does")]
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
    #[error("what listens in place of weir belongs to uid {0}, not to root")]
    Impostor(u32),
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

/// Asks for a ring of so many bytes for a bound UDP socket. The ring lasts as long as the connection.
pub(crate) fn attach(socket: BorrowedFd<'_>, ring_bytes: u64) -> Result<(Ring, Own), Ordinary> {
    let failed = |operation| move |source| Ordinary::System { operation, source };
    let cookie = sys::netns_cookie(socket).map_err(failed("identify the network namespace"))?;
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let connection = connect(cookie, deadline)?;
    let peer = Peer::of(&connection).map_err(failed("see who listens"))?;
    if peer.uid != 0 {
        return Err(Ordinary::Impostor(peer.uid));
    }
    // A ring that cannot be taken costs what has come to it: so whether it can is tried before.
    let bytes = usize::try_from(ring_bytes.min(RING_BYTES_MAX)).unwrap_or(usize::MAX);
    drop(Ring::room(bytes).map_err(failed("map the ring"))?);
    drop(fcntl_dupfd_cloexec(&connection, 0).map_err(failed("take the ring"))?);
    let request = Request { ring_bytes }.encode();
    let ask = || send(&connection, &request, &[socket], SendFlags::empty());
    within(&connection, Timeout::Send, deadline, ask).map_err(failed("ask weir"))?;
    let mut reply = [0; HEADER_BYTES + TEXT_BYTES_MAX];
    let hear = || receive(&connection, &mut reply, RecvFlags::empty());
    let (bytes, ring) =
        within(&connection, Timeout::Recv, deadline, hear).map_err(failed("read weir's answer"))?;
    match (Reply::decode(&reply[..bytes])?, ring.into_iter().next()) {
        (Reply::Refused(why), _) => Err(Ordinary::Refused(why)),
        (Reply::Ring { .. }, None) => Err(crate::protocol::Malformed::Foreign.into()),
        (Reply::Ring { bytes }, Some(fd)) => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let ring = Ring::map(Own::of(fd), bytes).map_err(failed("map the ring"))?;
            Ok((ring, Own::of(connection)))
        }
    }
}

fn out_of_the_way(fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    // Where the limit is lower, anywhere.
    fcntl_dupfd_cloexec(fd, OWN_DESCRIPTORS).or_else(|_| fcntl_dupfd_cloexec(fd, 0))
}

/// A descriptor of a channel's own, out of the program's way.
#[derive(Debug)]
pub(crate) struct Own(AtomicI32);

impl Own {
    pub(crate) fn of(fd: OwnedFd) -> Self {
        let fd = out_of_the_way(fd.as_fd()).unwrap_or(fd);
        Self(AtomicI32::new(fd.into_raw_fd()))
    }

    /// Takes another number, and leaves its own, still open, to the caller.
    pub(crate) fn vacate(&self) -> rustix::io::Result<RawFd> {
        let moved = out_of_the_way(self.as_fd())?.into_raw_fd();
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
    connection: &OwnedFd,
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
            Err(Errno::INTR) => {}
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

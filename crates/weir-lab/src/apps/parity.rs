//! Both ends of the lab's own conversations: as plain programs would have them, by one socket or many.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use crate::error::{Error, Result};
use crate::histogram;

/// Datagrams under way: well below what the ring (256) and a buffer of the default size hold, also on a
/// veth with native XDP, which charges a page and more for each.
pub const WINDOW: u64 = 32;
/// The receiver tells the sender after so many.
const TELL_EVERY: u64 = 8;
/// An answer that takes so long does not come.
const PATIENCE: Duration = Duration::from_secs(1);
/// As the sender of a stream writes, and the receiver reads.
const CHUNK_BYTES: usize = 64 << 10;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// Connections that are being made at any time.
const CONNECT_AT_ONCE: usize = 32;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Payload of the largest datagram that an Ethernet frame of 1,500 bytes carries.
pub const DATAGRAM_BYTES: usize = 1472;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Measure {
    /// Round trip of one byte by UDP, microseconds.
    UdpRoundTrip,
    /// Payload that a sliding window of full datagrams brings, Mbit/s.
    UdpWindow,
    /// Round trip of one byte by TCP, microseconds.
    TcpRoundTrip,
    /// Payload of TCP, Mbit/s.
    TcpStream,
}

impl Measure {
    /// All.
    pub const ALL: [Self; 4] =
        [Self::UdpRoundTrip, Self::UdpWindow, Self::TcpRoundTrip, Self::TcpStream];

    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpRoundTrip => "udp-round-trip",
            Self::UdpWindow => "udp-window",
            Self::TcpRoundTrip => "tcp-round-trip",
            Self::TcpStream => "tcp-stream",
        }
    }

    /// Whether less is better.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::TcpRoundTrip)
    }

    /// Whether it is by UDP.
    pub const fn is_udp(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::UdpWindow)
    }
}

/// Which conversation, and by how many sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talk {
    /// What.
    pub measure: Measure,
    /// How many sockets at either end.
    pub flows: u16,
}

fn failed(operation: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::io(operation, "the other end", source)
}

/// As many files as it may have.
fn allow_sockets() -> Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })
        .map_err(|source| Error::io("raise", "the limit of open files", source))
}

/// Calls `ready` with the index of each socket that has something, without end.
fn each_ready<S: AsFd>(
    sockets: &[S],
    wanted: epoll::EventFlags,
    mut ready: impl FnMut(usize) -> std::io::Result<()>,
) -> std::io::Result<()> {
    // One socket is waited for by the call that uses it, as in a plain program.
    while sockets.len() == 1 {
        ready(0)?;
    }
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, socket) in sockets.iter().enumerate() {
        epoll::add(&all, socket, epoll::EventData::new_u64(index as u64), wanted)?;
    }
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        match epoll::wait(&all, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            ready(event.data.u64() as usize)?;
        }
    }
}

/// Serves until it is killed; UDP's further sockets are at the ports that follow.
///
/// # Errors
/// Where the host refuses what it needs.
pub fn serve(talk: Talk, server: SocketAddr, shared: &SharedCounters) -> Result<()> {
    allow_sockets()?;
    if talk.measure.is_udp() {
        serve_udp(talk, server, shared)
    } else {
        serve_tcp(talk, server, shared)
    }
}

fn at_port(address: SocketAddr, offset: u16) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + offset)
}

fn serve_udp(talk: Talk, server: SocketAddr, shared: &SharedCounters) -> Result<()> {
    let sockets: Vec<UdpSocket> = (0..talk.flows)
        .map(|offset| UdpSocket::bind(at_port(server, offset)))
        .collect::<std::io::Result<_>>()
        .map_err(failed("listen for"))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    let mut buffer = [0; 2048];
    let received = |index: usize| {
        let (len, from) = sockets[index].recv_from(&mut buffer)?;
        let count = shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed) + 1;
        if talk.measure == Measure::UdpRoundTrip {
            sockets[index].send_to(&buffer[..len], from)?;
        } else if count.is_multiple_of(TELL_EVERY) {
            // The sender says where it wants to hear of it.
            let told = SocketAddr::new(from.ip(), u16::from_be_bytes([buffer[0], buffer[1]]));
            sockets[0].send_to(&count.to_be_bytes(), told)?;
        }
        Ok(())
    };
    each_ready(&sockets, epoll::EventFlags::IN, received).map_err(failed("serve"))
}

fn serve_tcp(talk: Talk, server: SocketAddr, shared: &SharedCounters) -> Result<()> {
    let listener = TcpListener::bind(server).map_err(failed("listen for"))?;
    rustix::net::listen(&listener, BACKLOG)
        .map_err(|source| Error::io("listen for", "the other end", source))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    let connections: Vec<TcpStream> = (0..talk.flows)
        .map(|_| {
            let (connection, _) = listener.accept()?;
            connection.set_nodelay(true)?;
            Ok(connection)
        })
        .collect::<std::io::Result<_>>()
        .map_err(failed("accept"))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let received = |index: usize| {
        let len = rustix::io::read(&connections[index], &mut buffer[..])?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let counted = if talk.measure == Measure::TcpRoundTrip {
            rustix::io::write(&connections[index], &buffer[..1])?;
            1
        } else {
            len as u64
        };
        shared.get(slots::DELIVERED).fetch_add(counted, Ordering::Relaxed);
        Ok(())
    };
    match each_ready(&connections, epoll::EventFlags::IN, received) {
        // The client has ended.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        other => other.map_err(failed("serve")),
    }
}

/// Asks until it is killed, or told by [`slots::STOP`] to send no more.
///
/// # Errors
/// Where the host refuses what it needs.
pub fn ask(talk: Talk, server: SocketAddr, shared: &SharedCounters) -> Result<()> {
    allow_sockets()?;
    let sockets = connect(talk, server).map_err(failed("reach"))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    match talk.measure {
        Measure::UdpRoundTrip | Measure::TcpRoundTrip => round_trips(&sockets, shared),
        Measure::UdpWindow => window(&sockets, server.ip(), shared),
        Measure::TcpStream => stream(&sockets, shared),
    }
    .map_err(failed("talk to"))
}

fn connect(talk: Talk, server: SocketAddr) -> std::io::Result<Vec<OwnedFd>> {
    let sockets =
        if talk.measure.is_udp() { connect_udp(talk, server) } else { connect_tcp(talk, server) }?;
    if talk.measure.is_time() {
        for socket in &sockets {
            sockopt::set_socket_timeout(socket, Timeout::Recv, Some(PATIENCE))?;
        }
    }
    Ok(sockets)
}

fn connect_udp(talk: Talk, server: SocketAddr) -> std::io::Result<Vec<OwnedFd>> {
    let any = SocketAddr::new(unspecified(server.ip()), 0);
    let connect = |offset| {
        let socket = UdpSocket::bind(any)?;
        socket.connect(at_port(server, offset))?;
        Ok(socket.into())
    };
    (0..talk.flows).map(connect).collect()
}

/// Some at once: one after the other takes long where each waits for a turn of the CPU.
fn connect_tcp(talk: Talk, server: SocketAddr) -> std::io::Result<Vec<OwnedFd>> {
    let family = if server.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let mut sockets: Vec<OwnedFd> = Vec::with_capacity(talk.flows.into());
    while sockets.len() < talk.flows.into() {
        let first = sockets.len();
        for _ in 0..CONNECT_AT_ONCE.min(usize::from(talk.flows) - first) {
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            match rustix::net::connect(&socket, &server) {
                Ok(()) | Err(Errno::INPROGRESS) => sockets.push(socket),
                Err(error) => return Err(error.into()),
            }
        }
        for socket in &sockets[first..] {
            poll(&mut [PollFd::new(socket, PollFlags::OUT)], None)?;
            sockopt::socket_error(socket)??;
            sockopt::set_tcp_nodelay(socket, true)?;
            rustix::io::ioctl_fionbio(socket, false)?;
        }
    }
    Ok(sockets)
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv6() { [0_u16; 8].into() } else { [0_u8; 4].into() }
}

fn is_told_to_stop(shared: &SharedCounters) -> bool {
    shared.get(slots::STOP).load(Ordering::Relaxed) != 0
}

/// Stays, so that its connections do, until it is killed.
fn stay() -> ! {
    loop {
        std::thread::sleep(PATIENCE);
    }
}

/// One byte there and back, by one socket after the other.
fn round_trips(sockets: &[OwnedFd], shared: &SharedCounters) -> std::io::Result<()> {
    let mut buffer = [0; 16];
    for socket in sockets.iter().cycle() {
        if is_told_to_stop(shared) {
            break;
        }
        let began = Instant::now();
        rustix::io::write(socket, &[0])?;
        shared.get(slots::SENT).fetch_add(1, Ordering::Relaxed);
        match rustix::io::read(socket, &mut buffer[..]) {
            Ok(_) => {}
            Err(Errno::AGAIN) => {
                shared.get(slots::LOST).fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed);
        histogram::record(shared, slots::HISTOGRAM, began.elapsed().as_nanos() as u64);
    }
    stay()
}

/// Full datagrams, never more than [`WINDOW`] of which the receiver has not told.
fn window(sockets: &[OwnedFd], server: IpAddr, shared: &SharedCounters) -> std::io::Result<()> {
    let told = UdpSocket::bind(SocketAddr::new(unspecified(server), 0))?;
    told.set_read_timeout(Some(PATIENCE))?;
    let mut datagram = [0; DATAGRAM_BYTES];
    datagram[..2].copy_from_slice(&told.local_addr()?.port().to_be_bytes());
    let (mut sent, mut received) = (0_u64, 0_u64);
    while !is_told_to_stop(shared) {
        while sent - received < WINDOW {
            rustix::io::write(&sockets[sent as usize % sockets.len()], &datagram)?;
            sent += 1;
            shared.get(slots::SENT).store(sent, Ordering::Relaxed);
        }
        let mut count = [0; 8];
        match told.recv(&mut count) {
            Ok(_) => received = received.max(u64::from_be_bytes(count)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                shared.get(slots::LOST).fetch_add(1, Ordering::Relaxed);
                received = sent;
            }
            Err(error) => return Err(error),
        }
    }
    stay()
}

/// As much as the connections take.
fn stream(sockets: &[OwnedFd], shared: &SharedCounters) -> std::io::Result<()> {
    for socket in sockets {
        rustix::io::ioctl_fionbio(socket, true)?;
    }
    let chunk = vec![0; CHUNK_BYTES];
    each_ready(sockets, epoll::EventFlags::OUT, |index| {
        if is_told_to_stop(shared) {
            stay();
        }
        match rustix::io::write(&sockets[index], &chunk) {
            Ok(len) => {
                shared.get(slots::SENT).fetch_add(len as u64, Ordering::Relaxed);
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

//! What the lab's plain programs do with sockets, be it one or a thousand.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// Connections that are being made at any time.
const CONNECT_AT_ONCE: usize = 32;

/// Lets this process have as many files as it may.
pub fn allow_many() -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?)
}

/// Calls `ready` with the index of each socket that has something, without end.
pub fn each_ready<S: AsFd>(
    sockets: &[S],
    wanted: epoll::EventFlags,
    mut ready: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<()> {
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

/// The address with a port so much higher.
pub fn at_port(address: SocketAddr, offset: u16) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() + offset)
}

/// A UDP socket at a port of the kernel's choice, of this family.
pub fn any_udp(like: IpAddr) -> io::Result<UdpSocket> {
    let any = if like.is_ipv6() {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    UdpSocket::bind((any, 0))
}

/// A UDP socket connected to each address.
pub fn connect_udp(servers: impl IntoIterator<Item = SocketAddr>) -> io::Result<Vec<OwnedFd>> {
    let connect = |server: SocketAddr| {
        let socket = any_udp(server.ip())?;
        socket.connect(server)?;
        Ok(socket.into())
    };
    servers.into_iter().map(connect).collect()
}

/// Begins a TCP connection, by a socket that does not wait.
pub fn begin_tcp(server: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if server.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// So many TCP connections, without Nagle's delay, by sockets that wait.
pub fn connect_tcp(server: SocketAddr, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut sockets: Vec<OwnedFd> = Vec::with_capacity(count);
    // Some at once: one after the other takes long where each waits for a turn of the CPU.
    while sockets.len() < count {
        let first = sockets.len();
        for _ in first..count.min(first + CONNECT_AT_ONCE) {
            sockets.push(begin_tcp(server)?);
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

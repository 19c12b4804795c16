//! What the lab's plain programs do with sockets, be it one or a thousand.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const EVENTS: usize = 64;
/// Connections that are being made at any time.
const CONNECT_AT_ONCE: u32 = 32;

/// Lets this process have as many files as it may.
pub fn allow_many() -> io::Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?)
}

/// Keeps what is open, until this process is killed.
pub fn stay() -> ! {
    loop {
        thread::park();
    }
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
    let any = if like.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    UdpSocket::bind(any)
}

pub fn connect_udp(servers: impl IntoIterator<Item = SocketAddr>) -> io::Result<Vec<UdpSocket>> {
    let connect = |server: SocketAddr| {
        let socket = any_udp(server.ip())?;
        socket.connect(server)?;
        Ok(socket)
    };
    servers.into_iter().map(connect).collect()
}

/// So many TCP connections, without Nagle's delay.
pub fn connect_tcp(server: SocketAddr, count: u32) -> io::Result<Vec<TcpStream>> {
    let connect = |_| {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        // It ends with a reset: nothing is left to be sent again when the process has ended.
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(stream)
    };
    // Some at once: one after the other takes long where each waits for a turn of the CPU.
    let groups = (0..count).step_by(CONNECT_AT_ONCE as usize);
    let groups = groups.map(|made| on_threads(CONNECT_AT_ONCE.min(count - made), connect));
    Ok(groups.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// What so many threads at once make of their numbers.
pub fn on_threads<T: Send>(
    count: u32,
    make: impl Fn(u32) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    thread::scope(|scope| {
        let make = &make;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || make(number))).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

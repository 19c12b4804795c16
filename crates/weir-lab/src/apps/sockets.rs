//! What several of the lab's plain programs do with sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

/// Keeps what is open, until this process is killed.
pub fn stay() -> ! {
    loop {
        thread::park();
    }
}

pub fn connect_udp(server: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if server.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.connect(server)?;
    Ok(socket)
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

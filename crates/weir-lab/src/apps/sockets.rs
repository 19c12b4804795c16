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

/// Does something on so many threads at once, each with its number.
pub fn on_threads(count: u32, run: impl Fn(u32) -> io::Result<()> + Sync) -> io::Result<()> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || run(number))).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().try_for_each(join)
    })
}

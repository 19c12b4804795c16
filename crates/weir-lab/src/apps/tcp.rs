//! The TCP applications, and the client of one that is to keep its rate while the host is flooded: requests
//! and answers of a fixed length over connections that stay open.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use weir_bpf::sys::shared_memory::SharedCounters;

use super::compute::run_first;
use super::slots;
use super::sockets::{on_threads, stay};

/// Length of a request and of its answer, bytes.
const MESSAGE_LEN: usize = 64;

/// Sends back what it gets (`echo`), or takes it; each connection has a thread.
pub fn serve(bind: SocketAddr, echo: bool, shared: &SharedCounters) -> io::Result<()> {
    let listener = TcpListener::bind(bind)?;
    slots::ready(shared);
    loop {
        // A connection may be gone before it is accepted.
        if let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || answer(stream, echo));
        }
    }
}

/// Ends with the connection, however that ends.
fn answer(mut stream: TcpStream, echo: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    while let len @ 1.. = stream.read(&mut buffer)? {
        if echo {
            stream.write_all(&buffer[..len])?;
        }
    }
    Ok(())
}

/// Connects, and until it is told by [`slots::STOP`] has so many requests of all connections answered per second: each
/// sends in its turn, and leaves out the turns at which it still waits for an answer. Stays then, until it is killed.
pub fn ask(
    server: SocketAddr,
    connections: u32,
    per_second: u32,
    shared: &SharedCounters,
) -> io::Result<()> {
    let connect = |_| -> io::Result<TcpStream> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        // It ends with a reset: nothing is left to be sent again when the process has ended.
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(stream)
    };
    let streams = (0..connections).map(connect).collect::<io::Result<Vec<_>>>()?;
    let turn = Duration::from_secs(1) / per_second;
    slots::ready(shared);
    on_threads(connections, |number| {
        // It shares its CPU with the generator, and is to be as if it had one of its own.
        run_first()?;
        let mut stream = &streams[number as usize];
        let mut message = [0; MESSAGE_LEN];
        let mut due = Instant::now() + turn * number;
        while !slots::is_set(shared, slots::STOP) {
            while due < Instant::now() {
                due += turn * connections;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = Instant::now();
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
            slots::took(shared, sent.elapsed());
        }
        Ok(())
    })?;
    stay()
}

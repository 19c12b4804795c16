//! The TCP service that is to keep its rate while the host is flooded, and its client: requests and
//! answers of a fixed length over connections that stay open.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use crate::error::{Error, Result};
use crate::histogram;

/// Length of a request and of its answer, bytes.
const MESSAGE_LEN: usize = 64;
/// How often the client's connections look whether they are to send.
const LOOK: Duration = Duration::from_millis(2);

/// Answers each request of each connection with the same bytes, a thread per connection, as a program
/// that does nothing special.
///
/// # Errors
/// When the address is taken.
pub fn serve(bind: SocketAddr, shared: &SharedCounters) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let listener = TcpListener::bind(bind).map_err(failed("listen on"))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        // A connection may be gone before it is accepted.
        if let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || answer(stream));
        }
    }
}

/// Ends with the connection.
fn answer(mut stream: TcpStream) {
    let mut message = [0; MESSAGE_LEN];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
}

/// Connects, and while `slots::GO` says so has so many requests answered per second: each connection
/// sends in its turn, and leaves out the turns at which it still waits for an answer.
///
/// # Errors
/// When the server does not take the connections, or breaks one.
pub fn ask(
    server: SocketAddr,
    connections: u32,
    per_s: u32,
    shared: &SharedCounters,
) -> Result<()> {
    let streams = (0..connections).map(|_| connect(server)).collect::<Result<Vec<_>>>()?;
    let turn = Duration::from_secs(1) / per_s;
    shared.get(slots::READY).store(1, Ordering::Release);
    thread::scope(|scope| {
        let asking: Vec<_> = streams
            .into_iter()
            .zip(0..)
            .map(|(stream, number)| {
                let offset = turn * number;
                scope.spawn(move || ask_on(stream, offset, turn * connections, shared))
            })
            .collect();
        for thread in asking {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let failed = |source| Error::io("connect to", server.to_string(), source);
    let stream = TcpStream::connect(server).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    // It ends with a reset: nothing is left to be sent again when the process has ended.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
        .map_err(|source| failed(source.into()))?;
    Ok(stream)
}

/// One connection's requests: the first `offset` after the start, then one per `interval`.
fn ask_on(
    mut stream: TcpStream,
    offset: Duration,
    interval: Duration,
    shared: &SharedCounters,
) -> Result<()> {
    // It shares its CPU with the generator, and is to be as if it had one of its own.
    sched::set_fifo_current_thread(1)?;
    let failed = |source| Error::io("have an answer from", "the TCP service", source);
    let mut message = [0; MESSAGE_LEN];
    let mut due: Option<Instant> = None;
    loop {
        if shared.get(slots::GO).load(Ordering::Acquire) == 0 {
            due = None;
            thread::sleep(LOOK);
            continue;
        }
        let mut turn = due.unwrap_or_else(|| Instant::now() + offset);
        while turn < Instant::now() {
            turn += interval;
        }
        thread::sleep(turn.saturating_duration_since(Instant::now()));
        due = Some(turn + interval);
        let sent = Instant::now();
        stream.write_all(&message).map_err(failed)?;
        stream.read_exact(&mut message).map_err(failed)?;
        shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed);
        histogram::record(shared, slots::HISTOGRAM, sent.elapsed().as_nanos() as u64);
    }
}

/// Takes each connection and ends it, which under a flood of SYNs is none.
///
/// # Errors
/// When the address is taken.
pub fn listen(bind: SocketAddr, shared: &SharedCounters) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let listener = TcpListener::bind(bind).map_err(failed("listen on"))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        drop(listener.accept().map_err(failed("accept on"))?);
        shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed);
    }
}

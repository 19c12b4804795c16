//! The TCP applications, and the client of one that is to keep its rate while the host is flooded: requests
//! and answers of a fixed length over connections that stay open.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use serde::{Deserialize, Serialize};
use weir_bpf::sys::shared::SharedCounters;

use super::compute::run_first;
use super::slots;
use super::sockets::{allow_many, connect_tcp, each_ready, on_threads};

/// Length of a request and of its answer, bytes.
const MESSAGE_LEN: usize = 64;
/// How often the client's connections look whether they are to send.
const LOOK: Duration = Duration::from_millis(2);
/// As a stream is written and read.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Connections that may wait to be accepted where they are many.
const BACKLOG: i32 = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// One thread serves so many, once all are made, until one ends; 0: a thread for each that is made.
    pub(crate) connections: u16,
    pub(crate) echo: bool,
}

impl Server {
    pub fn run(self, bind: SocketAddr, shared: &SharedCounters) -> io::Result<()> {
        let listener = TcpListener::bind(bind)?;
        if self.connections > 0 {
            allow_many()?;
            rustix::net::listen(&listener, BACKLOG)?;
            slots::ready(shared);
            let accept = |_| Ok(listener.accept()?.0);
            let streams: Vec<_> = (0..self.connections).map(accept).collect::<io::Result<_>>()?;
            return self.answer(&streams, shared);
        }
        slots::ready(shared);
        thread::scope(|scope| {
            loop {
                // A connection may be gone before it is accepted, or be broken later.
                if let Ok((stream, _)) = listener.accept() {
                    scope.spawn(|| self.answer(&[stream], shared));
                }
            }
        })
    }

    /// Ends with the first connection that does. Counts answers, or bytes that are not answered.
    fn answer(&self, streams: &[TcpStream], shared: &SharedCounters) -> io::Result<()> {
        streams.iter().try_for_each(|stream| stream.set_nodelay(true))?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let ended = each_ready(streams, EventFlags::IN, |index| {
            let mut stream = &streams[index];
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if self.echo {
                stream.write_all(&buffer[..len])?;
            }
            slots::add(shared, slots::DELIVERED, if self.echo { 1 } else { len as u64 });
            Ok(())
        });
        match ended.as_ref().map_err(io::Error::kind) {
            Err(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => Ok(()),
            _ => ended,
        }
    }
}

/// Connects, and while [`slots::GO`] says so has so many requests of all connections answered per second:
/// each sends in its turn, and leaves out the turns at which it still waits for an answer.
pub fn ask(
    server: SocketAddr,
    connections: u32,
    per_second: u32,
    shared: &SharedCounters,
) -> io::Result<()> {
    let streams = connect_tcp(server, connections)?;
    let turn = Duration::from_secs(1) / per_second;
    slots::ready(shared);
    on_threads(connections, |number| {
        // It shares its CPU with the generator, and is to be as if it had one of its own.
        run_first()?;
        let mut stream = &streams[number as usize];
        let mut message = [0; MESSAGE_LEN];
        let mut due: Option<Instant> = None;
        loop {
            if !slots::is_set(shared, slots::GO) {
                due = None;
                thread::sleep(LOOK);
                continue;
            }
            let mut at = due.unwrap_or_else(|| Instant::now() + turn * number);
            while at < Instant::now() {
                at += turn * connections;
            }
            thread::sleep(at.saturating_duration_since(Instant::now()));
            due = Some(at + turn * connections);
            let sent = Instant::now();
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
            slots::took(shared, sent.elapsed());
        }
    })
    .map(|_: Vec<()>| ())
}

//! The TCP applications, and the client of one that is to keep its rate while the host is flooded: requests
//! and answers of a fixed length over connections that stay open.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use super::sockets::{allow_many, connect_tcp, each_ready};
use crate::error::{Result, cannot};
use crate::histogram;

/// Length of a request and of its answer, bytes.
const MESSAGE_LEN: usize = 64;
/// How often the client's connections look whether they are to send.
const LOOK: Duration = Duration::from_millis(2);
/// As a stream is written and read.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Connections that may wait to be accepted where they are many.
const BACKLOG: i32 = 1024;

/// A TCP application, on the command line.
#[derive(Debug, clap::Args)]
pub struct Server {
    /// Where to listen.
    #[arg(long)]
    bind: SocketAddr,
    /// One thread serves so many connections, once all are made, until one ends; 0: a thread for each that
    /// is made.
    #[arg(long, default_value_t = 0)]
    connections: u16,
    /// Sends back what it receives.
    #[arg(long)]
    echo: bool,
}

impl Server {
    /// Serves, as a program that does nothing special.
    pub fn run(&self, shared: &SharedCounters) -> Result<()> {
        self.serve(shared).map_err(cannot("serve", self.bind))
    }

    fn serve(&self, shared: &SharedCounters) -> io::Result<()> {
        allow_many()?;
        let listener = TcpListener::bind(self.bind)?;
        if self.connections > 0 {
            rustix::net::listen(&listener, BACKLOG)?;
        }
        slots::ready(shared);
        if self.connections > 0 {
            let accept = |_| Ok(listener.accept()?.0);
            let streams: Vec<_> = (0..self.connections).map(accept).collect::<io::Result<_>>()?;
            return self.answer(&streams, shared);
        }
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
        for stream in streams {
            stream.set_nodelay(true)?;
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        let ended = each_ready(streams, EventFlags::IN, |index| {
            let mut stream = &streams[index];
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if self.echo {
                stream.write_all(&buffer[..len])?;
            }
            slots::add(shared, slots::DELIVERED, if self.echo { 1 } else { len as u64 });
            Ok(())
        });
        match ended.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => Ok(()),
            _ => ended,
        }
    }
}

/// The client, on the command line.
#[derive(Debug, clap::Args)]
pub struct Client {
    /// The service.
    #[arg(long)]
    server: SocketAddr,
    /// How many connections.
    #[arg(long)]
    connections: u32,
    /// Requests per second, of all connections.
    #[arg(long)]
    per_second: u32,
}

impl Client {
    /// Connects, and while [`slots::GO`] says so has so many requests answered per second: each connection
    /// sends in its turn, and leaves out the turns at which it still waits for an answer.
    pub fn run(&self, shared: &SharedCounters) -> Result<()> {
        let sockets = connect_tcp(self.server, self.connections as usize)
            .map_err(cannot("connect to", self.server))?;
        let turn = Duration::from_secs(1) / self.per_second;
        let interval = turn * self.connections;
        slots::ready(shared);
        thread::scope(|scope| {
            let asking: Vec<_> = sockets
                .into_iter()
                .zip(0..)
                .map(|(socket, number)| {
                    scope.spawn(move || ask(socket.into(), turn * number, interval, shared))
                })
                .collect();
            for thread in asking {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(())
        })
    }
}

/// One connection's requests: the first `offset` after the start, then one per `interval`.
fn ask(
    mut stream: TcpStream,
    offset: Duration,
    interval: Duration,
    shared: &SharedCounters,
) -> Result<()> {
    // It shares its CPU with the generator, and is to be as if it had one of its own.
    sched::set_fifo_current_thread(1)?;
    let failed = cannot("have an answer from", "the TCP service");
    let mut message = [0; MESSAGE_LEN];
    let mut due: Option<Instant> = None;
    loop {
        if !slots::is_set(shared, slots::GO) {
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
        stream.write_all(&message).map_err(&failed)?;
        stream.read_exact(&mut message).map_err(&failed)?;
        slots::add(shared, slots::DELIVERED, 1);
        histogram::record(shared, slots::HISTOGRAM, sent.elapsed().as_nanos() as u64);
    }
}

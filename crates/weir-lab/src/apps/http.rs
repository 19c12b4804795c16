//! The HTTP client: some connections, each with one request under way at any time.
//!
//! Not `wrk`, though that does both usages well: it counts in whole seconds from its own start, and a
//! trial's window begins in the midst of a flood and may be a fifth of a second. This one counts in
//! memory that the controller reads, and tells failures by kind. Either asks again at once, so that
//! the server is saturated where the connections are enough.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use super::sockets::begin_tcp;
use crate::error::{Result, cannot};
use crate::histogram;

/// A request that took so long has failed: the connection is given up and made anew.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How often requests that take long are looked for.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Before asking anew where the client's own host refuses: it runs before all others on its CPU.
const PAUSE: Duration = Duration::from_millis(5);

/// How a request can fail, in the order of the counters at [`slots::FAILURES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No whole answer within [`PATIENCE`].
    Timeout,
    /// The connection ended before the answer was whole.
    Reset,
    /// No connection was to be had.
    Refused,
    /// An answer other than `200 OK`.
    Answer,
}

impl Failure {
    /// Each, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Timeout, Self::Reset, Self::Refused, Self::Answer];

    /// Its counter.
    pub const fn slot(self) -> usize {
        slots::FAILURES + self as usize
    }
}

/// What is known of an answer once its header is there.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    ok: bool,
    /// Header and body, bytes.
    len: usize,
    /// The server closes the connection after it.
    closes: bool,
}

impl Answer {
    /// Of what has come so far; `None` before the header is whole.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let header = std::str::from_utf8(&bytes[..end]).unwrap_or("");
        let field = |name: &str| {
            header.lines().find_map(|line| {
                let (found, value) = line.split_once(':')?;
                found.eq_ignore_ascii_case(name).then_some(value.trim())
            })
        };
        let body = field("content-length").and_then(|length| length.parse::<usize>().ok());
        Some(Self {
            ok: header.starts_with("HTTP/1.1 200 ") && body.is_some(),
            len: end + body.unwrap_or(0),
            closes: field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        })
    }
}

/// The client, on the command line.
#[derive(Debug, clap::Args)]
pub struct Client {
    /// The server.
    #[arg(long)]
    server: SocketAddr,
    /// How many connections.
    #[arg(long)]
    connections: u32,
    /// A connection is used again.
    #[arg(long)]
    keep_alive: bool,
}

struct Connection {
    socket: OwnedFd,
    connected: bool,
    received: Vec<u8>,
    /// When the request began: with the connection's first packet where it is for one request.
    began: Instant,
}

impl Client {
    /// Asks until it is killed.
    pub fn run(&self, shared: &SharedCounters) -> Result<()> {
        // On the generator's CPU, which spins: what the client has to do, it does at once.
        sched::set_fifo_current_thread(1)?;
        self.ask_all(shared).map_err(cannot("ask", self.server))
    }

    fn ask_all(&self, shared: &SharedCounters) -> rustix::io::Result<()> {
        let mut all: Vec<Connection> = (0..self.connections)
            .map(|_| self.connect(shared))
            .collect::<rustix::io::Result<_>>()?;
        slots::ready(shared);
        loop {
            let wanted = |c: &Connection| if c.connected { PollFlags::IN } else { PollFlags::OUT };
            let mut fds: Vec<PollFd<'_>> =
                all.iter().map(|c| PollFd::new(&c.socket, wanted(c))).collect();
            match poll(&mut fds, Some(&LOOK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (connection, ready) in all.iter_mut().zip(ready) {
                let late = || connection.began.elapsed() > PATIENCE;
                let failed = match ready {
                    true => self.advance(connection, shared)?,
                    false => late().then_some(Failure::Timeout),
                };
                if let Some(failure) = failed {
                    slots::add(shared, failure.slot(), 1);
                    *connection = self.connect(shared)?;
                }
            }
        }
    }

    fn connect(&self, shared: &SharedCounters) -> rustix::io::Result<Connection> {
        loop {
            let began = Instant::now();
            let Ok(socket) = begin_tcp(self.server) else {
                slots::add(shared, Failure::Refused.slot(), 1);
                std::thread::sleep(PAUSE);
                continue;
            };
            // A connection that is given up, or left behind by a client that is killed, is to say no more.
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
            return Ok(Connection { socket, connected: false, received: vec![], began });
        }
    }

    /// Does what can be done without waiting. A failure ends the connection.
    fn advance(
        &self,
        connection: &mut Connection,
        shared: &SharedCounters,
    ) -> rustix::io::Result<Option<Failure>> {
        if !connection.connected {
            if !matches!(sockopt::socket_error(&connection.socket), Ok(Ok(()))) {
                return Ok(Some(Failure::Refused));
            }
            connection.connected = true;
            return Ok(self.ask(connection));
        }
        let mut buffer = [0; 4096];
        let received = match recv(&connection.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(_) => return Ok(Some(Failure::Reset)),
        };
        connection.received.extend(&buffer[..received]);
        let answer = Answer::parse(&connection.received);
        let whole = answer.filter(|answer| connection.received.len() >= answer.len);
        let closes = match whole {
            None if received == 0 => return Ok(Some(Failure::Reset)),
            None => return Ok(None),
            Some(answer) if !answer.ok => return Ok(Some(Failure::Answer)),
            // The server ends the connection; its last packet belongs to the request.
            Some(answer) if answer.closes && received > 0 => return Ok(None),
            Some(answer) => answer.closes,
        };
        slots::add(shared, slots::DELIVERED, 1);
        let took = connection.began.elapsed().as_nanos() as u64;
        histogram::record(shared, slots::HISTOGRAM, took);
        if closes || !self.keep_alive {
            // Closed as usual, by a FIN.
            let _ = sockopt::set_socket_linger(&connection.socket, None);
            *connection = self.connect(shared)?;
            return Ok(None);
        }
        connection.received.clear();
        connection.began = Instant::now();
        Ok(self.ask(connection))
    }

    fn ask(&self, connection: &mut Connection) -> Option<Failure> {
        let close = if self.keep_alive { "" } else { "Connection: close\r\n" };
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n{close}\r\n", self.server.ip());
        match send(&connection.socket, request.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(sent) if sent == request.len() => None,
            _ => Some(Failure::Reset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn an_answer_is_known_by_its_header() {
        let header = "HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\nConnection: keep-alive\r\n\r\n";
        assert_eq!(Answer::parse(&header.as_bytes()[..header.len() - 1]), None);
        let all = format!("{header}hello");
        let answer = Answer::parse(all.as_bytes()).unwrap();
        assert_eq!(answer, Answer { ok: true, len: all.len(), closes: false });
        let closing = header.replace("keep-alive", "close");
        assert!(Answer::parse(closing.as_bytes()).unwrap().closes);
        for bad in [header.replace("200 OK", "503 Busy"), header.replace("LENGTH", "type")] {
            assert!(!Answer::parse(bad.as_bytes()).unwrap().ok, "{bad}");
        }
    }
}

//! The HTTP client: some connections, each with one request under way at any time.
//!
//! Not `wrk`, though that does both usages well: it counts in whole seconds from its own start, and a
//! trial's window begins in the midst of a flood and may be a fifth of a second. This one counts in
//! memory that the controller reads, and tells failures by kind. Either asks again at once, so that
//! the server is saturated where the connections are enough.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
    sockopt,
};
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use crate::error::{Error, Result};
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

struct Connection {
    socket: OwnedFd,
    connected: bool,
    received: Vec<u8>,
    /// When the request began: with the connection's first packet where it is for one request.
    began: Instant,
}

struct Client<'a> {
    server: SocketAddr,
    keep_alive: bool,
    request: String,
    shared: &'a SharedCounters,
}

/// Asks until it is killed.
///
/// # Errors
/// Where the client's own host refuses what it needs.
pub fn run(
    server: SocketAddr,
    connections: u32,
    keep_alive: bool,
    shared: &SharedCounters,
) -> Result<()> {
    // On the generator's CPU, which spins: what the client has to do, it does at once.
    sched::set_fifo_current_thread(1)?;
    let close = if keep_alive { "" } else { "Connection: close\r\n" };
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n{close}\r\n", server.ip());
    let client = Client { server, keep_alive, request, shared };
    let mut all = (0..connections).map(|_| client.connect()).collect::<Result<Vec<_>>>()?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        let mut fds: Vec<PollFd<'_>> = all
            .iter()
            .map(|connection| {
                let wanted = if connection.connected { PollFlags::IN } else { PollFlags::OUT };
                PollFd::new(&connection.socket, wanted)
            })
            .collect();
        match poll(&mut fds, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(source) => return Err(Error::io("wait for", "the server", source)),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (connection, ready) in all.iter_mut().zip(ready) {
            let failed = if ready {
                client.advance(connection)?
            } else {
                (connection.began.elapsed() > PATIENCE).then_some(Failure::Timeout)
            };
            if let Some(failure) = failed {
                client.count(failure.slot());
                *connection = client.connect()?;
            }
        }
    }
}

impl Client<'_> {
    fn count(&self, slot: usize) {
        self.shared.get(slot).fetch_add(1, Ordering::Relaxed);
    }

    fn connect(&self) -> Result<Connection> {
        let family = if self.server.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let began = Instant::now();
            let socket = socket_with(family, SocketType::STREAM, flags, None)
                .map_err(|source| Error::io("make", "a socket", source))?;
            // A connection that is given up, or left behind by a client that is killed, is to say no more.
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
                .map_err(|source| Error::io("set", "how a socket is closed", source))?;
            match connect(&socket, &self.server) {
                Ok(()) | Err(Errno::INPROGRESS) => {
                    return Ok(Connection { socket, connected: false, received: vec![], began });
                }
                Err(_) => {
                    self.count(Failure::Refused.slot());
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Does what can be done without waiting. A failure ends the connection.
    fn advance(&self, connection: &mut Connection) -> Result<Option<Failure>> {
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
        match whole {
            None if received == 0 => Ok(Some(Failure::Reset)),
            None => Ok(None),
            Some(answer) if !answer.ok => Ok(Some(Failure::Answer)),
            // The server ends the connection; its last packet belongs to the request.
            Some(answer) if answer.closes && received > 0 => Ok(None),
            Some(_) => self.answered(connection),
        }
    }

    fn answered(&self, connection: &mut Connection) -> Result<Option<Failure>> {
        self.count(slots::DELIVERED);
        let took = connection.began.elapsed().as_nanos() as u64;
        histogram::record(self.shared, slots::HISTOGRAM, took);
        let closed = Answer::parse(&connection.received).is_some_and(|answer| answer.closes);
        if closed || !self.keep_alive {
            // Closed as usual, by a FIN.
            let _ = sockopt::set_socket_linger(&connection.socket, None);
            *connection = self.connect()?;
            return Ok(None);
        }
        connection.received.clear();
        connection.began = Instant::now();
        Ok(self.ask(connection))
    }

    fn ask(&self, connection: &mut Connection) -> Option<Failure> {
        let request = self.request.as_bytes();
        match send(&connection.socket, request, SendFlags::NOSIGNAL) {
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

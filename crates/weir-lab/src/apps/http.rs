//! The HTTP client: some connections, each with one request under way at any time.
//!
//! Not `wrk`, though that does both usages well: it counts in whole seconds from its own start, and a
//! trial's window begins in the midst of a flood and may be a fifth of a second. This one counts in
//! memory that the controller reads. Either asks again at once, so that the server is saturated where the
//! connections are enough.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use weir_bpf::sys::shared_memory::SharedCounters;

use super::compute::run_first;
use super::slots;
use super::sockets::on_threads;

/// A request that took so long has failed: the connection is given up and made anew.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Before asking anew after a failure: the client runs before all others on its CPU.
const PAUSE: Duration = Duration::from_millis(5);

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

/// Asks by so many connections until it is killed, or told by [`slots::STOP`] to send no more; a failure ends
/// a connection.
pub fn ask(
    server: SocketAddr,
    connections: u32,
    keep_alive: bool,
    shared: &SharedCounters,
) -> io::Result<()> {
    let close = if keep_alive { "" } else { "Connection: close\r\n" };
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n{close}\r\n", server.ip());
    slots::ready(shared);
    on_threads(connections, |_| {
        // On the generator's CPU, which spins: what the client has to do, it does at once.
        run_first()?;
        let mut kept = None;
        while !slots::is_set(shared, slots::STOP) {
            // With the connection's first packet where it is for one request.
            let began = Instant::now();
            let stream = kept.take().map_or_else(|| connect(server), Ok);
            match stream.and_then(|stream| answer(stream, &request, keep_alive, began)) {
                Ok(stream) => {
                    slots::took(shared, began.elapsed());
                    kept = stream;
                }
                Err(_) => {
                    slots::add(shared, slots::LOST, 1);
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(())
    })
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    // One that is given up, or left behind by a client that is killed, is to say no more.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(stream)
}

/// Asks, and reads the whole answer; returns the connection if it is to be used again.
fn answer(
    mut stream: TcpStream,
    request: &str,
    keep_alive: bool,
    began: Instant,
) -> io::Result<Option<TcpStream>> {
    stream.write_all(request.as_bytes())?;
    let (mut received, mut buffer) = (vec![], [0; 4096]);
    loop {
        stream.set_read_timeout(Some(PATIENCE.saturating_sub(began.elapsed())))?;
        let len = stream.read(&mut buffer)?;
        received.extend(&buffer[..len]);
        match Answer::parse(&received).filter(|answer| received.len() >= answer.len) {
            None if len == 0 => return Err(ErrorKind::UnexpectedEof.into()),
            None => {}
            Some(answer) if !answer.ok => return Err(ErrorKind::InvalidData.into()),
            // The server ends the connection; its last packet belongs to the request.
            Some(answer) if answer.closes && len > 0 => {}
            Some(answer) if answer.closes || !keep_alive => {
                // Closed as usual, by a FIN.
                set_socket_linger(&stream, None)?;
                return Ok(None);
            }
            Some(_) => return Ok(Some(stream)),
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

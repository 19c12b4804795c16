//! The metrics over HTTP, on loopback: for a Prometheus of this host, or its agent.
//!
//! One thread answers each request once all of it has come, and waits for no client alone. It reads the files that
//! `weir status` reads, so nothing that a client does keeps the daemon from its work. Any user may connect, as fast as
//! he can: so that others are answered all the same, all who wait are accepted at once, whoever has asked by then goes
//! at once, and the files are read once for many.

use std::cell::OnceCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use weir_bpf::sys::netns::NetNs;

use super::openmetrics;
use crate::console::Console;
use crate::error::{Error, Result};
use crate::ready;
use crate::rundir::{RUN_DIR, RunDir};
use crate::status::InterfaceStatus;

/// How long a client may take to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it rests where the kernel refuses it a connection, which would wait to be accepted all the time.
const REST: Duration = Duration::from_millis(100);
/// Clients at once that have not asked, or not taken all: of more, the first one goes.
const CLIENTS_MAX: usize = 64;
/// How many may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Of a request. Prometheus sends 300 bytes.
const REQUEST_MAX: usize = 4096;
/// `prometheus_client` writes this version.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where metrics are to be served, until they are. Any user may take the port while weir is started anew, and serve
/// what he likes there until he lets go of it.
pub struct Unserved(Option<SocketAddr>);

impl Unserved {
    /// Nowhere, if nobody wants them.
    pub fn new(wanted: Option<SocketAddr>) -> Self {
        Self(wanted)
    }

    /// Serves them from now on if it can, and says so. Without them the host is no less protected.
    pub fn serve(&mut self, console: &mut Console) {
        let Some(address) = self.0 else { return };
        match serve(address) {
            Ok(at) => {
                console.say(&format!("metrics at http://{at}/metrics"));
                self.0 = None;
            }
            Err(error) => console.trouble(&error),
        }
    }
}

/// Listens, and answers for as long as the process lives. Returns where it listens.
fn serve(address: SocketAddr) -> Result<SocketAddr> {
    let netns = NetNs::current()?.inode();
    let listen = || {
        let listener = TcpListener::bind(address)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        thread::Builder::new()
            .name("weir-metrics".into())
            .spawn(move || answer_all(&listener, netns))?;
        Ok(address)
    };
    listen().map_err(|source: io::Error| {
        let port = address.port();
        let remedy = match source.kind() {
            io::ErrorKind::AddrInUse => {
                format!(
                    "`ss -ltnp sport = :{port}` tells whose it is; weir tries again each second"
                )
            }
            io::ErrorKind::PermissionDenied => {
                "a port below 1024 takes CAP_NET_BIND_SERVICE (systemd: CapabilityBoundingSet=)"
                    .into()
            }
            _ => "choose another port for `metrics` in the configuration file, and restart weir"
                .into(),
        };
        Error::refused(format!("metrics cannot be served at {address}: {source}"), remedy)
    })
}

fn answer_all(listener: &TcpListener, netns: u64) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let metrics = Metrics { netns, read: OnceCell::new() };
        let streams = clients.iter().map(|client| (client.stream.as_fd(), client.waits_for()));
        let fds = streams.chain([(listener.as_fd(), PollFlags::IN)]);
        let most = clients.iter().any(|client| client.answer.is_some()).then_some(PATIENCE);
        let ready = ready::wait_for(fds, most);
        let mut refused = ready.is_err();
        let ready = ready.unwrap_or_default();
        let mut each = ready.into_iter();
        clients.retain_mut(|client| match each.next() {
            Some(true) => client.is_to_go_on(&metrics),
            _ => !client.is_late(),
        });
        if each.next() == Some(true) {
            // The rest in the next round: those that have been accepted are served in between.
            for _ in 0..BACKLOG {
                match listener.accept() {
                    Ok((stream, _)) => clients.extend(Client::accepted(stream, &metrics)),
                    Err(error) => {
                        refused |= error.kind() != io::ErrorKind::WouldBlock;
                        break;
                    }
                }
                clients.drain(..clients.len().saturating_sub(CLIENTS_MAX));
            }
        }
        if refused {
            thread::sleep(REST);
        }
    }
}

struct Client {
    stream: TcpStream,
    asked: Vec<u8>,
    /// What it has not taken yet, and until when it may; none while it has not asked to the end.
    answer: Option<(Vec<u8>, Instant)>,
}

impl Client {
    /// One that has connected; none if it has been answered by now, or has gone.
    fn accepted(stream: TcpStream, metrics: &Metrics) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let mut client = Self { stream, asked: Vec::new(), answer: None };
        client.is_to_go_on(metrics).then_some(client)
    }

    fn waits_for(&self) -> PollFlags {
        if self.answer.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    fn is_late(&self) -> bool {
        self.answer.as_ref().is_some_and(|(_, until)| Instant::now() >= *until)
    }

    /// Hears what has come, and answers if that is all; whether there is more to do.
    fn is_to_go_on(&mut self, metrics: &Metrics) -> bool {
        if self.answer.is_some() {
            return self.is_to_take_more();
        }
        let mut piece = [0; 512];
        let length = match self.stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            read => read.unwrap_or(0),
        };
        self.asked.extend_from_slice(&piece[..length]);
        if self.asked.windows(4).any(|four| four == b"\r\n\r\n") {
            let answer = answer(&String::from_utf8_lossy(&self.asked), metrics);
            self.answer = Some((answer.into(), Instant::now() + PATIENCE));
            return self.is_to_take_more();
        }
        length > 0 && self.asked.len() < REQUEST_MAX
    }

    /// What a client does wrong is its own loss.
    fn is_to_take_more(&mut self) -> bool {
        let Some((left, until)) = &mut self.answer else { return false };
        match self.stream.write(left) {
            Ok(taken) => drop(left.drain(..taken)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        !left.is_empty() && Instant::now() < *until
    }
}

fn answer(request: &str, metrics: &Metrics) -> String {
    let mut words = request.split(' ');
    let (method, target) = (words.next(), words.next());
    let path = target.and_then(|target| target.split('?').next());
    let (status, kind, body) = match (method, path) {
        (Some("GET" | "HEAD"), Some("/metrics")) => match metrics.text() {
            Ok(text) => ("200 OK", CONTENT_TYPE, text.to_owned()),
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
        },
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "text/plain", "see /metrics\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".into()),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}");
    let body = if method == Some("HEAD") { "" } else { &body };
    format!("{head}\r\nConnection: close\r\n\r\n{body}")
}

/// What is told of a network namespace, read once for all who are answered in a round.
struct Metrics {
    netns: u64,
    read: OnceCell<Result<String>>,
}

impl Metrics {
    fn text(&self) -> &Result<String> {
        self.read.get_or_init(|| {
            let dir = RunDir::open(Path::new(RUN_DIR))?;
            Ok(openmetrics(&InterfaceStatus::read_all(dir.as_ref(), Some(self.netns))?, false))
        })
    }
}

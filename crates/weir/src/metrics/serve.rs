//! The metrics over HTTP, on loopback: for a Prometheus of this host, or its agent.
//!
//! One thread answers one request at a time, once all of it has come. It reads the files that `weir status` reads, so
//! nothing that a client does keeps the daemon from its work.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use weir_bpf::sys::netns::NetNs;

use super::openmetrics;
use crate::error::{Error, Result};
use crate::ready;
use crate::rundir::{RUN_DIR, RunDir};
use crate::status::InterfaceStatus;

/// How long a client may take to take the answer; others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients that have not asked yet. Any user may connect: of more, the first one goes.
const CLIENTS_MAX: usize = 64;
/// Of a request. Prometheus sends 300 bytes.
const REQUEST_MAX: usize = 4096;
/// `prometheus_client` writes this version.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens, and answers for as long as the process lives. Returns where it listens.
pub fn serve(address: SocketAddr) -> Result<SocketAddr> {
    let netns = NetNs::current()?.inode();
    let listen = || {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        thread::Builder::new()
            .name("metrics".into())
            .spawn(move || answer_all(&listener, netns))?;
        Ok(address)
    };
    listen().map_err(|source: io::Error| {
        Error::refused(
            format!("metrics cannot be served at {address}: {source}"),
            "choose another port for `metrics` in the configuration file, and restart weir",
        )
    })
}

fn answer_all(listener: &TcpListener, netns: u64) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let streams = clients.iter().map(|client| client.stream.as_fd());
        let ready = ready::wait(streams.chain([listener.as_fd()]), None).unwrap_or_default();
        let mut each = ready.into_iter();
        clients.retain_mut(|client| each.next() != Some(true) || client.is_to_go_on(netns));
        if each.next() == Some(true)
            && let Ok((stream, _)) = listener.accept()
        {
            clients.push(Client { stream, asked: Vec::new() });
            clients.drain(..clients.len().saturating_sub(CLIENTS_MAX));
        }
    }
}

/// One that has not asked yet, or not to the end.
struct Client {
    stream: TcpStream,
    asked: Vec<u8>,
}

impl Client {
    /// Hears what has come, and answers if that is all; whether more is to come.
    fn is_to_go_on(&mut self, netns: u64) -> bool {
        let mut piece = [0; 512];
        let length = self.stream.read(&mut piece).unwrap_or(0);
        self.asked.extend_from_slice(&piece[..length]);
        if self.asked.windows(4).any(|four| four == b"\r\n\r\n") {
            // What a client does wrong is its own loss.
            let _ = answer(&mut self.stream, &String::from_utf8_lossy(&self.asked), netns);
            return false;
        }
        length > 0 && self.asked.len() < REQUEST_MAX
    }
}

fn answer(stream: &mut TcpStream, request: &str, netns: u64) -> io::Result<()> {
    let mut words = request.split(' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => match metrics(netns) {
            Ok(text) => ("200 OK", CONTENT_TYPE, text),
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
        },
        (Some("GET"), _) => ("404 Not Found", "text/plain", "see /metrics\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".into()),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}");
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())
}

fn metrics(netns: u64) -> Result<String> {
    let dir = RunDir::open(Path::new(RUN_DIR))?;
    Ok(openmetrics(&InterfaceStatus::read_all(dir.as_ref(), Some(netns))?, false))
}

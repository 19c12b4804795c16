//! The metrics over HTTP, on loopback: for a Prometheus of this host, or its agent.
//!
//! One thread answers one request at a time. It reads the files that `weir status` reads, so nothing that a client does
//! keeps the daemon from its work.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use weir_bpf::sys::netns::NetNs;

use super::openmetrics;
use crate::error::{Error, Result};
use crate::rundir::{RUN_DIR, RunDir};
use crate::status::InterfaceStatus;

/// How long a client may take to ask, and to take the answer; others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
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
        let answer_all = move || {
            for stream in listener.incoming() {
                // What a client does wrong is its own loss.
                let _ = stream.and_then(|stream| answer(stream, netns));
            }
        };
        thread::Builder::new().name("metrics".into()).spawn(answer_all)?;
        Ok(address)
    };
    listen().map_err(|source: io::Error| {
        Error::refused(
            format!("metrics cannot be served at {address}: {source}"),
            "choose another port for `metrics` in the configuration file, and restart weir",
        )
    })
}

fn answer(mut stream: TcpStream, netns: u64) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let request = request(&mut stream, until)?;
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

/// The request's first line, once its end has come.
fn request(stream: &mut TcpStream, until: Instant) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 512];
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        // Zero would mean for ever.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let length = stream.read(&mut piece)?;
        if length == 0 || bytes.len() + length > REQUEST_MAX || left.is_zero() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.extend_from_slice(&piece[..length]);
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn metrics(netns: u64) -> Result<String> {
    let dir = RunDir::open(Path::new(RUN_DIR))?;
    Ok(openmetrics(&InterfaceStatus::read_all(dir.as_ref(), Some(netns))?, false))
}

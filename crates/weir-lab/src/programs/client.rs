//! Clients: load generators that run for a number of seconds by themselves.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_bpf::units::{CpuId, Nice};

use super::report::ClientReport;
use super::server::ServerKind;
use super::{catalogue, dnsperf, iperf3, memcaslap, wrk};
use crate::error::{Error, Result};
use crate::host::process::Program;

/// How long iperf3's server may be busy with the client before, and how long a test may take to begin.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client may take beyond its seconds, to connect and to report.
const PATIENCE: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(5);
/// Above the controller, with which a client shares its CPU: dnsperf sends what became due while it
/// waited in one burst.
const NICE: Nice = Nice(-15);

/// A client that the lab can start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClientKind {
    /// Asks nginx for its document; each connection sends a request when it has the last answer.
    Wrk {
        /// How many.
        connections: u32,
        /// Whether a connection is used again, or each request has its own.
        keep_alive: bool,
    },
    /// Asks NSD for names.
    Dnsperf {
        /// Queries per second, whether they are answered or not; `None`: as fast as the answers
        /// come, with 100 in flight.
        rate: Option<f64>,
        /// From how many ports.
        clients: u32,
    },
    /// Sends a UDP stream.
    Iperf3Udp {
        /// Length of a datagram's payload, bytes; above 1472 it is sent in fragments.
        datagram: u32,
        /// How fast, Mbit/s of payload.
        mbit: f64,
    },
    /// Sends as fast as TCP lets it.
    Iperf3Tcp {
        /// Over how many connections.
        streams: u32,
    },
    /// Gets and sets values in memcached; each connection sends when it has the last answer.
    Memcaslap {
        /// How many.
        connections: u32,
    },
}

impl ClientKind {
    /// The executable's name.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Wrk { .. } => "wrk",
            Self::Dnsperf { .. } => "dnsperf",
            Self::Iperf3Udp { .. } | Self::Iperf3Tcp { .. } => "iperf3",
            Self::Memcaslap { .. } => "memcaslap",
        }
    }

    /// The server that it talks to.
    pub const fn server(self) -> ServerKind {
        match self {
            Self::Wrk { .. } => ServerKind::Nginx,
            Self::Dnsperf { .. } => ServerKind::Nsd,
            Self::Iperf3Udp { .. } | Self::Iperf3Tcp { .. } => ServerKind::Iperf3,
            Self::Memcaslap { .. } => ServerKind::Memcached,
        }
    }

    /// The unit of [`ClientReport::throughput`].
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Wrk { .. } | Self::Memcaslap { .. } => "requests/s",
            Self::Dnsperf { .. } => "answers/s",
            Self::Iperf3Udp { .. } | Self::Iperf3Tcp { .. } => "Mbit/s",
        }
    }

    fn prepare(self, server: SocketAddr, seconds: u64, directory: &Path) -> Result<Vec<String>> {
        Ok(match self {
            Self::Wrk { connections, keep_alive } => {
                wrk::arguments(server, seconds, connections, keep_alive)
            }
            Self::Dnsperf { rate, clients } => {
                dnsperf::prepare(server, seconds, (rate, clients), directory)?
            }
            Self::Iperf3Udp { datagram, mbit } => iperf3::send_udp(server, seconds, datagram, mbit),
            Self::Iperf3Tcp { streams } => iperf3::send_tcp(server, seconds, streams),
            Self::Memcaslap { connections } => memcaslap::arguments(server, seconds, connections)?,
        })
    }

    fn parse(self, output: &str) -> Option<ClientReport> {
        match self {
            Self::Wrk { .. } => wrk::parse(output),
            Self::Dnsperf { .. } => dnsperf::parse(output),
            Self::Iperf3Udp { .. } | Self::Iperf3Tcp { .. } => iperf3::parse(output),
            Self::Memcaslap { .. } => memcaslap::parse(output),
        }
    }
}

/// A running client. Dropping it ends it.
pub struct Client {
    kind: ClientKind,
    program: Program,
    server: SocketAddr,
    output: PathBuf,
    /// When it must have ended.
    deadline: Instant,
}

impl Client {
    /// Starts a client in a namespace, on a CPU, with its files in a directory. It runs for so many
    /// seconds from then on.
    ///
    /// wrk, dnsperf and memcaslap send at once; memcaslap ends a second after its time. iperf3's test
    /// has begun when this returns: while its server is busy with the client before, it is started
    /// again.
    pub fn start(
        kind: ClientKind,
        netns_path: &Path,
        cpu: CpuId,
        server: IpAddr,
        seconds: u64,
        directory: &Path,
    ) -> Result<Self> {
        let server = SocketAddr::new(server, kind.server().port());
        let mut command = vec![catalogue::find(kind.program())?.display().to_string()];
        command.extend(kind.prepare(server, seconds, directory)?);
        let output = directory.join(format!("{}-client.log", kind.program()));
        let start = || Program::start(netns_path, (cpu, NICE), &command, &output);
        let time = PATIENCE + Duration::from_secs(seconds);
        let client = |program, output| Self {
            kind,
            program,
            server,
            output,
            deadline: Instant::now() + time,
        };
        if kind.server() != ServerKind::Iperf3 {
            return Ok(client(start()?, output));
        }
        let retry_until = Instant::now() + START_DEADLINE;
        loop {
            let mut client = client(start()?, output.clone());
            if client.begins(retry_until)? {
                return Ok(client);
            }
            std::thread::sleep(STEP);
        }
    }

    /// Waits until iperf3's test has begun; false: it is to be started again.
    fn begins(&mut self, retry_until: Instant) -> Result<bool> {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            // Asked first: a short test may end between the two.
            let is_running = self.program.is_running();
            if iperf3::has_begun(self.program.pid()) {
                return Ok(true);
            }
            if !is_running {
                let output = self.read();
                if self.kind.parse(&output).is_some() {
                    return Ok(true);
                }
                if Instant::now() < retry_until && iperf3::should_retry(&output) {
                    return Ok(false);
                }
                return Err(self.failed("did not begin", &output));
            }
            if Instant::now() > deadline {
                return Err(self.failed("did not begin", &self.read()));
            }
            std::thread::sleep(STEP);
        }
    }

    fn read(&self) -> String {
        std::fs::read(&self.output)
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn failed(&self, what: &str, output: &str) -> Error {
        let program = self.kind.program();
        let reported = iperf3::error(output);
        Error::refused(
            format!("the lab's {program}, which asks {}, {what}", self.server),
            super::text::quote(reported.as_deref().unwrap_or(output)),
        )
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.program.is_running()
    }

    /// Waits until it has ended, and reads what it printed.
    pub fn finish(mut self) -> Result<ClientReport> {
        while self.program.is_running() {
            if Instant::now() > self.deadline {
                return Err(self.failed("did not end in time", &self.read()));
            }
            std::thread::sleep(STEP);
        }
        let output = self.read();
        self.kind.parse(&output).ok_or_else(|| self.failed("printed no report", &output))
    }
}

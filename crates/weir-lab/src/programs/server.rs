//! Servers: started in a namespace, ready when they answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::stat::Stat;
use weir_bpf::units::{CpuId, Nanos, Nice};

use super::{catalogue, iperf3, memcached, nginx, nsd};
use crate::error::{Error, Result};
use crate::host::process::Program;

/// How long a server may take until it answers.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// Between two questions whether it answers.
const STEP: Duration = Duration::from_millis(5);

/// A server that the lab can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerKind {
    /// HTTP over TCP: one document of [`super::nginx::DOCUMENT_BYTES`].
    Nginx,
    /// DNS over UDP: the names of one zone.
    Nsd,
    /// Receives what iperf3's client sends, over UDP or TCP.
    Iperf3,
    /// A key-value store over TCP.
    Memcached,
}

impl ServerKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Nginx, Self::Nsd, Self::Iperf3, Self::Memcached];

    /// Its name, which is the executable's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Nsd => "nsd",
            Self::Iperf3 => "iperf3",
            Self::Memcached => "memcached",
        }
    }

    /// The port that it listens on: the protocol's own.
    pub const fn port(self) -> u16 {
        match self {
            Self::Nginx => 80,
            Self::Nsd => 53,
            Self::Iperf3 => 5201,
            Self::Memcached => 11211,
        }
    }

    /// The Debian package that it comes in.
    pub fn package(self) -> &'static str {
        catalogue::package(self.name()).unwrap_or(self.name())
    }

    /// Its name and version, such as `nginx 1.22.1`.
    pub fn version(self) -> Result<String> {
        Ok(format!("{} {}", self.name(), catalogue::version(self.name())?))
    }

    /// Writes its files; returns its arguments.
    fn prepare(self, address: SocketAddr, directory: &Path) -> Result<Vec<String>> {
        match self {
            Self::Nginx => nginx::prepare(address, directory),
            Self::Nsd => nsd::prepare(address, directory),
            Self::Iperf3 => Ok(iperf3::serve(address)),
            Self::Memcached => Ok(memcached::arguments(address)),
        }
    }

    /// Whether something answers its protocol at an address in a namespace.
    fn answers(self, netns: &NetNs, address: SocketAddr) -> Result<bool> {
        let ask = match self {
            Self::Nginx => nginx::answers,
            Self::Nsd => nsd::answers,
            Self::Iperf3 => iperf3::listens,
            Self::Memcached => memcached::answers,
        };
        let answer: io::Result<bool> = netns.run(|| ask(address))?;
        // It may not listen yet.
        Ok(answer.unwrap_or(false))
    }
}

/// A running server. Dropping it ends it.
pub struct Server {
    kind: ServerKind,
    program: Program,
    address: SocketAddr,
    log: PathBuf,
    pids: Vec<Pid>,
}

impl Server {
    /// Starts a server in a namespace, on a CPU and at an address there, with its files in a
    /// directory, and waits until it answers. The loopback interface must be up.
    pub fn start(
        kind: ServerKind,
        netns_path: &Path,
        cpu: CpuId,
        address: IpAddr,
        directory: &Path,
    ) -> Result<Self> {
        let address = SocketAddr::new(address, kind.port());
        let mut command = vec![catalogue::find(kind.name())?.display().to_string()];
        command.extend(kind.prepare(address, directory)?);
        let netns = NetNs::open(netns_path)?;
        // It would answer in this one's place.
        if kind.answers(&netns, address)? {
            return Err(Error::refused(
                format!("cannot start {} at {address}: another server is there", kind.name()),
                "end it, or take another address",
            ));
        }
        let log = directory.join(format!("{}.log", kind.name()));
        let program = Program::start(netns_path, (cpu, Nice(0)), &command, &log)?;
        let mut server = Self { kind, program, address, log, pids: vec![] };
        let deadline = Instant::now() + START_DEADLINE;
        while !kind.answers(&netns, address)? {
            if !server.program.is_running() {
                return Err(server.failed("ended before it answered"));
            }
            if Instant::now() > deadline {
                return Err(server.failed("does not answer"));
            }
            std::thread::sleep(STEP);
        }
        server.pids = last_descendants(server.program.pid());
        Ok(server)
    }

    fn failed(&self, what: &str) -> Error {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        Error::refused(
            format!("the lab's {} at {} {what}", self.kind.name(), self.address),
            super::text::quote(&log),
        )
    }

    /// Which server it is.
    pub fn kind(&self) -> ServerKind {
        self.kind
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The processes that do the work, whose CPU time is the server's: nginx's worker, NSD's server
    /// process, the others' only one. memcached's work is done by a thread other than its first: see
    /// [`Server::cpu_time`].
    pub fn pids(&self) -> &[Pid] {
        &self.pids
    }

    /// CPU time that they have had, all their threads together.
    pub fn cpu_time(&self) -> Result<Nanos> {
        let mut sum = 0;
        for pid in &self.pids {
            let path = format!("/proc/{}/task", pid.as_raw_nonzero());
            let failed = |source| Error::io("list", path.clone(), source);
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let thread = name.to_str().and_then(|name| name.parse().ok());
                // A thread that ends meanwhile takes what it had with it.
                let time = thread.and_then(Pid::from_raw).map(sched::cpu_time);
                sum += time.and_then(std::result::Result::ok).map_or(0, |time| time.0);
            }
        }
        Ok(Nanos(sum))
    }

    /// Checks that it still runs.
    pub fn check(&mut self) -> Result<()> {
        if self.program.is_running() { Ok(()) } else { Err(self.failed("has ended")) }
    }
}

/// The processes below this one that have none below themselves; this one if it has none. The
/// servers' masters only start them and wait.
fn last_descendants(root: Pid) -> Vec<Pid> {
    let parents: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Stat::of(pid)?.parent()?)))
        .collect();
    last_below(root.as_raw_nonzero().get(), &parents)
        .into_iter()
        .filter_map(Pid::from_raw)
        .collect()
}

/// The same, among processes and their parents.
fn last_below(root: i32, parents: &[(i32, i32)]) -> Vec<i32> {
    let (mut open, mut last) = (vec![root], vec![]);
    while let Some(process) = open.pop() {
        let children = parents.iter().filter(|(_, parent)| *parent == process);
        let before = open.len();
        open.extend(children.map(|(child, _)| *child));
        if open.len() == before {
            last.push(process);
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_work_have_no_children() {
        // NSD: xfrd, main, server.
        let nsd = [(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)];
        assert_eq!(last_below(10, &nsd), [12]);
        let two_workers = [(10, 1), (11, 10), (12, 10), (13, 12)];
        assert_eq!(last_below(10, &two_workers), [13, 11]);
        assert_eq!(last_below(20, &nsd), [20]);
    }

    #[test]
    fn every_server_has_a_package() {
        for kind in ServerKind::ALL {
            assert!(catalogue::package(kind.name()).is_some(), "{kind:?}");
        }
    }
}

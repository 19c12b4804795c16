//! The real programs that the lab measures with: servers and load generators that Debian packages
//! and that nobody here wrote; and captures and weir itself. What is particular to each is in `table`, and its parser
//! in `report`.
//!
//! Some run until they are ended, and those are ready in their own way; a client ends by itself.

mod report;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;
use weir_bpf::counters::CountersReader;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::units::{CpuId, Nice};

use self::table::{ROWS, Row, TOOLS};
use crate::apps::{Job, OWN, Order};
use crate::arm::DaemonSpec;
use crate::error::{Error, Result, cannot};
use crate::host::process::{self, Process, START_DEADLINE, path_of};
use crate::host::topology::{CAPTURE, CAPTURES, EGRESS, SUT_INTERFACE};
use crate::stop::{Stop, until};

pub use self::report::Figures;
pub use self::table::{
    ClientKind, DNSPERF, IPERF3, IPERF3_CLIENT, MEMCASLAP, NGINX, ServerKind, WRK, in_flight,
};

/// How long a server may take for one answer while it starts.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);
/// A client that has not ended so long after its time is ended.
const CLIENT_GRACE: Duration = Duration::from_secs(15);
/// This build's own executable, by its name.
const WEIR: &str = "weir";
/// What `weir` says once it captures, or its walls stand.
const WEIR_IS_READY: &str = "Ctrl-C ends it";

/// Checks that every one of these programs is installed; one error names all that are not, and their
/// Debian packages.
pub fn check_installed(programs: &BTreeSet<&str>) -> Result<()> {
    let absent: Vec<_> = programs.iter().filter(|name| path_of(name).is_none()).copied().collect();
    let rows = ROWS.iter().map(|row| (row.0, row.1)).chain(TOOLS);
    let packages: Vec<_> = rows.filter(|row| absent.contains(&row.0)).map(|row| row.1).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let remedy = format!("apt-get install {}, or run ./setup.sh", packages.join(" "));
    Err(Error::refused(format!("cannot find {}", absent.join(", ")), remedy))
}

/// The versions of these programs, such as `1.22.1`, by the program's name. All must be installed.
pub fn versions(programs: &[&str]) -> Result<BTreeMap<String, String>> {
    let version = |(name, package, option, ..): &Row| {
        // Some end with a failure after they have printed it, and some print it to standard error.
        let output = Command::new(path_of(name).unwrap_or_default()).arg(option).output();
        let output = output.map_err(cannot("run", name))?;
        let printed = [output.stdout, output.stderr].concat();
        let version = version_in(&String::from_utf8_lossy(&printed)).map(str::to_owned);
        let problem = || format!("`{name} {option}` printed no version");
        let remedy = || format!("reinstall {package}");
        Ok(((*name).to_owned(), version.ok_or_else(|| Error::refused(problem(), remedy()))?))
    };
    ROWS.iter().filter(|row| programs.contains(&row.0)).map(version).collect()
}

/// The first word with a number and a dot, from its first digit on: `1.22.1` of `nginx/1.22.1`.
fn version_in(printed: &str) -> Option<&str> {
    printed.split_whitespace().find_map(|word| {
        let number = &word[word.find(|letter: char| letter.is_ascii_digit())?..];
        number.contains('.').then_some(number)
    })
}

/// Clients share their CPU with the controller, and are to be as if they had one of their own.
const CLIENTS_NICE: Nice = Nice(-15);

pub struct Place<'a> {
    pub netns: &'a NetNs,
    /// `None`: any, as the scheduler likes.
    pub cpu: Option<CpuId>,
    /// The server's address, which it has or asks.
    pub address: Ipv4Addr,
    pub directory: PathBuf,
}

impl Place<'_> {
    /// Starts a program here; what it prints goes to a log in its directory.
    fn start(&self, name: &str, path: PathBuf, words: Vec<String>, nice: Nice) -> Result<Process> {
        let object = format!("{name} {}", words.join(" "));
        let job = Job::Program(path, name.to_owned(), words);
        let order = Order { nice: nice.0, ..Order::new(self.netns, self.cpu, job) };
        Process::spawn(order, object, Some(self.directory.join(format!("{name}.log"))))
    }

    /// The same with its files, from templates.
    fn start_filled(&self, name: &str, port: u16, arguments: &str, nice: Nice) -> Result<Process> {
        let server = SocketAddr::from((self.address, port));
        let fill = |template: &str| {
            let text = template.replace("%_", " ").replace("%at", &server.to_string());
            let text = text.replace("%ip", &self.address.to_string());
            let text = text.replace("%port", &port.to_string());
            text.replace("%dir", &self.directory.display().to_string())
        };
        let rows = ROWS.iter().filter(|row| row.0 == name);
        for (file, text) in rows.flat_map(|row| row.3()) {
            let path = self.directory.join(file);
            fs::write(&path, fill(&text)).map_err(cannot("write", path.display()))?;
        }
        let path = if name == WEIR { OWN.into() } else { path_of(name).unwrap_or_default() };
        self.start(name, path, arguments.split_whitespace().map(fill).collect(), nice)
    }

    /// The same, and waits until it is ready, as what it has printed tells.
    fn start_ready(
        &self,
        name: &str,
        (port, arguments): (u16, &str),
        is_ready: impl Fn(&str) -> bool,
    ) -> Result<Process> {
        let mut process = self.start_filled(name, port, arguments, Nice(0))?;
        process.wait("get ready", START_DEADLINE, |said| is_ready(said).then_some(()))?;
        Ok(process)
    }

    pub fn server(&self, kind: &ServerKind) -> Result<Process> {
        let ServerKind { name, port, arguments, .. } = *kind;
        let answers = || self.netns.run(|| answers(kind, (self.address, port).into()));
        // It may not listen yet.
        let is_ready = |said: &str| match kind.question {
            Some(_) => matches!(answers(), Ok(Ok(true))),
            None => said.contains("Server listening"),
        };
        let mut server = self.start_ready(name, (port, arguments), is_ready)?;
        server.pids = process::workers(server.pid())?;
        Ok(server)
    }

    pub fn capture(&self, kind: CaptureKind) -> Result<Process> {
        // What is in the lab's own directory is in memory.
        let parent = if kind.disk { Path::new(CAPTURES) } else { &self.directory };
        // Of no name that somebody else could have prepared.
        let directory = TempDir::with_prefix_in(CAPTURE, parent);
        let directory = directory.map_err(cannot("create a directory in", parent.display()))?;
        let place = Place { directory: directory.path().to_owned(), ..*self };
        let (name, command, rotation, says) = match kind.weir {
            // Else Debian's gives the file to a user of its own: /dev/null, too.
            None => ("tcpdump", "-Z root".into(), "-C 100 -W 2", "listening on"),
            Some(more) => {
                (WEIR, format!("capture {more}"), "--rotate-size 100M --keep 2", WEIR_IS_READY)
            }
        };
        let (file, rotation) =
            if kind.disk { ("%dir/capture", rotation) } else { ("/dev/null", "") };
        let arguments = format!("{command} -i {SUT_INTERFACE} -w {file} {rotation}");
        let mut capture = place.start_ready(name, (0, &arguments), |said| said.contains(says))?;
        capture.after = Some(Box::new(directory));
        Ok(capture)
    }

    /// Starts a screen with one rule, which accepts all that the host forwards. When it ends it takes its walls away.
    pub fn screen(&self, more: &str) -> Result<Process> {
        let rules = self.directory.join("rules");
        fs::write(&rules, "accept\n").map_err(cannot("write", rules.display()))?;
        // One that fails closed would leave its walls.
        let arguments = format!(
            "screen %dir/rules --in {SUT_INTERFACE} --out {EGRESS} --attach native --fail open {more}"
        );
        self.start_ready(WEIR, (0, &arguments), |said| said.contains(WEIR_IS_READY))
    }

    /// Starts a client, which runs for so many seconds; memcaslap ends a second late.
    pub fn client(&self, kind: &ClientKind, more: &str, seconds: u64) -> Result<Process> {
        let ClientKind { name, server, arguments } = *kind;
        let arguments = arguments.replace("%seconds", &seconds.to_string()).replace("%more", more);
        let nice = if self.cpu.is_some() { CLIENTS_NICE } else { Nice(0) };
        self.start_filled(name, server.port, &arguments, nice)
    }

    /// Protects a host's interface, with everything on one CPU if there is one, and waits until it is protected.
    pub fn daemon(&self, spec: &DaemonSpec) -> Result<Daemon> {
        let cpus = self.cpu.map(|cpu| cpu.to_string());
        let mut arguments = vec!["run", "--json", "--quiet"];
        arguments.extend(cpus.iter().flat_map(|cpus| ["--cpus", cpus]));
        // What the machine's own configuration says is nothing to the experiment.
        if !spec.options.iter().any(|option| option.starts_with("--config")) {
            arguments.extend(["--config", "/dev/null"]);
        }
        arguments.extend(spec.options.iter().map(String::as_str));
        arguments.push(SUT_INTERFACE);
        let words = arguments.into_iter().map(str::to_owned).collect();
        let mut process = self.start(WEIR, spec.path(), words, Nice(0))?;
        let (attach, counters) = process.wait("come up", START_DEADLINE, protected)?;
        Ok(Daemon { process, attach, counters: CountersReader::open(counters)? })
    }
}

/// A capture of frames that all have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureKind {
    /// Options of `weir capture`, of this build; `None`: it is tcpdump.
    pub weir: Option<&'static str>,
    /// Files on a disk, two at a time of 100 MB; else `/dev/null`.
    pub disk: bool,
    /// Bytes of a frame.
    pub frame_len: u32,
}

impl CaptureKind {
    /// How many packets a capture has written, by the kernel's count of bytes (proc_pid_io(5)): it writes nothing
    /// else to speak of, in pieces of up to 256 kB.
    pub fn written(self, capture: Pid) -> Result<u64> {
        let path = format!("/proc/{capture}/io");
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
        let bytes: u64 = line.and_then(|number| number.parse().ok()).ok_or_else(|| {
            let remedy = "is this kernel without task I/O accounting?";
            Error::refused(format!("{path} lacks wchar"), remedy)
        })?;
        // For each packet a record: of pcap 16 bytes before the frame; of pcapng an enhanced packet block, 28 before it
        // and 4 behind, which pads it to a multiple of 4.
        let len = u64::from(self.frame_len);
        Ok(bytes / if self.weir.is_some() { 32 + len.next_multiple_of(4) } else { 16 + len })
    }
}

/// Whether something answers a server's protocol at an address in the calling thread's namespace.
fn answers(kind: &ServerKind, server: SocketAddr) -> io::Result<bool> {
    let Some((question, length, expected)) = kind.question else { return Ok(false) };
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(question)?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer.windows(expected.len()).any(|bytes| bytes == expected))
}

impl ClientKind {
    /// Waits until a client has ended, and reads what it reports.
    pub fn report(&self, mut client: Process, stop: &Stop) -> Result<Figures> {
        until(CLIENT_GRACE, || stop.check().map(|()| (!client.is_running()).then_some(())))?;
        let row = ROWS.iter().find(|row| row.0 == self.name);
        client.wait("report", Duration::ZERO, |output| row?.4(output))
    }
}

/// A running `weir run`, the same program that a user runs. Dropping it asks it to end, so that it puts
/// everything back.
pub struct Daemon {
    pub process: Process,
    pub attach: String,
    pub counters: CountersReader,
}

/// What the daemon says once it protects: how the gate is attached, and its counters' map.
fn protected(said: &str) -> Option<(String, u32)> {
    let ready: Value = said.lines().find_map(|line| serde_json::from_str(line).ok())?;
    // It may protect an egress, too.
    let interfaces = ready["interfaces"].as_array()?;
    let interface = interfaces.iter().find(|each| each["interface"] == SUT_INTERFACE)?;
    let counters = u32::try_from(interface["counters_map_id"].as_u64()?).ok()?;
    Some((interface["attach"].as_str()?.to_owned(), counters))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::table::MEMCACHED;
    use super::*;

    #[test]
    fn versions_are_read_from_what_each_program_prints() {
        for (printed, version) in [
            ("nginx version: nginx/1.22.1\n", "1.22.1"),
            ("NSD version 4.6.1\nWritten by NLnet Labs.\n", "4.6.1"),
            ("iperf 3.12 (cJSON 1.7.15)\nLinux", "3.12"),
            ("memcached 1.6.18\n", "1.6.18"),
            ("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", "4.1.0-3+b2"),
            ("DNS Performance Testing Tool\nVersion 2.10.0\n", "2.10.0"),
            ("memaslap v1.0\n", "1.0"),
        ] {
            assert_eq!(version_in(printed), Some(version), "{printed}");
        }
        assert_eq!(version_in("command not found: 127"), None);
    }

    #[test]
    fn one_error_names_every_package() {
        let programs = ["apache", "sh", "freciar"].into();
        let error = check_installed(&programs).unwrap_err().to_string();
        assert!(error.starts_with("cannot find apache, freciar; apt-get install "), "{error}");
    }

    #[test]
    fn another_answer_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        for (answer, right) in [(b"VERSION 1", true), (b"ERROR\r\n\r\n", false)] {
            std::thread::scope(|scope| {
                scope.spawn(|| listener.accept().unwrap().0.write_all(answer).unwrap());
                assert_eq!(answers(&MEMCACHED, server).unwrap(), right);
            });
        }
    }
}

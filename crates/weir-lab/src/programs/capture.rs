//! Captures: real programs that write packets, counted by what they write.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use super::running::{Place, Running, Server, path_of};
use crate::apps::{Job, OWN, Order};
use crate::error::{Error, Result, cannot};
use crate::host::topology::SUT_INTERFACE;

/// Who captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureProgram {
    Tcpdump,
    /// `weir capture`, of this build.
    Weir,
    /// The same, in the driver.
    WeirNative,
    /// The same with its circuit breaker.
    WeirBreaker,
}

/// A capture of frames that all have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureKind {
    pub program: CaptureProgram,
    /// Files on a disk, two at a time of 100 MB; else `/dev/null`.
    pub disk: bool,
    /// Bytes of a frame.
    pub frame_len: u32,
}

impl CaptureKind {
    /// Executable, name, arguments, and what it says on standard error once it captures.
    fn row(self, directory: &Path) -> (PathBuf, &'static str, String, &'static str) {
        let file = match (self.program, self.disk) {
            (_, false) => "/dev/null".into(),
            (CaptureProgram::Tcpdump, true) => format!("{}/capture.pcap", directory.display()),
            (_, true) => format!("{}/capture.pcapng", directory.display()),
        };
        match self.program {
            CaptureProgram::Tcpdump => {
                let rotation = if self.disk { "-C 100 -W 2 -Z root" } else { "" };
                let arguments = format!("-i {SUT_INTERFACE} -w {file} {rotation}");
                (path_of("tcpdump").unwrap_or_default(), "tcpdump", arguments, "listening on")
            }
            CaptureProgram::Weir | CaptureProgram::WeirNative | CaptureProgram::WeirBreaker => {
                let rotation = if self.disk { "--rotate-size 100M --keep 2" } else { "" };
                let attach = match self.program {
                    CaptureProgram::WeirNative => "--attach native",
                    CaptureProgram::WeirBreaker => "--attach native --circuit-breaker",
                    _ => "",
                };
                let arguments = format!("capture -i {SUT_INTERFACE} -w {file} {rotation} {attach}");
                (OWN.into(), "weir", arguments, "Ctrl-C ends it")
            }
        }
    }

    /// Bytes that it writes for a packet: a record of pcap has 16 bytes before the frame; an enhanced packet block of
    /// pcapng 28 before it and 4 behind, and pads it to a multiple of 4.
    fn record_len(self) -> u64 {
        let len = u64::from(self.frame_len);
        match self.program {
            CaptureProgram::Tcpdump => 16 + len,
            _ => 32 + len.next_multiple_of(4),
        }
    }
}

impl Server {
    /// Starts a capture, and waits until it captures.
    pub fn capture(kind: CaptureKind, place: &Place<'_>) -> Result<Self> {
        // What is in the lab's own directory is in memory.
        let parent = if kind.disk { Path::new("/var/tmp") } else { place.directory };
        // Of no name that somebody else could have prepared.
        let directory = TempDir::with_prefix_in("weir-lab-capture-", parent);
        let directory = directory.map_err(cannot("create a directory in", parent.display()))?;
        let (path, name, arguments, ready) = kind.row(directory.path());
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        let order = Order::new(place.netns, place.cpu, Job::Program(path, name.into(), arguments));
        let log = directory.path().join("log");
        let mut running = Running::spawn(order, Signal::INT, name.to_owned(), log)?;
        running.wait("capture", |_, says| says.contains(ready).then_some(()))?;
        let pids = vec![running.pid()];
        Ok(Self { _running: running, pids, capture: Some((kind, directory)) })
    }

    /// How many packets a capture has written, by the kernel's count of bytes (proc_pid_io(5)): it writes nothing
    /// else to speak of, in pieces of up to 256 kB.
    pub fn written(&self) -> Result<Option<u64>> {
        let Some((kind, _)) = &self.capture else { return Ok(None) };
        let path = format!("/proc/{}/io", self.pids[0]);
        let text = std::fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
        let bytes: u64 = line.and_then(|number| number.parse().ok()).ok_or_else(|| {
            let remedy = "is this kernel without task I/O accounting?";
            Error::refused(format!("{path} lacks wchar"), remedy)
        })?;
        Ok(Some(bytes / kind.record_len()))
    }
}

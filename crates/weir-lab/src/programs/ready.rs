//! Programs that say when they are ready: captures, which are counted by what they write, and weir itself.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use weir_bpf::counters::CountersReader;
use weir_bpf::units::Nice;

use super::running::{Place, Running, WEIR};
use crate::arm::DaemonSpec;
use crate::error::{Error, Result, cannot};
use crate::host::process::{Process, START_DEADLINE};
use crate::host::topology::{CAPTURE, CAPTURES, EGRESS, SUT_INTERFACE};

/// What `weir` says once it captures, or its walls stand.
const WEIR_IS_READY: &str = "Ctrl-C ends it";

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
    /// Bytes that it writes for a packet: a record of pcap has 16 bytes before the frame; an enhanced packet block of
    /// pcapng 28 before it and 4 behind, and pads it to a multiple of 4.
    fn record_len(self) -> u64 {
        let len = u64::from(self.frame_len);
        if self.weir.is_some() { 32 + len.next_multiple_of(4) } else { 16 + len }
    }
}

impl Running {
    pub fn capture(kind: CaptureKind, place: &Place<'_>) -> Result<Self> {
        // What is in the lab's own directory is in memory.
        let parent = if kind.disk { Path::new(CAPTURES) } else { &place.directory };
        // Of no name that somebody else could have prepared.
        let directory = TempDir::with_prefix_in(CAPTURE, parent);
        let directory = directory.map_err(cannot("create a directory in", parent.display()))?;
        let place = &Place { directory: directory.path().to_owned(), ..*place };
        let (name, command, rotation, says) = match kind.weir {
            None => ("tcpdump", String::new(), "-C 100 -W 2 -Z root", "listening on"),
            Some(more) => {
                (WEIR, format!("capture {more}"), "--rotate-size 100M --keep 2", WEIR_IS_READY)
            }
        };
        let (file, rotation) =
            if kind.disk { ("%dir/capture", rotation) } else { ("/dev/null", "") };
        let arguments = format!("{command} -i {SUT_INTERFACE} -w {file} {rotation}");
        let started = Self::start(place, name, (0, &arguments), |said| said.contains(says))?;
        Ok(Self { capture: Some((kind, directory)), ..started })
    }

    /// Starts a screen with one rule, which accepts all that the host forwards. When it ends it takes its walls away.
    pub fn screen(more: &str, place: &Place<'_>) -> Result<Self> {
        let rules = place.directory.join("rules");
        fs::write(&rules, "accept\n").map_err(cannot("write", rules.display()))?;
        // One that fails closed would leave its walls.
        let arguments = format!(
            "screen %dir/rules --in {SUT_INTERFACE} --out {EGRESS} --attach native --fail open {more}"
        );
        Self::start(place, WEIR, (0, &arguments), |said| said.contains(WEIR_IS_READY))
    }

    /// How many packets a capture has written, by the kernel's count of bytes (proc_pid_io(5)): it writes nothing
    /// else to speak of, in pieces of up to 256 kB.
    pub fn written(&self) -> Result<Option<u64>> {
        let Some((kind, _)) = &self.capture else { return Ok(None) };
        let path = format!("/proc/{}/io", self.pids[0]);
        let text = fs::read_to_string(&path).map_err(cannot("read", &path))?;
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
        let bytes: u64 = line.and_then(|number| number.parse().ok()).ok_or_else(|| {
            let remedy = "is this kernel without task I/O accounting?";
            Error::refused(format!("{path} lacks wchar"), remedy)
        })?;
        Ok(Some(bytes / kind.record_len()))
    }
}

/// A running `weir run`, the same program that a user runs. Dropping it asks it to end, so that it puts
/// everything back.
pub struct Daemon {
    pub process: Process,
    pub attach: String,
    pub counters: CountersReader,
}

impl Daemon {
    /// Protects a host's interface, with everything on one CPU, and waits until it is protected.
    pub fn start(spec: &DaemonSpec, place: &Place<'_>) -> Result<Self> {
        let cpus = place.cpu.to_string();
        let mut arguments = vec!["run", "--json", "--quiet", "--cpus", &cpus];
        // What the machine's own configuration says is nothing to the experiment.
        if !spec.options.iter().any(|option| option.starts_with("--config")) {
            arguments.extend(["--config", "/dev/null"]);
        }
        arguments.extend(spec.options.iter().map(String::as_str));
        arguments.push(SUT_INTERFACE);
        let words = arguments.into_iter().map(str::to_owned).collect();
        let mut process = place.start(WEIR, spec.path(), words, Nice(0))?;
        let (attach, counters) = process.wait("come up", START_DEADLINE, protected)?;
        Ok(Self { process, attach, counters: CountersReader::open(counters)? })
    }
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

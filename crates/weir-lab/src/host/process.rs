//! Starting workers and the daemon, and ending them.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::Deserialize;
use weir_bpf::counters::CountersReader;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::units::{CpuId, Nanos, Nice};

use super::topology::SUT_INTERFACE;
use crate::apps::slots;
use crate::arm::DaemonSpec;
use crate::error::{Error, Result};

const START_DEADLINE: Duration = Duration::from_secs(10);
const STOP_DEADLINE: Duration = Duration::from_secs(5);

fn command(netns: &Path, cpu: CpuId) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("lab-worker").arg("--parent").arg(std::process::id().to_string());
    command.arg("--netns").arg(netns).arg("--cpu").arg(cpu.0.to_string());
    // It leaves the terminal's session itself (`worker::run`): Ctrl-C is for the controller, which
    // ends them in order.
    command.stdin(Stdio::null());
    command
}

/// Runs another `weir` command in a namespace, on a CPU, and reads the JSON that it prints.
///
/// # Errors
/// When it fails, or prints something else.
pub fn ask_weir(
    netns: &Path,
    cpu: CpuId,
    spec: &DaemonSpec,
    arguments: &[&str],
) -> Result<serde_json::Value> {
    let object = format!("weir {}", arguments.join(" "));
    let mut command = command(netns, cpu);
    command.arg("exec").args(binary(spec)).arg("--").args(arguments).stderr(Stdio::inherit());
    let output = command.output().map_err(|source| Error::io("run", object.clone(), source))?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        Error::refused(
            format!("`{object}` printed no JSON ({}): {error}", output.status),
            "its own message is above",
        )
    })
}

/// A worker and the memory that it counts in. Dropping it kills it.
pub struct Worker {
    /// None of one that ends with the worker that started it.
    child: Option<Child>,
    pid: Pid,
    shared: SharedCounters,
}

impl Worker {
    /// Starts a worker in a namespace and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start; it says why on standard error.
    pub fn start(netns: &Path, cpu: CpuId, role: &[String]) -> Result<Self> {
        let shared = SharedCounters::create("weir-lab", slots::LEN)?;
        let name = role.first().cloned().unwrap_or_default();
        let mut child = command(netns, cpu)
            .arg("--shared")
            .arg(shared.path())
            .args(role)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|source| Error::io("start", name.clone(), source))?;
        let pid = Pid::from_child(&child);
        match wait_until_ready(&mut child, &shared, &name) {
            Ok(()) => Ok(Self { child: Some(child), pid, shared }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Starts a worker that starts these, each with a nice value, in its own session; it comes first,
    /// and the others end with it.
    ///
    /// # Errors
    /// As [`Worker::start`].
    pub fn start_session(
        netns: &Path,
        cpu: CpuId,
        members: &[(Nice, Vec<String>)],
    ) -> Result<(Self, Vec<Self>)> {
        let mut role = vec!["session".to_owned()];
        let mut shared = vec![];
        for (nice, words) in members {
            let memory = SharedCounters::create("weir-lab", slots::LEN)?;
            role.push(format!("--member={nice} {} {}", memory.path().display(), words.join(" ")));
            shared.push(memory);
        }
        let mut leader = Self::start(netns, cpu, &role)?;
        let mut workers = vec![];
        for (shared, (_, words)) in shared.into_iter().zip(members) {
            if let Some(child) = &mut leader.child {
                wait_until_ready(child, &shared, &words[0])?;
            }
            let number = shared.get(slots::PID).load(Ordering::Relaxed);
            let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| did_not_start(&words[0]))?;
            workers.push(Self { child: None, pid, shared });
        }
        Ok((leader, workers))
    }

    /// Its memory; see [`slots`].
    pub fn shared(&self) -> &SharedCounters {
        &self.shared
    }

    /// Packets that it has received.
    pub fn delivered(&self) -> u64 {
        self.count(slots::DELIVERED)
    }

    /// One of its counters.
    pub fn count(&self, slot: usize) -> u64 {
        self.shared.get(slot).load(Ordering::Relaxed)
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Ends it, and returns once the kernel has closed what it had open.
    pub fn end(&self) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = kill_process(self.pid(), Signal::KILL);
        let _ = waitid(WaitId::Pid(self.pid()), ended);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until a worker is ready, for as long as the process lives that it is, or that starts it.
fn wait_until_ready(child: &mut Child, shared: &SharedCounters, name: &str) -> Result<()> {
    let deadline = Instant::now() + START_DEADLINE;
    while shared.get(slots::READY).load(Ordering::Acquire) == 0 {
        let ended = child.try_wait().map_err(|source| Error::io("wait for", name, source))?;
        if ended.is_some() || Instant::now() > deadline {
            return Err(did_not_start(name));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn did_not_start(name: &str) -> Error {
    Error::refused(format!("the lab's {name} process did not start"), "its own message is above")
}

/// A program that is not weir's, in a namespace. Dropping it asks it to end, and waits.
pub struct Program(Child);

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// When there is no process to be had; that the program is not there shows only in its end.
    pub fn start(netns: &Path, cpu: CpuId, arguments: &[String]) -> Result<Self> {
        let child = command(netns, cpu)
            .args(["program", "--"])
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|source| Error::io("start", arguments.join(" "), source))?;
        Ok(Self(child))
    }

    /// The same, with what it prints, errors too, in a file.
    ///
    /// # Errors
    /// As [`Program::start`], or when the file cannot be made.
    pub fn start_to(netns: &Path, cpu: CpuId, arguments: &[String], log: &Path) -> Result<Self> {
        let failed = |source| Error::io("create", log.display().to_string(), source);
        let file = std::fs::File::create(log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        let child = command(netns, cpu)
            .args(["program", "--"])
            .args(arguments)
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|source| Error::io("start", arguments.join(" "), source))?;
        Ok(Self(child))
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// The first line that `weir run --json` prints.
#[derive(Debug, Deserialize)]
struct Ready {
    event: String,
    interfaces: Vec<ReadyInterface>,
}

#[derive(Debug, Deserialize)]
struct ReadyInterface {
    attach: String,
    counters_map_id: u32,
}

/// A running `weir run`, the same program that a user runs. Dropping it ends it.
pub struct Daemon {
    child: Child,
    /// How its gate is attached.
    pub attach: String,
    /// Its gate's counters.
    pub counters: CountersReader,
}

/// How `exec` is told of another executable.
fn binary(spec: &DaemonSpec) -> Vec<std::ffi::OsString> {
    spec.binary.iter().flat_map(|path| ["--binary".into(), path.into()]).collect()
}

impl Daemon {
    /// Protects a host's interface, with everything on one CPU, and waits until it is protected.
    ///
    /// # Errors
    /// When it does not come up; it says why on standard error.
    pub fn start(netns: &Path, cpu: CpuId, spec: &DaemonSpec) -> Result<Self> {
        // What the machine's own configuration says is nothing to the experiment.
        let cpus = cpu.to_string();
        let arguments: Vec<&str> =
            ["run", "--config", "/dev/null", "--json", "--quiet", "--cpus", &cpus]
                .into_iter()
                .chain(spec.options.iter().map(String::as_str))
                .chain([SUT_INTERFACE])
                .collect();
        let object = || format!("weir {}", arguments.join(" "));
        let mut child = command(netns, cpu)
            .arg("exec")
            .args(binary(spec))
            .arg("--")
            .args(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::io("start", object(), source))?;
        let ready = read_ready(&mut child);
        let Some(interface) = ready else {
            end(&mut child);
            let mut message = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut message);
            }
            return Err(Error::refused(
                format!("`{}` did not come up", object()),
                format!("it says: {}", message.trim()),
            ));
        };
        match CountersReader::open(interface.counters_map_id) {
            Ok(counters) => Ok(Self { child, attach: interface.attach, counters }),
            Err(error) => {
                end(&mut child);
                Err(error.into())
            }
        }
    }
}

impl Daemon {
    /// CPU time that its threads have had.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_time(&self) -> Result<Nanos> {
        let path = format!("/proc/{}/task", self.child.id());
        let failed = |source| Error::io("list", path.clone(), source);
        let mut sum = 0;
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            // A thread that ends meanwhile takes what it had with it.
            let time = number.and_then(Pid::from_raw).map(sched::cpu_time);
            sum += time.and_then(std::result::Result::ok).map_or(0, |time| time.0);
        }
        Ok(Nanos(sum))
    }
}

/// The daemon's first line, or `None` if none comes in time.
fn read_ready(child: &mut Child) -> Option<ReadyInterface> {
    let mut reader = BufReader::new(child.stdout.take()?);
    let mut fds = [PollFd::new(reader.get_ref(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: START_DEADLINE.as_secs() as i64, tv_nsec: 0 };
    // Interrupted by Ctrl-C: the daemon is ended, and the controller sees why.
    if poll(&mut fds, Some(&timeout)) != Ok(1) {
        return None;
    }
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    // It prints nothing more under --quiet, but its pipe must stay open.
    child.stdout = Some(reader.into_inner());
    let ready: Ready = serde_json::from_str(&line).ok()?;
    (ready.event == "ready").then_some(ready)?.interfaces.into_iter().next()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Asks a process to end, so that it puts everything back; kills it if it does not.
fn end(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + STOP_DEADLINE;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
}

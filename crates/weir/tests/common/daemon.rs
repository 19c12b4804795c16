//! A `weir run` that protects a test's network.

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::{
    ConfigFile, NEAR, Network, Owned, PATIENCE, TRIES_MAX, WEIR, isolation, wait, wait_until,
};

/// A running `weir run near ...`. Dropping it kills it. Its gate is in the driver, as on a NIC, and threads
/// poll, as on one CPU, unless the test says where, and who.
pub struct Daemon {
    child: Owned,
    lines: Receiver<String>,
    messages: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts it, and waits until it protects the interface. Its gate looks at every packet.
    pub fn start(network: &Network, options: &[&str]) -> Self {
        Self::start_sleepy(network, &[&["--awake"], options].concat())
    }

    /// The same, with a gate that sleeps while nothing is wrong.
    pub fn start_sleepy(network: &Network, options: &[&str]) -> Self {
        Self::start_by(Command::new(WEIR), network, options)
    }

    /// The same, by a command that takes its arguments.
    pub fn start_by(command: Command, network: &Network, options: &[&str]) -> Self {
        let daemon = Self::spawn_by(command, network, options);
        let ready: Value = match daemon.next() {
            Ok(line) => serde_json::from_str(&line).unwrap(),
            Err(_) => panic!("weir did not get ready: {:?}", daemon.end()),
        };
        assert_eq!(ready["event"], "ready");
        assert_eq!(ready["interfaces"][0]["interface"], NEAR);
        let interfaces = ready["interfaces"].as_array().map(Vec::len);
        let published = || Some(network.published().len()) == interfaces;
        wait_until("every interface's status is published", published);
        daemon
    }

    /// The same, without waiting for anything: its first line says that it is ready.
    pub fn spawn(network: &Network, options: &[&str]) -> Self {
        Self::spawn_by(Command::new(WEIR), network, options)
    }

    /// The same, with a `/run/weir` that nobody else sees, of such a size; and that directory.
    pub fn start_apart(network: &Network, size: impl Display, options: &[&str]) -> (Self, PathBuf) {
        std::fs::create_dir_all("/run/weir").unwrap();
        let script =
            format!("mount -t tmpfs -o mode=755,size={size} none /run/weir && exec {WEIR} \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        let daemon = Self::spawn_by(command, network, options);
        daemon.line();
        let dir = format!("/proc/{}/root/run/weir", daemon.pid().as_raw_nonzero());
        (daemon, dir.into())
    }

    /// As [`Daemon::start_sleepy`], for whom these CPUs are online, and no others.
    pub fn start_told(online: &ConfigFile, network: &Network, options: &[&str]) -> Self {
        const ONLINE: &str = "/sys/devices/system/cpu/online";
        let script = format!("mount --bind {} {ONLINE} && exec {WEIR} \"$@\"", online.path());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        Self::start_by(command, network, options)
    }

    /// The same, in a control group.
    pub fn start_in(group: &Path, network: &Network, options: &[&str]) -> Self {
        let daemon = Self::spawn_in(group, network, options);
        assert_eq!(daemon.line()["event"], "ready");
        daemon
    }

    /// The same, without waiting for anything.
    pub fn spawn_in(group: &Path, network: &Network, options: &[&str]) -> Self {
        let procs = group.join("cgroup.procs");
        let script = format!("echo 0 > {} && exec {WEIR} \"$@\"", procs.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]);
        Self::spawn_by(command, network, options)
    }

    fn spawn_by(mut command: Command, network: &Network, options: &[&str]) -> Self {
        command.args(["run", NEAR, "--json"]).args(options);
        if !options.contains(&"--attach") {
            command.args(["--attach", "native"]);
        }
        if !["--napi", "--config"].iter().any(|said| options.contains(said)) {
            command.args(["--napi", "threads"]);
        }
        command.args(isolation(options));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = network.near.run(|| Owned::start(&mut command)).unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let messages = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&messages);
        let listener = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                heard.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
        Self { child, lines, messages, listener: Some(listener) }
    }

    pub fn pid(&self) -> Pid {
        self.child.pid()
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Has it read its file again, in which this is now.
    pub fn reload(&self, file: &ConfigFile, text: &str) {
        file.write(text);
        self.signal(Signal::HUP);
    }

    /// Waits until it is ready, or ends; whether it does in time.
    pub fn has_begun(&self) -> bool {
        self.lines.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout)
    }

    /// The next status line.
    pub fn line(&self) -> Value {
        serde_json::from_str(&self.next().unwrap()).unwrap()
    }

    /// The same, or that there is none. To load its programs takes seconds of CPU time, whoever else wants it.
    fn next(&self) -> Result<String, TryRecvError> {
        let mut next = Err(TryRecvError::Empty);
        wait(TRIES_MAX, || {
            next = self.lines.try_recv();
            next != Err(TryRecvError::Empty)
        });
        next
    }

    /// Waits until it has said this.
    pub fn said(&self, message: &str) {
        let said = || self.messages.lock().unwrap().contains(message);
        wait_until(&format!("weir says {message:?}"), said);
    }

    /// The same of what it says from here on, `heard` being the length of what it had said then.
    pub fn said_since(&self, heard: usize, message: &str) {
        let said = || self.messages.lock().unwrap()[heard..].contains(message);
        wait_until(&format!("weir says {message:?} again"), said);
    }

    /// The length of what it has said.
    pub fn heard(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    /// Waits until it has ended; its exit status and messages.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.end();
        self.listener.take().unwrap().join().unwrap();
        let messages = self.messages.lock().unwrap().clone();
        (status, messages)
    }

    /// Ctrl-C, and its last words.
    pub fn interrupt(self) -> String {
        self.signal(Signal::INT);
        let (status, messages) = self.end();
        assert!(status.success(), "{messages}");
        messages
    }

    /// `kill -9`, reaped.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A new network, and a `weir run` with these options that protects it.
pub fn protected(options: &[&str]) -> (Network, Daemon) {
    let network = Network::new();
    let daemon = Daemon::start(&network, options);
    (network, daemon)
}

/// The same where every packet is the test's own.
pub fn protected_ipv4(options: &[&str]) -> (Network, Daemon) {
    let network = Network::ipv4_only();
    let daemon = Daemon::start(&network, options);
    (network, daemon)
}

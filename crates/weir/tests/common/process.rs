//! Processes of tests, and the CPUs that a test has for itself.

use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use weir_bpf::sys::sched;
use weir_bpf::units::CpuId;

use super::wait_until;

/// A process of the test's own, ended with it.
pub struct Owned(pub Child);

impl Owned {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// On this CPU alone.
    pub fn start_on(cpu: CpuId, command: &mut Command) -> Self {
        let process = Self::start(command);
        sched::set_affinity(process.pid(), &[cpu]).unwrap();
        process
    }

    /// As by nohup(1): a program that ignores SIGHUP, of which the arguments are missing.
    pub fn ignoring_hangups(program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"trap "" HUP; exec "$0" "$@""#, program]);
        command
    }

    /// One that never sleeps.
    pub fn compute_bound(cpu: CpuId) -> Self {
        Self::start_on(cpu, Command::new("sh").args(["-c", "while :; do :; done"]))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// What it says on standard error, which is a pipe, until it has ended.
    pub fn last_words(&mut self) -> String {
        let mut said = String::new();
        self.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        said
    }

    /// Ends it, as systemd does.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.end().success());
    }

    /// Waits until it has ended.
    pub fn end(&mut self) -> ExitStatus {
        wait_until("it has ended", || self.try_wait().unwrap().is_some());
        self.wait().unwrap()
    }

    /// What it says first on standard error, which is a pipe; nothing if it has not said anything by then.
    pub fn first_line(&mut self, limit: Duration) -> String {
        let errors = self.stderr.take().unwrap();
        let (say, said) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(errors).read_line(&mut line);
            let _ = say.send(line);
        });
        said.recv_timeout(limit).unwrap_or_default()
    }
}

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A terminal: who reads it, and the end that programs write to.
pub fn terminal() -> (OwnedFd, OwnedFd) {
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&reader).unwrap();
    unlockpt(&reader).unwrap();
    let name = ptsname(&reader, Vec::new()).unwrap();
    let end = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (reader, end)
}

/// The machine's CPUs, of one test at a time.
pub struct Cpus {
    /// Where packets are received.
    pub cpu: CpuId,
    /// Where they come from: another CPU if there is one.
    pub elsewhere: CpuId,
    _alone: MutexGuard<'static, ()>,
}

impl Cpus {
    pub fn take() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus = sched::online_cpus().unwrap();
        Self { cpu: *cpus.last().unwrap(), elsewhere: cpus[0], _alone: alone }
    }
}

//! The guardian: a small process that outlives a killed daemon and puts back what it had turned.
//!
//! It is started before the first knob is turned, holds a pidfd of the daemon and sleeps until that
//! says that the daemon has ended. A daemon that has put everything back itself dismisses it.
//!
//! A governor beats, into the guardian's standard input. A pause longer than
//! [`Beat::patience`] means that nobody moves the weights any more (the daemon is
//! stopped, or waits for memory), and the guardian gives governed threads a weight that can stay.
//!
//! It leaves the daemon's control group, so that what ends or freezes that group does not end or freeze both.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::signal::{
    SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ,
};

use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::units::Nice;

use crate::cgroup;
use crate::console::Console;
use crate::error::{Error, Result};
use crate::governor::Beat;
use crate::host::Host;
use crate::key::Key;
use crate::lazy;
use crate::lock::{Attempt, Lock, Purpose};
use crate::ready;
use crate::restore::{self, Restored};
use crate::signals;
use crate::statefile::State;

/// What the guardian writes when it is ready.
const READY: u8 = b'+';
/// How long it may take to get ready: it needs little CPU time, but a host in livelock may leave it hardly any. Less
/// than the watchdog's time, as a daemon that runs waits for it, too.
const READY_MAX: Duration = Duration::from_secs(60);

/// A running guardian, seen from the daemon.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    /// Readable when the guardian has ended.
    pub pidfd: OwnedFd,
}

impl Guardian {
    /// Starts a guardian for these interfaces, and waits until it watches this process.
    ///
    /// # Errors
    /// If it does not within [`READY_MAX`], or before this process is told to stop.
    pub fn start(keys: &[Key], stop: &UnixStream) -> Result<Self> {
        let failed = |source| Error::unstarted("start the guardian process", source);
        let mut child = Command::new("/proc/self/exe")
            .arg0("weir")
            .args(["guardian", "--parent", &std::process::id().to_string()])
            .args(keys.iter().map(Key::to_string))
            .current_dir("/")
            // What it says is not the daemon's.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pidfd = pid
            .ok_or(Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|errno| failed(errno.into()))?;
        if let Err(error) = wait_until_ready(&mut child, stop, READY_MAX) {
            // It is ours and not yet reaped, so its number means no other process.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Self { child, pidfd })
    }

    /// Where the governor is to beat; `None` if that has been asked before.
    pub fn take_beats(&mut self) -> Option<ChildStdin> {
        // A guardian that does not read is not to hold the governor up.
        let beats = self.child.stdin.take()?;
        ioctl_fionbio(&beats, true).ok().map(|()| beats)
    }

    /// Its process number.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Ends it, after everything has been put back: nothing is left to guard.
    pub fn dismiss(mut self) {
        // It ignores polite signals. Not yet reaped, its number means no other process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Reaps it after it has ended.
    pub fn reap(mut self) {
        let _ = self.child.wait();
    }
}

fn wait_until_ready(child: &mut Child, stop: &UnixStream, most: Duration) -> Result<()> {
    let failed = |errno| Error::system("wait for the guardian process", errno);
    let mut stdout = child.stdout.take().ok_or_else(|| failed(Errno::BADF))?;
    let ready = ready::wait([stdout.as_fd(), stop.as_fd()], Some(most)).map_err(failed)?;
    if !ready[0] {
        let what = match ready[1] {
            true => "weir was told to stop before the guardian process was ready".into(),
            false => format!("the guardian process was not ready within {} s", most.as_secs()),
        };
        return Err(Error::refused(what, "start weir again"));
    }
    let mut answer = [0];
    if stdout.read_exact(&mut answer).is_ok() && answer == [READY] {
        return Ok(());
    }
    Err(Error::refused(
        "the guardian process ended before it was ready",
        "run `weir guardian --parent $$` to see its error",
    ))
}

/// The guardian's own life. `parent` is the daemon that started it.
///
/// # Errors
/// If it cannot get ready, or something cannot be put back; the state file then remains.
pub fn run(parent: i32, keys: &[Key]) -> Result<()> {
    leave_the_terminal()?;
    cgroup::leave();
    // A daemon that watches has little weight (see `daemon`); restoring is not to wait for the flood. Nor may it be
    // real-time: whoever writes these attributes may spin (see `Deferral`).
    let _ = sched::set_weight(rustix::thread::gettid(), SchedPolicy::Normal, Nice(0), None);
    let daemon = watch_parent(parent)?;
    // All that can fail is opened now, while the daemon can still be told.
    let host = Host::open()?;
    if let Some(daemon) = daemon {
        report_ready()?;
        wait_for_end(&daemon, || leave_to_themselves(&host, keys))?;
    }
    let (mut failures, mut console) = (Vec::new(), Console::open());
    for key in keys {
        match restore_one(&host, key) {
            Ok(restored) => restored.iter().for_each(|done| console.say(&done.to_string())),
            Err(Error::NotRestored(each)) => failures.extend(each),
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures.extend(lazy::remove_left(&host.dir).err().map(|error| error.to_string()));
    if failures.is_empty() { Ok(()) } else { Err(Error::NotRestored(failures)) }
}

/// Ctrl-C, a closed terminal and `kill` of the process group are for the daemon.
fn leave_the_terminal() -> Result<()> {
    // Refused to the leader of a process group, as when run by hand from a shell.
    match rustix::process::setsid() {
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(Error::system("leave the terminal's session", errno)),
    }
    // For the reader of `ps`: started through /proc/self/exe, it would be called "exe".
    let _ = rustix::thread::set_name(c"weir-guardian");
    signals::ignore(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ])
}

/// A pidfd of the daemon; `None` if it has ended already. A number may by now belong to another
/// process, but not that of a parent: while the daemon is our parent its number is its own, both
/// before and after the pidfd is opened.
fn watch_parent(parent: i32) -> Result<Option<OwnedFd>> {
    let is_parent = |pid: Pid| rustix::process::getppid() == Some(pid);
    let Some(pid) = Pid::from_raw(parent).filter(|pid| is_parent(*pid)) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(daemon) if is_parent(pid) => Ok(Some(daemon)),
        Ok(_) | Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(Error::system("watch the daemon", errno)),
    }
}

fn report_ready() -> Result<()> {
    let failed = |source| Error::system("report to the daemon", source);
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.map_err(|source| Error::system("open /dev/null", source))?;
    std::io::stdout().write_all(&[READY]).map_err(failed)?;
    std::io::stdout().flush().map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|errno| failed(errno.into()))
}

/// Calls `beatless` whenever beats that had begun stay out.
fn wait_for_end(daemon: &OwnedFd, beatless: impl Fn()) -> Result<()> {
    let mut stdin = Some(std::io::stdin());
    let mut last: Option<Beat> = None;
    loop {
        let fds = [daemon.as_fd()].into_iter().chain(stdin.as_ref().map(AsFd::as_fd));
        let ready = ready::wait(fds, last.map(Beat::patience));
        let ready = ready.map_err(|errno| Error::system("wait for the daemon's end", errno))?;
        if ready[0] {
            return Ok(());
        }
        if !ready.contains(&true) {
            // Again and again: it may have gone on for a moment that was too short for a beat.
            beatless();
            continue;
        }
        let mut beats = [0; 64];
        match rustix::io::read(std::io::stdin(), &mut beats) {
            // Of several the last counts.
            Ok(read @ 1..) => last = Some(Beat::of(beats[read - 1])),
            // The daemon is about to end, too.
            Ok(0) | Err(_) => (last, stdin) = (None, None),
        }
    }
}

/// While nobody governs: what cannot be set now is put back with the rest.
fn leave_to_themselves(host: &Host, keys: &[Key]) {
    for state in keys.iter().filter_map(|key| State::read(&host.dir, key).ok().flatten()) {
        // Two interfaces may have changed names meanwhile.
        let name = restore::present_name(host, &state).ok().flatten();
        for knob in &state.knobs {
            if name.is_some() || knob.is_of_a_thread() {
                let _ = knob.leave_to_itself(host, name.as_deref().unwrap_or_default());
            }
        }
    }
}

fn restore_one(host: &Host, key: &Key) -> Result<Option<Restored>> {
    match Lock::take(&host.dir, key, Purpose::Restore)? {
        Attempt::Held(lock) => restore::leftovers(host, key, &lock),
        // A new daemon was quicker, and has put back what it found.
        Attempt::Protected { .. } => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guardian_that_has_ended_is_told_from_one_that_is_not_ready_yet() {
        let (stop, mut signal) = UnixStream::pair().unwrap();
        let refusal = |script: &str, most: Duration| {
            let mut shell = Command::new("sh");
            let mut child = shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
            let ready = wait_until_ready(&mut child, &stop, most);
            let _ = child.kill();
            child.wait().unwrap();
            ready.map_or_else(|error| error.to_string(), |()| "none".into())
        };
        assert_eq!(refusal("printf +; exec sleep 60", READY_MAX), "none");
        for ended in [":", "printf -"] {
            assert!(refusal(ended, READY_MAX).contains("ended before it was ready"));
        }
        let slow = || refusal("exec sleep 60", Duration::from_secs(1));
        assert!(slow().contains("the guardian process was not ready within 1 s"));
        signal.write_all(&[0]).unwrap();
        assert!(slow().contains("told to stop before"));
    }
}

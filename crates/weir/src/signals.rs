//! The signals that the daemon obeys: to stop, and to read its configuration again.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

use crate::error::{Error, Result};
use crate::ready;

/// Caught signals.
pub struct Signals {
    /// Readable once the daemon is to stop.
    pub stop: UnixStream,
    /// Readable while a SIGHUP has not been heard.
    pub hangup: UnixStream,
    from_terminal: bool,
}

impl Signals {
    /// From now on a signal ends the loop, not the process.
    pub fn catch() -> Result<Self> {
        let failed = |source| Error::system("catch signals", source);
        let from_terminal = has_terminal() && !ignores_hangups();
        let stop = catch(&[SIGINT, SIGTERM, SIGQUIT])?;
        let hangup = register(&[SIGHUP])?;
        hangup.set_nonblocking(true).map_err(failed)?;
        Ok(Self { stop, hangup, from_terminal })
    }

    /// Hears every SIGHUP that has come so far.
    pub fn hear_hangups(&mut self) {
        let mut signals = [0; 64];
        while self.hangup.read(&mut signals).is_ok_and(|count| count > 0) {}
    }

    /// Whether a SIGHUP means that the terminal from which the daemon was started is gone, and with it
    /// whoever could stop the daemon there. Never if it was to outlive the terminal.
    pub fn terminal_is_gone(&self) -> bool {
        self.from_terminal && !has_terminal()
    }
}

/// Readable once one of them has come, which then has no other effect. A SIGHUP that is ignored stays so.
pub fn catch(signals: &[i32]) -> Result<UnixStream> {
    let ignored = ignores_hangups();
    let heard = signals.iter().copied().filter(|signal| *signal != SIGHUP || !ignored);
    register(&heard.collect::<Vec<_>>())
}

/// From now on these have no effect here, but still the usual one on what this process executes.
pub fn ignore(signals: &[i32]) -> Result<()> {
    let ignore = |signal| signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    let ignored = signals.iter().try_for_each(|signal| ignore(*signal).map(drop));
    ignored.map_err(|source| Error::system("ignore signals", source))
}

fn register(signals: &[i32]) -> Result<UnixStream> {
    // Only `weir screen` has a use for one of them; elsewhere they would end a process that tidies up at its end.
    // Past a limit of a file's size, a write is to fail.
    ignore(&[SIGUSR1, SIGUSR2, SIGXFSZ])?;
    let failed = |source| Error::system("catch signals", source);
    let (receiver, sender) = UnixStream::pair().map_err(failed)?;
    for signal in signals {
        let sender = sender.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(*signal, sender).map_err(failed)?;
    }
    Ok(receiver)
}

/// Whether one of the signals that were caught comes within this time.
pub fn comes(caught: &UnixStream, time: Duration) -> bool {
    ready::comes([caught.as_fd()], time)
}

/// Whether it was started by nohup(1) or the like. `SigIgn` in proc(5) has a bit for each signal from 1.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}

/// The kernel opens this for processes with a controlling terminal alone.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

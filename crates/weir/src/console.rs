//! What the daemon prints. A reader that has stopped reading must never stop the daemon: it would no
//! longer answer to signals, and nothing would be put back.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Standard output for status, standard error for messages.
#[derive(Debug, Default)]
pub struct Console {
    /// The reader of standard output has gone.
    deaf: bool,
}

impl Console {
    /// A message about what happens, on standard error.
    pub fn say(&mut self, message: &str) {
        let stderr = io::stderr();
        if takes_more(&stderr) {
            // There is no place left to report that the place to report to is gone.
            let _ = writeln!(stderr.lock(), "weir: {message}");
        }
    }

    /// A line of status, on standard output. Skipped while its reader is behind; none follow once the
    /// reader has gone.
    pub fn line(&mut self, line: &str) {
        let stdout = io::stdout();
        if self.deaf || !takes_more(&stdout) {
            return;
        }
        let mut stdout = stdout.lock();
        self.deaf = writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err();
    }
}

/// Whether a write of a line would not block: a pipe is writable while it has room for `PIPE_BUF`
/// bytes, a terminal while its output is not stopped.
fn takes_more(stream: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

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
        // There is no place left to report that the place to report to is gone.
        let _ = write_in_pieces(&mut io::stderr(), &format!("weir: {message}\n"));
    }

    /// A line of status, on standard output. Skipped while its reader is behind; none follow once the
    /// reader has gone.
    pub fn line(&mut self, line: &str) {
        if !self.deaf {
            self.deaf = write_in_pieces(&mut io::stdout(), &format!("{line}\n")).is_err();
        }
    }
}

/// What a pipe that is writable has room for: `PIPE_BUF`, linux/limits.h.
const PIECE_BYTES: usize = 4096;

/// As much of it as can be written without waiting, in pieces.
fn write_in_pieces(stream: &mut (impl Write + AsFd), text: &str) -> io::Result<()> {
    for piece in text.as_bytes().chunks(PIECE_BYTES) {
        if !takes_more(stream) {
            break;
        }
        stream.write_all(piece)?;
        stream.flush()?;
    }
    Ok(())
}

/// Whether a write of a line would not block: a pipe is writable while it has room for `PIPE_BUF`
/// bytes, a terminal while its output is not stopped.
fn takes_more(stream: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn nobody_waits_for_a_reader_who_does_not_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let long = "x".repeat(1 << 20);
        // Twice: the pipe is full by then.
        write_in_pieces(&mut writer, &long).unwrap();
        write_in_pieces(&mut writer, &long).unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert!(read.len() >= PIECE_BYTES && long.starts_with(&read), "{}", read.len());

        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        write_in_pieces(&mut writer, "x").unwrap_err();
    }
}

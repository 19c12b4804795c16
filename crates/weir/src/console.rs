//! What the daemon prints. A reader that has stopped reading must never stop the daemon: it would no
//! longer answer to signals, and nothing would be put back.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use weir_bpf::printable::printable;

use crate::error::Error;
use crate::status::SCHEMA;

/// What goes wrong is tried again each second, or every few; not heard of for so long, it is over.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// Standard output for status, standard error for messages.
#[derive(Debug, Default)]
pub struct Console {
    /// The reader of standard output has gone.
    deaf: bool,
    /// What he has not taken yet of the last line that was begun.
    rest: Vec<u8>,
    /// What goes wrong, and when it was last heard of.
    troubles: HashMap<String, Instant>,
}

/// What happened, for programs: a line of JSON.
#[derive(Serialize)]
struct Event<'a, T> {
    schema: u32,
    event: &'static str,
    #[serde(flatten)]
    what: &'a T,
}

impl Console {
    /// A message about what happens, on standard error.
    pub fn say(&mut self, message: &str) {
        // There is no place left to report that the place to report to is gone.
        let _ = write_in_pieces(&mut io::stderr(), as_said(message).as_bytes());
    }

    /// What goes wrong, once as long as it goes on. Several interfaces may fail in turn.
    pub fn trouble(&mut self, error: &Error) {
        let message = error.to_string();
        if self.is_new(&message, Instant::now()) {
            self.say(&message);
        }
    }

    fn is_new(&mut self, trouble: &str, now: Instant) -> bool {
        self.troubles.retain(|_, heard| now.duration_since(*heard) < OVER_AFTER);
        self.troubles.insert(trouble.into(), now).is_none()
    }

    /// An event, as a line of status.
    pub fn event(&mut self, event: &'static str, what: &impl Serialize) {
        // Plain structures of strings and numbers: there is nothing that could fail.
        if let Ok(line) = serde_json::to_string(&Event { schema: SCHEMA, event, what }) {
            self.line(&line);
        }
    }

    /// A line of status, on standard output. Skipped while its reader is behind; none follow once the
    /// reader has gone.
    pub fn line(&mut self, line: &str) {
        if !self.deaf {
            self.deaf = write_line(&mut io::stdout(), &mut self.rest, line).is_err();
        }
    }
}

/// Names of tables, interfaces and processes are in messages: no such name moves the cursor.
fn as_said(message: &str) -> String {
    let lines: Vec<String> = message.lines().map(|line| printable(line.as_bytes())).collect();
    format!("weir: {}\n", lines.join("\n"))
}

/// A line whole, or nothing of it: what could not be written goes before the next one, which is skipped if that
/// cannot, either.
fn write_line(stream: &mut (impl Write + AsFd), rest: &mut Vec<u8>, line: &str) -> io::Result<()> {
    let written = write_in_pieces(stream, rest)?;
    rest.drain(..written);
    if rest.is_empty() {
        rest.extend_from_slice(line.as_bytes());
        rest.push(b'\n');
        let written = write_in_pieces(stream, rest)?;
        rest.drain(..written);
        if written == 0 {
            rest.clear();
        }
    }
    Ok(())
}

/// What a pipe that is writable has room for: `PIPE_BUF`, linux/limits.h.
const PIECE_BYTES: usize = 4096;

/// As much of it as can be written without waiting, in pieces; how many bytes that were.
fn write_in_pieces(stream: &mut (impl Write + AsFd), text: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    for piece in text.chunks(PIECE_BYTES) {
        if !takes_more(stream) {
            break;
        }
        stream.write_all(piece)?;
        stream.flush()?;
        written += piece.len();
    }
    Ok(written)
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
    fn what_is_said_moves_no_cursor() {
        assert_eq!(as_said("table \x1b[2J\r\nmore"), "weir: table \\x1b[2J\nmore\n");
    }

    #[test]
    fn what_goes_wrong_is_said_once_while_it_goes_on() {
        let (mut console, begin) = (Console::default(), Instant::now());
        let mut said = |trouble, secs| console.is_new(trouble, begin + Duration::from_secs(secs));
        assert!(said("a", 0) && said("b", 0));
        assert!((1..90).all(|secs| !said("a", secs) && (secs >= 60 || !said("b", secs))));
        assert!(said("b", 120) && !said("a", 120) && said("a", 180));
    }

    #[test]
    fn nobody_waits_for_a_reader_who_does_not_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let long = "x".repeat(1 << 20);
        // Twice: the pipe is full by then.
        write_in_pieces(&mut writer, long.as_bytes()).unwrap();
        assert_eq!(write_in_pieces(&mut writer, long.as_bytes()).unwrap(), 0);
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert!(read.len() >= PIECE_BYTES && long.starts_with(&read), "{}", read.len());

        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        write_in_pieces(&mut writer, b"x").unwrap_err();
    }

    #[test]
    fn a_line_that_its_reader_takes_late_is_whole() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut rest = vec![];
        let (long, other) = ("x".repeat(100_000), "y".repeat(10_000));
        write_line(&mut writer, &mut rest, &long).unwrap();
        assert!(!rest.is_empty(), "a pipe takes 65,536 bytes");
        write_line(&mut writer, &mut rest, "skipped").unwrap();
        let mut read = vec![0; 65_536];
        reader.read_exact(&mut read).unwrap();
        write_line(&mut writer, &mut rest, &other).unwrap();
        assert!(rest.is_empty());
        drop(writer);
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), format!("{long}\n{other}\n"));
    }
}

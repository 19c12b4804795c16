//! What the daemon prints. A reader that has stopped reading must never stop the daemon: it would no
//! longer answer to signals, and nothing would be put back.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_bpf::printable::printable;

use crate::error::{Error, Result};
use crate::out;
use crate::status::SCHEMA;

/// What goes wrong is tried again each second, or every few; not heard of for so long, it is over.
pub const OVER_AFTER: Duration = Duration::from_secs(60);
/// How many lines wait for a reader: a status line for each of a hundred interfaces, and then some.
const WAITING_MAX: usize = 256;
/// How long the end waits for a reader who is behind.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// Standard output for status, standard error for messages. Dropping it waits a second at most for each of the two to
/// be read.
#[derive(Debug)]
pub struct Console {
    status: Printer,
    messages: Printer,
    /// A line of status could not be written.
    unwritten: Arc<AtomicBool>,
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

/// That, as a line without its end.
pub fn event_line(event: &'static str, what: &impl Serialize) -> String {
    // Plain structures of strings and numbers: there is nothing that could fail.
    let line = serde_json::to_string(&Event { schema: SCHEMA, event, what });
    out::plain_json(line.unwrap_or_default())
}

impl Console {
    /// This process's.
    pub fn open() -> Self {
        let unwritten = Arc::<AtomicBool>::default();
        let noted = Arc::clone(&unwritten);
        // By itself: only lines of status wait for it.
        let tell = move |error| {
            noted.store(true, Ordering::Relaxed);
            out::say(format_args!("weir: {error}"));
        };
        Self {
            status: Printer::start(io::stdout(), tell),
            // That it cannot be written to has nobody to be told to.
            messages: Printer::start(io::stderr(), drop),
            unwritten,
            troubles: HashMap::new(),
        }
    }

    /// A message about what happens, on standard error. Skipped while its reader is behind.
    pub fn say(&mut self, message: &str) {
        let said = as_said(message);
        match self.messages.lines {
            Some(_) => _ = self.messages.print(said),
            // There may be no more threads: then this is what there is to say.
            None => _ = io::stderr().write_all(said.as_bytes()),
        }
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
        self.line(&event_line(event, what));
    }

    /// A line of status, on standard output. Skipped while its reader is behind.
    pub fn line(&mut self, line: &str) {
        self.lines(line);
    }

    /// The same of several, with line feeds between them; whether they were not skipped.
    pub fn lines(&mut self, lines: &str) -> bool {
        self.status.print(format!("{lines}\n"))
    }

    /// Whether somebody gets the lines of status, as far as is known.
    pub fn is_read(&self) -> bool {
        !self.status.unread.load(Ordering::Relaxed)
    }

    /// Waits as dropping it does.
    ///
    /// # Errors
    /// If a line of status could not be written; the cause was told then.
    pub fn end(self) -> Result<()> {
        drop(self.status);
        if !self.unwritten.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::refused(
            "what was printed on standard output is not complete",
            "make room where it goes, and start again",
        ))
    }
}

/// Names of tables, interfaces and processes are in messages: no such name moves the cursor.
fn as_said(message: &str) -> String {
    let lines: Vec<String> = message.lines().map(|line| printable(line.as_bytes())).collect();
    format!("weir: {}\n", lines.join("\nweir: "))
}

/// A thread that prints, because nothing else may wait for a reader: a terminal that says it is writable need not have
/// room for a line, nor need a pipe that others write to, too.
#[derive(Debug)]
struct Printer {
    /// `None` at the end, and where no thread could be started.
    lines: Option<SyncSender<String>>,
    /// Disconnected once everything is printed.
    printing: Receiver<()>,
    /// The last line could not be written, or nobody reads any more.
    unread: Arc<AtomicBool>,
}

impl Printer {
    /// That it cannot be written to is told once as long as it goes on.
    fn start(
        mut stream: impl Write + Send + 'static,
        tell: impl Fn(Error) + Send + 'static,
    ) -> Self {
        let (lines, waiting) = sync_channel::<String>(WAITING_MAX);
        let (prints, printing) = channel::<()>();
        let unread = Arc::<AtomicBool>::default();
        let noted = Arc::clone(&unread);
        let print = move || {
            let _prints = prints;
            let mut fails = false;
            for line in waiting {
                let written = stream.write_all(line.as_bytes()).and_then(|()| stream.flush());
                let written = out::or_gone(written);
                noted.store(!matches!(written, Ok(true)), Ordering::Relaxed);
                match written {
                    Ok(_) => fails = false,
                    Err(_) if fails => {}
                    Err(error) => {
                        fails = true;
                        tell(error);
                    }
                }
            }
        };
        let printing_begins = thread::Builder::new().name("weir-console".into()).spawn(print);
        Self { lines: printing_begins.ok().map(|_| lines), printing, unread }
    }

    /// Not if the reader is behind.
    fn print(&self, line: String) -> bool {
        self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok())
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.printing.recv_timeout(LAST_WORDS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_is_said_moves_no_cursor() {
        assert_eq!(as_said("table \x1b[2J\r\nmore"), "weir: table \\x1b[2J\nweir: more\n");
    }

    #[test]
    fn what_goes_wrong_is_said_once_while_it_goes_on() {
        let (mut console, begin) = (Console::open(), Instant::now());
        let mut said = |trouble, secs| console.is_new(trouble, begin + Duration::from_secs(secs));
        assert!(said("a", 0) && said("b", 0));
        assert!((1..90).all(|secs| !said("a", secs) && (secs >= 60 || !said("b", secs))));
        assert!(said("b", 120) && !said("a", 120) && said("a", 180));
    }

    #[test]
    fn a_full_disk_is_told_once_and_a_reader_who_has_gone_is_not() {
        let told = |stream: Box<dyn Write + Send>| {
            let (to, told) = channel();
            let tell = move |error: Error| to.send(error.to_string()).unwrap();
            let printer = Printer::start(stream, tell);
            for _ in 0..3 {
                printer.print("line\n".into());
            }
            drop(printer);
            told.iter().collect::<Vec<String>>()
        };
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let told_of_full = told(Box::new(full));
        assert!(told_of_full.len() == 1, "{told_of_full:?}");
        assert!(told_of_full[0].starts_with("cannot write to standard output: "));
        assert_eq!(told(Box::new(io::pipe().unwrap().1)), [] as [&str; 0]);
    }

    #[test]
    fn nobody_waits_for_a_reader_who_does_not_read() {
        let (mut reader, writer) = io::pipe().unwrap();
        let printer = Printer::start(writer, drop);
        let line = format!("{}\n", "x".repeat(9_999));
        for _ in 0..2 * WAITING_MAX {
            printer.print(line.clone());
        }
        drop(printer);
        let mut read = vec![0; 40_000];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), line.repeat(4));

        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let begun = Instant::now();
        let printer = Printer::start(writer, drop);
        for _ in 0..3 {
            printer.print("x".into());
        }
        drop(printer);
        assert!(begun.elapsed() < LAST_WORDS_MAX);
    }

    #[test]
    fn a_reader_who_is_late_gets_whole_lines_and_the_last_ones() {
        let (mut reader, writer) = io::pipe().unwrap();
        let printer = Printer::start(writer, drop);
        let lines: Vec<String> = (0..20).map(|number| format!("{number:9999}\n")).collect();
        for line in &lines {
            printer.print(line.clone());
        }
        let late = thread::spawn(move || {
            let mut read = String::new();
            reader.read_to_string(&mut read).map(|_| read)
        });
        drop(printer);
        assert_eq!(late.join().unwrap().unwrap(), lines.concat());
    }
}

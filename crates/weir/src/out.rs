//! What commands print on standard output. Whoever no longer reads, as in `weir status | head`, has seen what he wanted.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;
use weir_bpf::printable::printable;

use crate::error::{Error, Result};

/// Lines for a person, in which no name moves the cursor. They are written into memory, which takes everything.
pub fn print(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<()> {
    let mut out = Vec::new();
    write(&mut out).map_err(|source| Error::system("write to standard output", source))?;
    raw(safe(&out).as_bytes())
}

/// The same, for a program.
pub fn raw(text: &[u8]) -> Result<()> {
    reaches(text).map(|_| ())
}

/// The same; whether somebody still reads.
pub fn reaches(text: &[u8]) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    or_gone(stdout.write_all(text).and_then(|()| stdout.flush()))
}

/// Each line made safe for a terminal.
pub fn safe(text: &[u8]) -> String {
    let lines: Vec<String> = text.split(|byte| *byte == b'\n').map(printable).collect();
    lines.join("\n")
}

/// A line of what goes on, also when nobody reads it.
pub fn line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// The same for a person, on standard error.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", safe(text.to_string().as_bytes()));
}

/// A value, and a line feed.
pub fn json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::system("write to standard output", io::Error::from(error)))?;
    raw(format!("{}\n", plain_json(text)).as_bytes())
}

/// JSON with no character in it that moves a cursor: DEL and C1, which may stand in a string as they are, are escaped.
pub fn plain_json(text: String) -> String {
    let moves = |each: &char| matches!(each, '\u{7f}'..='\u{9f}');
    if !text.chars().any(|each| moves(&each)) {
        return text;
    }
    let plain = |each| match moves(&each) {
        true => format!("\\u{:04x}", u32::from(each)),
        false => each.to_string(),
    };
    text.chars().map(plain).collect()
}

/// Whether somebody still reads.
pub fn or_gone(written: io::Result<()>) -> Result<bool> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written
            .map(|()| true)
            .map_err(|source| Error::system("write to standard output", source)),
    }
}

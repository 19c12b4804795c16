//! What commands print on standard output. Whoever no longer reads, as in `weir status | head`, has seen what he wanted.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::error::{Error, Result};

/// What is written into memory, which takes everything.
pub fn print(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<()> {
    let mut out = Vec::new();
    let written = write(&mut out).and_then(|()| io::stdout().lock().write_all(&out));
    or_gone(written).map(|_| ())
}

/// A line of what goes on, also when nobody reads it.
pub fn line(text: impl Display) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// The same, on standard error.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A value, and a line feed.
pub fn json(value: &impl Serialize) -> Result<()> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
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

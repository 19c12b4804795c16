//! Files that users name: what is named may be a device, or a pipe, that never ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::pipe::SpliceFlags;

use crate::ready;

/// How long whoever is to write into a named pipe may take to open it.
const WRITER_MAX: Duration = Duration::from_secs(2);

/// The file's contents, if it has at most `max` bytes.
///
/// # Errors
/// The kernel's, or one that says that the file is larger, or a pipe that nobody writes into.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is larger than {max} bytes, so it is none of weir's; name another file"),
        ));
    }
    Ok(bytes)
}

/// As [`File::open`], which waits for ever for a named pipe's writer.
fn open(path: &Path) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    if file.metadata()?.file_type().is_fifo() && !ready::comes([file.as_fd()], WRITER_MAX) {
        // Without taking anything: nothing where nobody has it open for writing, refused where somebody does.
        let (_reader, other) = rustix::pipe::pipe()?;
        if rustix::pipe::tee(&file, other, 1, SpliceFlags::NONBLOCK) == Ok(0) {
            let problem =
                "it is a pipe that nobody writes into; name a file, or start the writer first";
            return Err(io::Error::new(ErrorKind::TimedOut, problem));
        }
    }
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Whether it can be read again. An empty answer from a pipe would be taken for an empty file, and a full one may never
/// end.
///
/// # Errors
/// As `stat(2)`.
pub fn is_regular(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.is_file())
}

/// Makes a file that is not there yet, whole or not at all.
pub fn create(path: &Path, mode: u32, contents: &[u8]) -> io::Result<()> {
    New::create(path, mode)?.fill(contents)
}

/// A file that was not there, and goes again unless it is filled.
pub struct New<'a> {
    path: &'a Path,
    /// None once it is filled.
    file: Option<File>,
}

impl<'a> New<'a> {
    pub fn create(path: &'a Path, mode: u32) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        Ok(Self { path, file: Some(file) })
    }

    pub fn fill(mut self, contents: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.write_all(contents)?;
        }
        self.file = None;
        Ok(())
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(self.path);
        }
    }
}

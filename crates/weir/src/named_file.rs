//! Files that users name: what is named may be a device, or a pipe, that never ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file's contents, if it has at most `max` bytes.
///
/// # Errors
/// The kernel's, or one that says that the file is larger.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is larger than {max} bytes, so it is none of weir's; name another file"),
        ));
    }
    Ok(bytes)
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

//! Files that users name: what is named may be a device, or a pipe, that never ends.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
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

//! A file of `/proc` that is read again and again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Large enough for most.
const BYTES_AT_FIRST: usize = 8192;

/// A file of `/proc`, kept open: to find it takes longer than to read it. What it tells is of the network namespace of
/// the thread that read it first.
#[derive(Debug)]
pub struct ProcFile {
    path: String,
    file: Option<File>,
    bytes: Vec<u8>,
}

impl ProcFile {
    /// Not opened before it is read.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), file: None, bytes: Vec::new() }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What it tells now; nothing if the kernel has no such file, as without IPVS, IPv6 or multicast routing.
    ///
    /// # Errors
    /// If it cannot be read, or there is no `/proc`.
    pub fn read(&mut self) -> io::Result<&str> {
        self.read_of(true)
    }

    /// The same of its first lines, which is all that a long one costs.
    ///
    /// # Errors
    /// As [`ProcFile::read`].
    pub fn read_beginning(&mut self) -> io::Result<&str> {
        self.read_of(false)
    }

    fn read_of(&mut self, whole: bool) -> io::Result<&str> {
        let length = match self.fill(whole) {
            // Its module or interface has gone, and may be back.
            Err(_) if self.file.take().is_some() => self.fill(whole),
            length => length,
        }?;
        str::from_utf8(&self.bytes[..length]).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn fill(&mut self, whole: bool) -> io::Result<usize> {
        let file = match &self.file {
            Some(file) => file,
            None => match File::open(&self.path) {
                // Without /proc at all, nothing is known.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return std::fs::metadata("/proc/thread-self/net").map(|_| 0);
                }
                file => self.file.insert(file?),
            },
        };
        let mut length = 0;
        loop {
            if length == self.bytes.len() {
                self.bytes.resize(BYTES_AT_FIRST.max(2 * length), 0);
            }
            match file.read_at(&mut self.bytes[length..], length as u64)? {
                0 => return Ok(length),
                more if !whole => return Ok(more),
                more => length += more,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::sys::link::Links;
    use crate::sys::test_support::Sandbox;

    #[test]
    fn it_tells_what_is_now_also_of_an_interface_that_was_made_anew() {
        Sandbox::new().run(|| {
            let links = Links::open().unwrap();
            let path = "/proc/sys/net/ipv4/conf/near/forwarding";
            let mut file = ProcFile::new(path);
            for _ in 0..2 {
                assert_eq!(file.read().unwrap(), "");
                links.create_veth("near", "far", None).unwrap();
                for value in ["0\n", "1\n"] {
                    std::fs::write(path, value).unwrap();
                    assert_eq!(file.read().unwrap(), value);
                }
                links.delete(links.index("near").unwrap()).unwrap();
            }
        });
    }

    #[test]
    fn a_long_one_is_read_to_its_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line", &"long ".repeat(BYTES_AT_FIRST)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Its command line is there once it runs.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let mut file = ProcFile::new(format!("/proc/{}/cmdline", child.id()));
        let whole = std::fs::read_to_string(file.path()).unwrap();
        assert!(whole.len() > BYTES_AT_FIRST);
        assert_eq!(file.read().unwrap(), whole);
        assert_eq!(file.read().unwrap(), whole);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

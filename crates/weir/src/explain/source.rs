//! The bytes of a capture, as a stream.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

/// How far a stream has been read.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that were read. The parser reads ahead.
    pub bytes: Cell<u64>,
    /// Whether there is nothing left.
    pub ended: Cell<bool>,
}

/// A stream that can be asked how far it has been read while a parser owns it.
pub struct Source {
    stream: Box<dyn Read>,
    progress: Rc<Progress>,
    /// How long it is, if that is known.
    pub len: Option<u64>,
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::of(Box::new(io::stdin()), None));
        }
        let file = File::open(path)?;
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let len = about.is_file().then_some(about.len());
        Ok(Self::of(Box::new(file), len))
    }

    /// A stream of so many bytes.
    pub fn of(stream: Box<dyn Read>, len: Option<u64>) -> Self {
        Self { stream, progress: Rc::default(), len }
    }

    /// How far it has been read, now and later.
    pub fn progress(&self) -> Rc<Progress> {
        Rc::clone(&self.progress)
    }

    /// The first bytes, or as many as there are. They are read from the stream as well.
    pub fn peek<const LEN: usize>(self) -> io::Result<(Vec<u8>, Self)> {
        let Self { mut stream, progress, len } = self;
        let mut first = Vec::new();
        stream.by_ref().take(LEN as u64).read_to_end(&mut first)?;
        let stream = Box::new(io::Cursor::new(first.clone()).chain(stream));
        Ok((first, Self { stream, progress, len }))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                // The parser would give up.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.progress.bytes.set(self.progress.bytes.get() + count as u64);
                    self.progress.ended.set(count == 0 && !buffer.is_empty());
                    return Ok(count);
                }
                failed => return failed,
            }
        }
    }
}

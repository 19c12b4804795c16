//! The bytes of a capture, as a stream.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// What takes less long to read has no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// A stream that can be asked whether it has ended while a parser owns it. A bar shows how far it has been read.
pub struct Source {
    stream: Box<dyn Read>,
    /// Whether there is nothing left.
    pub ended: Rc<Cell<bool>>,
    /// How long it is, if that is known.
    pub len: Option<u64>,
    bar: ProgressBar,
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
        // No time left: the parser reads ahead in large pieces.
        let known = "{bytes} of {total_bytes}  {wide_bar}";
        let style = ProgressStyle::with_template(len.map_or("{bytes} read", |_| known));
        let bar = ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_finish(ProgressFinish::AndClear);
        Self { stream: Box::new(bar.wrap_read(stream)), ended: Rc::default(), len, bar }
    }

    /// The first bytes, or as many as there are. They are read from the stream as well.
    pub fn peek<const LEN: usize>(mut self) -> io::Result<(Vec<u8>, Self)> {
        let mut first = Vec::new();
        self.stream.by_ref().take(LEN as u64).read_to_end(&mut first)?;
        self.stream = Box::new(io::Cursor::new(first.clone()).chain(self.stream));
        Ok((first, self))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // On standard error, if that is a terminal and the packets are printed elsewhere.
        let is_late = self.bar.is_hidden() && self.bar.elapsed() > PATIENCE;
        if is_late && !io::stdout().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        loop {
            match self.stream.read(buffer) {
                // The parser would give up.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.ended.set(count == 0 && !buffer.is_empty());
                    if self.ended.get() {
                        self.bar.finish_and_clear();
                    }
                    return Ok(count);
                }
                failed => return failed,
            }
        }
    }
}

//! Threads that are waited for.

use std::io::{self, PipeReader, PipeWriter};
use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Result};

/// A thread, which dropping this waits for: whatever tells it to end is dropped before.
pub struct Joined(Option<JoinHandle<()>>);

impl Joined {
    /// Starts it.
    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Builder::new().name(name.into()).spawn(work).map(|thread| Self(Some(thread)))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// A thread that waits for descriptors. Dropping this tells it to end, and waits for that.
pub struct Waiting {
    /// It ends when this is closed, so it comes first.
    _going_on: PipeWriter,
    _thread: Joined,
}

impl Waiting {
    /// Starts it. What it is given is readable once it is to end.
    pub fn spawn(name: &str, work: impl FnOnce(PipeReader) + Send + 'static) -> Result<Self> {
        let failed = |source| Error::unstarted("start a thread", source);
        let (ended, going_on) = io::pipe().map_err(failed)?;
        let thread = Joined::spawn(name, move || work(ended)).map_err(failed)?;
        Ok(Self { _going_on: going_on, _thread: thread })
    }
}

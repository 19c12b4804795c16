//! Threads that are waited for.

use std::io;
use std::thread::{Builder, JoinHandle};

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

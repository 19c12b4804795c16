//! Feedback from queues that are no socket's: one thread looks after each kind of them while the daemon runs. A kind is
//! one [`Watcher`].

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};

/// Looks after one kind of queue.
pub trait Watcher: Send {
    /// Until its next look, at most.
    fn pause(&self) -> Duration;
    /// What fails is tried again at the next look.
    fn look(&mut self);
}

/// Looks until it is dropped.
pub struct Feedback {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Feedback {
    /// In the calling thread's network namespace.
    pub fn start(mut watchers: Vec<Box<dyn Watcher>>) -> Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("weir-feedback".into())
            .spawn(move || {
                let look = |watchers: &mut [Box<dyn Watcher>]| {
                    watchers.iter_mut().for_each(|watcher| watcher.look());
                    watchers.iter().map(|watcher| watcher.pause()).min().unwrap_or(Duration::MAX)
                };
                while stopped.recv_timeout(look(&mut watchers)) == Err(RecvTimeoutError::Timeout) {}
            })
            .map_err(|source| Error::system("start the thread that watches queues", source))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Feedback {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

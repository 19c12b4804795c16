//! Feedback from queues that are no socket's: one thread looks after each kind of them while the daemon runs. A kind is
//! one [`Watcher`].

use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::Result;
use crate::joined::Waiting;
use crate::ready;

/// Looks after one kind of queue.
pub trait Watcher: Send {
    /// Until its next look, at most.
    fn pause(&self) -> Duration;
    /// What fails is tried again at the next look.
    fn look(&mut self);
}

/// Looks until the answer is dropped, in the calling thread's network namespace.
pub fn start(mut watchers: Vec<Box<dyn Watcher>>) -> Result<Waiting> {
    let mut look = move || {
        watchers.iter_mut().for_each(|watcher| watcher.look());
        watchers.iter().map(|watcher| watcher.pause()).min().unwrap_or(Duration::MAX)
    };
    let work = move |ended: PipeReader| while !ready::comes([ended.as_fd()], look()) {};
    Waiting::spawn("weir-feedback", work)
}

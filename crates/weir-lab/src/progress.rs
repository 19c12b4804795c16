//! What a run says on standard error while it runs.

use std::fmt::Display;
use std::time::{Duration, Instant};

const LINE_EVERY: Duration = Duration::from_secs(5);

pub fn say(message: impl Display) {
    eprintln!("weir lab: {message}");
}

/// How far a run is.
pub struct Progress {
    begun: Instant,
    said: Instant,
    done: u32,
    all: u32,
}

impl Progress {
    /// So many trials are to come.
    pub fn begin(all: usize) -> Self {
        Self { begun: Instant::now(), said: Instant::now(), done: 0, all: all as u32 }
    }

    /// The next one begins.
    pub fn next(&mut self, what: impl Display) {
        // A search comes after them.
        self.all = self.all.max(self.done);
        if self.said.elapsed() >= LINE_EVERY {
            self.said = Instant::now();
            let left = self.begun.elapsed() * (self.all - self.done) / self.done.max(1);
            say(format!("{}/{} trials, {} s left; {what}", self.done, self.all, left.as_secs()));
        }
        self.done += 1;
    }
}

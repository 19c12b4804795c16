//! What a run shows while it runs: a bar on a terminal, a line now and then elsewhere.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const LINE_EVERY: Duration = Duration::from_secs(5);

pub struct Progress {
    /// It is drawn on a terminal alone.
    pub bar: ProgressBar,
    /// When the last line was printed.
    line: Cell<Instant>,
}

impl Progress {
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = "{bar:28} {pos:>3}/{len} trials, {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, line: Cell::new(Instant::now()) }
    }

    /// Says what is being done outside the trials.
    pub fn say(&self, message: String) {
        if self.bar.is_hidden() {
            eprintln!("weir lab: {message}");
        }
        self.bar.set_message(message);
    }

    /// One more trial is done.
    pub fn done(&self) {
        self.bar.inc(1);
        if self.bar.is_hidden() && self.line.get().elapsed() >= LINE_EVERY {
            self.line.set(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("weir lab: {done}/{all} trials, {} s left", self.bar.eta().as_secs());
        }
    }
}

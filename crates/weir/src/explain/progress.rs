//! How far a long capture has been read, on a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::capture::Capture;

/// What takes less long is not reported.
const PATIENCE: Duration = Duration::from_secs(2);

/// A bar on standard error, if that is a terminal and the packets are printed elsewhere.
pub struct Bar {
    begun: Instant,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Shows nothing yet.
    pub fn new() -> Self {
        let wanted = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Self { begun: Instant::now(), wanted, bar: None }
    }

    /// Another packet has been read.
    pub fn tick(&mut self, capture: &Capture) {
        if !self.wanted || (self.bar.is_none() && self.begun.elapsed() < PATIENCE) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(capture.len, ProgressDrawTarget::stderr());
            // No time left: the file is read ahead in large pieces.
            let known = capture.len.is_some();
            let template =
                if known { "{bytes} of {total_bytes}  {wide_bar}" } else { "{bytes} read" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(capture.bytes_read());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! What a run shows while it runs: a bar on a terminal, a line now and then elsewhere.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const LINE_EVERY: Duration = Duration::from_secs(5);

pub struct Progress {
    bar: ProgressBar,
    /// When the last plain line was printed; `None` on a terminal.
    plain: Option<Cell<Instant>>,
}

impl Progress {
    /// On a terminal a bar, else lines.
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new(0);
        bar.set_draw_target(match terminal {
            true => ProgressDrawTarget::stderr_with_hz(4),
            false => ProgressDrawTarget::hidden(),
        });
        let style = "{bar:28} {pos:>3}/{len} trials, {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, plain: (!terminal).then(|| Cell::new(Instant::now())) }
    }

    /// Says what is being done outside the trials.
    pub fn say(&self, message: &str) {
        self.bar.set_message(message.to_owned());
        if self.plain.is_some() {
            eprintln!("weir lab: {message}");
        }
    }

    pub fn begin(&self, trials: u64) {
        self.bar.set_length(trials);
        self.bar.reset_eta();
        if self.plain.is_some() {
            eprintln!("weir lab: {trials} trials");
        }
    }

    pub fn step(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    pub fn done(&self) {
        self.bar.inc(1);
        let Some(last) = &self.plain else { return };
        if last.get().elapsed() >= LINE_EVERY {
            last.set(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("weir lab: {done}/{all} trials, {} s left", self.bar.eta().as_secs());
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

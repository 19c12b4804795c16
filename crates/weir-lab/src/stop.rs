//! Waiting, for what the kernel or another process does, and ending early: Ctrl-C and SIGTERM end the lab at
//! its next step, and everything is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Error, Result, cannot};

pub const STEP: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(1);

/// Whether the user has asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for SIGINT, SIGTERM and SIGHUP from now on.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))
                .map_err(cannot("handle", format!("signal {signal}")))?;
        }
        Ok(stop)
    }

    /// Refuses, by [`Error::Interrupted`], once the user has asked to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Sleeps, but not past the user's request to stop.
    pub fn sleep(&self, duration: Duration) -> Result<()> {
        let deadline = Instant::now() + duration;
        loop {
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

/// What is to be done when this is dropped.
pub struct Undo<'a>(pub Box<dyn FnMut() + 'a>);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Asks until there is an answer; `None` if none comes in time.
pub fn until<T>(within: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let deadline = Instant::now() + within;
    loop {
        let answer = ask()?;
        if answer.is_some() || Instant::now() > deadline {
            return Ok(answer);
        }
        std::thread::sleep(LOOK);
    }
}

/// The same where one must come: else what is wrong, and what to do.
pub fn wait_for<T>(
    within: Duration,
    ask: impl FnMut() -> Result<Option<T>>,
    (problem, remedy): (&str, &str),
) -> Result<T> {
    until(within, ask)?.ok_or_else(|| Error::refused(problem, remedy))
}

//! Waiting for what the kernel or another process does.

use std::time::{Duration, Instant};

use crate::error::Result;

const STEP: Duration = Duration::from_millis(1);

/// Asks until there is an answer; `None` if none comes in time.
pub fn until<T>(within: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let deadline = Instant::now() + within;
    loop {
        let answer = ask()?;
        if answer.is_some() || Instant::now() > deadline {
            return Ok(answer);
        }
        std::thread::sleep(STEP);
    }
}

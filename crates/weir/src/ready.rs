//! Waiting for one of several descriptors.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// Which of them are readable, or at their end. Waits until one is, or `most` has passed.
pub fn wait<'a>(
    fds: impl IntoIterator<Item = BorrowedFd<'a>>,
    most: Option<Duration>,
) -> rustix::io::Result<Vec<bool>> {
    wait_for(fds.into_iter().map(|fd| (fd, PollFlags::IN)), most)
}

/// Whether the first of them comes within this time, or the kernel refuses to wait for it: more descriptors than the limit
/// of open files is now.
pub fn comes<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>, most: Duration) -> bool {
    wait(fds, Some(most)).map_or(true, |ready| ready[0])
}

/// As [`wait`], of what is waited for of each.
pub fn wait_for<'a>(
    fds: impl IntoIterator<Item = (BorrowedFd<'a>, PollFlags)>,
    most: Option<Duration>,
) -> rustix::io::Result<Vec<bool>> {
    let fds = fds.into_iter().map(|(fd, wanted)| PollFd::from_borrowed_fd(fd, wanted));
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    // What is too long for a clock is for ever.
    let until = most.and_then(|most| Instant::now().checked_add(most));
    retry_on_intr(|| {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        poll(&mut fds, left.and_then(|left| Timespec::try_from(left).ok()).as_ref())
    })?;
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

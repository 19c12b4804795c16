//! A thread's CPU time by perf's task clock, which is read at the context switch itself
//! (`perf_event_task_sched_out()`).
//!
//! The scheduler's own sum ([`sched::cpu_time`](super::sched::cpu_time)) goes by the run queue's clock, which
//! a switch that follows a wakeup does not bring up to date (`rq_clock_skip_update()` in
//! `wakeup_preempt()`): what a thread runs between waking another and giving way, that other one is
//! charged for. A NAPI thread on a kernel without preemption goes on for the rest of its poll.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

use rustix::process::Pid;

use crate::error::{Error, Result};
use crate::units::Nanos;

/// A clock that runs while one thread does, from 0 when it was made.
#[derive(Debug)]
pub struct TaskClock(File);

/// `struct perf_event_attr` of its first version (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

impl TaskClock {
    /// For a thread, on whichever CPU it runs.
    ///
    /// # Errors
    /// [`Error::System`] without `CAP_PERFMON`, where there is no such thread, or on a kernel without
    /// `CONFIG_PERF_EVENTS`.
    #[allow(unsafe_code)]
    pub fn of(thread: Pid) -> Result<Self> {
        const PERF_TYPE_SOFTWARE: u32 = 1;
        const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
        const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_TASK_CLOCK,
            rest: [0; 6],
        };
        let (number, any_cpu, no_group) = (thread.as_raw_nonzero().get(), -1, -1);
        // SAFETY: `attributes` is as long as it says and outlives the call, which only reads it.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                number,
                any_cpu,
                no_group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let descriptor = i32::try_from(answer).ok().filter(|descriptor| *descriptor >= 0);
        let Some(descriptor) = descriptor else {
            let source = std::io::Error::last_os_error();
            return Err(Error::system("time with perf", format!("thread {number}"), source));
        };
        // SAFETY: the kernel has just made it, and nobody else knows of it.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// What the thread has run since, to the instant; also when it has ended.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses.
    pub fn read(&self) -> Result<Nanos> {
        let mut count = [0; 8];
        (&self.0)
            .read_exact(&mut count)
            .map_err(|source| Error::system("read", "perf's task clock", source))?;
        Ok(Nanos(u64::from_ne_bytes(count)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::thread::gettid;

    use super::*;
    use crate::sys::test_support::wait_until;

    #[test]
    fn it_runs_while_its_thread_does() {
        let clock = TaskClock::of(gettid()).unwrap();
        let began = Instant::now();
        wait_until("20 ms are used", || clock.read().unwrap().0 >= 20_000_000);
        std::thread::sleep(Duration::from_millis(50));
        let (used, elapsed) = (clock.read().unwrap().0, began.elapsed());
        assert!(Duration::from_nanos(used) + Duration::from_millis(50) <= elapsed, "{used}");
        TaskClock::of(Pid::from_raw(i32::MAX).unwrap()).unwrap_err();
    }
}

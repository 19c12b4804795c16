//! Threads of weir's that run before all processes, on one CPU: whatever has a higher real-time priority there may keep
//! them from running for ever, and whoever waits for them.

use std::sync::Mutex;

use rustix::process::Pid;
use rustix::thread::gettid;
use weir_bpf::sync::lock;
use weir_bpf::sys::sched;
use weir_bpf::units::CpuId;

/// Such a thread, while it runs.
#[derive(Default)]
pub(super) struct Pinned(Mutex<Option<Pid>>);

/// Until this is dropped, the thread can be freed.
pub(super) struct Running<'a>(&'a Pinned);

impl Pinned {
    /// It is the calling thread.
    pub(super) fn begin(&self) -> Running<'_> {
        *lock(&self.0) = Some(gettid());
        Running(self)
    }

    /// Lets it run on these CPUs instead, at once.
    pub(super) fn free(&self, cpus: &[CpuId]) {
        // As long as this is locked it does not end, so its number is no other thread's.
        let thread = lock(&self.0);
        if let Some(thread) = *thread {
            let _ = sched::set_affinity(thread, cpus);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *lock(&self.0.0) = None;
    }
}

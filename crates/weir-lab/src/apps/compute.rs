//! What computes beside the applications, and how fast the machine is.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use crate::error::Result;
use crate::histogram;

/// Iterations of the calibrated loop: about 5 us, short enough to fit between two interrupts.
const LOOP_ITERATIONS: u64 = 3000;
const LOOP_PAUSE: Duration = Duration::from_millis(5);
const LOOPS_PER_PAUSE: u32 = 2;
/// The hog asks for its CPU time once in this many passes, 80 us, so that asking costs it nothing.
const LOOPS_PER_LOOK: u64 = 16;

/// Times a loop whose work never changes: when it takes longer, the CPU has become slower.
///
/// # Errors
/// Without the privilege to run before everything else.
pub fn speed_probe(shared: &SharedCounters) -> Result<()> {
    // Above everything that is measured, so that the loop is not interrupted by the scheduler.
    sched::set_fifo_current_thread(1)?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        for _ in 0..LOOPS_PER_PAUSE {
            let began = Instant::now();
            std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
            let took = began.elapsed().as_nanos() as u64;
            histogram::record(shared, slots::HISTOGRAM, took);
        }
        std::thread::sleep(LOOP_PAUSE);
    }
}

/// Counts passes of the same loop: work done, which the kernel's accounting has no say in.
///
/// # Errors
/// When its scheduling policy cannot be set.
pub fn hog(idle: bool, shared: &SharedCounters) -> Result<()> {
    if idle {
        sched::set_idle_current_thread()?;
    }
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        for _ in 0..LOOPS_PER_LOOK {
            std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
            shared.get(slots::WORK).fetch_add(1, Ordering::Relaxed);
        }
        let had = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let had_ns = had.tv_sec as u64 * 1_000_000_000 + had.tv_nsec as u64;
        shared.get(slots::CPU_NS).store(had_ns, Ordering::Relaxed);
    }
}

/// LRP's low-priority, compute-bound process (section 4.1).
///
/// # Errors
/// When its scheduling policy cannot be set.
pub fn spin(shared: &SharedCounters) -> Result<()> {
    sched::set_idle_current_thread()?;
    shared.get(slots::READY).store(1, Ordering::Release);
    loop {
        std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
        std::thread::yield_now();
    }
}

/// A chain of dependent multiplications: no memory, nothing to overlap.
pub(super) fn calibrated_loop(seed: u64) -> u64 {
    (0..LOOP_ITERATIONS).fold(seed, |x, i| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(i))
}

/// `CLOCK_MONOTONIC`, nanoseconds: the clock of `bpf_ktime_get_ns()`.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

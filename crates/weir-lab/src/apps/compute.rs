//! What computes, for a packet or beside the applications, and how fast the machine is.

use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use serde::{Deserialize, Serialize};
use weir_bpf::accounts::monotonic_now;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared_memory::SharedCounters;
use weir_bpf::units::Nice;

use super::slots;

/// Iterations of the calibrated loop: about 5 us, short enough to fit between two interrupts.
const LOOP_ITERATIONS: u64 = 3000;
const LOOP_PAUSE: Duration = Duration::from_millis(5);
const LOOPS_PER_PAUSE: u32 = 2;
/// The hog asks for its CPU time once in this many passes, 80 us, so that asking costs it nothing.
const LOOPS_PER_LOOK: u64 = 16;
/// How long [`Beside::Bursts`] computes, and sleeps.
const BURST: Duration = Duration::from_millis(4);
const BURST_PAUSE: Duration = Duration::from_millis(96);
/// What is walked through: a good part of a second-level cache, as in LRP.
const WALK_BYTES: usize = 512 << 10;
/// Steps of a walk: a cache line each.
const LINES: usize = WALK_BYTES / 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub(crate) time: Duration,
    /// Of the calibrated loop: what `time` is on this machine.
    pub(crate) passes: u64,
    /// Walks through memory; every step depends on the one before it.
    pub(crate) walks: u64,
    /// Steps that depend on one another, without memory.
    pub(crate) steps: u64,
}

/// A process beside the applications, on the tested CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Beside {
    /// Computes without pause, at this nice value.
    Hog(i32),
    /// The same for 4 ms of each 100: not enough for a competing task, longer than a ring of 256 packets lasts at
    /// 150,000 packets/s.
    Bursts,
    /// The same of `SCHED_IDLE`.
    IdleHog,
    /// The same in a CPU control group of its own.
    GroupHog,
    /// Computes when nobody else wants the CPU, and yields, so that leaving idle is not measured (LRP 4.1).
    Spinner,
    /// Sleeps, again and again, and notes how late it wakes: as one that waits for a key.
    Interactive,
}

impl Work {
    pub fn prepare(self) -> impl Fn() {
        // Each says which comes next, alone in its cache line.
        let lines = if self.walks > 0 { LINES } else { 0 };
        let lines: Vec<[usize; 8]> = (0..lines).map(|at| [next_line(at); 8]).collect();
        // Without the black box in each step the compiler finds a shorter way.
        let step = |x: usize, i: u64| black_box(x.wrapping_mul(0x2545_f491) ^ i as usize);
        move || {
            for _ in 0..self.passes {
                black_box(calibrated_loop(black_box(1)));
            }
            let walk = 0..self.walks * LINES as u64;
            black_box(walk.fold(black_box(1), |at, _| lines[at][0]));
            black_box((0..self.steps).fold(black_box(1), step));
        }
    }
}

/// One cycle through all lines that no prefetcher follows: multiplication by 5, modulo a power of 2, with
/// an odd constant (Hull and Dobell).
fn next_line(at: usize) -> usize {
    (at * 5 + 4099) % LINES
}

/// Times a loop whose work never changes: when it takes longer, the CPU has become slower.
pub fn speed_probe(shared: &SharedCounters) -> io::Result<()> {
    // Above everything that is measured, so that the loop is not interrupted by the scheduler.
    run_first()?;
    slots::ready(shared);
    loop {
        for _ in 0..LOOPS_PER_PAUSE {
            let began = Instant::now();
            black_box(calibrated_loop(black_box(1)));
            slots::took(shared, began.elapsed());
        }
        std::thread::sleep(LOOP_PAUSE);
    }
}

impl Beside {
    pub fn run(self, shared: &SharedCounters) -> io::Result<()> {
        match self {
            Self::Interactive => return interactive(shared),
            Self::Hog(nice) => sched::set_nice(gettid(), Nice(nice)),
            Self::IdleHog | Self::Spinner => sched::set_idle_current_thread(),
            Self::Bursts | Self::GroupHog => Ok(()),
        }
        .map_err(io::Error::other)?;
        self.compute(shared)
    }

    /// Counts passes of the calibrated loop without end: work done, which the kernel's accounting has no say in. Of
    /// `SCHED_IDLE`, it is LRP's low-priority, compute-bound process (section 4.1).
    fn compute(self, shared: &SharedCounters) -> io::Result<()> {
        slots::ready(shared);
        let mut rested = Duration::ZERO;
        loop {
            for _ in 0..LOOPS_PER_LOOK {
                black_box(calibrated_loop(black_box(1)));
                slots::add(shared, slots::WORK, 1);
                if self == Self::Spinner {
                    std::thread::yield_now();
                }
            }
            let ran = sched::own_cpu_time();
            shared.get(slots::CPU_NS).store(ran.as_nanos() as u64, Ordering::Relaxed);
            if self == Self::Bursts && ran - rested >= BURST {
                std::thread::sleep(BURST_PAUSE);
                rested = ran;
            }
        }
    }
}

/// Sleeps, and notes how much later than wanted it runs, without end; and before, when it is to run.
fn interactive(shared: &SharedCounters) -> io::Result<()> {
    loop {
        let due_ns = monotonic_now().0 + LOOP_PAUSE.as_nanos() as u64;
        shared.get(slots::DUE_NS).store(due_ns, Ordering::Relaxed);
        slots::ready(shared);
        std::thread::sleep(LOOP_PAUSE);
        slots::took(shared, Duration::from_nanos(monotonic_now().0.saturating_sub(due_ns)));
    }
}

/// Lets the calling thread run before all others on its CPU.
pub fn run_first() -> io::Result<()> {
    sched::set_fifo_current_thread(1).map_err(io::Error::other)
}

/// A chain of dependent multiplications: no memory, nothing to overlap.
fn calibrated_loop(seed: u64) -> u64 {
    (0..LOOP_ITERATIONS).fold(seed, |x, i| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(i))
}

#[cfg(test)]
mod tests {
    use super::{LINES, next_line};

    #[test]
    fn the_walk_goes_through_every_line() {
        let (mut at, mut steps) = (next_line(0), 1);
        while at != 0 {
            (at, steps) = (next_line(at), steps + 1);
        }
        assert_eq!(steps, LINES);
    }
}

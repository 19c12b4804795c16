//! What it costs a CPU to stop what it runs, run a thread that was woken, and go on.
//!
//! The clock that is read where the scheduler switches does not see it: the interrupt and both
//! switches are over before and after. Where polls are short, it is most of what input costs those whom it
//! interrupts, and in a virtual machine, where setting a timer leaves the guest, more than on bare metal.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use weir_bpf::cpulist::CpuList;
use weir_bpf::sys::sched;
use weir_bpf::units::{CpuId, Nanos};

use super::observed::PRIORITY;
use super::pinned::Pinned;

/// How often each is measured; the middle one counts, as others may be the hypervisor's.
const WAKES: usize = 31;
/// How long is slept in between.
const PAUSE: Duration = Duration::from_micros(30);
/// Each takes some 2 ms where nobody else disturbs. Processes of this CPU wait meanwhile, so it is given up after as long
/// as any process keeps others waiting, the scheduler's slice...
const AT_MOST: Duration = Duration::from_millis(3);
/// ...and tried again, so often, after they have had their turn.
const TRIES: usize = 3;
const TURN: Duration = Duration::from_millis(10);

/// So long after they began, threads that have not ended are kept from their CPU by something of a higher real-time
/// priority.
const KEPT: Duration = Duration::from_millis(50);

/// What an interruption costs the CPU; all 0 where that could not be measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SwitchCost {
    /// By a thread that a timer wakes.
    pub(super) by_timer: Nanos,
    /// By one that another CPU wakes.
    pub(super) by_cpu: Nanos,
    /// By one whose turn comes.
    pub(super) by_turn: Nanos,
}

/// What makes the thread run that interrupts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waker {
    Timer,
    Cpu(CpuId),
    /// The other's yielding.
    Turn,
}

impl SwitchCost {
    /// Measures it on the last of this host's CPUs on which weir `may` run and that nobody has set apart, which real-time
    /// threads keep busy for three times some 2 ms.
    pub(super) fn measure(may: &[CpuId]) -> Self {
        let mut cpus = shared(sched::online_cpus().unwrap_or_default(), &set_apart());
        cpus.retain(|cpu| may.contains(cpu));
        let Some((on, others)) = cpus.split_last() else { return Self::default() };
        let measure = |waker| {
            (0..TRIES).find_map(|_| {
                std::thread::sleep(TURN);
                median_gap(*on, waker, may)
            })
        };
        let by_timer = measure(Waker::Timer).unwrap_or_default();
        let by_cpu = others.first().and_then(|other| measure(Waker::Cpu(*other)));
        let by_cpu = by_cpu.unwrap_or(by_timer).min(by_timer);
        let by_turn = measure(Waker::Turn).unwrap_or(by_cpu).min(by_cpu);
        Self { by_timer, by_cpu, by_turn }
    }
}

/// CPUs without the scheduler's load balancing (`isolcpus=`), or without its tick (`nohz_full=`): there, packets
/// are polled for, or sound is played, and a real-time thread of weir's would disturb it.
fn set_apart() -> Vec<CpuId> {
    let list = |name| {
        let text =
            fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
        text.trim().parse().map(|CpuList(cpus)| cpus).unwrap_or_default()
    };
    [list("isolated"), list("nohz_full")].concat()
}

fn shared(mut cpus: Vec<CpuId>, set_apart: &[CpuId]) -> Vec<CpuId> {
    cpus.retain(|cpu| !set_apart.contains(cpu));
    cpus
}

/// The time that a thread is kept from running by another's wake-up. `None` where real-time threads are
/// refused, cannot be started, or were disturbed for too long, or kept from running: they end where they `may` run.
fn median_gap(on: CpuId, waker: Waker, may: &[CpuId]) -> Option<Nanos> {
    let (woken, end, ended) =
        (&AtomicU64::new(0), &AtomicBool::new(false), &AtomicBool::new(false));
    let pinned: &[Pinned; 3] = &Default::default();
    // Nobody keeps the CPU busy before the other has its place there. One that could not be started leaves its end of
    // both channels.
    let ((here, other_there), (there, other_here)) = (channel(), channel());
    let (result, results) = channel();
    let (other_result, wakers_result) = (result.clone(), result.clone());
    let mut gaps = std::thread::scope(|scope| {
        let interrupted = Builder::new().spawn_scoped(scope, move || {
            let _running = pinned[0].begin();
            let placed = place(on, PRIORITY);
            let both = here.send(()).is_ok() && other_here.recv().is_ok();
            let gaps = if placed && both { gaps(waker, woken, end) } else { Vec::new() };
            let _ = result.send(gaps);
        });
        let interrupts = Builder::new().spawn_scoped(scope, move || {
            let _running = pinned[1].begin();
            let placed = place(on, PRIORITY + u8::from(waker != Waker::Turn));
            let both = there.send(()).is_ok() && other_there.recv().is_ok();
            if placed && both {
                run_again_and_again(waker, woken, end);
            }
            end.store(true, Ordering::Relaxed);
            ended.store(true, Ordering::Relaxed);
            drop(other_result);
        });
        if let (Waker::Cpu(from), Ok(interrupts)) = (waker, &interrupts) {
            let interrupts = interrupts.thread().clone();
            // Without it, there are no wake-ups.
            let _ = Builder::new().spawn_scoped(scope, move || {
                let _running = pinned[2].begin();
                wake(&interrupts, from, ended);
                drop(wakers_result);
            });
        } else {
            drop(wakers_result);
        }
        let _ = interrupted.ok()?;
        let (mut gaps, mut kept) = (None, false);
        loop {
            match results.recv_timeout(KEPT) {
                Ok(found) => gaps = Some(found),
                // All have ended.
                Err(RecvTimeoutError::Disconnected) => break gaps.filter(|_| !kept),
                Err(RecvTimeoutError::Timeout) => {
                    kept = true;
                    end.store(true, Ordering::Relaxed);
                    pinned.iter().for_each(|thread| thread.free(may));
                }
            }
        }
    })?;
    if gaps.len() < WAKES / 2 {
        return None;
    }
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).map(|gap| Nanos::from(*gap))
}

fn place(cpu: CpuId, priority: u8) -> bool {
    sched::pin_current_thread(cpu).is_ok() && sched::set_fifo_current_thread(priority).is_ok()
}

fn run_again_and_again(waker: Waker, woken: &AtomicU64, end: &AtomicBool) {
    let begun = Instant::now();
    while !end.load(Ordering::Relaxed) && begun.elapsed() < AT_MOST {
        match waker {
            Waker::Timer => std::thread::sleep(PAUSE),
            Waker::Cpu(_) => std::thread::park_timeout(AT_MOST),
            Waker::Turn => std::thread::yield_now(),
        }
        woken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Wakes that thread, from another CPU, until it has ended. In real time, too: both would wait for it.
fn wake(thread: &Thread, from: CpuId, ended: &AtomicBool) {
    let _ = place(from, PRIORITY);
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        thread.unpark();
    }
}

/// How long each wake-up of the other kept this thread from reading the clock.
fn gaps(waker: Waker, woken: &AtomicU64, end: &AtomicBool) -> Vec<Duration> {
    let mut gaps = Vec::with_capacity(WAKES);
    let mut last = Instant::now();
    let mut seen = woken.load(Ordering::Relaxed);
    let begun = Instant::now();
    while gaps.len() < WAKES && !end.load(Ordering::Relaxed) && begun.elapsed() < AT_MOST {
        let before = last;
        if waker == Waker::Turn {
            std::thread::yield_now();
        }
        last = Instant::now();
        let now = woken.load(Ordering::Relaxed);
        // It came after the last look there, before or after the clock was read.
        if now != seen {
            gaps.push(before.elapsed());
            seen = now;
        }
    }
    end.store(true, Ordering::Relaxed);
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cpu_that_is_set_apart_is_measured_on() {
        let cpus = || (0..4).map(CpuId).collect();
        assert_eq!(shared(cpus(), &[CpuId(3), CpuId(1)]), [CpuId(0), CpuId(2)]);
        assert_eq!(shared(cpus(), &[0, 1, 2, 3].map(CpuId)), []);
    }

    /// Nor does anybody wait until that sleeps.
    #[test]
    fn beside_something_of_a_higher_priority_that_never_sleeps_nothing_is_measured() {
        let cpus = sched::online_cpus().unwrap();
        let (last, end, begun) = (*cpus.last().unwrap(), &AtomicBool::new(false), channel());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert!(place(last, PRIORITY + 9));
                begun.0.send(()).unwrap();
                while !end.load(Ordering::Relaxed) {}
            });
            begun.1.recv().unwrap();
            let cost = SwitchCost::measure(&cpus);
            end.store(true, Ordering::Relaxed);
            assert_eq!(cost.by_turn, Nanos::ZERO);
        });
    }

    #[test]
    fn an_interruption_costs_something() {
        // Of several, as it gives up on a CPU that is taken away meanwhile.
        let plausible = (0..100).any(|_| {
            let cost = SwitchCost::measure(&sched::online_cpus().unwrap());
            println!("{cost:?}");
            cost.by_turn > Nanos(100) && cost.by_cpu <= cost.by_timer
        });
        assert!(plausible);
    }
}

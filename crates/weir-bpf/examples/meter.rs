//! What the meter and the governor's eyes cost: the time of their tracing programs while a million packets
//! come each second. Needs root, and takes two CPUs.
//!
//! The kernel measures it (`kernel.bpf_stats_enabled`), which takes time of its own, so it is somewhat more
//! than it would be.

#![allow(clippy::unwrap_used, reason = "a failed call ends the measurement")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::NEAR_IP4;
use common::threaded::{Bench, PORT};
use libbpf_rs::query::ProgInfoIter;

const CLOSED_PORT: u16 = 5002;
/// Of `bpf/input.bpf.c` and `bpf/queue.bpf.c`: what runs for each switch, wake-up and poll.
const PROGRAMS: [&str; 6] = ["switched", "waking", "woken", "migrated", "polled", "napi_poll_end"];
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const TIME: Duration = Duration::from_millis(1500);

/// Counts the time of programs until it is dropped.
struct Counting {
    before: String,
}

impl Counting {
    fn new() -> Self {
        let before = std::fs::read_to_string(STATS).unwrap();
        std::fs::write(STATS, "1").unwrap();
        Self { before }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = std::fs::write(STATS, self.before.trim());
    }
}

/// Runs and nanoseconds, by name.
fn times() -> BTreeMap<String, (u64, u64)> {
    let named = ProgInfoIter::default()
        .map(|program| (program.name.to_string_lossy().into_owned(), program))
        .filter(|(name, _)| PROGRAMS.contains(&name.as_str()));
    named.map(|(name, program)| (name, (program.run_cnt, program.run_time_ns))).collect()
}

fn main() {
    let bench = Bench::new();
    let input = bench.watch();
    let _unread = bench.network.bind(NEAR_IP4, PORT);
    let _counting = Counting::new();
    let mut generator = bench.generator();
    for (what, flows) in [
        ("a full socket", vec![bench.flow(PORT, 1e6)]),
        ("two channels", vec![bench.flow(PORT, 950e3), bench.flow(CLOSED_PORT, 50e3)]),
    ] {
        let (before, seen, began) = (times(), bench.gate_discarded(), Instant::now());
        let (ran, mut at) = (input.read().ran.0, began);
        bench.send(&mut generator, &flows, || {
            at = Instant::now();
            at - began > TIME
        });
        let (elapsed, after) = (at - began, times());
        let rate = (bench.gate_discarded() - seen) as f64 / elapsed.as_secs_f64();
        let ran = (input.read().ran.0 - ran) as f64 / elapsed.as_nanos() as f64;
        println!("{what}: {:.0} k/s discarded, input {:.1} % of the CPU", rate / 1e3, ran * 100.0);
        let mut all = 0.0;
        for (name, (runs, ns)) in &after {
            let (runs_then, ns_then) = before.get(name).copied().unwrap_or_default();
            let (runs, ns) = ((runs - runs_then) as f64, (ns - ns_then) as f64);
            let share = 100.0 * ns / elapsed.as_nanos() as f64;
            all += share;
            let per_second = runs / elapsed.as_secs_f64();
            println!(
                "  {name:13} {per_second:8.0}/s {:5.0} ns each {share:6.2} %",
                ns / runs.max(1.0)
            );
        }
        println!("  all {all:41.2} % of a CPU");
    }
}

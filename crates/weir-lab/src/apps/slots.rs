//! Where a worker's figures stand in the memory that it shares with the controller. No two overlap.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_bpf::sys::shared_memory::SharedCounters;

use crate::histogram;

/// 1 once the worker is ready.
pub const READY: usize = 0;
/// Packets received; requests answered in full.
pub const DELIVERED: usize = 1;
/// Packets sent in reply.
pub const REPLIED: usize = 2;
/// Datagrams that a client has sent.
pub const SENT: usize = 3;
/// Answers that did not come, or were not whole and right.
pub const LOST: usize = 4;
/// Not 0 once a client is to send no more.
pub const STOP: usize = 5;
/// Passes of the calibrated loop by the compute-bound process.
pub const WORK: usize = 6;
/// CPU time that it has had, nanoseconds.
pub const CPU_NS: usize = 7;
/// Calls of the RPC worker that were answered.
pub const CALLS: usize = 8;
/// When the last was, nanoseconds of `CLOCK_MONOTONIC`.
pub const LAST_CALL_NS: usize = 9;
/// When a process that sleeps is to wake, nanoseconds of `CLOCK_MONOTONIC`.
pub const DUE_NS: usize = 10;
/// Histogram of packets' ages, of the time that requests took, or of the calibrated loop, nanoseconds.
pub const HISTOGRAM: usize = 11;
/// Slots in all.
pub const LEN: usize = HISTOGRAM + histogram::SLOTS;

pub fn ready(shared: &SharedCounters) {
    shared.get(READY).store(1, Ordering::Release);
}

/// Counts; returns the count before.
pub fn add(shared: &SharedCounters, slot: usize, count: u64) -> u64 {
    shared.get(slot).fetch_add(count, Ordering::Relaxed)
}

pub fn is_set(shared: &SharedCounters, slot: usize) -> bool {
    shared.get(slot).load(Ordering::Acquire) != 0
}

/// A request was answered in full, so long after it began.
pub fn took(shared: &SharedCounters, time: Duration) {
    add(shared, DELIVERED, 1);
    histogram::record(shared, HISTOGRAM, time.as_nanos() as u64);
}

//! What a trial says of itself: every figure is declared here once.
//!
//! A metric's id names it in JSON, tables, plots and `docs/lab-json.md`. Its source says how the engine
//! computes it from what the probes read; a figure that no reading yields is [`Source::Given`]: a program
//! reports it, or an experiment derives it from others.

use crate::reading::{Counter, Histogram};

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Pps,
    /// Events per second: requests, answers, calls, passes of a loop.
    PerSecond,
    /// 10^6 bits per second.
    Mbit,
    /// A part of a whole, 0 to 1.
    Share,
    /// One figure divided by another.
    Ratio,
    Seconds,
    Micros,
    Millis,
    Nanos,
    /// Packets, requests: a number of them.
    Count,
}

impl Unit {
    /// As in JSON's documentation and on axes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pps => "packets/s",
            Self::PerSecond => "1/s",
            Self::Mbit => "Mbit/s",
            Self::Share => "share, 0 to 1",
            Self::Ratio => "ratio",
            Self::Seconds => "s",
            Self::Micros => "us",
            Self::Millis => "ms",
            Self::Nanos => "ns",
            Self::Count => "count",
        }
    }
}

/// How the repeats of one point become one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The median, with the range beside it.
    Median,
    /// The sum: of rare events.
    Sum,
    /// The highest: of disturbances.
    Max,
}

/// Which of two figures is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
    /// Neither: it explains others.
    Neither,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// A counter's growth per second of the window, times this.
    Rate(Counter, f64),
    /// The first counter's growth by the second's over the window, times this.
    Ratio(Counter, Counter, f64),
    /// The same over the whole trial.
    WholeRatio(Counter, Counter),
    /// A counter's growth over the window.
    Growth(Counter),
    /// The time in which a counter grows by one, over the window, times this of a second.
    Period(Counter, f64),
    /// The nanoseconds below which this share of the window's samples lie, times the last.
    Quantile(Histogram, f64, f64),
    /// Nothing that is read: reported by a program, or derived.
    Given,
}

#[derive(Debug, PartialEq)]
pub struct Metric {
    pub id: &'static str,
    pub unit: Unit,
    pub source: Source,
    pub merge: Merge,
    pub better: Better,
    pub help: &'static str,
}

/// Declares metrics, and the list of them all.
macro_rules! metrics {
    ($($name:ident: $unit:ident, $source:expr, $merge:ident, $better:ident, $help:literal;)*) => {
        /// The metrics, each under its id.
        #[allow(non_upper_case_globals, reason = "a metric is written as its id is")]
        pub mod m {
            use super::{Better, CPU, MS, Merge, Metric, Source::*, US, Unit};
            use crate::reading::{Counter::*, Histogram::*};
            $(#[doc = $help] pub static $name: Metric = Metric {
                id: stringify!($name), unit: Unit::$unit, source: $source,
                merge: Merge::$merge, better: Better::$better, help: $help,
            };)*
        }
        /// Every metric, in the order of the documentation.
        pub static METRICS: &[&Metric] = &[$(&m::$name),*];
    };
}

/// A nanosecond of CPU time per second, as a share of a CPU.
pub const CPU: f64 = 1e-9;
/// A nanosecond in microseconds.
pub const US: f64 = 1e-3;
/// The same in milliseconds.
pub const MS: f64 = 1e-6;

metrics! {
    offered_pps: Pps, Rate(FloodSent, 1.0), Median, Neither, "Sent by the flood.";
    nic_drop_pps: Pps, Rate(RingDrop, 1.0), Median, Neither,
        "Refused by the full receive ring, at no cost to the system under test.";
    discarded_pps: Pps, Rate(Discarded, 1.0), Median, Neither, "Discarded by the gate.";
    late_drop_pps: Pps, Rate(LateDrop, 1.0), Median, Less,
        "Dropped by the kernel after it had built an skb.";
    delivered_pps: Pps, Rate(Delivered, 1.0), Median, More, "Received by the flooded application.";
    captured_pps: Pps, Rate(Captured, 1.0), Median, More, "Written by the capture.";
    forwarded_pps: Pps, Rate(Forwarded, 1.0), Median, More, "Sent by the router's egress.";
    wake_max_ms: Millis, Quantile(Wake, 1.0, MS), Max, Less,
        "Longest that an interactive process waited for the tested CPU after it was woken.";
    age_p50_us: Micros, Quantile(Age, 0.5, US), Median, Less,
        "Age of a packet when the flooded application received it, median.";
    age_p99_us: Micros, Quantile(Age, 0.99, US), Median, Less, "The same, 99th percentile.";
    light_offered_pps: Pps, Rate(LightSent, 1.0), Median, Neither, "Sent by the bystander flow.";
    light_pps: Pps, Rate(LightDelivered, 1.0), Median, More,
        "Received by the bystander: the second application, which is sent a light flow.";
    light_goodput: Share, Ratio(LightDelivered, LightSent, 1.0), Median, More, "`light_pps` of `light_offered_pps`.";
    light_age_p50_us: Micros, Quantile(LightAge, 0.5, US), Median, Less,
        "Age of a packet when the bystander received it, median.";
    light_age_p99_us: Micros, Quantile(LightAge, 0.99, US), Median, Less, "The same, 99th percentile.";
    scheduled_us: Micros, Given, Median, Neither,
        "From when a packet was made until input was scheduled for it: a softirq raised, or the NAPI \
         thread woken; median, absent where it did not happen for half of the packets.";
    began_us: Micros, Given, Median, Neither, "The same until the softirq or the thread began.";
    at_ip_us: Micros, Given, Median, Less, "The same until the packet came from the driver to IP.";
    woken_us: Micros, Given, Median, Less, "The same until the receiver was woken for it.";
    runs_us: Micros, Given, Median, Less, "The same until the receiver ran.";
    poll_p50_us: Micros, Given, Median, Less,
        "From when input was scheduled for a packet until that came to IP, median.";
    poll_p90_us: Micros, Given, Median, Less, "The same, 90th percentile.";
    poll_p99_us: Micros, Given, Median, Less, "The same, 99th percentile.";
    traced: Count, Given, Sum, Neither, "Packets in the window of which that is known.";
    echo_pps: Pps, Rate(Arrived, 1.0), Median, More,
        "Replies of the flooded echo server that arrived at the far end.";
    rtt_p50_us: Micros, Given, Median, Less, "Round trip of a ping to the echo server, median of all, of which those without a reply are the longest.";
    rtt_p99_us: Micros, Given, Median, Less, "The same, 99th percentile.";
    rtt_p999_us: Micros, Given, Median, Less, "The same, 99.9th percentile.";
    pings_sent: Count, Given, Sum, Neither, "Pings sent in the window.";
    pings_lost: Count, Given, Sum, Less, "Pings without a reply.";
    pings_lost_in_row: Count, Given, Max, Less, "Most of them one after the other.";
    per_s: PerSecond, Rate(Done, 1.0), Median, More,
        "Requests answered in full, as the client counts them.";
    took_p50_us: Micros, Quantile(Took, 0.5, US), Median, Less, "Time that a request took, median.";
    took_mean_us: Micros, Given, Median, Less, "Time that a request took, mean, where the client reports no median.";
    took_p99_us: Micros, Quantile(Took, 0.99, US), Median, Less, "The same, 99th percentile.";
    trip_us: Micros, Period(Done, 1e6), Median, Less, "Time per round trip, mean over the window.";
    failed: Count, Growth(ClientLost), Sum, Less, "Requests without a whole and right answer, in the window.";
    throughput_mbit: Mbit, Given, Median, More, "Payload received.";
    sent_per_s: PerSecond, Given, Median, Neither, "Requests that a client sent, where it says so.";
    loss: Share, Given, Median, Less, "Lost, of what the client sent.";
    calls_per_s: PerSecond, Ratio(Calls, LastCallNs, 1e9), Median, More,
        "Calls of the computing worker, from the end of one to the end of another.";
    completion_ms: Millis, Ratio(LastCallNs, Calls, 1e-6), Median, Less, "Time per call.";
    cookies_pps: Pps, Rate(Cookies, 1.0), Median, Neither, "SYN cookies sent, by the kernel or by the gate.";
    client_lost_pps: Pps, Rate(RingDropClient, 1.0), Median, Neither, "The client's own packets refused by the ring.";
    user_cpu: Share, Rate(FloodedCpu, CPU), Median, Neither,
        "CPU time charged to the flooded application (or the first server).";
    light_cpu: Share, Rate(LightCpu, CPU), Median, Neither, "CPU time charged to the bystander.";
    server_cpu: Share, Rate(ServerCpu, CPU), Median, Neither, "CPU time charged to all servers.";
    input_cpu: Share, Rate(InputCpu, CPU), Median, Neither,
        "CPU time charged to the NAPI threads; absent where softirqs poll.";
    daemon_cpu: Share, Rate(DaemonCpu, CPU), Median, Less, "CPU time charged to `weir run`.";
    idle_cpu: Share, Rate(IdleNs, CPU), Median, Neither, "Time in which the CPU had nothing to do.";
    hog_per_s: PerSecond, Rate(Work, 1.0), Median, More,
        "Passes of the calibrated loop by the compute-bound process.";
    hog_cpu: Share, Rate(WorkCpu, CPU), Median, Neither, "CPU time charged to it.";
    hog_work: Share, Given, Median, More, "Its passes, of those with the CPU to itself.";
    user_work: Share, Given, Median, More,
        "Work of all user processes, of what the CPU can do: the hog's and the second receiver's.";
    mischarged: Share, Given, Median, Less,
        "CPU time charged to the hog that was not its own work, of what it was charged.";
    threads_cpu: Share, Rate(NapiPerf, CPU), Median, Neither, "What the NAPI threads ran, by perf.";
    meter_sum: Ratio, WholeRatio(Metered, NapiPerf), Median, Neither,
        "What weir's meter charged, and discarding took, of what the NAPI threads ran by perf.";
    meter_flooded: Ratio, WholeRatio(ChargedFlooded, Charged), Median, Neither,
        "What the meter charged to the flooded channel, of all that it charged.";
    delivered_ratio: Ratio, Ratio(Delivered, LightDelivered, 1.0), Median, Neither,
        "Packets of the heavier receiver for each of the lighter.";
    ns_per_packet: Nanos, Given, Median, Less,
        "CPU time of input per packet: median of NAPI polls that took a whole budget, else its mean.";
    cpu_ns_per_packet: Nanos, WholeRatio(InputCpu, Taken), Median, Less,
        "CPU time of the NAPI threads over packets taken from the ring, whole trial.";
    app_ns_per_packet: Nanos, WholeRatio(FloodedCpu, Delivered), Median, Neither,
        "CPU time of the flooded application over packets it received, whole trial.";
    light_ns_per_packet: Nanos, WholeRatio(LightCpu, LightDelivered), Median, Neither,
        "The same of the bystander.";
    in_full_polls: Share, Given, Median, Neither,
        "Packets in polls that took a whole budget.";
    discarded_share: Share, Ratio(Discarded, Judged, 1.0), Median, Neither,
        "Discarded, of what the gate saw.";
    missed: Count, Growth(Missed), Sum, Neither,
        "Packets that fell due while the generator's CPU was elsewhere; not sent, not offered.";
    loop_ns: Nanos, Quantile(Loop, 0.1, 1.0), Median, Neither,
        "Time of the calibrated loop on the tested CPU: how fast the machine was.";
    steal: Share, Rate(StealNs, CPU), Max, Neither, "Tested CPU's time that the hypervisor took.";
    window_s: Seconds, Given, Median, Neither, "Length of the measured window.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_declared_once() {
        for (at, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[at + 1..].iter().all(|other| other.id != metric.id), "{}", metric.id);
        }
    }
}

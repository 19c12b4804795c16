//! What the probes read at one moment: cumulative counters and histograms, each with its own instant.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::histogram;

/// A cumulative counter; metric.rs says what is made of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    // The generator, since its flows were set.
    FloodSent,
    LightSent,
    Missed,
    // Applications.
    Delivered,
    LightDelivered,
    OtherDelivered,
    Captured,
    Forwarded,
    Replied,
    FloodedCpu,
    LightCpu,
    ServerCpu,
    // The kernel and the gate.
    RingDrop,
    RingDropClient,
    Taken,
    Arrived,
    RepliesRefused,
    Discarded,
    Judged,
    Answered,
    Unjudged,
    LateBacklog,
    LateSocket,
    LateOther,
    Untracked,
    LateDrop,
    IpReceived,
    ClientIpSent,
    Segments,
    Cookies,
    // The client.
    Done,
    ClientSent,
    ClientLost,
    Calls,
    LastCallNs,
    // weir's meter.
    ChargedFlooded,
    Charged,
    /// Charged, or taken by discarding.
    Metered,
    // The CPU.
    InputCpu,
    DaemonCpu,
    NapiPerf,
    IdleNs,
    StealNs,
    Work,
    WorkCpu,
}

/// A histogram of nanoseconds in memory shared with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Histogram {
    /// Age of the flooded application's packets.
    Age,
    /// Age of the bystander's.
    LightAge,
    /// Time that the client's requests took.
    Took,
    /// Time of the calibrated loop.
    Loop,
    /// How late the interactive process woke.
    Wake,
}

/// Everything that was read at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    counters: BTreeMap<Counter, (Instant, u64)>,
    histograms: BTreeMap<Histogram, Vec<u64>>,
}

impl Reading {
    /// Notes a counter, read now. Counters that several things feed add up.
    pub fn add(&mut self, counter: Counter, value: u64) {
        let entry = self.counters.entry(counter).or_insert((Instant::now(), 0));
        entry.1 += value;
    }

    pub fn note(&mut self, histogram: Histogram, slots: Vec<u64>) {
        self.histograms.insert(histogram, slots);
    }

    /// A counter's value; 0 where it was not read.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters.get(&counter).map_or(0, |(_, value)| *value)
    }

    pub fn has(&self, counter: Counter) -> bool {
        self.counters.contains_key(&counter)
    }

    /// Growth of a counter since an earlier reading.
    pub fn since(&self, before: &Self, counter: Counter) -> u64 {
        self.get(counter).saturating_sub(before.get(counter))
    }

    /// Growth per second, over the time between the two readings of that counter.
    pub fn per_s(&self, before: &Self, counter: Counter) -> Option<f64> {
        let (now, then) = (self.counters.get(&counter)?, before.counters.get(&counter)?);
        let seconds = (now.0 - then.0).as_secs_f64();
        (seconds > 0.0).then(|| now.1.saturating_sub(then.1) as f64 / seconds)
    }

    /// Growth of a counter by another's; `None` where that has not grown, or this was not read.
    pub fn ratio(&self, before: &Self, over: Counter, under: Counter) -> Option<f64> {
        let under = self.since(before, under);
        (under > 0 && self.has(over)).then(|| self.since(before, over) as f64 / under as f64)
    }

    /// Nanoseconds below which a share of the samples since an earlier reading lie.
    pub fn quantile_ns(&self, before: &Self, histogram: Histogram, share: f64) -> Option<f64> {
        let (now, then) = (self.histograms.get(&histogram)?, before.histograms.get(&histogram)?);
        histogram::quantile(then, now, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_several_things_add_up_and_absent_ones_have_no_rate() {
        let mut before = Reading::default();
        before.add(Counter::ServerCpu, 10);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut after = Reading::default();
        after.add(Counter::ServerCpu, 10);
        after.add(Counter::ServerCpu, 5);
        assert_eq!(after.since(&before, Counter::ServerCpu), 5);
        let rate = after.per_s(&before, Counter::ServerCpu).unwrap();
        assert!((1.0..=2500.0).contains(&rate), "{rate}");
        assert_eq!(after.per_s(&before, Counter::Delivered), None);
    }
}

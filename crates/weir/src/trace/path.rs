//! The ways of packets, put together from what the kernel half tells of each step, and what they add up to.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hdrhistogram::Histogram;
use weir_bpf::trace::{Arrival, Event, Step, Told};
use weir_bpf::units::Nanos;

/// Of a packet that nothing more is heard of for so long, nothing is expected: TCP frees in silence what it has merged
/// with other segments, and a process may read much later.
pub const GIVE_UP: Duration = Duration::from_secs(2);

/// A packet's way.
#[derive(Clone, Debug)]
pub struct Path {
    /// That it was received.
    pub arrival: Arrival,
    /// What came after, by time.
    pub events: Vec<Event>,
}

impl Path {
    /// Each step, and when.
    pub fn steps(&self) -> Vec<(Step, Nanos)> {
        let before =
            [(Step::Scheduled, self.arrival.scheduled), (Step::Polled, self.arrival.polled)];
        let before = before.into_iter().filter_map(|(step, at)| Some((step, at?)));
        let received = (Step::Received, self.arrival.event.at);
        let after = self.events.iter().map(|event| (event.step, event.at));
        before.chain([received]).chain(after).collect()
    }

    /// The last of what has been heard of it.
    fn latest(&self) -> Nanos {
        self.events.last().map_or(self.arrival.event.at, |event| event.at)
    }

    fn is_over(&self) -> bool {
        self.events.iter().any(|event| event.step.is_last())
    }
}

/// Packets that are on their way.
#[derive(Default)]
pub struct Paths {
    under_way: HashMap<u64, Path>,
    over: Vec<Path>,
}

impl Paths {
    /// Takes what the kernel half tells.
    pub fn take(&mut self, told: Told) {
        match told {
            Told::Arrival(arrival) => {
                let number = arrival.event.packet;
                self.under_way.insert(number, Path { arrival, events: Vec::new() });
            }
            Told::Event(event) => {
                let Some(path) = self.under_way.get_mut(&event.packet) else { return };
                let number = event.packet;
                path.events.push(event);
                if path.is_over() {
                    self.over.extend(self.under_way.remove(&number));
                }
            }
        }
    }

    /// Those that have come to an end, and those of which nothing is expected any more, in the order of their arrival.
    pub fn over(&mut self, now: Nanos) -> Vec<Path> {
        let too_old =
            |path: &Path| now.0.saturating_sub(path.latest().0) > GIVE_UP.as_nanos() as u64;
        self.over.extend(self.under_way.extract_if(|_, path| too_old(path)).map(|(_, path)| path));
        let mut over = std::mem::take(&mut self.over);
        for path in &mut over {
            path.events.sort_by_key(|event| event.at);
        }
        over.sort_by_key(|path| path.arrival.event.at);
        over
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

/// How long packets took from one step to the next.
#[derive(Default)]
pub struct Times {
    packets: u64,
    by_steps: BTreeMap<(Step, Step), Histogram<u64>>,
    ends: BTreeMap<Option<Step>, u64>,
}

/// Of one step to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// From there.
    pub from: Step,
    /// To there.
    pub to: Step,
    /// So many packets.
    pub packets: u64,
    /// In microseconds.
    pub p50_us: f64,
    /// In microseconds.
    pub p99_us: f64,
    /// In microseconds.
    pub max_us: f64,
}

impl Times {
    /// Counts a packet.
    pub fn count(&mut self, path: &Path) {
        self.packets += 1;
        let steps = path.steps();
        for (from, to) in steps.iter().zip(steps.iter().skip(1)) {
            let times = self.by_steps.entry((from.0, to.0)).or_insert_with(|| {
                Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"))
            });
            // It grows as it has to.
            let _ = times.record(to.1.0.saturating_sub(from.1.0));
        }
        let end = path.events.iter().map(|event| event.step).find(|step| step.is_last());
        *self.ends.entry(end).or_default() += 1;
    }

    /// How many were counted.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// By the step that was the last, and how many; `None`: of which nothing more was heard.
    pub fn ends(&self) -> impl Iterator<Item = (Option<Step>, u64)> + '_ {
        self.ends.iter().map(|(step, packets)| (*step, *packets))
    }

    /// In the order of the steps.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.by_steps.iter().map(|((from, to), times)| Row {
            from: *from,
            to: *to,
            packets: times.len(),
            p50_us: times.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: times.value_at_quantile(0.99) as f64 / 1e3,
            max_us: times.max() as f64 / 1e3,
        })
    }
}

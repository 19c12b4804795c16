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
        let too_old = |path: &Path| now - path.latest() > GIVE_UP.into();
        self.over.extend(self.under_way.extract_if(|_, path| too_old(path)).map(|(_, path)| path));
        let mut over = std::mem::take(&mut self.over);
        for path in &mut over {
            path.events.sort_by_key(|event| event.at);
        }
        over.sort_by_key(|path| path.arrival.event.at);
        over
    }

    /// Expects nothing of any packet any more.
    pub fn give_up(&mut self) {
        self.over.extend(self.under_way.drain().map(|(_, path)| path));
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
            let _ = times.record((to.1 - from.1).0);
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

#[cfg(test)]
mod tests {
    use weir_bpf::units::CpuId;

    use super::*;

    fn event(packet: u64, step: Step, at: u64) -> Event {
        let (cpu, comm) = (CpuId(0), "reads".to_owned());
        Event { packet, at: Nanos(at), step, cpu, tid: 1, comm, detail: 0, place: 0 }
    }

    fn arrival(packet: u64, at: u64) -> Told {
        Told::Arrival(Arrival {
            event: event(packet, Step::Received, at),
            time: Duration::ZERO,
            scheduled: None,
            polled: Some(Nanos(at - 1000)),
            by_softirq: false,
            wire_len: 60,
            data: Vec::new(),
        })
    }

    #[test]
    fn a_way_has_its_steps_in_order_whatever_cpu_told_them_first() {
        let mut paths = Paths::default();
        paths.take(Told::Event(event(9, Step::Queued, 5000)));
        paths.take(arrival(1, 10_000));
        paths.take(arrival(2, 11_000));
        paths.take(Told::Event(event(1, Step::Runs, 40_000)));
        paths.take(Told::Event(event(1, Step::Queued, 20_000)));
        assert!(paths.over(Nanos(50_000)).is_empty());
        paths.take(Told::Event(event(1, Step::Read, 45_000)));
        // Of a packet that is over, nothing counts.
        paths.take(Told::Event(event(1, Step::Read, 46_000)));
        let over = paths.over(Nanos(50_000));
        let steps: Vec<Step> = over[0].steps().iter().map(|(step, _)| *step).collect();
        let way = [Step::Polled, Step::Received, Step::Queued, Step::Runs, Step::Read];
        assert_eq!((over.len(), &steps[..]), (1, &way[..]));
        assert_eq!(paths.under_way(), 1);
        let later = Nanos(11_000 + GIVE_UP.as_nanos() as u64);
        assert!(paths.over(later).is_empty());
        assert_eq!(paths.over(Nanos(later.0 + 1)).len(), 1);
    }

    #[test]
    fn times_are_from_each_step_to_the_next_however_long() {
        let (mut paths, mut times) = (Paths::default(), Times::default());
        for packet in 0..100 {
            paths.take(arrival(packet, 10_000));
            let at = 10_000 + 1_000_000 * (packet + 1);
            paths.take(Told::Event(event(packet, Step::Queued, at)));
            paths.take(Told::Event(event(packet, Step::Dropped, at + 2000)));
        }
        paths.over(Nanos(0)).iter().for_each(|path| times.count(path));
        let rows: Vec<Row> = times.rows().collect();
        assert_eq!((rows.len(), times.packets()), (3, 100));
        assert_eq!((rows[1].from, rows[1].to), (Step::Received, Step::Queued));
        let close = |is: f64, to: f64| (is / to - 1.0).abs() < 0.002;
        assert!(close(rows[1].p50_us, 50_000.0) && close(rows[1].p99_us, 99_000.0), "{rows:?}");
        assert!(close(rows[1].max_us, 100_000.0) && close(rows[2].p50_us, 2.0), "{rows:?}");
        assert_eq!(times.ends().collect::<Vec<_>>(), [(Some(Step::Dropped), 100)]);
    }
}

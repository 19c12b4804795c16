//! A host: CPUs that run what their run queues choose, and packets that go from rings to sockets.
//!
//! Time goes from event to event, each CPU on its own. A CPU runs a poll of up to 64 packets or a
//! consumer's turn of up to 16 to its end, and a neighbour or nothing until something happens. What was
//! sent meanwhile is counted when the CPU looks; no packet is an event of its own at high rates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

use super::cpu::{Cpu, Kind};
use super::governed::{Look, Watch};
use super::outcome::{FlowCounts, Outcome};
use super::packets::{Arrivals, PacketsPerSec, Ring};
use super::scheduler::TaskId;
use super::spec::{ConsumerSpec, FlowSpec, HostSpec, Receive};
use crate::units::{Nanos, Share, Weight};

/// NAPI's budget of one poll (`NAPI_POLL_WEIGHT`).
pub(super) const POLL_BUDGET: u64 = 64;
/// A consumer that runs is looked at again after so many packets.
pub(super) const CONSUMER_TURN: u64 = 16;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) cpu: usize,
    pub(super) task: Option<TaskId>,
    pub(super) ring: Ring,
    pub(super) flows: Vec<FlowSpec>,
    pub(super) arrivals: Vec<Arrivals>,
    pub(super) counts: Vec<FlowCounts>,
    pub(super) watch: Option<Watch>,
    /// What a poll in progress will put into sockets, by flow.
    pub(super) admitting: Vec<u64>,
    /// No interrupt comes before.
    pub(super) deferred_to: Nanos,
}

impl Queue {
    /// Counts what was sent until `now`.
    pub(super) fn receive(&mut self, now: Nanos, rng: &mut Rng) {
        let mut came: Vec<u64> = self.arrivals.iter_mut().map(|a| a.until(now, rng)).collect();
        for (counts, came) in self.counts.iter_mut().zip(&came) {
            counts.offered += came;
        }
        self.ring.put(&mut came, rng);
        for (counts, lost) in self.counts.iter_mut().zip(&came) {
            counts.ring_dropped += lost;
        }
    }

    pub(super) fn next_arrival(&self) -> Nanos {
        self.arrivals.iter().map(Arrivals::next).min().unwrap_or(Nanos(u64::MAX))
    }

    pub(super) fn feeds(&self, consumer: usize) -> bool {
        self.flows.iter().any(|flow| flow.to == consumer)
    }
}

#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) spec: ConsumerSpec,
    pub(super) task: TaskId,
    pub(super) waiting: u64,
    /// Room that a poll in progress will use.
    pub(super) reserved: u64,
    pub(super) delivered: u64,
}

impl Consumer {
    pub(super) fn room(&self) -> u64 {
        self.spec.depth.saturating_sub(self.waiting + self.reserved)
    }
}

/// A simulated host.
#[derive(Debug)]
pub struct Host {
    pub(super) spec: HostSpec,
    pub(super) now: Nanos,
    pub(super) cpus: Vec<Cpu>,
    pub(super) queues: Vec<Queue>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) rng: Rng,
    events: BinaryHeap<Reverse<(Nanos, usize, u64)>>,
}

impl Host {
    /// A host at rest, at time 0.
    pub fn new(spec: HostSpec) -> Self {
        let mut rng = Rng::with_seed(spec.seed);
        let mut cpus: Vec<Cpu> =
            (0..spec.cpus).map(|_| Cpu::new(spec.tick, rng.u64(0..spec.tick.0))).collect();
        let queues = build_queues(&spec, &mut cpus, &mut rng);
        let mut consumers = Vec::new();
        for (at, &consumer) in spec.consumers.iter().enumerate() {
            let task = cpus[consumer.cpu].add(
                Kind::Consumer(at),
                consumer.weight,
                spec.slice,
                spec.session,
            );
            let (waiting, reserved, delivered) = (0, 0, 0);
            consumers.push(Consumer { spec: consumer, task, waiting, reserved, delivered });
        }
        for neighbour in &spec.neighbours {
            let cpu = &mut cpus[neighbour.cpu];
            let task = cpu.add(Kind::Neighbour, neighbour.weight, spec.slice, spec.session);
            cpu.has_neighbour = true;
            cpu.run.wake(task);
        }
        let events = (0..spec.cpus).map(|cpu| Reverse((Nanos::ZERO, cpu, 0))).collect();
        Self { spec, now: Nanos::ZERO, cpus, queues, consumers, rng, events }
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        while let Some(&Reverse((at, cpu, made))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            if self.cpus[cpu].events == made {
                self.now = at;
                self.step(cpu);
            }
        }
        self.now = end;
    }

    /// What happened since time 0.
    pub fn outcome(&self) -> Outcome {
        let in_sockets: u64 = self.consumers.iter().map(|c| c.waiting).sum();
        let in_rings: u64 = self.queues.iter().map(|q| q.ring.len()).sum();
        let in_work: u64 = self.queues.iter().flat_map(|q| &q.admitting).sum();
        Outcome {
            elapsed: self.now,
            flows: self.queues.iter().map(|queue| queue.counts.clone()).collect(),
            delivered: self.consumers.iter().map(|consumer| consumer.delivered).collect(),
            waiting: in_sockets + in_rings + in_work,
            cpus: self.cpus.iter().map(|cpu| cpu.time).collect(),
        }
    }

    /// What a governor saw and did, by look; empty if the queue is not governed.
    pub fn looks(&self, queue: usize) -> &[Look] {
        self.queues[queue].watch.as_ref().map_or(&[], |watch| &watch.looks)
    }

    /// Changes how fast a flow comes, from now on.
    pub fn set_rate(&mut self, queue: usize, flow: usize, rate: PacketsPerSec) {
        let (now, rng) = (self.now, &mut self.rng);
        let queue = &mut self.queues[queue];
        queue.receive(now, rng);
        queue.arrivals[flow].set_rate(rate);
        let cpu = queue.cpu;
        self.wake_cpu(cpu);
    }

    /// What a host did in `time`, after `before` that is not counted.
    pub fn measure(spec: HostSpec, before: Nanos, time: Nanos) -> (Self, Outcome) {
        let mut host = Self::new(spec);
        host.run_for(before);
        let then = host.outcome();
        host.run_for(time);
        let outcome = host.outcome().since(&then);
        (host, outcome)
    }

    /// Has a CPU look at what is new; one that is in the middle of a packet does so afterwards.
    pub(super) fn wake_cpu(&mut self, cpu: usize) {
        if self.cpus[cpu].interruptible() {
            self.schedule(cpu, self.now);
        }
    }

    pub(super) fn schedule(&mut self, cpu: usize, at: Nanos) {
        self.cpus[cpu].events += 1;
        self.events.push(Reverse((at.max(self.now), cpu, self.cpus[cpu].events)));
    }
}

fn build_queues(spec: &HostSpec, cpus: &mut [Cpu], rng: &mut Rng) -> Vec<Queue> {
    let mut queues = Vec::new();
    for (at, queue) in spec.queues.iter().enumerate() {
        let weight = match spec.receive {
            Receive::Softirq { .. } => None,
            Receive::Thread(weight) => Some(weight),
            Receive::Governed(_) => Some(Weight::LIGHTEST),
        };
        let flows = queue.flows.len();
        let whole = Share::new(1.0).unwrap_or(spec.session);
        let watch = match spec.receive {
            Receive::Governed(settings) => {
                Some(Watch::new(settings, queue.flows.iter().map(|flow| flow.to).collect()))
            }
            _ => None,
        };
        let cpu = &mut cpus[queue.cpu];
        cpu.queues.push(at);
        queues.push(Queue {
            cpu: queue.cpu,
            task: weight.map(|weight| cpu.add(Kind::Napi(at), weight, spec.slice, whole)),
            ring: Ring::new(queue.entries, flows),
            flows: queue.flows.clone(),
            arrivals: queue.flows.iter().map(|f| Arrivals::new(f.rate, f.bursts, rng)).collect(),
            counts: vec![FlowCounts::default(); flows],
            watch,
            admitting: vec![0; flows],
            deferred_to: Nanos::ZERO,
        });
    }
    queues
}

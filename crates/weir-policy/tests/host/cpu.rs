//! One CPU under the law: it runs what its run queue chooses, and packets go from rings to sockets.
//!
//! Time goes from event to event: a poll of up to 64 packets or a consumer's turn of up to 16 runs to its
//! end, a neighbour or nothing until something happens. What was sent meanwhile is counted when the CPU looks.
//! The same seed gives the same figures.

use fastrand::Rng;
use weir_policy::{Nanos, Patience, Settings, Weight};

use super::packets::{Flow, Ring};
use super::scheduler::{RunQueue, TaskId};
use super::watch::Watch;

/// NAPI's budget of one poll (`NAPI_POLL_WEIGHT`).
const POLL_BUDGET: u64 = 64;
/// A consumer that runs is looked at again after so many packets.
const CONSUMER_TURN: u64 = 16;
/// 250 Hz.
const TICK: Nanos = Nanos::from_millis(4);
/// The scheduler's usual slice on 2 CPUs.
const SLICE: Nanos = Nanos::from_micros(1_400);
/// A prompt and a patient thread's: crates/weir/src/governor/look.rs.
const PROMPT: Nanos = Nanos::from_micros(100);
const PATIENT: Nanos = Nanos::from_millis(100);

// What steps cost: of the order of a small virtual machine's.
const INTERRUPT: Nanos = Nanos(4_000);
const POLL: Nanos = Nanos(500);
/// A packet's way to the socket; its look by the gate, all that a discarded one costs; its consumer's work.
const INPUT: Nanos = Nanos(650);
const GATE: Nanos = Nanos(130);
const CONSUME: Nanos = Nanos(750);
const WAKE: Nanos = Nanos(1_000);
const SWITCH: Nanos = Nanos(1_500);
const LOOK: Nanos = Nanos(15_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Napi(usize),
    Consumer(usize),
    Neighbour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Idle,
    Neighbour,
    Poll { queue: usize, wasted: Nanos },
    Consume { consumer: usize, packets: u64 },
}

/// A queue of a NIC, with the thread that polls it.
#[derive(Debug)]
struct Queue {
    task: TaskId,
    ring: Ring,
    flows: Vec<Flow>,
    watch: Watch,
    /// How long interrupts are deferred, and until when.
    wait: Nanos,
    deferred_to: Nanos,
    offered: u64,
    ring_dropped: u64,
}

/// A process that receives packets.
#[derive(Debug)]
struct Consumer {
    task: TaskId,
    /// How many its socket holds.
    depth: u64,
    waiting: u64,
}

/// A simulated CPU.
#[derive(Debug)]
pub struct Host {
    now: Nanos,
    /// When the next thing happens.
    until: Nanos,
    run: RunQueue,
    kinds: Vec<Kind>,
    queues: Vec<Queue>,
    consumers: Vec<Consumer>,
    activity: Activity,
    /// When the activity began; later than now while the CPU is still at something of its own.
    since: Nanos,
    last_ran: Option<TaskId>,
    next_tick: Nanos,
    /// Consumers to wake, of a poll.
    to_wake: Vec<TaskId>,
    rng: Rng,
    delivered: u64,
    discarded: u64,
    input: Nanos,
}

impl Host {
    /// A CPU at rest. `queues`: the flows that come by each; `sockets`: how many packets each consumer's holds.
    pub fn new(
        settings: Settings,
        queues: &[Vec<Flow>],
        sockets: &[u64],
        neighbour: bool,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut host = Self {
            now: Nanos::ZERO,
            until: Nanos::ZERO,
            run: RunQueue::new(TICK),
            kinds: Vec::new(),
            queues: Vec::new(),
            consumers: Vec::new(),
            activity: Activity::Idle,
            since: Nanos::ZERO,
            last_ran: None,
            next_tick: Nanos(rng.u64(0..TICK.0)),
            to_wake: Vec::new(),
            rng,
            delivered: 0,
            discarded: 0,
            input: Nanos::ZERO,
        };
        for (at, flows) in queues.iter().enumerate() {
            let task = host.add(Kind::Napi(at), Weight::LIGHTEST);
            host.queues.push(Queue {
                task,
                ring: Ring::new(flows.len()),
                flows: flows.clone(),
                watch: Watch::new(settings),
                wait: Nanos::ZERO,
                deferred_to: Nanos::ZERO,
                offered: 0,
                ring_dropped: 0,
            });
        }
        for (at, &depth) in sockets.iter().enumerate() {
            let task = host.add(Kind::Consumer(at), Weight::NORMAL);
            host.consumers.push(Consumer { task, depth, waiting: 0 });
        }
        if neighbour {
            let task = host.add(Kind::Neighbour, Weight::NORMAL);
            host.run.wake(task);
        }
        host
    }

    fn add(&mut self, kind: Kind, weight: Weight) -> TaskId {
        self.kinds.push(kind);
        self.run.add(weight, SLICE)
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.until <= end {
            self.now = self.until;
            self.step();
        }
        self.now = end;
    }

    /// Packets received.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// CPU time of receiving.
    pub fn input(&self) -> Nanos {
        self.input
    }

    /// Packets that found no entry in a queue's ring.
    pub fn ring_dropped(&self, queue: usize) -> u64 {
        self.queues[queue].ring_dropped
    }

    /// How far a thread's weight has moved since the last call, in nice steps.
    pub fn swing(&mut self, queue: usize) -> i32 {
        let range = self.queues[queue].watch.range.take();
        range.map_or(0, |(heaviest, lightest)| lightest - heaviest)
    }

    /// Packets that are nowhere; anything but 0 is a fault of the simulation.
    pub fn unaccounted(&self) -> i64 {
        let waiting: u64 = self.consumers.iter().map(|consumer| consumer.waiting).sum();
        let queues = self.queues.iter();
        let left = queues.map(|q| q.offered as i64 - (q.ring_dropped + q.ring.len()) as i64);
        left.sum::<i64>() - (self.delivered + self.discarded + waiting) as i64
    }

    /// What the CPU did is over, or something is new: ends the one and begins the next.
    fn step(&mut self) {
        self.finish();
        let mut late = self.since - self.now;
        late += self.wake_consumers();
        if self.now >= self.next_tick {
            self.run.tick();
            self.next_tick += Nanos(((self.now - self.next_tick).0 / TICK.0 + 1) * TICK.0);
        }
        late += self.receive();
        late += self.look();
        self.begin(late);
    }

    fn finish(&mut self) {
        let ran = self.now - self.since;
        let asleep = self.consumers.iter().all(|c| !self.run.is_ready(c.task));
        let stranger = self.kinds.contains(&Kind::Neighbour);
        self.entitle(ran);
        match self.activity {
            Activity::Idle => self.queues.iter_mut().for_each(|q| q.watch.seen.idle += ran),
            Activity::Neighbour => {
                self.queues.iter_mut().for_each(|q| q.watch.stranger_ran(ran, asleep));
            }
            Activity::Poll { queue, wasted } => {
                self.input += ran;
                let apart = self.another_tells_apart(queue);
                let watch = &mut self.queues[queue].watch;
                watch.ran(ran, wasted, stranger);
                if watch.seen.beside || watch.seen.contended || apart {
                    watch.news(self.now);
                }
            }
            Activity::Consume { consumer, packets } => {
                self.consumers[consumer].waiting -= packets;
                self.delivered += packets;
            }
        }
        self.run.charge(ran);
        self.since = self.since.max(self.now);
        self.activity = Activity::Idle;
    }

    /// A neighbour's part of this time, had all the same: `fair_part()` of bpf/input.h.
    fn entitle(&mut self, ran: Nanos) {
        if self.kinds.contains(&Kind::Neighbour) {
            let consumers = self.consumers.iter().filter(|c| self.run.is_ready(c.task)).count();
            let part = Nanos(ran.0 / (1 + consumers.max(1) as u64));
            self.queues.iter_mut().for_each(|q| q.watch.seen.entitled += part);
        }
    }

    fn others_of(&self, at: usize) -> impl Iterator<Item = &Watch> {
        let others = self.queues.iter().enumerate().filter(move |(other, _)| *other != at);
        others.map(|(_, queue)| &queue.watch)
    }

    fn another_tells_apart(&self, at: usize) -> bool {
        self.others_of(at).any(|other| other.governor.tells_apart())
    }

    fn wake_consumers(&mut self) -> Nanos {
        let mut cost = Nanos::ZERO;
        for task in std::mem::take(&mut self.to_wake) {
            if !self.run.is_ready(task) {
                self.run.wake(task);
                cost += WAKE;
            }
        }
        cost
    }

    /// Counts what arrived and wakes who is to receive it; says what the interrupts cost.
    fn receive(&mut self) -> Nanos {
        let mut cost = Nanos::ZERO;
        for queue in &mut self.queues {
            let came: Vec<u64> = queue.flows.iter_mut().map(|flow| flow.until(self.now)).collect();
            queue.offered += came.iter().sum::<u64>();
            queue.ring_dropped += queue.ring.put(&came, &mut self.rng);
            let interrupts = queue.ring.len() > 0 && self.now >= queue.deferred_to;
            if interrupts && !self.run.is_ready(queue.task) {
                self.run.wake(queue.task);
                cost += INTERRUPT;
            }
        }
        cost
    }

    /// Looks at the threads whose time has come; says what that costs.
    fn look(&mut self) -> Nanos {
        let mut cost = Nanos::ZERO;
        for at in 0..self.queues.len() {
            if self.queues[at].watch.next > self.now {
                continue;
            }
            let others = self.others_of(at).map(|other| other.governor.used()).collect();
            let apart = self.another_tells_apart(at);
            let queue = &mut self.queues[at];
            let action = queue.watch.look(self.now, others, apart);
            let slice = match action.patience {
                Patience::Usual | Patience::Courteous => SLICE,
                Patience::Patient => PATIENT,
                Patience::Prompt => PROMPT,
            };
            let batch = action.patience == Patience::Courteous;
            self.run.reweight(queue.task, action.weight, slice, batch);
            queue.wait = action.wait.unwrap_or(Nanos::ZERO);
            cost += LOOK;
        }
        if cost > Nanos::ZERO {
            // The governor runs before any task of the fair class.
            self.run.interrupted();
        }
        cost
    }

    /// Begins what the run queue chooses, after `late`.
    fn begin(&mut self, late: Nanos) {
        let mut switching = Nanos::ZERO;
        let lasts = loop {
            let task = if self.run.wants_switch() { self.run.pick() } else { self.run.current() };
            let Some(task) = task else { break None };
            let begun = match self.kinds[task.0] {
                Kind::Napi(queue) => self.begin_poll(queue),
                Kind::Consumer(consumer) => self.begin_consumer(consumer),
                Kind::Neighbour => Some((Activity::Neighbour, None)),
            };
            if let Some((activity, lasts)) = begun {
                self.activity = activity;
                if self.last_ran.replace(task) != Some(task) {
                    switching = SWITCH;
                }
                break lasts;
            }
            // It has nothing to do.
            self.run.sleep();
            if let Kind::Napi(queue) = self.kinds[task.0] {
                self.queues[queue].deferred_to = self.now + self.queues[queue].wait;
            }
        };
        self.tell_who_waits();
        self.since = self.now + late;
        self.until = match lasts {
            // As in the kernel's accounts, a switch is charged to the task that it is to.
            Some(lasts) => self.since + switching + lasts,
            None => self.until_news(),
        }
        .max(self.now);
    }

    /// Input that waits is to know since when; a neighbour that is about to run instead is news.
    fn tell_who_waits(&mut self) {
        for (at, queue) in self.queues.iter_mut().enumerate() {
            if matches!(self.activity, Activity::Poll { queue, .. } if queue == at) {
                queue.watch.runs(self.now);
            } else if self.run.is_ready(queue.task) {
                queue.watch.waits(self.now);
                if self.activity == Activity::Neighbour {
                    queue.watch.news(self.now);
                }
            }
        }
    }

    fn begin_poll(&mut self, at: usize) -> Option<(Activity, Option<Nanos>)> {
        let queue = &mut self.queues[at];
        let taken = queue.ring.take(POLL_BUDGET, &mut self.rng);
        let packets: u64 = taken.iter().sum();
        if packets == 0 {
            return None;
        }
        let (mut used, mut wasted) = (Nanos::ZERO, Nanos::ZERO);
        let mut channels = Vec::new();
        for (flow, packets) in queue.flows.iter().zip(taken) {
            let consumer = &mut self.consumers[flow.to];
            let admitted = packets.min(consumer.depth - consumer.waiting);
            let lost = packets - admitted;
            consumer.waiting += admitted;
            self.discarded += lost;
            if admitted > 0 {
                self.to_wake.push(consumer.task);
            }
            wasted += Nanos(lost * GATE.0);
            used += Nanos(admitted * (GATE.0 + INPUT.0));
            channels.push((admitted > 0, lost));
        }
        queue.watch.polled(packets, packets == POLL_BUDGET, &channels);
        let lasts = POLL + used + wasted;
        let wasted = Nanos((lasts.0 as f64 * wasted.share_of(used + wasted)) as u64);
        Some((Activity::Poll { queue: at, wasted }, Some(lasts)))
    }

    fn begin_consumer(&mut self, at: usize) -> Option<(Activity, Option<Nanos>)> {
        let packets = self.consumers[at].waiting.min(CONSUMER_TURN);
        let lasts = Nanos(packets * CONSUME.0);
        (packets > 0).then_some((Activity::Consume { consumer: at, packets }, Some(lasts)))
    }

    /// When a CPU that could go on for ever is to look again.
    fn until_news(&self) -> Nanos {
        let mut until = self.next_tick;
        for queue in &self.queues {
            until = until.min(queue.watch.next);
            if !self.run.is_ready(queue.task) {
                let next = queue.flows.iter().map(Flow::next).min().unwrap_or(until);
                let next = if queue.ring.len() > 0 { self.now } else { next };
                until = until.min(next.max(queue.deferred_to));
            }
        }
        until
    }
}

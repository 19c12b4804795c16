//! One CPU of a host: what it does, step by step.

use super::governed::Watch;
use super::host::{CONSUMER_TURN, Host, POLL_BUDGET};
use super::outcome::CpuTime;
use super::scheduler::{RunQueue, TaskId};
use super::spec::Receive;
use crate::units::{Nanos, Share, Weight};

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Napi(usize),
    Consumer(usize),
    Neighbour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Idle,
    Neighbour,
    Poll { queue: usize, wasted: Nanos },
    Consume { consumer: usize, packets: u64 },
}

#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) run: RunQueue,
    pub(super) kinds: Vec<Kind>,
    pub(super) queues: Vec<usize>,
    pub(super) has_neighbour: bool,
    pub(super) activity: Activity,
    /// When the activity began; later than now while the CPU is still at something of its own.
    since: Nanos,
    last_ran: Option<TaskId>,
    next_tick: Nanos,
    next_timer: Nanos,
    /// Consumers to wake, of polls here or elsewhere.
    to_wake: Vec<TaskId>,
    /// Which of the events made for it is the last; the others are void.
    pub(super) events: u64,
    pub(super) time: CpuTime,
}

impl Cpu {
    pub(super) fn new(tick: Nanos, first_tick: u64) -> Self {
        Self {
            run: RunQueue::new(tick),
            kinds: Vec::new(),
            queues: Vec::new(),
            has_neighbour: false,
            activity: Activity::Idle,
            since: Nanos::ZERO,
            last_ran: None,
            next_tick: Nanos(first_tick),
            next_timer: Nanos::ZERO,
            to_wake: Vec::new(),
            events: 0,
            time: CpuTime::default(),
        }
    }

    pub(super) fn add(&mut self, kind: Kind, weight: Weight, slice: Nanos, part: Share) -> TaskId {
        self.kinds.push(kind);
        self.run.add(weight, slice, part)
    }

    pub(super) fn interruptible(&self) -> bool {
        matches!(self.activity, Activity::Idle | Activity::Neighbour)
    }
}

impl Host {
    /// What the CPU did is over, or something is new: ends the one and begins the next.
    pub(super) fn step(&mut self, cpu: usize) {
        self.finish(cpu);
        self.wake_consumers(cpu);
        self.tick(cpu);
        let mut late = self.cpus[cpu].since - self.now;
        late += self.receive(cpu);
        late += self.look(cpu);
        self.begin(cpu, late);
    }

    fn finish(&mut self, cpu: usize) {
        let ran = self.now - self.cpus[cpu].since;
        match self.cpus[cpu].activity {
            Activity::Idle => {}
            Activity::Neighbour => {
                self.cpus[cpu].time.neighbours += ran;
                self.strangers_ran(cpu, ran, None);
            }
            Activity::Poll { queue, wasted } => {
                self.cpus[cpu].time.input += ran;
                self.cpus[cpu].time.wasted += wasted;
                self.end_poll(queue, ran, wasted);
            }
            Activity::Consume { consumer, packets } => {
                self.cpus[cpu].time.consumers += ran;
                self.consumers[consumer].waiting -= packets;
                self.consumers[consumer].delivered += packets;
                self.strangers_ran(cpu, ran, Some(consumer));
            }
        }
        let cpu = &mut self.cpus[cpu];
        cpu.run.charge(ran);
        cpu.since = cpu.since.max(self.now);
        cpu.activity = Activity::Idle;
    }

    /// Shows the CPU's governors that a neighbour ran, or a consumer that may be none of theirs.
    fn strangers_ran(&mut self, cpu: usize, ran: Nanos, consumer: Option<usize>) {
        for at in 0..self.cpus[cpu].queues.len() {
            let queue = &mut self.queues[self.cpus[cpu].queues[at]];
            if consumer.is_some_and(|consumer| queue.feeds(consumer)) {
                continue;
            }
            let (Some(watch), Some(task)) = (&mut queue.watch, queue.task) else { continue };
            let waiting = self.cpus[cpu].run.is_ready(task);
            let mut fed = queue.flows.iter().map(|flow| &self.consumers[flow.to]);
            let asleep = fed.all(|c| c.waiting == 0 && !self.cpus[c.spec.cpu].run.is_ready(c.task));
            watch.stranger_ran(ran, waiting, asleep);
            if waiting {
                watch.news(self.now);
            }
        }
    }

    fn end_poll(&mut self, at: usize, ran: Nanos, wasted: Nanos) {
        let stranger_waits = self.stranger_waits(at);
        let apart = self.others_of(at).any(Watch::tells_apart);
        let queue = &mut self.queues[at];
        for (flow, admitted) in queue.flows.iter().zip(&mut queue.admitting) {
            let consumer = &mut self.consumers[flow.to];
            consumer.waiting += *admitted;
            consumer.reserved -= *admitted;
            let on = consumer.spec.cpu;
            if *admitted > 0 && !self.cpus[on].run.is_ready(consumer.task) {
                self.cpus[on].to_wake.push(consumer.task);
            }
            *admitted = 0;
        }
        if let Some(watch) = &mut queue.watch {
            watch.ran(ran, wasted, stranger_waits);
            let joined = apart && watch.join();
            if watch.beside() || joined {
                watch.news(self.now);
            }
        }
        let here = self.queues[at].cpu;
        for flow in 0..self.queues[at].flows.len() {
            let on = self.consumers[self.queues[at].flows[flow].to].spec.cpu;
            if on != here && !self.cpus[on].to_wake.is_empty() {
                self.wake_cpu(on);
            }
        }
    }

    /// The governed threads of the other queues of a queue's CPU.
    fn others_of(&self, at: usize) -> impl Iterator<Item = &Watch> {
        let queues = &self.cpus[self.queues[at].cpu].queues;
        let others = queues.iter().filter(move |other| **other != at);
        others.filter_map(|&other| self.queues[other].watch.as_ref())
    }

    fn stranger_waits(&self, at: usize) -> bool {
        let queue = &self.queues[at];
        let cpu = &self.cpus[queue.cpu];
        cpu.kinds.iter().enumerate().any(|(task, kind)| match kind {
            Kind::Napi(_) => false,
            Kind::Neighbour => true,
            Kind::Consumer(consumer) => !queue.feeds(*consumer) && cpu.run.is_ready(TaskId(task)),
        })
    }

    fn wake_consumers(&mut self, cpu: usize) {
        let cpu = &mut self.cpus[cpu];
        for task in std::mem::take(&mut cpu.to_wake) {
            if !cpu.run.is_ready(task) {
                cpu.run.wake(task);
                cpu.since += self.spec.costs.wake;
                cpu.time.overhead += self.spec.costs.wake;
            }
        }
    }

    fn tick(&mut self, cpu: usize) {
        let (now, tick) = (self.now, self.spec.tick);
        let cpu = &mut self.cpus[cpu];
        if now >= cpu.next_tick {
            cpu.run.tick();
            let past = (now - cpu.next_tick).0 / tick.0 + 1;
            cpu.next_tick = Nanos(cpu.next_tick.0 + past * tick.0);
        }
    }

    /// Counts what arrived and wakes who is to receive it; says what the interrupts cost.
    fn receive(&mut self, cpu: usize) -> Nanos {
        let mut cost = Nanos::ZERO;
        for at in 0..self.cpus[cpu].queues.len() {
            let queue = &mut self.queues[self.cpus[cpu].queues[at]];
            queue.receive(self.now, &mut self.rng);
            let Some(task) = queue.task else { continue };
            let cpu = &mut self.cpus[cpu];
            let interrupts = !queue.ring.is_empty() && self.now >= queue.deferred_to;
            if interrupts && !cpu.run.is_ready(task) {
                cpu.run.wake(task);
                cost += self.spec.costs.interrupt;
            }
        }
        if let Receive::Softirq { timer: Some(every) } = self.spec.receive {
            let cpu = &mut self.cpus[cpu];
            if !cpu.queues.is_empty() && self.now >= cpu.next_timer {
                cpu.next_timer = Nanos((self.now.0 / every.0 + 1) * every.0);
                cost += self.spec.costs.interrupt;
            }
        }
        self.cpus[cpu].time.overhead += cost;
        cost
    }

    /// Looks at the threads whose time has come; says what that costs.
    fn look(&mut self, cpu: usize) -> Nanos {
        let mut cost = Nanos::ZERO;
        for at in 0..self.cpus[cpu].queues.len() {
            let own = self.cpus[cpu].queues[at];
            let others = self.others_of(own).map(Watch::used).collect();
            let queue = &mut self.queues[own];
            let (Some(watch), Some(task)) = (&mut queue.watch, queue.task) else { continue };
            if watch.next().is_some_and(|due| due <= self.now) {
                let (weight, slice) = watch.look(self.now, self.spec.slice, others);
                self.cpus[cpu].run.reweight(task, weight, slice);
                cost += self.spec.costs.look;
            }
        }
        if cost > Nanos::ZERO {
            // The governor runs before any task of the fair class.
            self.cpus[cpu].run.interrupted();
            self.cpus[cpu].time.looks += cost;
        }
        cost
    }

    /// Begins what the run queue chooses, after `late`.
    fn begin(&mut self, cpu: usize, late: Nanos) {
        let mut switching = Nanos::ZERO;
        let (activity, lasts) = loop {
            if let Some(queue) = self.softirq(cpu) {
                break self.begin_poll(queue);
            }
            let run = &mut self.cpus[cpu].run;
            let task = if run.wants_switch() { run.pick() } else { run.current() };
            let Some(task) = task else { break (Activity::Idle, None) };
            let begun = match self.cpus[cpu].kinds[task.0] {
                Kind::Napi(queue) => self.begin_turn(queue),
                Kind::Consumer(consumer) => self.begin_consumer(consumer),
                Kind::Neighbour => Some((Activity::Neighbour, None)),
            };
            if let Some(begun) = begun {
                switching = self.switch(cpu, task);
                break begun;
            }
            self.sleep(cpu, task);
        };
        if activity == Activity::Neighbour {
            self.tell_of_held(cpu);
        }
        let until = match lasts {
            // As in the kernel's accounts, a switch is charged to the task that it is to.
            Some(lasts) => self.now + late + switching + lasts,
            None => self.until_news(cpu, activity),
        };
        self.cpus[cpu].since = self.now + late;
        self.cpus[cpu].activity = activity;
        self.schedule(cpu, until);
    }

    /// A neighbour that is about to run instead of input is news.
    fn tell_of_held(&mut self, cpu: usize) {
        for &at in &self.cpus[cpu].queues {
            let queue = &mut self.queues[at];
            let waits = queue.task.is_some_and(|task| self.cpus[cpu].run.is_ready(task));
            if let Some(watch) = queue.watch.as_mut().filter(|_| waits) {
                watch.news(self.now);
            }
        }
    }

    fn switch(&mut self, cpu: usize, to: TaskId) -> Nanos {
        let cpu = &mut self.cpus[cpu];
        if cpu.last_ran == Some(to) {
            return Nanos::ZERO;
        }
        cpu.last_ran = Some(to);
        self.spec.costs.switch
    }

    /// The current task, `task`, has nothing to do.
    fn sleep(&mut self, cpu: usize, task: TaskId) {
        self.cpus[cpu].run.sleep();
        if let Kind::Napi(queue) = self.cpus[cpu].kinds[task.0] {
            self.queues[queue].deferred_to = self.now + self.spec.deferral;
        }
    }

    /// A queue to poll in softirq, before any task.
    fn softirq(&self, cpu: usize) -> Option<usize> {
        let Receive::Softirq { timer } = self.spec.receive else { return None };
        let cpu = &self.cpus[cpu];
        let full = |&at: &usize| !self.queues[at].ring.is_empty();
        // With a timer, packets wait for it; a poll that found its budget full is followed by another.
        let due = timer.is_none_or(|every| cpu.next_timer.0 - self.now.0 > every.0 * 9 / 10);
        let busy = |&at: &usize| self.queues[at].ring.len() >= POLL_BUDGET;
        cpu.queues.iter().find(|at| busy(at) || (due && full(at))).copied()
    }

    fn begin_turn(&mut self, at: usize) -> Option<(Activity, Option<Nanos>)> {
        (!self.queues[at].ring.is_empty()).then(|| self.begin_poll(at))
    }

    fn begin_poll(&mut self, at: usize) -> (Activity, Option<Nanos>) {
        let costs = self.spec.costs;
        let gate = if self.spec.gate { costs.gate } else { Nanos::ZERO };
        let queue = &mut self.queues[at];
        if let Some(watch) = &mut queue.watch {
            watch.found(queue.ring.len());
        }
        let taken = queue.ring.take(POLL_BUDGET, &mut self.rng);
        let (mut used, mut wasted) = (Nanos::ZERO, Nanos::ZERO);
        for (flow, packets) in taken.into_iter().enumerate() {
            let consumer = &mut self.consumers[queue.flows[flow].to];
            let admitted = packets.min(consumer.room());
            let lost = packets - admitted;
            consumer.reserved += admitted;
            queue.admitting[flow] = admitted;
            queue.counts[flow].admitted += admitted;
            let loss = if self.spec.gate {
                queue.counts[flow].discarded += lost;
                costs.gate
            } else {
                queue.counts[flow].late_dropped += lost;
                costs.input
            };
            wasted += Nanos(lost * loss.0);
            used += Nanos(admitted * (gate.0 + costs.input.0));
            if let Some(watch) = &mut queue.watch {
                watch.counted(flow, admitted > 0, lost > 0);
            }
        }
        let lasts = costs.poll + used + wasted;
        // A poll that finds nothing to admit is itself wasted, and otherwise in part.
        let wasted = Nanos((lasts.0 as f64 * wasted.share_of(used + wasted)) as u64);
        (Activity::Poll { queue: at, wasted }, Some(lasts))
    }

    fn begin_consumer(&mut self, at: usize) -> Option<(Activity, Option<Nanos>)> {
        let consumer = &self.consumers[at];
        let packets = consumer.waiting.min(CONSUMER_TURN);
        let lasts = Nanos(packets * consumer.spec.cost.0);
        (packets > 0).then_some((Activity::Consume { consumer: at, packets }, Some(lasts)))
    }

    /// When a CPU that could go on for ever is to look again.
    fn until_news(&self, cpu: usize, activity: Activity) -> Nanos {
        let here = &self.cpus[cpu];
        let mut until = Nanos(u64::MAX);
        if activity == Activity::Neighbour {
            until = until.min(here.next_tick);
        }
        if let Receive::Softirq { timer: Some(_) } = self.spec.receive {
            return if here.queues.is_empty() { until } else { until.min(here.next_timer) };
        }
        for &at in &here.queues {
            let queue = &self.queues[at];
            let awake = queue.task.is_some_and(|task| here.run.is_ready(task));
            if !awake {
                let next = if queue.ring.is_empty() { queue.next_arrival() } else { self.now };
                until = until.min(next.max(queue.deferred_to));
            }
            if let Some(due) = queue.watch.as_ref().and_then(|watch| watch.next()) {
                until = until.min(due);
            }
        }
        until
    }
}

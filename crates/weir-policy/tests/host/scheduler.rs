//! One CPU's run queue: EEVDF as Linux 6.18 has it (`kernel/sched/fair.c`), for a handful of tasks.
//!
//! Kept: weights by nice value, virtual time, lag that outlasts sleep, eligibility, deadlines one slice
//! ahead, the protection of a running task until its slice is used (`RUN_TO_PARITY`), the end of that
//! protection for a task that is ahead of its share, wake-ups of tasks with a shorter slice
//! (`PREEMPT_SHORT`), tasks that sleep in debt and stay queued until it is paid (`DELAY_DEQUEUE`), and
//! that a slice is only seen to have ended at a tick or a wake-up; and that a `SCHED_BATCH` task's wake-up
//! interrupts nobody. Left out: groups, bandwidth, migration, other scheduling classes than fair and a look.

use weir_policy::{Nanos, Weight};

/// `sched_prio_to_weight[]`, kernel/sched/core.c: nice -20 to 19.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];
const NICE_0_WEIGHT: f64 = 1024.0;
/// Virtual times that differ by less, in ns, are the same.
const NEAR: f64 = 1e-3;

/// What a nice value weighs.
pub fn load_of(weight: Weight) -> u32 {
    let at = usize::try_from(weight.nice() + 20).unwrap_or(0);
    WEIGHTS[at.min(WEIGHTS.len() - 1)]
}

/// A task of one run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    Ready,
    /// Asleep, but still queued until what it ran too much is paid.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    load: f64,
    slice: f64,
    vruntime: f64,
    deadline: f64,
    protected_to: f64,
    lag: f64,
    batch: bool,
    state: State,
}

impl Task {
    fn virtual_of(&self, ns: f64) -> f64 {
        ns * NICE_0_WEIGHT / self.load
    }

    fn queued(&self) -> bool {
        self.state != State::Asleep
    }
}

/// The tasks of one CPU.
#[derive(Clone, Debug)]
pub struct RunQueue {
    tasks: Vec<Task>,
    current: Option<usize>,
    tick: f64,
    resched: bool,
}

impl RunQueue {
    /// None yet; `tick` bounds how much lag a task may keep.
    pub fn new(tick: Nanos) -> Self {
        Self { tasks: Vec::new(), current: None, tick: tick.0 as f64, resched: false }
    }

    /// Adds a task, asleep.
    pub fn add(&mut self, weight: Weight, slice: Nanos) -> TaskId {
        self.tasks.push(Task {
            load: f64::from(load_of(weight)),
            slice: slice.0 as f64,
            vruntime: 0.0,
            deadline: 0.0,
            protected_to: 0.0,
            lag: 0.0,
            batch: false,
            state: State::Asleep,
        });
        TaskId(self.tasks.len() - 1)
    }

    /// The task that has the CPU.
    pub fn current(&self) -> Option<TaskId> {
        self.current.map(TaskId)
    }

    /// Whether a task runs or wants to.
    pub fn is_ready(&self, task: TaskId) -> bool {
        self.tasks[task.0].state == State::Ready
    }

    /// Whether the running task is to give way at the next opportunity.
    pub fn wants_switch(&self) -> bool {
        self.resched || self.current.is_none()
    }

    /// The running task ran so long.
    pub fn charge(&mut self, ran: Nanos) {
        if let Some(at) = self.current {
            let task = &mut self.tasks[at];
            task.vruntime += task.virtual_of(ran.0 as f64);
        }
    }

    /// What a tick looks at: whether the slice is used up (`update_curr`).
    pub fn tick(&mut self) {
        let Some(at) = self.current else { return };
        let alone = self.tasks.iter().filter(|task| task.queued()).count() < 2;
        let task = &mut self.tasks[at];
        let ended = task.vruntime >= task.deadline;
        if ended {
            task.deadline = task.vruntime + task.virtual_of(task.slice);
        }
        if !alone && (ended || task.vruntime >= task.protected_to) {
            self.resched = true;
        }
    }

    /// Queues a task (`enqueue_task_fair`, `place_entity`) and looks whether it may have the CPU now.
    pub fn wake(&mut self, woken: TaskId) {
        let at = woken.0;
        if self.tasks[at].state == State::Ready {
            return;
        }
        self.tick();
        if self.tasks[at].state == State::Leaving {
            let lag = self.average() - self.tasks[at].vruntime;
            self.tasks[at].state = State::Asleep;
            self.tasks[at].lag = lag.min(0.0);
        }
        self.place(at);
        self.tasks[at].state = State::Ready;
        let Some(current) = self.current.filter(|_| !self.tasks[at].batch) else { return };
        let shorter = self.tasks[at].slice < self.tasks[current].slice;
        if self.best(!shorter) == Some(at) {
            self.resched = true;
        }
    }

    /// The running task has nothing to do.
    pub fn sleep(&mut self) {
        let Some(at) = self.current.take() else { return };
        let lag = self.average() - self.tasks[at].vruntime;
        let others = self.tasks.iter().enumerate().any(|(i, task)| i != at && task.queued());
        let task = &mut self.tasks[at];
        if lag < -NEAR && others {
            task.state = State::Leaving;
        } else {
            let most = task.virtual_of(task.slice + self.tick);
            task.lag = lag.clamp(-most, most);
            task.state = State::Asleep;
        }
    }

    /// Another scheduling class had the CPU: nobody's slice is protected any more.
    pub fn interrupted(&mut self) {
        if let Some(at) = self.current {
            self.tasks[at].protected_to = f64::NEG_INFINITY;
        }
        self.resched = true;
    }

    /// Chooses who runs.
    pub fn pick(&mut self) -> Option<TaskId> {
        self.resched = false;
        let chosen = loop {
            let Some(at) = self.best(true) else { break None };
            if self.tasks[at].state == State::Ready {
                break Some(at);
            }
            self.tasks[at].state = State::Asleep;
            self.tasks[at].lag = 0.0;
        };
        if chosen != self.current
            && let Some(at) = chosen
        {
            self.protect(at);
        }
        self.current = chosen;
        self.current()
    }

    /// Gives a task another weight, slice and policy; what it is owed stays (`reweight_entity`).
    pub fn reweight(&mut self, task: TaskId, weight: Weight, slice: Nanos, batch: bool) {
        let average = self.average();
        let task = &mut self.tasks[task.0];
        let scale = task.load / f64::from(load_of(weight));
        task.load = f64::from(load_of(weight));
        (task.slice, task.batch) = (slice.0 as f64, batch);
        if task.queued() {
            let (lag, ahead) = (average - task.vruntime, task.deadline - task.vruntime);
            task.vruntime = average - lag * scale;
            let whole = task.virtual_of(task.slice);
            task.deadline = task.vruntime + (ahead * scale).min(whole);
            task.protected_to = task.protected_to.min(task.deadline);
        } else {
            task.lag *= scale;
        }
    }

    fn protect(&mut self, at: usize) {
        let queued = self.tasks.iter().filter(|task| task.queued());
        let shortest = queued.map(|task| task.slice).fold(f64::INFINITY, f64::min);
        let task = &mut self.tasks[at];
        let until = task.vruntime + task.virtual_of(shortest);
        task.protected_to = task.deadline.min(until);
    }

    fn place(&mut self, at: usize) {
        let others: f64 = self.tasks.iter().filter(|t| t.queued()).map(|t| t.load).sum();
        let average = self.average();
        let task = &mut self.tasks[at];
        // A task that joins moves the average towards itself: what it is owed is scaled for that.
        let lag = if others > 0.0 { task.lag * (others + task.load) / others } else { 0.0 };
        task.vruntime = average - lag;
        task.deadline = task.vruntime + task.virtual_of(task.slice);
    }

    fn average(&self) -> f64 {
        let queued = self.tasks.iter().filter(|task| task.queued());
        let (sum, load) =
            queued.fold((0.0, 0.0), |(sum, load), t| (sum + t.vruntime * t.load, load + t.load));
        if load > 0.0 {
            sum / load
        } else {
            self.tasks.iter().map(|task| task.vruntime).fold(0.0, f64::max)
        }
    }

    /// The earliest deadline among those that have not run more than their share.
    fn best(&self, protect: bool) -> Option<usize> {
        let average = self.average();
        let eligible = |task: &Task| task.queued() && task.vruntime <= average + NEAR;
        if protect
            && let Some(at) = self.current
            && eligible(&self.tasks[at])
            && self.tasks[at].vruntime < self.tasks[at].protected_to
        {
            return Some(at);
        }
        let mut best: Option<usize> = None;
        for (at, task) in self.tasks.iter().enumerate().filter(|(_, task)| eligible(task)) {
            if best.is_none_or(|b| task.deadline < self.tasks[b].deadline) {
                best = Some(at);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    /// Two tasks that never sleep, ticked each 4 ms, for two seconds.
    fn shares(first: i32, second: i32) -> f64 {
        let mut queue = RunQueue::new(Nanos::from_millis(4));
        let weights = [first, second].map(|nice| Weight::nearest(f64::from(nice)));
        let tasks = weights.map(|weight| queue.add(weight, MS));
        for task in tasks {
            queue.wake(task);
        }
        let mut ran = [0u32; 2];
        for ms in 0..2_000 {
            if queue.wants_switch() {
                queue.pick();
            }
            ran[queue.current().unwrap().0] += 1;
            queue.charge(MS);
            if ms % 4 == 3 {
                queue.tick();
            }
        }
        f64::from(ran[0]) / 2_000.0
    }

    #[test]
    fn the_cpu_is_divided_by_weight() {
        for (first, second) in [(0, 0), (0, 5), (-10, 0), (0, 19), (19, -5)] {
            let loads = [first, second].map(|nice| load_of(Weight::nearest(f64::from(nice))));
            let want = f64::from(loads[0]) / f64::from(loads[0] + loads[1]);
            let got = shares(first, second);
            assert!((got - want).abs() < 0.01, "nice {first} and {second}: {got} for {want}");
        }
    }

    #[test]
    fn a_running_task_keeps_the_cpu_until_a_tick_or_a_look() {
        let mut queue = RunQueue::new(Nanos::from_millis(4));
        let tasks = [0, 1].map(|_| queue.add(Weight::NORMAL, MS));
        for task in tasks {
            queue.wake(task);
        }
        let first = queue.pick();
        queue.charge(Nanos::from_millis(3));
        assert!(!queue.wants_switch());
        queue.interrupted();
        assert_ne!(queue.pick(), first);
    }
}

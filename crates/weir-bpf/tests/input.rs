//! The governor's eyes, on a real NAPI thread: whom the time of its CPU goes to.
//!
//! Other processes of the machine may run on that CPU too, and are strangers. So a stranger of the
//! test's own is looked for in what it adds, and a consumer in what it does not add.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::threaded::{Bench, MS, PORT, Process, napi_thread_on};
use common::{NEAR_IP4, Network, Raise, wait_until};
use rustix::net::sockopt;
use rustix::process::Pid;
use weir_bpf::Error;
use weir_bpf::abi;
use weir_bpf::input::{Input, InputCounters};
use weir_bpf::sys::sched::SchedPolicy;
use weir_bpf::sys::{cpu_times, ethtool, sched};
use weir_bpf::traffic::Generator;
use weir_bpf::units::{CpuId, Nanos, Nice};

const OTHER_PORT: u16 = 5001;
/// Answers each datagram of one line feed with another, after some work.
const WORK_AND_ANSWER: &str =
    "while read -r _; do i=0; while [ $i -lt 400 ]; do i=$((i+1)); done; echo; done";
/// The same work, and no answer.
const WORK: &str = "while read -r _; do i=0; while [ $i -lt 400 ]; do i=$((i+1)); done; done";
/// Answers without work, until a datagram says otherwise.
const ANSWER_OR_COMPUTE: &str =
    "while read -r what; do [ \"$what\" = c ] && while :; do :; done; echo; done";

/// Sends a packet to nobody who reads, and looks again, until the condition holds.
fn send_until(far: &UdpSocket, what: &str, mut condition: impl FnMut() -> bool) {
    wait_until(what, || {
        far.send(b"\n").unwrap();
        condition()
    });
}

/// A process that reads from a socket and writes to it, and who sends there. It gets the CPU before whatever
/// else runs on this machine.
fn consumer(bench: &Bench, script: &str) -> (Process, UdpSocket) {
    let (near, far) = bench.sockets();
    let output = OwnedFd::from(near.try_clone().unwrap());
    let consumer = bench.process(script, OwnedFd::from(near).into(), output.into());
    sched::set_nice(consumer.pid(), Nice(-20)).unwrap();
    (consumer, far)
}

/// Time of this CPU, in nanoseconds, that the scheduler takes off whom it befalls and the clock does
/// not: the hypervisor's and interrupts' (`/proc/stat`, in steps of 10 ms).
fn beyond_the_scheduler(cpu: CpuId) -> u64 {
    let times = cpu_times::read().unwrap()[&cpu.0];
    (times.irq + times.softirq + times.steal) * 10 * MS
}

/// What happened until this process had had so much of the CPU.
fn while_it_works(input: &Input, process: &Process, time: Nanos) -> InputCounters {
    let had = || sched::cpu_time(process.pid()).unwrap().0;
    let (before, from) = (input.read(), had());
    wait_until("the process has worked", || had() >= from + time.0);
    let after = input.read();
    InputCounters {
        taken: after.taken - before.taken,
        held: after.held - before.held,
        strangers: after.strangers - before.strangers,
        ..after
    }
}

#[test]
fn input_runs_for_as_long_as_the_kernel_says() {
    let bench = Bench::new();
    let input = bench.watch();
    let started = Instant::now();
    let kernel = || sched::cpu_time(bench.thread).unwrap().0;
    let before = (kernel(), beyond_the_scheduler(bench.cpu));
    assert_eq!((input.read().ran, input.read().discarded), (Nanos(0), 0));
    let _full = bench.network.bind(NEAR_IP4, PORT);
    // So much that it runs for long at a time: the kernel counts from the wake-up on, not from the switch.
    let flood = [bench.network.flow(PORT, None)];
    bench.send(&mut bench.generator(), &flood, || input.read().ran.0 > 50 * MS);
    assert_eq!(input.read().cpu, bench.cpu);
    // Until it sleeps, one of them is behind.
    wait_until("both say the same", || {
        let (ran, kernel) = (input.read().ran.0, kernel() - before.0);
        let beyond = beyond_the_scheduler(bench.cpu) - before.1;
        (kernel - kernel / 5..kernel + kernel / 5 + beyond).contains(&ran)
    });
    assert!(u128::from(input.read().ran.0) <= started.elapsed().as_nanos());

    drop(input);
    let again = bench.watch();
    assert_eq!(again.read().ran, Nanos(0), "a new watch begins at 0");
    let (_near, far) = bench.sockets_at(OTHER_PORT);
    send_until(&far, "it is seen again", || again.read().ran.0 > 0);
}

/// Counters stand still while nobody watches, and nothing of that time is counted afterwards.
#[test]
fn only_what_happens_while_it_is_watched_is_counted() {
    let bench = Bench::new();
    let input = bench.inputs.add(bench.thread).unwrap();
    let _full = bench.network.bind(NEAR_IP4, PORT);
    let flood = [bench.flow(PORT, 50_000.0)];
    let mut generator = bench.generator();
    let mut discard_some = |watched: bool| {
        let from = (bench.gate_discarded(), input.read().discarded);
        bench.send(&mut generator, &flood, || {
            bench.gate_discarded() > from.0 + 5_000
                && (!watched || input.read().discarded > from.1 + 2_000)
        });
    };
    discard_some(false);
    assert_eq!(input.read(), InputCounters { cpu: input.read().cpu, ..Default::default() });

    for _ in 0..3 {
        let (before, began, gate) = (input.read(), Instant::now(), bench.gate_discarded());
        input.watch(true).unwrap();
        discard_some(true);
        input.watch(false).unwrap();
        // Programs that run on the other CPU as the last link goes still end.
        let mut after = input.read();
        wait_until("the counters stand still", || {
            std::mem::replace(&mut after, input.read()) == after
        });
        let elapsed = began.elapsed().as_nanos() as u64;
        let times = |of: InputCounters| {
            [of.ran, of.taken, of.wasted, of.held, of.strangers, of.idle, of.crowded]
        };
        for (now, then) in times(after).into_iter().zip(times(before)) {
            assert!((then.0..=then.0 + elapsed).contains(&now.0), "{before:#?} {after:#?}");
        }
        assert!(after.ran > before.ran && after.packets > before.packets);
        let discarded = after.discarded - before.discarded;
        assert!(discarded <= after.packets - before.packets, "{before:#?} {after:#?}");
        assert!(discarded <= bench.gate_discarded() - gate, "{before:#?} {after:#?}");
        discard_some(false);
        assert_eq!(input.read(), after);
    }
}

#[test]
fn whom_packets_wake_is_no_stranger() {
    let bench = Bench::new();
    let input = bench.watch();
    let (consumer, far) = consumer(&bench, WORK_AND_ANSWER);
    // One packet at a time, so that it sleeps in between and is woken by each.
    let answered = || drop(far.recv(&mut [0; 8]));
    while_sent(&far, answered, || {
        let mut seen = Vec::new();
        let found = (0..100).any(|_| {
            let now = while_it_works(&input, &consumer, Nanos(20 * MS));
            let most = now.strangers.max(now.held).max(now.taken);
            seen.push(now);
            most.0 < 5 * MS
        });
        assert!(found, "it counts as a stranger, or as asleep: {seen:#?}");
    });
}

/// A process that input has woken twice or more, and that computes from now on.
fn consumer_that_computes(bench: &Bench) -> (Process, UdpSocket) {
    let (consumer, far) = consumer(bench, ANSWER_OR_COMPUTE);
    let mut answers = 0;
    send_until(&far, "it is known as a consumer", || {
        answers += u32::from(far.recv(&mut [0; 8]).is_ok());
        answers > 8
    });
    // A shell reads one byte of each datagram.
    far.send(b"c").unwrap();
    far.send(b"\n").unwrap();
    (consumer, far)
}

/// A process that is woken by a request and then computes does not wait for packets.
#[test]
fn a_consumer_that_computes_for_long_is_a_stranger() {
    let bench = Bench::new();
    let input = bench.watch();
    let (consumer, far) = consumer_that_computes(&bench);
    while_input_comes(&far, || {
        // Within the second for which it would count as a consumer.
        let seen = while_it_works(&input, &consumer, Nanos(200 * MS));
        assert!(seen.strangers.0 > 100 * MS, "{seen:#?}");
    });
}

/// The full queue is another process's, and excuses nothing.
#[test]
fn a_consumer_that_computes_beside_a_full_queue_is_a_stranger() {
    let bench = Bench::new();
    let input = bench.watch();
    let _full = bench.network.bind(NEAR_IP4, OTHER_PORT);
    let (consumer, _far) = consumer_that_computes(&bench);
    // Input gets the CPU often, so that the scheduler switches.
    sched::set_nice(consumer.pid(), Nice(0)).unwrap();
    let flood = [bench.flow(OTHER_PORT, 50_000.0)];
    bench.send(&mut bench.generator(), &flood, || {
        if input.read().discarded < 2_000 {
            return false;
        }
        let before = input.read().discarded;
        // It stays what it is while nobody looks at who takes packets.
        for watched in [true, false] {
            input.watch_receptions(watched).unwrap();
            it_is_a_stranger(&input, &consumer);
        }
        input.read().discarded > before
    });
}

/// Nothing wakes it, but it takes packets, and input waits for it.
#[test]
fn a_receiver_whose_queue_is_always_full_is_no_stranger() {
    let bench = Bench::new();
    let input = bench.watch();
    let (consumer, far) = consumer(&bench, WORK);
    sched::set_nice(consumer.pid(), Nice(0)).unwrap();
    while_sent(
        &far,
        || (),
        || {
            for watched in [true, false] {
                let mut seen = Vec::new();
                // Where its CPU was away for a second, what it is has to be learnt again.
                let found = (0..3).any(|_| {
                    input.watch_receptions(true).unwrap();
                    input.watch_receptions(watched).unwrap();
                    // Longer than a wake-up by input counts.
                    let began = Instant::now();
                    wait_until("it has received for 1.5 s", || began.elapsed().as_millis() > 1500);
                    (0..100).any(|_| {
                        let before = input.read().discarded;
                        let now = while_it_works(&input, &consumer, Nanos(20 * MS));
                        seen.push(now);
                        let strange = now.strangers.max(now.held).max(now.taken).0;
                        now.discarded > before && strange < 5 * MS && now.busy.0 > 5 * MS
                    })
                });
                assert!(found, "watched: {watched}; it counts as a stranger: {seen:#?}");
            }
        },
    );
}

/// A control group whose processes get 20 % of a CPU, in version 1's hierarchy or in version 2's.
struct Quota(PathBuf);

impl Quota {
    fn new() -> Self {
        let name = format!("weir-test-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let (root, file, quota) = match v1.exists() {
            true => (v1, "cpu.cfs_quota_us", "20000"),
            false => (Path::new("/sys/fs/cgroup"), "cpu.max", "20000 100000"),
        };
        let group = Self(root.join(name));
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join(file), quota).unwrap();
        group
    }

    fn take(&self, process: &Process) {
        let pid = process.pid().as_raw_nonzero().to_string();
        fs::write(self.0.join("cgroup.procs"), pid).unwrap();
    }

    /// How often nothing was left of it.
    fn throttled(&self) -> u64 {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        wait_until("the group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

/// It does not sleep, and yet is not runnable; and nothing tells when it is again.
#[test]
fn a_receiver_that_has_used_up_its_quota_is_no_stranger() {
    let bench = Bench::new();
    let input = bench.watch();
    let group = Quota::new();
    let (consumer, far) = consumer(&bench, WORK);
    sched::set_nice(consumer.pid(), Nice(0)).unwrap();
    group.take(&consumer);
    while_sent(
        &far,
        || (),
        || {
            let before = group.throttled();
            wait_until("its quota is used up", || group.throttled() > before + 3);
            let mut seen = Vec::new();
            let found = (0..60).any(|_| {
                let (before, throttled) = (input.read(), group.throttled());
                while_it_works(&input, &consumer, Nanos(100 * MS));
                let after = input.read();
                let (ran, taken) = (after.ran.0 - before.ran.0, after.taken.0 - before.taken.0);
                seen.push((ran, taken, after.idle.0 - before.idle.0));
                group.throttled() > throttled + 2 && taken < ran / 10
            });
            assert!(found, "it counts as a stranger; ran, taken, idle: {seen:?}");
        },
    );
    drop(consumer);
}

/// Input wants the CPU now and then.
fn while_input_comes(far: &UdpSocket, body: impl FnOnce()) {
    while_sent(far, || std::thread::sleep(Duration::from_millis(1)), body);
}

/// Something is done while packets are sent, and something else after each.
fn while_sent(far: &UdpSocket, after_each: impl Fn() + Sync, body: impl FnOnce()) {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Not where it comes to, if there is another CPU.
            sched::pin_current_thread(sched::online_cpus().unwrap()[0]).unwrap();
            while !end.load(Ordering::Relaxed) {
                far.send(b"\n").unwrap();
                after_each();
            }
        });
        let _end = Raise(&end);
        body();
    });
}

/// A sleeping governor is told so at the end of a poll, while nobody watches the scheduler.
#[test]
fn input_that_waits_long_is_told_of_only_where_that_is_asked_for() {
    let bench = Bench::new();
    let input = bench.inputs.add(bench.thread).unwrap();
    let (_near, far) = bench.sockets();
    let _process = bench.stranger();
    // It interrupts nobody, so it waits for the stranger's slices.
    sched::set_weight(bench.thread, SchedPolicy::Batch, Nice(0), None).unwrap();
    let waits = Duration::from_millis(300);
    let before = sched::cpu_time(bench.thread).unwrap();
    let began = Instant::now();
    while_input_comes(&far, || {
        wait_until("it has run for a while", || {
            began.elapsed() > waits && sched::cpu_time(bench.thread).unwrap() > before
        });
        assert_eq!((input.read().waits, input.read().over), (0, 0), "nobody asked");

        input.alarm(Some((Nanos(MS / 10), 0.99)));
        wait_until("it is told of", || input.read().waits > 0);
        // Not again for a second.
        assert_eq!((input.read().waits, input.read().over), (1, 0));

        input.alarm(Some((Nanos(1000 * MS), 0.0)));
        wait_until("it is over its share", || input.read().over > 0);
        input.alarm(None);
        let told = input.read();
        wait_until("it has run on", || began.elapsed() > 3 * waits);
        assert_eq!((input.read().waits, input.read().over), (told.waits, told.over));
    });
}

/// Receivers that are many empty their queues before one is full, and the ring refuses everybody's packets meanwhile.
#[test]
fn a_ring_that_is_full_again_and_again_is_told_of() {
    let bench = Bench::new();
    let input = bench.inputs.add(bench.thread).unwrap();
    let _process = bench.stranger();
    sched::set_weight(bench.thread, SchedPolicy::Batch, Nice(0), None).unwrap();
    // Neither waits nor a share are too much.
    let ran = || sched::cpu_time(bench.thread).unwrap().0;
    input.alarm(Some((Nanos(10_000 * MS), 1.0)));
    let mut generator = bench.generator();
    let calm = ran() + 20 * MS;
    bench.send(&mut generator, &[bench.flow(PORT, 20_000.0)], || ran() > calm);
    assert_eq!(input.read().over, 0, "its ring does not fill");
    let flood = [bench.network.flow(PORT, None)];
    bench.send(&mut generator, &flood, || input.read().over > 0);
}

#[test]
fn a_stranger_holds_input_up() {
    let bench = Bench::new();
    let input = bench.watch();
    let (_near, far) = bench.sockets();
    send_until(&far, "input has run", || input.read().ran.0 > 0);
    sched::set_nice(bench.thread, Nice(19)).unwrap();
    let _stranger = bench.stranger();
    // With packets, so that the scheduler switches: until then its time is not counted.
    let before = input.read().strangers;
    send_until(&far, "a stranger works", || input.read().strangers.0 > before.0 + 5 * MS);

    let held = input.read().held;
    send_until(&far, "input is held", || input.read().held.0 > held.0 + 20 * MS);
    // It runs all the same, and takes that from the stranger.
    let taken = input.read().taken;
    send_until(&far, "input takes time", || input.read().taken > taken);
}

/// What runs only when nobody else wants to leaves the CPU idle.
#[test]
fn a_process_of_the_idle_policy_is_nobody() {
    let bench = Bench::new();
    let input = bench.watch();
    let (_near, far) = bench.sockets();
    let leftover = bench.stranger();
    sched::set_weight(leftover.pid(), SchedPolicy::Idle, Nice(0), None).unwrap();
    while_input_comes(&far, || its_time_is_idle(&input, &leftover));
}

/// That input has woken it does not make its computing anybody's business.
#[test]
fn a_consumer_of_the_idle_policy_that_computes_is_nobody() {
    let bench = Bench::new();
    let input = bench.watch();
    let (leftover, far) = consumer_that_computes(&bench);
    sched::set_weight(leftover.pid(), SchedPolicy::Idle, Nice(0), None).unwrap();
    while_input_comes(&far, || its_time_is_idle(&input, &leftover));
}

/// So light a process takes next to nothing, and leaves the CPU idle, too.
#[test]
fn a_light_process_is_nobody_until_it_weighs_something() {
    let bench = Bench::new();
    let input = bench.watch();
    let (_near, far) = bench.sockets();
    let process = bench.stranger();
    sched::set_nice(process.pid(), Nice(19)).unwrap();
    while_input_comes(&far, || {
        its_time_is_idle(&input, &process);
        let mut seen = Vec::new();
        let found = (0..100).any(|_| {
            seen.push(while_it_works(&input, &process, Nanos(5 * MS)));
            seen.last().is_some_and(|now| (now.strangers, now.taken) == (Nanos(0), Nanos(0)))
        });
        assert!(found, "it counts: {seen:#?}");

        sched::set_nice(process.pid(), Nice(0)).unwrap();
        it_is_a_stranger(&input, &process);
    });
}

/// Its time counts, and so does what input takes of it, once the scheduler has given input a turn.
fn it_is_a_stranger(input: &Input, process: &Process) {
    let mut seen = Vec::new();
    let found = (0..20).any(|_| {
        let now = while_it_works(input, process, Nanos(100 * MS));
        seen.push(now);
        now.strangers.0 > 50 * MS && now.taken.0 > 0
    });
    assert!(found, "it is nobody: {seen:#?}");
}

/// And a batch thread would wait for it.
fn its_time_is_idle(input: &Input, leftover: &Process) {
    let mut seen = Vec::new();
    let found = (0..100).any(|_| {
        let before = input.read();
        let now = while_it_works(input, leftover, Nanos(20 * MS));
        let most = now.strangers.max(now.held).max(now.taken);
        let (idle, light) = (now.idle - before.idle, now.light - before.light);
        seen.push((now, idle, light));
        most.0 < 5 * MS && idle.min(light).0 > 15 * MS
    });
    assert!(found, "it counts: {seen:#?}");
}

/// Another interface's NAPI thread, which nobody watches.
#[test]
fn a_busy_thread_of_the_kernels_is_a_stranger() {
    let bench = Bench::new();
    let input = bench.watch();
    let (_near, far) = bench.sockets();
    let other = Network::new();
    other.near.run(|| ethtool::set_gro("near", true).unwrap()).unwrap();
    let busy = napi_thread_on(bench.cpu, &other);
    sched::set_nice(busy, Nice(-20)).unwrap();
    sched::set_nice(bench.thread, Nice(19)).unwrap();
    let elsewhere = sched::online_cpus().unwrap()[0];
    // What has run until now counts with the next switch.
    let body = |_: &Generator| {
        let (begun, before) = (Instant::now(), input.read().strangers);
        send_until(&far, "it has had half of 0.3 s or more", || {
            std::thread::sleep(Duration::from_millis(1));
            let (had, elapsed) = (input.read().strangers.0 - before.0, begun.elapsed());
            elapsed > Duration::from_millis(300) && had * 2 > elapsed.as_nanos() as u64
        });
    };
    let flood = other.flow(PORT, None);
    other.while_sent(&mut other.generator(), &[flood], Some(elsewhere), body);
}

/// What is counted by CPU must not outlast a watch that ends while its thread waits.
#[test]
fn who_is_let_go_while_it_waits_is_waited_for_no_longer() {
    let bench = Bench::new();
    let (_near, far) = bench.sockets();
    for _ in 0..10 {
        let input = bench.watch();
        send_until(&far, "input has run", || input.read().ran.0 > 0);
        let stranger = bench.stranger();
        sched::set_nice(stranger.pid(), Nice(-20)).unwrap();
        sched::set_nice(bench.thread, Nice(19)).unwrap();
        while_it_works(&input, &stranger, Nanos(5 * MS));
        // As little as it weighs, it waits for the most part.
        (0..50).for_each(|_| drop(far.send(b"\n")));
        drop(input);
        drop(stranger);
        sched::set_nice(bench.thread, Nice(0)).unwrap();
    }
    let input = bench.watch();
    let _stranger = bench.stranger();
    send_until(&far, "input takes time from the stranger", || input.read().taken.0 > 0);
}

#[test]
fn discards_are_counted_and_have_a_cost() {
    let bench = Bench::new();
    let input = bench.watch();
    let _full = bench.network.bind(NEAR_IP4, PORT);
    let flood = [bench.flow(PORT, 50_000.0)];
    bench.send(&mut bench.generator(), &flood, || {
        let seen = input.read();
        seen.discarded > 2_000 && seen.wasted.0 > 0 && seen.discard_cost.is_some()
    });
    // Not those of a poll that was not the thread's own: a few now and then.
    wait_until("most are counted", || input.read().discarded * 2 > bench.gate_discarded());
    assert!(input.read().discarded <= bench.gate_discarded(), "none is counted twice");
    let seen = input.read();
    assert!((10..100_000).contains(&seen.discard_cost.unwrap().0), "{seen:?}");
    assert!(seen.wasted <= seen.ran, "{seen:?}");
    assert_eq!(seen.beside, 0, "nobody else was sent anything");
}

#[test]
fn another_channel_beside_a_full_one_is_seen() {
    let bench = Bench::new();
    let input = bench.watch();
    let _full = bench.network.bind(NEAR_IP4, PORT);
    let live = bench.network.bind(NEAR_IP4, OTHER_PORT);
    sockopt::set_socket_recv_buffer_size_force(&live, 16 << 20).unwrap();
    let mut generator = bench.generator();
    let (flood, trickle) = (bench.flow(PORT, 50_000.0), bench.flow(OTHER_PORT, 2_000.0));

    // Two channels, none of them full.
    bench.send(&mut generator, from_ref(&trickle), || live.recv(&mut [0; 64]).is_ok());
    // One that is.
    bench.send(&mut generator, from_ref(&flood), || input.read().discarded > 2_000);
    assert_eq!(input.read().beside, 0);
    // Both.
    bench.send(&mut generator, &[trickle, flood], || input.read().beside > 20);
}

/// Nobody discards anything, and the ring overflows for both, as input hardly gets the CPU.
#[test]
fn an_overflow_with_several_channels_packets_is_seen() {
    let bench = Bench::new();
    let input = bench.watch();
    sched::set_nice(bench.thread, Nice(19)).unwrap();
    let _stranger = bench.stranger();
    let _roomy = [PORT, OTHER_PORT].map(|port| {
        let socket = bench.network.bind(NEAR_IP4, port);
        sockopt::set_socket_recv_buffer_size_force(&socket, 1 << 30).unwrap();
        socket
    });
    let flows = [PORT, OTHER_PORT].map(|port| bench.flow(port, 200_000.0));
    let mut generator = bench.generator();
    bench.send(&mut generator, &flows[..1], || input.read().overruns > 3);
    assert_eq!(input.read().contended, 0);
    bench.send(&mut generator, &flows, || input.read().contended > 3);
    assert_eq!(input.read().beside, 0);
}

#[test]
fn places_are_limited_and_come_back() {
    let bench = Bench::new();
    // Numbers that no thread has: PID_MAX_LIMIT is 2^22.
    let add = |n: usize| bench.inputs.add(Pid::from_raw((1 << 22) + 1 + n as i32).unwrap());
    let mut added: Vec<Input> = (0..abi::INPUTS).map(|n| add(n).unwrap()).collect();
    let refused = add(abi::INPUTS).err().unwrap();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let given_back = added.swap_remove(7).number();
    let next = add(abi::INPUTS).unwrap();
    assert_eq!(next.number(), given_back);
    assert!(added.iter().all(|input| input.number() != next.number()));
}

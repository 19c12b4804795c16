//! The governor, in the real daemon on a real NAPI thread: what it does, and that it goes back.
//!
//! Other processes of the machine may run on the thread's CPU too, and are strangers to it: what takes
//! the CPU's being at rest is waited for longer.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::cell::OnceCell;
use std::net::{TcpListener, UdpSocket};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use rustix::net::sockopt;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use weir_bpf::alarm::{Alarm, Cause};
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::sys::stat::{self, Stat};
use weir_bpf::traffic::{FlowSpec, Sources, Transport};
use weir_bpf::units::{CpuId, Nice};

/// What `docs` promise for a daemon that is stopped or killed.
const PROMISED: Duration = Duration::from_secs(1);
/// Sockets that nobody reads, and one that somebody does.
const FULL_PORT: u16 = 7000;
const LIVE_PORT: u16 = 7001;
/// Where no socket is.
const CLOSED_PORT: u16 = 7002;
/// include/uapi/linux/sched.h
const SCHED_BATCH: u32 = 3;

struct Host {
    /// Asked for once: looking for it takes time, on whichever CPU.
    thread: OnceCell<Pid>,
    host: host::Host,
}

impl Host {
    fn new() -> Self {
        Self { thread: OnceCell::new(), host: host::Host::new() }
    }

    /// Polled by a NAPI thread without weir; so the thread outlives weir.
    fn begin_threaded(&self) {
        self.network.poll_by_napi();
        self.network.poll_by_thread();
    }

    /// The NAPI thread, once there is one for good.
    fn thread(&self) -> Pid {
        *self.thread.get_or_init(|| {
            let threads = self.network.napi_threads();
            assert_eq!(threads.len(), 1);
            threads[0]
        })
    }

    fn nice(&self) -> Nice {
        sched::nice(self.thread()).unwrap()
    }

    /// Whether the NAPI thread waits, when it wakes up, until whoever runs sleeps.
    fn is_batch(&self) -> bool {
        let stat = format!("/proc/{}/stat", self.thread().as_raw_nonzero());
        Stat::read(&stat).unwrap().field::<u32>(41) == Some(SCHED_BATCH)
    }

    /// What the status says of the only governed thread.
    fn governed(&self) -> Value {
        self.network.interface_status()["governed"][0].clone()
    }

    fn does(&self, what: &str) -> bool {
        self.governed()["doing"] == what
    }

    /// At rest it is a batch thread of the usual weight.
    fn sleeps(&self) -> bool {
        self.does("asleep") && self.nice() == Nice(0) && self.is_batch()
    }

    fn wait_for_rest(&self) {
        assert!(wait(TRIES_MAX, || self.sleeps()), "never at rest: {}", self.governed());
    }

    fn gate_sleeps(&self) -> bool {
        self.network.interface_status()["sleep"]["asleep"] == true
    }

    /// How often a cause has woken the gate.
    fn woken_by(&self, cause: &str) -> u64 {
        let status = self.network.interface_status();
        let woken = status["sleep"]["woken"].as_array().unwrap();
        let times = woken.iter().find(|woken| woken["cause"] == cause);
        times.map_or(0, |woken| woken["times"].as_u64().unwrap())
    }

    fn bind(&self, port: u16) -> UdpSocket {
        self.network.near_socket(&format!("{NEAR_IP}:{port}"))
    }

    fn flow(&self, port: u16, rate: f64) -> FlowSpec {
        self.network.flow(port, Some(rate))
    }

    /// Floods a socket that nobody reads beside one that has room, while `body` runs.
    fn while_flooded(&self, body: impl FnOnce()) {
        let _full = self.bind(FULL_PORT);
        let live = self.bind(LIVE_PORT);
        sockopt::set_socket_recv_buffer_size_force(&live, 64 << 20).unwrap();
        let flows = [self.flow(LIVE_PORT, 1_000.0), self.flow(FULL_PORT, 200_000.0)];
        self.while_sent(&flows, body);
    }

    /// Heavier than usual, so that the other channel's packets reach the gate.
    fn wait_for_separation(&self) {
        let separates = || self.nice() < Nice(0) && !self.does("asleep");
        assert!(wait(TRIES_MAX, separates), "nice {}, {}", self.nice(), self.governed());
    }
}

impl Deref for Host {
    type Target = host::Host;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

/// A host, and the daemon on it.
fn governed(options: &[&str]) -> (Host, Daemon) {
    let host = Host::new();
    let daemon = host.start_sleepy(options);
    (host, daemon)
}

fn reader(socket: UdpSocket, cpu: CpuId) -> Owned {
    let mut command = Command::new("cat");
    Owned::start_on(cpu, command.stdin(OwnedFd::from(socket)).stdout(Stdio::null()))
}

#[test]
fn at_rest_everything_sleeps_and_packets_are_only_counted() {
    let (host, daemon) = governed(&[]);
    host.wait_for_rest();
    wait_until("the gate sleeps", || host.gate_sleeps());
    let reader = reader(host.bind(LIVE_PORT), host.cpus.cpu);
    let trickle = [host.flow(LIVE_PORT, 5_000.0)];
    host.while_sent(&trickle, || {
        wait_until("packets pass unseen", || host.network.count("asleep") > 1_000);
    });
    let status = host.network.interface_status();
    assert_eq!(status["governed"][0]["pid"], host.thread().as_raw_nonzero().get());
    assert_eq!(status["governed"].as_array().unwrap().len(), 1, "{status}");
    // What a person sees agrees.
    let text = host.network.says(&["status"]);
    assert!(text.contains("the gate is asleep") || !host.gate_sleeps(), "{text}");
    drop(reader);
    host.network.assert_left_untouched_by(daemon);
}

/// Also while the law sleeps, and nobody watches the scheduler.
#[test]
fn what_receiving_takes_is_known_at_all_times() {
    let (host, daemon) = governed(&[]);
    host.wait_for_rest();
    host.while_sent(&[host.flow(CLOSED_PORT, 50_000.0)], || {
        let (mut last, mut seconds) = (None, 0);
        let known = || {
            let status = host.network.interface_status();
            let now = (status["updated"].clone(), Instant::now(), sched::cpu_time(host.thread()));
            let ran = now.2.as_ref().unwrap().0;
            let Some((updated, at, before)) = &last else {
                last = Some((now.0, now.1, ran));
                return false;
            };
            if now.0 != *updated {
                let taken = (ran - before) as f64 / (now.1 - *at).as_nanos() as f64;
                let used = status["governed"][0]["used"].as_f64().unwrap();
                let is_right = taken > 0.02 && (used - taken).abs() < taken / 3.0;
                seconds = if is_right { seconds + 1 } else { 0 };
                last = Some((now.0, now.1, ran));
            }
            seconds == 3
        };
        assert!(wait(TRIES_MAX, known), "{}", host.governed());
    });
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn a_full_queue_wakes_the_gate_and_calm_puts_it_to_sleep_again() {
    let (host, daemon) = governed(&[]);
    let _full = host.bind(FULL_PORT);
    let flood = [host.flow(FULL_PORT, 50_000.0)];
    for _ in 0..2 {
        wait_until("the gate sleeps", || host.gate_sleeps());
        let (woken, discarded) = (host.woken_by("udp-queue"), host.network.count("udp-full"));
        host.while_sent(&flood, || {
            wait_until("it discards", || host.network.count("udp-full") > discarded);
            wait_until("it is seen to be awake", || !host.gate_sleeps());
        });
        assert!(host.woken_by("udp-queue") > woken);
    }
    wait_until("the gate sleeps", || host.gate_sleeps());
    host.wait_for_rest();
    host.network.assert_left_untouched_by(daemon);
}

/// No tracepoint tells of it, and user space, which is stopped here, counts but each second.
#[test]
fn a_listener_that_is_full_wakes_the_gate_in_the_kernel() {
    let (host, daemon) = governed(&[]);
    let listener = host.network.near.run(|| TcpListener::bind((NEAR_IP, LIVE_PORT)).unwrap());
    let listener = listener.unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let syns = FlowSpec {
        transport: Transport::TcpSyn,
        sources: Sources::Random { address_bits: 0, port_bits: 12 },
        ..host.flow(LIVE_PORT, 20_000.0)
    };
    wait_until("the gate sleeps", || host.gate_sleeps());
    let map_id = &host.network.interface_status()["sleep"]["alarm_map_id"];
    let alarm = Alarm::open(u32::try_from(map_id.as_u64().unwrap()).unwrap()).unwrap();
    daemon.signal(Signal::STOP);
    host.while_sent(&[syns], || {
        wait_until("the gate wakes", || !alarm.is_asleep());
    });
    let by_listener = alarm.woken().find(|(cause, _)| *cause == Cause::TcpQueue);
    assert_eq!(by_listener, Some((Cause::TcpQueue, 1)));
    daemon.signal(Signal::CONT);
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn somebody_who_watches_wakes_the_counters() {
    let (host, daemon) = governed(&[]);
    let _live = host.bind(LIVE_PORT);
    wait_until("the gate sleeps", || host.gate_sleeps());
    let trickle = [host.flow(LIVE_PORT, 500.0)];
    host.while_sent(&trickle, || {
        let seen = || host.network.says(&["channels", "--json"]).contains(&LIVE_PORT.to_string());
        wait_until("the socket's channel is listed", seen);
    });
    wait_until("the gate sleeps again", || host.gate_sleeps());
    host.network.assert_left_untouched_by(daemon);
}

/// Who watches has woken the gate already, and nothing would wake the governor, if the gate did not tell it again.
#[test]
fn under_a_flood_the_governor_acts_while_somebody_watches() {
    let (host, daemon) = governed(&[]);
    let _full = host.bind(FULL_PORT);
    wait_until("the gate sleeps", || host.gate_sleeps());
    let woken = host.woken_by("udp-queue");
    // Who has watched keeps the gate awake for a second only.
    drop(host.network.generator());
    host.network.says(&["channels", "--json", "--interval", "1500ms"]);
    assert!(!host.gate_sleeps(), "it counts for whoever watches");
    host.while_sent(&[host.flow(FULL_PORT, 50_000.0)], || {
        // What the test itself runs on that CPU may make it shared.
        wait_until("the governor acts", || host.does("isolating") || host.does("shared"));
    });
    assert_eq!(host.woken_by("udp-queue"), woken);
    host.network.assert_left_untouched_by(daemon);
}

/// A process that hardly weighs anything, or is to run only when nobody else wants to, is none that input shares with.
#[test]
fn beside_a_process_that_weighs_nothing_input_sleeps() {
    let (host, daemon) = governed(&[]);
    let _live = host.bind(LIVE_PORT);
    let leftover = Owned::compute_bound(host.cpus.cpu);
    let pid = leftover.pid();
    let trickle = [host.flow(LIVE_PORT, 500.0)];
    host.while_sent(&trickle, || {
        for (policy, nice) in [(SchedPolicy::Idle, Nice(0)), (SchedPolicy::Normal, Nice(19))] {
            sched::set_weight(pid, policy, nice, None).unwrap();
            let no_stranger = || host.governed()["taken"].as_f64() < Some(0.01);
            assert!(wait(TRIES_MAX, no_stranger), "{policy:?}: {}", host.governed());
        }
        sched::set_weight(pid, SchedPolicy::Normal, Nice(0), None).unwrap();
        wait_until("it is one now", || host.does("shared") && !host.is_batch());
    });
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn beside_a_compute_bound_process_input_is_not_starved() {
    let (host, daemon) = governed(&[]);
    let live = host.bind(LIVE_PORT);
    sockopt::set_socket_recv_buffer_size_force(&live, 64 << 20).unwrap();
    host.wait_for_rest();
    let neighbour = Owned::compute_bound(host.cpus.cpu);
    let flows = [host.flow(LIVE_PORT, 5_000.0)];
    host.while_sent(&flows, || {
        let shares = || host.does("shared") && !host.is_batch();
        assert!(wait(PATIENCE, shares), "nice {}, {}", host.nice(), host.governed());
        wait_until("interrupts are deferred", || host.network.deferral()[0] == "1");
        // Who packets are for gets them.
        wait_until("one arrives", || live.recv(&mut [0; 64]).is_ok_and(|len| len == 14));
        let cpu = host.governed()["cpu"].clone();
        assert_eq!(cpu, host.cpus.cpu.0);
    });
    drop(neighbour);
    host.wait_for_rest();
    assert_eq!(host.network.deferral(), ["0", "0"]);
    host.network.assert_left_untouched_by(daemon);
}

/// Who is flooded lacks CPU time, and input yields it.
#[test]
fn beside_its_only_receiver_a_flood_is_light() {
    let (host, daemon) = governed(&[]);
    let reader = reader(host.bind(LIVE_PORT), host.cpus.cpu);
    let flood = FlowSpec { rate: None, ..host.flow(LIVE_PORT, 1.0) };
    host.while_sent(&[flood], || {
        let yields = || host.nice() > Nice(0) && !host.does("asleep");
        assert!(wait(TRIES_MAX, yields), "nice {}, {}", host.nice(), host.governed());
    });
    drop(reader);
    host.wait_for_rest();
    host.network.assert_left_untouched_by(daemon);
}

/// What fills no queue wakes the gate once it takes more than its share from others.
#[test]
fn a_flood_that_fills_no_queue_wakes_the_gate_by_its_cost() {
    let (host, daemon) = governed(&[]);
    let neighbour = Owned::compute_bound(host.cpus.cpu);
    wait_until("the gate sleeps", || host.gate_sleeps());
    let before = host.woken_by("cpu-share");
    let flood = FlowSpec { rate: None, ..host.flow(CLOSED_PORT, 1.0) };
    host.while_sent(&[flood], || {
        let woken = || host.woken_by("cpu-share") > before;
        assert!(wait(TRIES_MAX, woken), "{}", host.governed());
        // As old as what woke the gate.
        let shed = || host.network.published_count("closed-share");
        assert!(wait(TRIES_MAX, || shed() > 0), "{}", host.governed());
        // The trial has found something, so that it was the last.
        let (tried, before) = (host.woken_by("cpu-share"), shed());
        wait_until("it goes on shedding", || shed() > before + 50_000);
        assert!(!host.gate_sleeps());
        assert_eq!(host.woken_by("cpu-share"), tried);
    });
    drop(neighbour);
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn a_flood_beside_another_channel_is_told_from_it() {
    let (host, daemon) = governed(&[]);
    host.while_flooded(|| {
        host.wait_for_separation();
        wait_until("what it costs is known", || host.governed()["r_ring_pps"].is_number());
    });
    let governed = host.governed();
    let c_gate_ns = governed["c_gate_ns"].as_f64().unwrap();
    assert!((10.0..100_000.0).contains(&c_gate_ns), "{governed}");
    host.wait_for_rest();
    host.network.assert_left_untouched_by(daemon);
}

/// A daemon that is stopped moves no weight, and what it has set last may starve somebody.
#[test]
fn while_the_daemon_is_stopped_weights_are_the_kernels_own() {
    let (host, daemon) = governed(&[]);
    host.wait_for_rest();
    daemon.signal(Signal::STOP);
    assert!(wait(PROMISED, || host.nice() == Nice(0)), "still at nice {}", host.nice());
    daemon.signal(Signal::CONT);
    host.wait_for_rest();
    // At once again, before it has beaten.
    daemon.signal(Signal::STOP);
    assert!(wait(PROMISED, || host.nice() == Nice(0)), "still at nice {}", host.nice());
    daemon.signal(Signal::CONT);
    host.wait_for_rest();
    // And while it had set more than that.
    host.while_flooded(|| {
        host.wait_for_separation();
        daemon.signal(Signal::STOP);
        assert!(wait(PROMISED, || host.nice() == Nice(0)), "still at nice {}", host.nice());
        daemon.signal(Signal::CONT);
        wait_until("it separates again", || host.nice() < Nice(0));
    });
    host.network.assert_left_untouched_by(daemon);
}

/// Also if the daemon is killed meanwhile.
#[test]
fn deferred_interrupts_go_back_and_somebody_elses_deferral_stays() {
    let host = Host::new();
    let _neighbour = Owned::compute_bound(host.cpus.cpu);
    let _live = host.bind(LIVE_PORT);
    let flows = [host.flow(LIVE_PORT, 5_000.0)];
    host.while_sent(&flows, || {
        let daemon = host.start_sleepy(&[]);
        wait_until("interrupts are deferred", || host.network.deferral()[0] == "1");
        let usual = || host.network.deferral() == ["0", "0"];
        daemon.signal(Signal::STOP);
        assert!(wait(PROMISED, usual), "{:?}", host.network.deferral());
        daemon.signal(Signal::CONT);
        wait_until("interrupts are deferred", || host.network.deferral()[0] == "1");
        daemon.kill();
        assert!(wait(PROMISED, usual), "{:?}", host.network.deferral());
        wait_until("weir's files are gone", || host.network.files().is_empty());

        host.network.set_deferral("5", "20000");
        let daemon = host.start_sleepy(&[]);
        wait_until("it shares", || host.does("shared"));
        assert_eq!(host.network.deferral(), ["5", "20000"]);
        daemon.interrupt();
        assert_eq!(host.network.deferral(), ["5", "20000"]);
        host.network.set_deferral("0", "0");

        let daemon = host.start_sleepy(&[]);
        wait_until("interrupts are deferred", || host.network.deferral()[0] == "1");
        host.network.set_deferral("5", "20000");
        let said = daemon.interrupt();
        assert!(said.contains("left as set by somebody else"), "{said}");
        assert_eq!(host.network.deferral(), ["5", "20000"]);

        // One of the two is somebody else's, the other one weir's.
        for (attribute, stays) in
            [("gro_flush_timeout", ["0", "20000"]), ("napi_defer_hard_irqs", ["5", "0"])]
        {
            host.network.set_deferral("0", "0");
            let daemon = host.start_sleepy(&[]);
            wait_until("interrupts are deferred", || host.network.deferral()[0] == "1");
            let value = stays.into_iter().find(|value| *value != "0").unwrap();
            host.network.write(attribute, value);
            daemon.interrupt();
            assert_eq!(host.network.deferral(), stays);
        }
    });
}

/// What DPDK's guide to AF_XDP says to set; and a single poll, as weir's own, beside another interval.
#[test]
fn somebody_elses_later_deferral_stays_while_weir_runs_and_after() {
    const THEIRS: [[&str; 2]; 2] = [["2", "200000"], ["1", "20000"]];
    let host = Host::new();
    let _neighbour = Owned::compute_bound(host.cpus.cpu);
    let _live = host.bind(LIVE_PORT);
    let flows = [host.flow(LIVE_PORT, 5_000.0)];
    let is = |values: [&str; 2]| assert_eq!(host.network.deferral(), values);
    let set = |values: [&str; 2]| host.network.set_deferral(values[0], values[1]);
    // Each daemon has its own thread.
    let rests = || wait(TRIES_MAX, || host.does("asleep"));
    for values in THEIRS {
        // Before it defers.
        let daemon = host.start_sleepy(&[]);
        set(values);
        host.while_sent(&flows, || wait_until("it shares", || host.does("shared")));
        is(values);
        assert!(rests());
        is(values);
        assert!(daemon.interrupt().contains("left as set by somebody else"));
        is(values);
        set(["0", "0"]);
    }
    for end in [Daemon::kill as fn(Daemon), |daemon| drop(daemon.interrupt())] {
        let daemon = host.start_sleepy(&[]);
        host.while_sent(&flows, || {
            wait_until("interrupts are deferred", || host.network.deferral()[0] == "1");
            set(THEIRS[0]);
        });
        assert!(rests());
        is(THEIRS[0]);
        end(daemon);
        wait_until("weir's files are gone", || host.network.files().is_empty());
        is(THEIRS[0]);
        set(["0", "0"]);
    }
    host.network.assert_untouched();
}

#[test]
fn what_a_killed_governor_had_moved_goes_back_within_a_second() {
    let host = Host::new();
    host.begin_threaded();
    let thread = host.thread();
    sched::set_nice(thread, Nice(3)).unwrap();
    let daemon = host.start_sleepy(&[]);
    assert_eq!(host.network.napi_threads(), [thread]);
    host.while_flooded(|| {
        host.wait_for_separation();
        daemon.kill();
        let now = || (sched::nice(thread).unwrap(), sched::policy(thread).unwrap());
        let before = (Nice(3), SchedPolicy::Normal);
        assert!(wait(PROMISED, || now() == before), "{:?}", now());
    });
    assert_eq!(host.network.threaded(), "1");
    wait_until("weir's files are gone", || host.network.files().is_empty());
}

/// Also of a thread that was real-time before, and also if the daemon is killed.
#[test]
fn a_governed_thread_gets_its_policy_back() {
    let host = Host::new();
    host.begin_threaded();
    let thread = host.thread();
    let policy = || sched::policy(thread).unwrap();
    let (before, nice) = (SchedPolicy::RoundRobin(5), Nice(3));
    sched::set_nice(thread, nice).unwrap();
    sched::set_weight(thread, before, nice, None).unwrap();
    for kill in [false, true] {
        let daemon = host.start_sleepy(&[]);
        wait_until("it is governed", || {
            matches!(policy(), SchedPolicy::Normal | SchedPolicy::Batch)
        });
        if kill {
            daemon.kill();
        } else {
            daemon.interrupt();
        }
        assert!(wait(PROMISED, || policy() == before), "{:?}", policy());
        assert_eq!(host.nice(), nice);
        wait_until("weir's files are gone", || host.network.files().is_empty());
    }
}

#[test]
fn a_policy_that_somebody_else_has_given_a_governed_thread_outlasts_what_the_governor_does() {
    let host = Host::new();
    host.begin_threaded();
    let (thread, theirs) = (host.thread(), SchedPolicy::Fifo(7));
    let daemon = host.start_sleepy(&[]);
    host.wait_for_rest();
    sched::set_weight(thread, theirs, Nice(0), None).unwrap();
    host.while_flooded(|| {
        assert!(wait(TRIES_MAX, || !host.does("asleep")), "{}", host.governed());
    });
    assert_eq!(sched::policy(thread).unwrap(), theirs);
    let said = daemon.interrupt();
    assert!(said.contains(": left as set by somebody else (SCHED_FIFO 7)"), "{said}");
    assert_eq!(sched::policy(thread).unwrap(), theirs);
}

#[test]
fn a_thread_of_somebody_elses_policy_is_called_ungoverned_until_it_is_put_back() {
    let (host, daemon) = governed(&[]);
    let thread = host.thread();
    let says = |arguments: &[&str]| host.network.says(arguments);
    for theirs in [SchedPolicy::Fifo(7), SchedPolicy::RoundRobin(5), SchedPolicy::Idle] {
        host.wait_for_rest();
        sched::set_weight(thread, theirs, Nice(0), None).unwrap();
        let pid = thread.as_raw_nonzero();
        let told = format!("given NAPI thread {pid} {theirs}, so it is not governed; `chrt ");
        wait_until("it is not governed", || host.network.check().contains(&told));
        assert!(host.network.check().starts_with("degraded: near: "), "{}", host.network.check());
        assert_eq!(host.governed()["others_policy"], theirs.to_string());
        let text = says(&["status"]);
        assert!(text.contains(&format!(": not governed, {theirs}; ")), "{text}");
        assert!(text.contains(&format!("note: somebody has {told}")), "{text}");
        assert!(!says(&["status", "--openmetrics"]).contains("weir_governor_nice{"));
        sched::set_weight(thread, SchedPolicy::Normal, Nice(5), None).unwrap();
        wait_until("it is governed again", || host.is_batch() && host.nice() == Nice(0));
        wait_until("that is told", || host.network.check().starts_with("protected: "));
        assert_eq!(host.governed()["others_policy"], Value::Null);
    }
    host.network.assert_left_untouched_by(daemon);
}

/// It keeps the thread that looks after NAPI from its CPU, which has a real-time priority, too.
#[test]
fn beside_a_real_time_process_that_never_sleeps_weir_acts_and_ends() {
    let (host, daemon) = governed(&[]);
    host.wait_for_rest();
    let mut spinner = Owned::compute_bound(host.cpus.cpu);
    sched::set_weight(spinner.pid(), SchedPolicy::Fifo(50), Nice(0), None).unwrap();
    host.while_flooded(|| {
        assert!(wait(TRIES_MAX, || !host.does("asleep")), "{}", host.governed());
        wait_until("its waiting is told", || host.governed()["waited"].as_f64() > Some(0.5));
    });
    daemon.interrupt();
    assert!(spinner.try_wait().unwrap().is_none());
    host.network.assert_untouched();
}

/// Once nothing is in its way any more, and it has slept.
#[test]
fn a_governor_that_was_kept_from_its_cpu_goes_back_to_it() {
    let (host, daemon) = governed(&[]);
    host.wait_for_rest();
    let cpus = || {
        let threads = stat::threads(daemon.pid().as_raw_nonzero().get()).unwrap();
        let looks = |pid: &i32| Stat::of(*pid).is_some_and(|stat| stat.comm == b"weir-govern");
        let pid = threads.into_iter().find(looks).unwrap();
        sched::affinity(Pid::from_raw(pid).unwrap()).unwrap()
    };
    let spinner = Owned::compute_bound(host.cpus.cpu);
    sched::set_weight(spinner.pid(), SchedPolicy::Fifo(50), Nice(0), None).unwrap();
    host.while_flooded(|| assert!(wait(TRIES_MAX, || cpus().len() > 1), "{:?}", cpus()));
    drop(spinner);
    // Whatever else runs here may keep it from its CPU, too.
    let is_back = || {
        host.wait_for_rest();
        let mut is_back = false;
        host.while_flooded(|| is_back = wait(PROMISED * 2, || cpus() == [host.cpus.cpu]));
        is_back
    };
    assert!((0..10).any(|_| is_back()), "{:?}", cpus());
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn another_share_holds_from_the_next_look_on() {
    let host = Host::new();
    let file = ConfigFile::new("share", "user_share = \"60%\"\n");
    let daemon = host.start_sleepy(&["--config", file.path()]);
    let thread = host.governed()["pid"].clone();
    // Input's share of the CPU: R_ring = share / c_gate.
    let share = || {
        let governed = host.governed();
        let times = |name: &str| governed[name].as_f64();
        times("r_ring_pps").zip(times("c_gate_ns")).map(|(rate, cost)| rate * cost / 1e9)
    };
    let is = |wanted: f64| share().is_some_and(|share| (share - wanted).abs() < 1e-6);
    host.while_flooded(|| {
        wait_until("input has 40 %", || is(0.4));
        daemon.reload(&file, "user_share = \"90%\"\n");
        wait_until("input has 10 %", || is(0.1));
    });
    assert_eq!(host.governed()["pid"], thread);
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn a_fixed_weight_is_not_governed() {
    let (host, daemon) = governed(&["--nice", "5"]);
    let status = host.network.interface_status();
    assert_eq!(status["governed"], Value::Array(vec![]));
    assert_eq!((&status["nice"], host.nice()), (&5.into(), Nice(5)));
    host.network.assert_left_untouched_by(daemon);
}

/// A queue that stays full is no overload: what counts is what discarding costs.
#[test]
fn a_reader_that_has_stopped_costs_its_neighbour_nothing() {
    let (host, daemon) = governed(&[]);
    let stopped = reader(host.bind(FULL_PORT), host.cpus.cpu);
    stopped.signal(Signal::STOP);
    let live = host.bind(LIVE_PORT);
    live.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&live, 64 << 20).unwrap();
    let flows = [host.flow(LIVE_PORT, 2_000.0), host.flow(FULL_PORT, 50_000.0)];
    let mut rounds = Vec::new();
    // On a machine that others use too, their CPU may be away for longer than the ring lasts (5 ms), so a
    // round is short.
    let none_lost = wait(TRIES_MAX, || {
        host.network.while_sent(&flows, Some(host.cpus.elsewhere), |generator| {
            wait_until("enough is sent", || generator.counts(0).sent >= 100);
        });
        let sent = host.network.sent(0);
        let mut received = 0;
        while live.recv(&mut [0; 64]).is_ok() {
            received += 1;
        }
        rounds.push((sent, received));
        sent == received
    });
    assert!(none_lost, "sent and received: {rounds:?}");
    wait_until("the unread one's are discarded", || host.network.count("udp-full") > 0);
    host.network.assert_left_untouched_by(daemon);
}

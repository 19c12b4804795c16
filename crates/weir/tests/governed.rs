//! The governor, in the real daemon on a real NAPI thread: what it does, and that it goes back.
//!
//! Other processes of the machine may run on the thread's CPU too, and are strangers to it: what takes
//! the CPU's being at rest is waited for longer.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::cell::OnceCell;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::*;
use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::sched::{self, Policy};
use weir_bpf::sys::stat::Stat;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::traffic::{FlowSpec, Generator};
use weir_bpf::units::{CpuId, Nice};

/// What `docs` promise for a daemon that is stopped or killed.
const PROMISED: Duration = Duration::from_secs(1);
/// How long it may take until nobody else wants the CPU.
const QUIET_MAX: Duration = Duration::from_secs(60);
/// Sockets that nobody reads, and one that somebody does.
const FULL_PORT: u16 = 7000;
const LIVE_PORT: u16 = 7001;
/// Where no socket is.
const CLOSED_PORT: u16 = 7002;
/// include/uapi/linux/sched.h
const SCHED_BATCH: u32 = 3;
/// How long an answer is waited for.
const ONE_TRY: Duration = Duration::from_millis(50);
const DEFERRAL: [&str; 2] = ["gro_flush_timeout", "napi_defer_hard_irqs"];
const NOT_DEFERRED: [&str; 2] = ["0", "0"];
const LIGHTEST: Nice = Nice(19);

/// A host with the daemon's options, one test at a time: its CPU is every test's.
struct Host {
    network: Network,
    cpu: CpuId,
    /// Asked for once: looking for it takes time, on whichever CPU.
    thread: OnceCell<Pid>,
    _alone: MutexGuard<'static, ()>,
}

impl Host {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = *sched::online_cpus().unwrap().last().unwrap();
        Self { network: Network::ipv4_only(), cpu, thread: OnceCell::new(), _alone: alone }
    }

    fn start(&self, options: &[&str]) -> Daemon {
        let cpu = self.cpu.to_string();
        Daemon::start(&self.network, &[&["--cpus", &cpu], options].concat())
    }

    /// Polled by a NAPI thread without weir, as a veth is with GRO; so the thread outlives weir.
    fn begin_threaded(&self) {
        let near = &self.network.near;
        near.run(|| ethtool::set_gro(NEAR, true)).unwrap().unwrap();
        near.run(|| NetSysfs::open().unwrap().write(NEAR, "threaded", "1")).unwrap().unwrap();
        wait_until("there is a NAPI thread", || self.network.napi_threads().len() == 1);
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
    fn is_courteous(&self) -> bool {
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

    /// Whether it interrupts nobody, and nobody it: the CPU has time to spare.
    fn has_spare_time(&self) -> bool {
        self.nice() == Nice(0) && self.is_courteous()
    }

    /// At rest it yields; where others keep the CPU busy, it is at the usual weight, and nothing comes in.
    fn wait_for_rest(&self) {
        let rests = || {
            let governed = self.governed();
            match governed["doing"].as_str() {
                Some("yielding") => self.nice() == LIGHTEST || self.has_spare_time(),
                Some("balancing") => self.nice() == Nice(0) && governed["used"] == 0.0,
                _ => false,
            }
        };
        assert!(wait(QUIET_MAX, rests), "never at rest: {}", self.governed());
    }

    fn bind(&self, port: u16) -> UdpSocket {
        self.network.near_socket(&format!("{NEAR_IP}:{port}"))
    }

    /// A socket at the far end that is connected to a port here.
    fn client(&self, port: u16) -> UdpSocket {
        let connect = || {
            let socket = UdpSocket::bind((FAR_IP, 0)).unwrap();
            socket.connect((NEAR_IP, port)).unwrap();
            socket
        };
        self.network.far.run(connect).unwrap()
    }

    fn flow(&self, port: u16, rate: f64) -> FlowSpec {
        self.network.flow(port, Some(rate))
    }

    /// Sends these flows, from another CPU if there is one, while `body` runs.
    fn while_sending(
        &self,
        generator: &mut Generator,
        flows: &[FlowSpec],
        body: impl FnOnce(&Generator),
    ) {
        generator.set_flows(flows).unwrap();
        let elsewhere = sched::online_cpus().unwrap()[0];
        let generator = &*generator;
        let body = || {
            generator.start();
            body(generator);
        };
        generator.run_while(&self.network.far, Some(elsewhere), body).unwrap();
    }

    /// Floods a socket that nobody reads beside one that has room, while `body` runs.
    fn while_flooded(&self, body: impl FnOnce()) {
        let _full = self.bind(FULL_PORT);
        let live = self.bind(LIVE_PORT);
        sockopt::set_socket_recv_buffer_size_force(&live, 64 << 20).unwrap();
        let flows = [self.flow(LIVE_PORT, 1_000.0), self.flow(FULL_PORT, 200_000.0)];
        self.while_sending(&mut self.network.generator(), &flows, |_| body());
    }

    /// `gro_flush_timeout` and `napi_defer_hard_irqs`.
    fn deferral(&self) -> [String; 2] {
        let read = || {
            let sysfs = NetSysfs::open().unwrap();
            DEFERRAL.map(|attribute| sysfs.read(NEAR, attribute).unwrap().trim().to_owned())
        };
        self.network.near.run(read).unwrap()
    }

    /// Interrupts are deferred meanwhile: for longer, while somebody else wants the CPU.
    fn wait_for_separation(&self) {
        let separates = || {
            let is_deferred = [["50000", "2"], ["200000", "2"]]
                .contains(&self.deferral().each_ref().map(String::as_str));
            self.nice() < Nice(0) && self.does("separating") && is_deferred
        };
        assert!(wait(QUIET_MAX, separates), "nice {}, {}", self.nice(), self.governed());
    }
}

/// A process of the test's own, ended with it.
struct Process(Child);

impl Process {
    fn start(command: &mut Command, cpu: CpuId) -> Self {
        let process = Self(command.spawn().unwrap());
        sched::set_affinity(Pid::from_child(&process.0), &[cpu]).unwrap();
        process
    }

    fn compute_bound(cpu: CpuId) -> Self {
        Self::start(Command::new("sh").args(["-c", "while :; do :; done"]), cpu)
    }

    fn stopped_reader(socket: UdpSocket, cpu: CpuId) -> Self {
        let mut command = Command::new("cat");
        let reader = Self::start(command.stdin(OwnedFd::from(socket)).stdout(Stdio::null()), cpu);
        kill_process(Pid::from_child(&reader.0), Signal::STOP).unwrap();
        reader
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long a thread runs at a time, if this kernel tells (`CONFIG_SCHED_DEBUG`, Linux 6.12).
fn slice(thread: Pid) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/sched", thread.as_raw_nonzero())).unwrap();
    text.lines().find(|line| line.starts_with("se.slice")).map(str::to_owned)
}

#[test]
fn at_rest_input_yields() {
    let host = Host::new();
    let daemon = host.start(&[]);
    host.wait_for_rest();
    let status = host.network.interface_status();
    let governed = &status["governed"][0];
    assert_eq!(governed["pid"], host.thread().as_raw_nonzero().get());
    assert_eq!(status["governed"].as_array().unwrap().len(), 1, "{status}");
    // What a person sees agrees.
    let text = String::from_utf8(host.network.weir(&["status"]).stdout).unwrap();
    assert!(text.contains("yielding") || text.contains("balancing"), "{text}");
    daemon.interrupt();
    host.network.assert_untouched();
}

#[test]
fn with_time_to_spare_input_interrupts_nobody_and_else_yields() {
    let host = Host::new();
    let daemon = host.start(&[]);
    let input = OwnedFd::from(host.bind(LIVE_PORT));
    let reader = Process::start(Command::new("cat").stdin(input).stdout(Stdio::null()), host.cpu);
    let mut generator = host.network.generator();
    let trickle = host.flow(LIVE_PORT, 5_000.0);
    let flood = FlowSpec { rate: None, ..trickle.clone() };
    let mut beside = |flow: &FlowSpec, what: &dyn Fn() -> bool| {
        host.while_sending(&mut generator, std::slice::from_ref(flow), |_| {
            assert!(wait(QUIET_MAX, what), "nice {}, {}", host.nice(), host.governed());
        });
    };
    let spares = || host.has_spare_time();
    beside(&trickle, &spares);
    beside(&flood, &|| host.nice() == LIGHTEST && !host.is_courteous());
    beside(&trickle, &spares);
    drop(reader);
    daemon.interrupt();
    host.network.assert_untouched();
}

/// A process that is to run only when nobody else wants to is none that input shares with.
#[test]
fn beside_a_process_of_the_idle_policy_the_cpu_has_time_to_spare() {
    let host = Host::new();
    let daemon = host.start(&[]);
    let _live = host.bind(LIVE_PORT);
    let leftover = Process::compute_bound(host.cpu);
    let pid = Pid::from_child(&leftover.0);
    sched::set_weight(pid, Policy::Idle, Nice(0), None).unwrap();
    let trickle = [host.flow(LIVE_PORT, 5_000.0)];
    host.while_sending(&mut host.network.generator(), &trickle, |_| {
        let spares = || host.has_spare_time() && host.does("yielding");
        assert!(wait(QUIET_MAX, spares), "nice {}, {}", host.nice(), host.governed());
        sched::set_weight(pid, Policy::Normal, Nice(0), None).unwrap();
        wait_until("it is one now", || host.does("balancing"));
    });
    daemon.interrupt();
    host.network.assert_untouched();
}

#[test]
fn beside_a_compute_bound_process_input_is_not_starved() {
    let host = Host::new();
    let daemon = host.start(&[]);
    let live = host.bind(LIVE_PORT);
    sockopt::set_socket_recv_buffer_size_force(&live, 64 << 20).unwrap();
    host.wait_for_rest();
    let neighbour = Process::compute_bound(host.cpu);
    let flows = [host.flow(LIVE_PORT, 5_000.0)];
    host.while_sending(&mut host.network.generator(), &flows, |_| {
        let balances = || host.nice() != LIGHTEST && host.does("balancing");
        assert!(wait(PATIENCE, balances), "nice {}, {}", host.nice(), host.governed());
        // Who packets are for gets them.
        wait_until("one arrives", || live.recv(&mut [0; 64]).is_ok_and(|len| len == 14));
        let cpu = host.governed()["cpu"].clone();
        assert_eq!(cpu, host.cpu.0);
    });
    drop(neighbour);
    host.wait_for_rest();
    daemon.interrupt();
    host.network.assert_untouched();
}

/// Where nothing is lost, and a compute-bound process has less than half of the CPU, shorter turns would cost all.
#[test]
fn who_lacks_nothing_is_left_to_the_scheduler() {
    let host = Host::new();
    let daemon = host.start(&[]);
    let neighbour = Process::compute_bound(host.cpu);
    let ports = [1, 2, 3].map(|nth| LIVE_PORT + 100 * nth);
    let services = ports.map(|port| host.bind(port));
    let clients = ports.map(|port| host.client(port));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (service, client) in services.iter().zip(&clients) {
            scope.spawn(|| answer_slowly(service, host.cpu, &over));
            scope.spawn(|| ask(client, &over));
        }
        let _over = Over(&over);
        let is_left = || host.nice() == Nice(0) && !host.is_courteous() && host.does("balancing");
        let stays = || {
            let mut looks = (0..20).map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                is_left()
            });
            looks.all(|left| left)
        };
        assert!(wait(QUIET_MAX, stays), "nice {}, {}", host.nice(), host.governed());
    });
    drop(neighbour);
    daemon.interrupt();
    host.network.assert_untouched();
}

#[test]
fn a_flood_beside_another_channel_is_told_from_it() {
    let host = Host::new();
    let daemon = host.start(&[]);
    host.while_flooded(|| {
        host.wait_for_separation();
        wait_until("what it costs is known", || host.governed()["r_ring_pps"].is_number());
    });
    let governed = host.governed();
    let c_gate_ns = governed["c_gate_ns"].as_f64().unwrap();
    assert!((10.0..100_000.0).contains(&c_gate_ns), "{governed}");
    // Whoever else wants the CPU now, that is over.
    wait_until("it is told apart no more", || {
        !host.does("separating") && host.deferral() == NOT_DEFERRED
    });
    daemon.interrupt();
    host.network.assert_untouched();
}

/// What the operator has set is not the governor's to move.
#[test]
fn deferral_that_is_set_already_stays() {
    let host = Host::new();
    let set = |value: &str| {
        let write = || NetSysfs::open().unwrap().write(NEAR, DEFERRAL[0], value).unwrap();
        host.network.near.run(write).unwrap();
    };
    set("7000");
    let daemon = host.start(&[]);
    host.while_flooded(|| {
        let separates = || host.does("separating");
        assert!(wait(PATIENCE, separates), "{}", host.governed());
        assert_eq!(host.deferral(), ["7000", "0"]);
    });
    daemon.interrupt();
    assert_eq!(host.deferral(), ["7000", "0"]);
    host.network.assert_untouched();
}

/// A daemon that is stopped moves no weight, and what it has set last may starve somebody.
#[test]
fn while_the_daemon_is_stopped_weights_are_the_kernels_own() {
    let host = Host::new();
    let daemon = host.start(&[]);
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
        let is_left = || host.nice() == Nice(0) && host.deferral() == NOT_DEFERRED;
        assert!(wait(PROMISED, is_left), "nice {}, {:?}", host.nice(), host.deferral());
        daemon.signal(Signal::CONT);
        wait_until("it separates again", || host.nice() < Nice(0));
    });
    daemon.interrupt();
    host.network.assert_untouched();
}

/// Beside a service that is busy, but sleeps, a flood that fills no queue is no reason to interrupt it; and that, too,
/// goes back.
#[test]
fn a_flood_that_fills_no_queue_interrupts_nobody() {
    let host = Host::new();
    let daemon = host.start(&[]);
    let service = host.bind(LIVE_PORT);
    let clients: Vec<UdpSocket> = (0..8).map(|_| host.client(LIVE_PORT)).collect();
    let flood = host.flow(CLOSED_PORT, 100_000.0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer_slowly(&service, host.cpu, &over));
        for client in &clients {
            scope.spawn(|| ask(client, &over));
        }
        let _over = Over(&over);
        host.while_sending(&mut host.network.generator(), &[flood], |_| {
            let is_courteous = || host.is_courteous() && host.nice() < Nice(0);
            let tried =
                |what| assert!(wait(QUIET_MAX * 3, is_courteous), "{what}: {}", host.governed());
            tried("beside the service");
            assert_eq!(host.deferral(), NOT_DEFERRED);
            daemon.signal(Signal::STOP);
            let is_left = || host.nice() == Nice(0) && !host.is_courteous();
            assert!(wait(PROMISED, is_left), "stopped, and at nice {}", host.nice());
            daemon.signal(Signal::CONT);
            tried("going on");
        });
    });
    daemon.interrupt();
    host.network.assert_untouched();
}

/// A service that takes a while for each request, on this CPU.
fn answer_slowly(socket: &UdpSocket, cpu: CpuId, over: &AtomicBool) {
    sched::pin_current_thread(cpu).unwrap();
    socket.set_read_timeout(Some(ONE_TRY)).unwrap();
    while !over.load(Ordering::Relaxed) {
        let Ok((_, from)) = socket.recv_from(&mut [0; 64]) else { continue };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(200) {}
        let _ = socket.send_to(b"done", from);
    }
}

/// A client that has asked once waits for the answer.
fn ask(socket: &UdpSocket, over: &AtomicBool) {
    socket.set_read_timeout(Some(ONE_TRY)).unwrap();
    while !over.load(Ordering::Relaxed) {
        let _ = socket.send(b"please");
        let _ = socket.recv(&mut [0; 64]);
    }
}

#[test]
fn what_a_killed_governor_had_moved_goes_back_within_a_second() {
    let host = Host::new();
    host.begin_threaded();
    let thread = host.thread();
    sched::set_nice(thread, Nice(3)).unwrap();
    let slice_before = slice(thread);
    let daemon = host.start(&[]);
    assert_eq!(host.network.napi_threads(), [thread]);
    host.while_flooded(|| {
        host.wait_for_separation();
        daemon.kill();
        let is_back = || {
            sched::nice(thread).unwrap() == Nice(3)
                && slice(thread) == slice_before
                && host.deferral() == NOT_DEFERRED
        };
        let in_time = wait(PROMISED, is_back);
        let now = (sched::nice(thread).unwrap(), slice(thread), host.deferral());
        assert!(in_time, "{now:?}, before: {slice_before:?}");
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
    let (before, nice) = (Policy::RoundRobin(5), Nice(3));
    sched::set_nice(thread, nice).unwrap();
    sched::set_weight(thread, before, nice, None).unwrap();
    for kill in [false, true] {
        let daemon = host.start(&[]);
        wait_until("it is governed", || matches!(policy(), Policy::Normal | Policy::Batch));
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
fn another_share_holds_from_the_next_look_on() {
    let host = Host::new();
    let file = format!("weir-test-{}-share.toml", std::process::id());
    let file = ConfigFile(std::env::temp_dir().join(file));
    std::fs::write(&file.0, "user_share = \"60%\"\n").unwrap();
    let daemon = host.start(&["--config", file.0.to_str().unwrap()]);
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
        std::fs::write(&file.0, "user_share = \"90%\"\n").unwrap();
        daemon.signal(Signal::HUP);
        wait_until("input has 10 %", || is(0.1));
    });
    assert_eq!(host.governed()["pid"], thread);
    daemon.interrupt();
    host.network.assert_untouched();
}

struct ConfigFile(PathBuf);

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_fixed_weight_is_not_governed() {
    let host = Host::new();
    let daemon = host.start(&["--nice", "5"]);
    let status = host.network.interface_status();
    assert_eq!(status["governed"], Value::Array(vec![]));
    assert_eq!((&status["nice"], host.nice()), (&5.into(), Nice(5)));
    daemon.interrupt();
    host.network.assert_untouched();
}

/// A queue that stays full is no overload: what counts is what discarding costs.
#[test]
fn a_reader_that_has_stopped_costs_its_neighbour_nothing() {
    let host = Host::new();
    let daemon = host.start(&[]);
    let _stopped = Process::stopped_reader(host.bind(FULL_PORT), host.cpu);
    let live = host.bind(LIVE_PORT);
    live.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&live, 64 << 20).unwrap();
    let mut generator = host.network.generator();
    let flows = [host.flow(LIVE_PORT, 2_000.0), host.flow(FULL_PORT, 50_000.0)];
    let mut rounds = Vec::new();
    // On a machine that others use too, their CPU may be away for longer than the ring lasts (5 ms), so a
    // round is short.
    let none_lost = wait(QUIET_MAX, || {
        host.while_sending(&mut generator, &flows, |generator| {
            wait_until("enough is sent", || generator.counts(0).sent >= 100);
        });
        let sent = generator.counts(0).sent;
        let mut received = 0;
        while live.recv(&mut [0; 64]).is_ok() {
            received += 1;
        }
        rounds.push((sent, received));
        sent == received
    });
    assert!(none_lost, "sent and received: {rounds:?}");
    wait_until("the unread one's are discarded", || host.network.count("udp-full") > 0);
    daemon.interrupt();
    host.network.assert_untouched();
}

//! Softirq mode: what receive softirqs take from processes, and the gate's limit to it.
//!
//! Other processes of the machine run on the same CPU and get their part of what is left, the hypervisor
//! takes what it wants: so what must be possible is waited for, window by window.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use common::{BEYOND_IP4, FAR_IP4, NEAR_IP4, Network, alone, wait_until};
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::softirq::Softirqs;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::sys::{cpu_times, sched};
use weir_bpf::traffic::Generator;
use weir_bpf::units::{CpuId, Nanos, Permille};
use weir_bpf::verdict::Reason;

const MS: u64 = 1_000_000;
const PERIOD: Nanos = Nanos(10 * MS);
/// Nobody listens: what is admitted costs as much as a packet can.
const CLOSED_PORT: u16 = 5999;
const SECOND_IP4: &str = "198.18.0.2";
/// Of 100 ms each, if nothing stops the test.
const WINDOWS_MAX: usize = 400;

/// A veth that no thread polls, with a gate in its driver.
struct Bench {
    softirqs: Softirqs,
    gate: Gate,
    cpu: CpuId,
    network: Network,
    _probe: QueueProbe,
    /// The CPU is every test's.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(mode: AttachMode) -> Self {
        Self::of(|| Network::gated(mode))
    }

    fn of(gated: impl FnOnce() -> (Network, Gate, QueueProbe)) -> Self {
        let alone = alone();
        let (network, gate, probe) = gated();
        let softirqs = Softirqs::load(&probe).unwrap();
        softirqs.set_period(PERIOD);
        softirqs.watch(true).unwrap();
        let cpu = *sched::online_cpus().unwrap().last().unwrap();
        Self { softirqs, gate, cpu, network, _probe: probe, _alone: alone }
    }

    /// Has NAPI started by a timer on the CPU where it last ran, as by an interrupt that is bound there.
    fn bind_interrupts(&self) {
        let defer = || {
            let sysfs = NetSysfs::open().unwrap();
            sysfs.write("near", "gro_flush_timeout", "200000").unwrap();
            sysfs.write("near", "napi_defer_hard_irqs", "2147483647").unwrap();
        };
        self.network.near.run(defer).unwrap();
        self.send_from_its_cpu(1);
    }

    fn send_from_its_cpu(&self, packets: u32) {
        let send = || {
            sched::pin_current_thread(self.cpu).unwrap();
            let far = UdpSocket::bind((FAR_IP4, 0)).unwrap();
            for _ in 0..packets {
                far.send_to(b"fourteen bytes", (NEAR_IP4, CLOSED_PORT)).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| self.network.far.run(send).unwrap()).join().unwrap();
        });
    }

    /// Sends to nobody, from another CPU if there is one, while `body` runs.
    fn while_flooded<T>(
        &self,
        generator: &mut Generator,
        rate: Option<f64>,
        body: impl FnOnce() -> T,
    ) -> T {
        let flow = self.network.flow(CLOSED_PORT, rate);
        let elsewhere = sched::online_cpus().unwrap()[0];
        self.network.while_sent(generator, &[flow], Some(elsewhere), |_| body())
    }

    fn count(&self, reason: Reason) -> u64 {
        self.gate.counters().unwrap().get(reason).packets
    }

    fn sample(&self) -> Sample {
        // In this order: what has been discarded was taken before.
        let discarded = self.count(Reason::CpuShare);
        let times = self.softirqs.read().unwrap();
        let times = times.iter().find(|times| times.cpu == self.cpu).unwrap();
        Sample { at: Instant::now(), discarded, used: times.used.0, taken: times.taken.0 }
    }

    fn window(&self, process: &Process) -> Window {
        let (before, done) = (self.sample(), process.done());
        sleep(Duration::from_millis(100));
        let after = self.sample();
        let elapsed = (after.at - before.at).as_nanos() as f64;
        Window {
            taken: (after.taken - before.taken) as f64 / elapsed,
            work: (process.done() - done) as f64 / elapsed,
            discarded: after.discarded - before.discarded,
        }
    }

    /// Looks at one window after the other until one is as wanted.
    fn wait_for(&self, process: &Process, wanted: impl Fn(&Window) -> bool) -> Window {
        let mut seen = Vec::new();
        for _ in 0..WINDOWS_MAX {
            seen.push(self.window(process));
            match seen.last() {
                Some(window) if wanted(window) => return *window,
                _ => {}
            }
        }
        panic!("waited in vain: {:?}", &seen[seen.len() - 20..]);
    }
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    discarded: u64,
    used: u64,
    taken: u64,
}

/// What happened within 100 ms or a little more.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The share of the CPU that softirqs took.
    taken: f64,
    /// What the process got done in a nanosecond.
    work: f64,
    /// Packets, for the limit.
    discarded: u64,
}

/// A compute-bound process, in effect: a thread of the test.
struct Process {
    done: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    fn start(cpu: CpuId) -> Self {
        let (done, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (Arc::clone(&done), Arc::clone(&end));
        let thread = spawn(move || {
            sched::pin_current_thread(cpu).unwrap();
            while !stop.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { done, end, thread: Some(thread) }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// How much a flood takes depends on the machine, and on who else uses it: so the limit is set by that.
#[test]
fn a_flood_takes_its_share_from_processes_and_no_more() {
    let mut bench = Bench::new(AttachMode::Native);
    bench.bind_interrupts();
    let process = Process::start(bench.cpu);
    let mut generator = bench.network.generator();
    // Discarding has its price, too: of all that a generator can send, it takes as much as ksoftirqd
    // beside the process without a limit. So neither is as fast as it can be, and the slower has the smaller share.
    for (rate, part, at_most) in [(Some(800_000.0), 0.5, 0.9), (Some(400_000.0), 0.25, 0.6)] {
        bench.gate.limit_input(None);
        let before = bench.count(Reason::CpuShare);
        let mut windows =
            bench.while_flooded(&mut generator, rate, || [(); 15].map(|()| bench.window(&process)));
        assert_eq!(bench.count(Reason::CpuShare), before);
        windows.sort_by(|a, b| a.taken.total_cmp(&b.taken));
        let free = windows[10];

        let share = Permille((free.taken * part * 1000.0) as u32);
        bench.gate.limit_input(Some(share));
        // What is not taken is left to the process, at least half of it.
        let left = |window: &Window| (1.0 - window.taken) / (1.0 - free.taken);
        let limited = bench.while_flooded(&mut generator, rate, || {
            bench.wait_for(&process, |window| {
                window.discarded > 500
                    && window.taken < free.taken * at_most
                    && window.work > free.work * (1.0 + left(window)) / 2.0
            })
        });
        println!("{rate:?}: {free:?}; with {share:?}: {limited:?}");
    }
}

/// A quarter of the share is left for them.
#[test]
fn a_flood_that_nothing_bounds_costs_no_receiver_its_packets() {
    const FLOOD: f64 = 150_000.0;
    const LIVE: f64 = 2_000.0;
    const LIVE_PORT: u16 = 5998;
    let mut bench = Bench::new(AttachMode::Native);
    bench.bind_interrupts();
    let _live = bench.network.bind(NEAR_IP4, LIVE_PORT);
    let process = Process::start(bench.cpu);
    let mut generator = bench.network.generator();
    bench.gate.limit_input(None);
    let mut windows = bench
        .while_flooded(&mut generator, Some(FLOOD), || [(); 15].map(|()| bench.window(&process)));
    windows.sort_by(|a, b| a.taken.total_cmp(&b.taken));
    bench.gate.limit_input(Some(Permille((windows[7].taken * 850.0) as u32)));
    let flows = [(CLOSED_PORT, FLOOD), (LIVE_PORT, LIVE)]
        .map(|(port, rate)| bench.network.flow(port, Some(rate)));
    let elsewhere = sched::online_cpus().unwrap()[0];
    bench.network.while_sent(&mut generator, &flows, Some(elsewhere), |generator| {
        wait_until("the flood pays for most of it", || {
            let sent = || [0, 1].map(|flow| generator.counts(flow).sent as f64);
            let (before, then) = (bench.gate.counters().unwrap(), sent());
            for _ in 0..10 {
                bench.window(&process);
            }
            let (after, now) = (bench.gate.counters().unwrap(), sent());
            let since = |reason| (after.get(reason).packets - before.get(reason).packets) as f64;
            let seen: f64 = Reason::ALL.into_iter().map(since).sum();
            let lost = since(Reason::CpuShare) / seen;
            // Nobody reads them.
            let live = since(Reason::UdpRoom) + since(Reason::UdpFull);
            let [flood, lively] = [0, 1].map(|flow| now[flow] - then[flow]);
            let of_live = 1.0 - live / (seen * lively / (flood + lively));
            println!("{lost} of all, {of_live} of what a queue bounds");
            lost > 0.1 && of_live < lost / 4.0
        });
    });
}

#[test]
fn arp_is_answered_past_the_limit() {
    let mut bench = Bench::new(AttachMode::Native);
    let add = || {
        let links = Links::open().unwrap();
        links.add_address(bench.network.near_ifindex, SECOND_IP4.parse().unwrap(), 24).unwrap();
    };
    bench.network.near.run(add).unwrap();
    bench.bind_interrupts();
    bench.gate.limit_input(Some(Permille(10)));
    let process = Process::start(bench.cpu);
    // Not so fast that the ring overflows, which it does for everybody.
    bench.while_flooded(&mut bench.network.generator(), Some(100_000.0), || {
        bench.wait_for(&process, |window| window.discarded > 100);
        let is_resolved = || {
            let far = UdpSocket::bind((FAR_IP4, 0)).unwrap();
            let _ = far.send_to(b"fourteen bytes", (SECOND_IP4, CLOSED_PORT));
            let known = std::fs::read_to_string("/proc/thread-self/net/arp").unwrap();
            known.lines().any(|line| line.starts_with(SECOND_IP4) && line.contains("0x2"))
        };
        let resolved = || bench.network.far.run(is_resolved).unwrap();
        wait_until("the second address is known", resolved);
    });
    assert!(bench.count(Reason::Neighbour) > 0);
}

/// Who sends to a socket of the same host pays for that himself: nothing is taken from anybody.
#[test]
fn a_local_sender_spends_its_own_time() {
    let mut bench = Bench::new(AttachMode::Native);
    bench.gate.limit_input(Some(Permille(10)));
    const PACKETS: u32 = 2_000;
    wait_until("some are sent and none discarded", || {
        let before = (bench.sample(), bench.count(Reason::UdpNoSocket));
        bench.send_from_its_cpu(PACKETS);
        let after = (bench.sample(), bench.count(Reason::UdpNoSocket));
        let (used, taken) = (after.0.used - before.0.used, after.0.taken - before.0.taken);
        after.1 - before.1 >= u64::from(PACKETS) && used > MS / 10 && taken < used / 4
    });
}

#[test]
fn nothing_is_counted_while_they_are_not_watched() {
    let mut bench = Bench::new(AttachMode::Native);
    let used_by_some = |bench: &mut Bench| {
        let before = bench.sample().used;
        bench.send_from_its_cpu(2_000);
        bench.sample().used - before
    };
    wait_until("it is taken", || used_by_some(&mut bench) > 0);
    bench.softirqs.watch(false).unwrap();
    assert_eq!((bench.sample().used, used_by_some(&mut bench)), (0, 0));
    bench.softirqs.watch(true).unwrap();
    wait_until("it is taken again", || used_by_some(&mut bench) > 0);
}

/// For how long a CPU has been idle, since the machine began.
fn idle(cpu: CpuId) -> Duration {
    // A tick is 10 ms.
    Duration::from_millis(cpu_times::read().unwrap()[&cpu.0].idle_alone * 10)
}

/// On a CPU that nobody else wants, input may have all of it. Other processes may want it at any time:
/// but as long as nothing was taken from them, nothing is discarded.
#[test]
fn what_is_taken_from_nobody_is_not_limited() {
    let mut bench = Bench::new(AttachMode::Native);
    bench.bind_interrupts();
    const SHARE: u64 = 50;
    const LEAST: usize = 60;
    const ENOUGH: u32 = 3;
    bench.gate.limit_input(Some(Permille(SHARE as u32)));
    // Less than a quarter of the share cannot be what a period's packets were discarded for.
    let least = PERIOD.0 * SHARE / 1000 / 4;
    bench.while_flooded(&mut bench.network.generator(), Some(50_000.0), || {
        let look = || (bench.sample(), idle(bench.cpu));
        let mut looks = vec![look(); 3];
        let mut judged = 0;
        for number in 0..WINDOWS_MAX {
            sleep(Duration::from_millis(25));
            looks.push(look());
            let [first, middle, last] = looks.last_chunk::<3>().unwrap();
            // Over two windows, as the period began in the first.
            let taken = last.0.taken - first.0.taken;
            let discarded = last.0.discarded - middle.0.discarded;
            assert!(discarded == 0 || taken >= least, "{discarded} for {taken} ns");
            // By the kernel's account, hardly anybody wanted the CPU.
            let (used, elapsed) = (last.0.used - first.0.used, last.0.at - first.0.at);
            if used > MS && last.1.saturating_sub(first.1) > elapsed * 6 / 10 {
                assert!(taken < used / 4 * 3, "{taken} of {used} ns, while the CPU was idle");
                judged += 1;
            }
            if judged >= ENOUGH && number >= LEAST {
                return;
            }
        }
        println!("{judged} windows in which the CPU was idle: too few to judge by");
    });
}

/// At tc the gate knows the limit, too.
#[test]
fn an_skb_past_the_limit_is_discarded() {
    let mut bench = Bench::new(AttachMode::Tcx);
    // Nothing is input's at all.
    bench.gate.limit_input(Some(Permille(0)));
    bench.send_from_its_cpu(5);
    wait_until("they are discarded", || bench.count(Reason::CpuShare) == 5);
    bench.gate.limit_input(None);
    bench.send_from_its_cpu(5);
    wait_until("they pass", || bench.count(Reason::UdpNoSocket) == 5);
    assert_eq!(bench.count(Reason::CpuShare), 5);
}

/// Whatever the fast path would do with it.
#[test]
fn a_packet_to_forward_past_the_limit_is_discarded() {
    const PACKETS: u64 = 5;
    let mut bench = Bench::of(Network::forwarding);
    let sender = bench.network.sender();
    let packet = bench.network.datagram(BEYOND_IP4, CLOSED_PORT, b"fourteen bytes");
    let send = || sender.send(&packet).unwrap();
    let is_forwarded = |bench: &Bench| {
        let before = bench.count(Reason::Forwarded);
        wait_until("it is forwarded", || {
            send();
            bench.count(Reason::Forwarded) > before
        });
    };
    is_forwarded(&bench);
    // Nothing is input's at all.
    bench.gate.limit_input(Some(Permille(0)));
    let discarded = || bench.count(Reason::CpuShare);
    wait_until("the limit holds", || {
        send();
        discarded() > 0
    });
    let before = (discarded(), bench.count(Reason::Forwarded));
    (0..PACKETS).for_each(|_| send());
    wait_until("they are discarded", || discarded() >= before.0 + PACKETS);
    assert_eq!(bench.count(Reason::Forwarded), before.1);
    bench.gate.limit_input(None);
    is_forwarded(&bench);
}

/// A router that missed its neighbours' hellos would take over their addresses (VRRP), or route around
/// them (OSPF, BFD).
#[test]
fn what_routers_tell_each_other_passes_the_limit() {
    const BFD: u16 = 3784;
    const OSPF: u8 = 89;
    const VRRP: u8 = 112;
    const GRE: u8 = 47;
    const UDP: u8 = 17;
    let mut bench = Bench::new(AttachMode::Tcx);
    bench.gate.limit_input(Some(Permille(0)));
    let judge = |to: &str, ttl, protocol: u8| {
        let packet = bench.network.of_protocol(to, ttl, protocol);
        bench.network.judge(&bench.gate, &packet)
    };
    for (to, ttl, protocol) in [
        ("224.0.0.5", 1, OSPF),
        ("224.0.0.18", 255, VRRP),
        (NEAR_IP4, 255, VRRP),
        ("ff02::5", 1, OSPF),
        ("ff02::12", 255, VRRP),
        ("fe80::1", 255, VRRP),
    ] {
        assert_ne!(judge(to, ttl, protocol), Reason::CpuShare, "{to} {protocol}");
    }
    for (to, ttl, port, passes) in [
        (NEAR_IP4, 255, BFD, true),
        ("fe80::1", 255, BFD, true),
        (NEAR_IP4, 254, BFD, false),
        (NEAR_IP4, 255, CLOSED_PORT, false),
    ] {
        let packet = bench.network.datagram_of_ttl(to, ttl, port);
        let reason = bench.network.judge(&bench.gate, &packet);
        assert_eq!(reason != Reason::CpuShare, passes, "{to} {ttl} {port}");
    }
    // From afar, or no routers' protocol.
    for (to, ttl, protocol) in [
        (NEAR_IP4, 254, VRRP),
        (NEAR_IP4, 1, OSPF),
        ("224.0.1.1", 1, OSPF),
        ("ff05::5", 1, OSPF),
        (NEAR_IP4, 255, GRE),
        ("224.0.0.5", 1, UDP),
    ] {
        assert_eq!(judge(to, ttl, protocol), Reason::CpuShare, "{to} {protocol}");
    }
}

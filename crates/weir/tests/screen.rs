//! A router behind a user-mode screen: a real NFQUEUE program that is slower than what is sent to it.
//!
//! The flood is one that the ring holds, so that what is lost was discarded, or refused by the queue.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::router::{self, BEHIND, BEHIND_OUT, OUT, sh};
use common::*;
use nfq::{Queue, Verdict};
use rustix::net::sockopt;
use rustix::process::Signal;
use weir_bpf::counters::CountersReader;
use weir_bpf::screen::Queues;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Generator};
use weir_bpf::units::CpuId;
use weir_bpf::verdict::Reason;

const SCREENED_PORT: u16 = 5000;
const FLOOD_PPS: f64 = 100_000.0;
const LIGHT_PPS: f64 = 500.0;
/// What the screen does for each packet: at most 40,000 a second.
const WORK: Duration = Duration::from_micros(25);
/// How long something may be tried again and again, beside others' load.
const TRIES_MAX: Duration = Duration::from_secs(60);
/// Within which a daemon that is stopped discards nothing any more.
const PROMISED: Duration = Duration::from_secs(3);

/// What the queue has, besides the kernel's defaults.
#[derive(Clone, Copy)]
struct Room {
    packets: Option<u32>,
}

/// A router whose CPU is every test's.
struct Router {
    network: Network,
    cpu: CpuId,
    elsewhere: CpuId,
    generator: Generator,
    accepted: Arc<AtomicU64>,
    local: UdpSocket,
    _alone: MutexGuard<'static, ()>,
}

impl Router {
    /// With a rule for what leaves by [`NEAR2`], and a program that accepts it.
    fn new(rule: &str, room: Room) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let network = router::router();
        sh(&network, &format!("iptables -A FORWARD -o {NEAR2} {rule} -j NFQUEUE --queue-num 0"));
        let cpus = sched::online_cpus().unwrap();
        let (elsewhere, cpu) = (cpus[0], *cpus.last().unwrap());
        let accepted = Arc::new(AtomicU64::new(0));
        let (ready, is_ready) = channel();
        let (count, netns) =
            (Arc::clone(&accepted), network.near.run(NetNs::current).unwrap().unwrap());
        // It waits for packets until the process ends.
        std::thread::spawn(move || {
            netns.enter_current_thread().unwrap();
            sched::pin_current_thread(cpu).unwrap();
            let mut queue = Queue::open().unwrap();
            queue.bind(0).unwrap();
            queue.set_recv_enobufs(false).unwrap();
            if let Some(packets) = room.packets {
                queue.set_queue_max_len(0, packets).unwrap();
            }
            ready.send(()).unwrap();
            loop {
                let mut packet = queue.recv().unwrap();
                let began = Instant::now();
                while began.elapsed() < WORK {}
                packet.set_verdict(Verdict::Accept);
                queue.verdict(packet).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        let local = network.near_socket(&format!("{NEAR_IP}:8000"));
        sockopt::set_socket_recv_buffer_size_force(&local, 64 << 20).unwrap();
        let generator = network.generator();
        Self { network, generator, cpu, elsewhere, accepted, local, _alone: alone }
    }

    fn start(&self, options: &[&str]) -> Daemon {
        let cpu = self.cpu.to_string();
        Daemon::start_sleepy(&self.network, &[&["--cpus", &cpu], options].concat())
    }

    fn flow(&self, to: &str, ports: (u16, u16), pps: f64) -> FlowSpec {
        router::flow_to(&self.network, to, ports, pps)
    }

    /// Sends these while `body` runs; how many of each were sent.
    fn while_sent(&mut self, flows: &[FlowSpec], body: impl FnOnce(&Self)) -> Vec<u64> {
        self.generator.set_flows(flows).unwrap();
        let load = (&self.generator, flows.len());
        self.network.send_while(load, self.elsewhere, || body(self))
    }

    fn statistic(&self, interface: &str, name: &str) -> u64 {
        router::statistic(&self.network, interface, name)
    }

    fn ring_drops(&self) -> u64 {
        self.network.ring_drops("far")
    }

    /// Packets that the queue has refused.
    fn refused(&self) -> u64 {
        let queues = self.network.near.run(|| Queues::default().read()).unwrap().unwrap();
        let seen: u64 = queues.iter().map(|queue| u64::from(queue.sequence + queue.dropped)).sum();
        seen.saturating_sub(self.accepted.load(Ordering::Relaxed))
    }

    /// Of those that matched a rule, by what it matches.
    fn matched(&self, rule: &str) -> u64 {
        let table = sh(&self.network, "iptables -L FORWARD -v -x -n");
        let line = table.lines().find(|line| line.contains(rule)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn counters(&self) -> CountersReader {
        let map = self.network.interface_status()["counters_map_id"].as_u64().unwrap();
        CountersReader::open(map.try_into().unwrap()).unwrap()
    }
}

/// How much each has grown while the gate discarded so many.
struct Window {
    accepted_pps: f64,
    refused: u64,
    discarded: u64,
}

fn window(router: &Router, counters: &CountersReader, packets: u64) -> Window {
    let discarded = || counters.counters().unwrap().get(Reason::ForwardFull).packets;
    let read = || (router.accepted.load(Ordering::Relaxed), router.refused(), discarded());
    let (began, before) = (Instant::now(), read());
    assert!(wait(TRIES_MAX, || discarded() > before.2 + packets), "{before:?}, {:?}", read());
    let (elapsed, after) = (began.elapsed(), read());
    Window {
        accepted_pps: (after.0 - before.0) as f64 / elapsed.as_secs_f64(),
        refused: after.1.saturating_sub(before.1),
        discarded: after.2 - before.2,
    }
}

/// What would overflow the queue is discarded, most of it at the gate; nothing else is.
fn a_screen_keeps_its_rate(room: Room, options: &[&str]) {
    let mut router = Router::new(&format!("-p udp --dport {SCREENED_PORT}"), room);
    let flood = router.flow(BEHIND, (4096, SCREENED_PORT), FLOOD_PPS);
    let mut without = 0.0;
    router.while_sent(std::slice::from_ref(&flood), |router| {
        let accepted = || router.accepted.load(Ordering::Relaxed);
        let (began, before) = (Instant::now(), accepted());
        wait_until("the screen has accepted 20,000", || accepted() > before + 20_000);
        without = (accepted() - before) as f64 / began.elapsed().as_secs_f64();
    });
    let daemon = router.start(options);
    let counters = router.counters();
    let flows = [
        router.flow(NEAR_IP, (4096, 8000), LIGHT_PPS),
        router.flow(BEHIND, (4096, 6000), LIGHT_PPS),
        router.flow(BEHIND_OUT, (4096, SCREENED_PORT), LIGHT_PPS),
        flood,
    ];
    sh(&router.network, &format!("iptables -A FORWARD -o {NEAR2} -p udp --dport 6000 -j ACCEPT"));
    let (ring, out) = (router.ring_drops(), router.statistic(OUT, "tx_packets"));
    let (local, elsewhere) = (router.local.try_clone().unwrap(), router.elsewhere);
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&over);
        scope.spawn(|| consume(&local, elsewhere, &received, over.0));
        let sent = router.while_sent(&flows, |router| {
            let good = |seen: &Window| {
                seen.accepted_pps > 0.8 * without && seen.refused * 20 < seen.discarded
            };
            let mut last = None;
            let done = wait(TRIES_MAX, || {
                last = Some(window(router, &counters, 20_000)).filter(|seen| !good(seen));
                last.is_none()
            });
            let told = last.map(|seen| (seen.accepted_pps, seen.refused, seen.discarded));
            assert!(done, "accepted/s, refused, discarded: {told:?}; without weir {without}/s");
            // Nobody says any more that it holds: it does not.
            daemon.signal(Signal::STOP);
            let still = || {
                let discarded = || counters.counters().unwrap().get(Reason::ForwardFull).packets;
                let (before, passed) = (discarded(), router.refused());
                wait_until("packets have come", || {
                    router.refused() > passed + 100 || discarded() > before
                });
                discarded() == before
            };
            assert!(wait(PROMISED, still), "it discards still");
            daemon.signal(Signal::CONT);
        });
        let lost = || {
            let arrived = [
                received.load(Ordering::Relaxed),
                router.matched("dpt:6000"),
                router.statistic(OUT, "tx_packets") - out,
            ];
            sent.iter()
                .zip(arrived)
                .map(|(sent, arrived)| sent.saturating_sub(arrived))
                .sum::<u64>()
        };
        let none = wait(PATIENCE, || lost() <= router.ring_drops() - ring);
        assert!(none, "{} lost of {sent:?}; the ring {}", lost(), router.ring_drops() - ring);
    });
    daemon.interrupt();
    router.network.assert_untouched();
}

#[test]
fn what_would_overflow_a_screens_socket_is_discarded_early() {
    a_screen_keeps_its_rate(Room { packets: None }, &[]);
}

#[test]
fn what_would_overflow_a_short_queue_is_discarded_early() {
    a_screen_keeps_its_rate(Room { packets: Some(100) }, &[]);
}

#[test]
fn at_tc_it_is_discarded_early_too() {
    a_screen_keeps_its_rate(Room { packets: None }, &["--attach", "tc"]);
}

/// A rule may look at more than the destination. Then some of what goes there does not go to the queue, and nothing is
/// discarded.
#[test]
fn where_a_rule_tells_sources_apart_everything_passes() {
    let mut router = Router::new("-p udp --sport 4096", Room { packets: None });
    sh(&router.network, &format!("iptables -A FORWARD -o {NEAR2} -p udp --sport 4097 -j ACCEPT"));
    let daemon = router.start(&[]);
    let counters = router.counters();
    let flows = [
        router.flow(BEHIND, (4097, SCREENED_PORT), 5_000.0),
        router.flow(BEHIND, (4096, SCREENED_PORT), FLOOD_PPS),
    ];
    let ring = router.ring_drops();
    let sent = router.while_sent(&flows, |router| {
        // As long as it takes to begin to discard, where that is right, several times.
        wait_until("the queue has refused 200,000", || router.refused() > 200_000);
    });
    let lost = || sent[0].saturating_sub(router.matched("spt:4097"));
    assert!(wait(PATIENCE, || lost() <= router.ring_drops() - ring), "{} lost of {sent:?}", lost());
    assert_eq!(counters.counters().unwrap().get(Reason::ForwardFull).packets, 0);
    assert!(counters.counters().unwrap().get(Reason::Forward).packets > 0, "it was awake");
    daemon.interrupt();
}

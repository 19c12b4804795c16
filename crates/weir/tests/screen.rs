//! A router behind a user-mode screen: a real NFQUEUE program that is slower than what is sent to it.
//!
//! The flood is one that the ring holds, so that what is lost was discarded, or refused by the queue.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::router::{BEHIND, BEHIND_OUT, OUT, Router, discarded, sh, statistic};
use common::*;
use nfq::{Queue, Verdict};
use rustix::net::sockopt;
use rustix::process::Signal;
use weir_bpf::counters::CountersReader;
use weir_bpf::screen::Queues;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::verdict::Reason;

const SCREENED_PORT: u16 = 5000;
const FLOOD_PPS: f64 = 100_000.0;
const LIGHT_PPS: f64 = 500.0;
/// What the screen does for each packet: at most 40,000 a second.
const WORK: Duration = Duration::from_micros(25);
/// Within which a daemon that is stopped discards nothing any more.
const PROMISED: Duration = Duration::from_secs(3);

/// What the queue has, besides the kernel's defaults.
#[derive(Clone, Copy)]
struct Room {
    packets: Option<u32>,
}

/// A router behind a screen.
struct Screened {
    router: Router,
    accepted: Arc<AtomicU64>,
    local: UdpSocket,
}

impl Screened {
    /// With a rule for what leaves by [`NEAR2`], and a program that accepts it.
    fn new(rule: &str, room: Room) -> Self {
        let router = Router::new();
        let (network, cpu) = (&router.network, router.cpus.cpu);
        sh(network, &format!("iptables -A FORWARD -o {NEAR2} {rule} -j NFQUEUE --queue-num 0"));
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
        Self { router, accepted, local }
    }

    fn ring_drops(&self) -> u64 {
        self.router.network.ring_drops("far")
    }

    /// Packets that the queue has refused.
    fn refused(&self) -> u64 {
        let queues = self.router.network.near.run(|| Queues::default().read()).unwrap().unwrap();
        let seen: u64 = queues.iter().map(|queue| u64::from(queue.sequence + queue.dropped)).sum();
        seen.saturating_sub(self.accepted.load(Ordering::Relaxed))
    }

    /// Of those that matched a rule, by what it matches.
    fn matched(&self, rule: &str) -> u64 {
        let table = sh(&self.router.network, "iptables -L FORWARD -v -x -n");
        let line = table.lines().find(|line| line.contains(rule)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// How much each has grown while the gate discarded so many.
struct Window {
    accepted_pps: f64,
    refused: u64,
    discarded: u64,
}

fn window(screened: &Screened, counters: &CountersReader, packets: u64) -> Window {
    let discarded = || discarded(counters);
    let read = || (screened.accepted.load(Ordering::Relaxed), screened.refused(), discarded());
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
    let screened = Screened::new(&format!("-p udp --dport {SCREENED_PORT}"), room);
    let router = &screened.router;
    let flood = router.flow(BEHIND, (4096, SCREENED_PORT), FLOOD_PPS);
    let mut without = 0.0;
    router.while_sent(std::slice::from_ref(&flood), || {
        let accepted = || screened.accepted.load(Ordering::Relaxed);
        let (began, before) = (Instant::now(), accepted());
        wait_until("the screen has accepted 20,000", || accepted() > before + 20_000);
        without = (accepted() - before) as f64 / began.elapsed().as_secs_f64();
    });
    let (daemon, counters) = router.start(options);
    let flows = [
        router.flow(NEAR_IP, (4096, 8000), LIGHT_PPS),
        router.flow(BEHIND, (4096, 6000), LIGHT_PPS),
        router.flow(BEHIND_OUT, (4096, SCREENED_PORT), LIGHT_PPS),
        flood,
    ];
    sh(&router.network, &format!("iptables -A FORWARD -o {NEAR2} -p udp --dport 6000 -j ACCEPT"));
    let (ring, out) = (screened.ring_drops(), statistic(&router.network, OUT, "tx_packets"));
    let (local, elsewhere) = (screened.local.try_clone().unwrap(), router.cpus.elsewhere);
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(&over);
        scope.spawn(|| consume(&local, elsewhere, &received, over.0));
        let sent = router.while_sent(&flows, || {
            let good = |seen: &Window| {
                seen.accepted_pps > 0.8 * without && seen.refused * 20 < seen.discarded
            };
            let mut last = None;
            let done = wait(TRIES_MAX, || {
                last = Some(window(&screened, &counters, 20_000)).filter(|seen| !good(seen));
                last.is_none()
            });
            let told = last.map(|seen| (seen.accepted_pps, seen.refused, seen.discarded));
            assert!(done, "accepted/s, refused, discarded: {told:?}; without weir {without}/s");
            // Nobody says any more that it holds: it does not.
            daemon.signal(Signal::STOP);
            let still = || {
                let (before, passed) = (discarded(&counters), screened.refused());
                wait_until("packets have come", || {
                    screened.refused() > passed + 100 || discarded(&counters) > before
                });
                discarded(&counters) == before
            };
            assert!(wait(PROMISED, still), "it discards still");
            daemon.signal(Signal::CONT);
        });
        let lost = || {
            let arrived = [
                received.load(Ordering::Relaxed),
                screened.matched("dpt:6000"),
                statistic(&router.network, OUT, "tx_packets") - out,
            ];
            sent.iter()
                .zip(arrived)
                .map(|(sent, arrived)| sent.saturating_sub(arrived))
                .sum::<u64>()
        };
        let none = wait(PATIENCE, || lost() <= screened.ring_drops() - ring);
        assert!(none, "{} lost of {sent:?}; the ring {}", lost(), screened.ring_drops() - ring);
    });
    router.network.assert_left_untouched_by(daemon);
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
    let screened = Screened::new("-p udp --sport 4096", Room { packets: None });
    let router = &screened.router;
    sh(&router.network, &format!("iptables -A FORWARD -o {NEAR2} -p udp --sport 4097 -j ACCEPT"));
    let (daemon, counters) = router.start(&[]);
    let flows = [
        router.flow(BEHIND, (4097, SCREENED_PORT), 5_000.0),
        router.flow(BEHIND, (4096, SCREENED_PORT), FLOOD_PPS),
    ];
    let ring = screened.ring_drops();
    let sent = router.while_sent(&flows, || {
        // For several times as long as it takes to begin to discard, where that is right.
        let began = Instant::now();
        wait_until("the queue has refused packets for two seconds", || {
            screened.refused() > 10_000 && began.elapsed() > Duration::from_secs(2)
        });
    });
    let lost = || sent[0].saturating_sub(screened.matched("spt:4097"));
    assert!(
        wait(PATIENCE, || lost() <= screened.ring_drops() - ring),
        "{} lost of {sent:?}",
        lost()
    );
    assert_eq!(discarded(&counters), 0);
    assert!(counters.counters().unwrap().get(Reason::Forward).packets > 0, "it was awake");
    daemon.interrupt();
}

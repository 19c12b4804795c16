//! A router behind a user-mode screen: a real NFQUEUE program that is slower than what is sent to it.
//!
//! The flood is one that the ring holds, so that what is lost was discarded, or refused by the queue.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::hint::black_box;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::router::{BEHIND, BEHIND_OUT, OUT, Router, discarded, statistic};
use common::*;
use nfq::{Queue, Verdict};
use rustix::net::sockopt;
use rustix::process::Signal;
use weir_bpf::counters::CountersReader;
use weir_bpf::screen::Queues;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::traffic::FlowSpec;
use weir_bpf::verdict::Reason;

const SCREENED_PORT: u16 = 5000;
const FLOOD_PPS: f64 = 100_000.0;
const LIGHT_PPS: f64 = 500.0;
/// How long the screen works for each packet if nothing interrupts it: at most 40,000 a second.
const WORK: Duration = Duration::from_micros(25);
/// Within which a daemon that is stopped discards nothing any more.
const PROMISED: Duration = Duration::from_secs(3);

/// How often a screen that decides on many packets at once reads them, and decides.
const READS: Duration = Duration::from_millis(5);
const DECIDES: Duration = Duration::from_millis(50);

/// What the queue has, besides the kernel's defaults.
#[derive(Clone, Copy)]
struct Room {
    packets: Option<u32>,
}

/// So many steps of work. A loop until some time has passed would count the time in which it is interrupted as work
/// done, and so hide what input costs a screen.
fn work(steps: u64) -> u64 {
    (0..steps).fold(1, |result, step| black_box(result) * 3 % 1_000_003 + step)
}

/// How many steps [`WORK`] is: as in the fastest of some tries, which nothing interrupted.
fn steps_of_work() -> u64 {
    const STEPS: u64 = 1000;
    let try_once = || {
        let began = Instant::now();
        black_box(work(STEPS));
        began.elapsed()
    };
    let fastest = (0..1000).map(|_| try_once()).min().unwrap();
    (STEPS as f64 * WORK.as_secs_f64() / fastest.as_secs_f64()) as u64
}

/// A screen that decides on each packet as it reads it.
fn one_by_one(queue: &mut Queue, accepted: &AtomicU64) {
    let steps = steps_of_work();
    loop {
        let mut packet = queue.recv().unwrap();
        black_box(work(steps));
        packet.set_verdict(Verdict::Accept);
        queue.verdict(packet).unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
    }
}

/// A screen that is slow, and leaves the CPU to others.
fn seldom(queue: &mut Queue, accepted: &AtomicU64) {
    loop {
        let mut packet = queue.recv().unwrap();
        std::thread::sleep(READS);
        packet.set_verdict(Verdict::Accept);
        queue.verdict(packet).unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
    }
}

/// A screen that decides on all that it has read at once, and counts how often.
fn in_batches(queue: &mut Queue, accepted: &AtomicU64, batches: &AtomicU64) {
    queue.set_nonblocking(true);
    let (mut read, mut decided) = (Vec::new(), Instant::now());
    loop {
        std::thread::sleep(READS);
        while let Ok(packet) = queue.recv() {
            read.push(packet);
        }
        if decided.elapsed() >= DECIDES && !read.is_empty() {
            decided = Instant::now();
            accepted.fetch_add(read.len() as u64, Ordering::Relaxed);
            batches.fetch_add(1, Ordering::Relaxed);
            for mut packet in read.drain(..) {
                packet.set_verdict(Verdict::Accept);
                queue.verdict(packet).unwrap();
            }
        }
    }
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
        Self::by(rule, room, one_by_one)
    }

    fn by(
        rule: &str,
        room: Room,
        program: impl FnOnce(&mut Queue, &AtomicU64) + Send + 'static,
    ) -> Self {
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
            program(&mut queue, &count);
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
    router.polled_by_thread(|| {
        router.while_sent(std::slice::from_ref(&flood), || {
            let accepted = || screened.accepted.load(Ordering::Relaxed);
            let (began, before) = (Instant::now(), accepted());
            wait_until("the screen has accepted 20,000", || accepted() > before + 20_000);
            without = (accepted() - before) as f64 / began.elapsed().as_secs_f64();
        });
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
    while_consuming(&[&local], elsewhere, |received| {
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

/// Packets that it has read and not decided on are not in its socket, and make room all at once.
#[test]
fn a_screen_that_decides_on_many_at_once_gets_as_many() {
    const LEN: u32 = 500;
    const BATCHES: u64 = 20;
    let batches = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&batches);
    let rule = format!("-p udp --dport {SCREENED_PORT}");
    let program =
        move |queue: &mut Queue, accepted: &AtomicU64| in_batches(queue, accepted, &count);
    let screened = Screened::by(&rule, Room { packets: Some(LEN) }, program);
    let router = &screened.router;
    let read = || (screened.accepted.load(Ordering::Relaxed), batches.load(Ordering::Relaxed));
    let each = |batches| {
        let before = read();
        wait_until("it decides", || read().1 >= before.1 + batches);
        let after = read();
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    };
    let flood = [router.flow(BEHIND, (4096, SCREENED_PORT), 25_000.0)];
    let mut without = 0.0;
    router.while_sent(&flood, || without = each(2 * BATCHES));
    assert!(screened.refused() > 1000);
    let (daemon, counters) = router.start(&["--awake"]);
    router.while_sent(&flood, || {
        // In which it learns what it may discard.
        each(BATCHES);
        let (mut last, mut in_a_row) = ((0.0, 0), 0);
        let as_many = wait(TRIES_MAX, || {
            let lost = || screened.refused() + discarded(&counters);
            let before = lost();
            last = (each(BATCHES), lost().saturating_sub(before));
            // More came than it could take.
            let good = last.0 > 0.97 * without && last.1 > u64::from(LEN) * BATCHES / 4;
            in_a_row = if good { in_a_row + 1 } else { 0 };
            in_a_row == 2
        });
        assert!(as_many, "packets at once, lost: {last:?}; without weir {without}");
    });
    daemon.interrupt();
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

/// With such a rule, what is refused to destinations that nobody has learned stands for nothing that goes elsewhere.
#[test]
fn packets_to_ever_new_ports_hide_nothing_that_goes_elsewhere() {
    // What the queue takes does stand for what goes elsewhere: that is little.
    let screened = Screened::by("-p udp --sport 4096", Room { packets: None }, seldom);
    let router = &screened.router;
    sh(&router.network, &format!("iptables -A FORWARD -o {NEAR2} -p udp --sport 4097 -j ACCEPT"));
    let (daemon, counters) = router.start(&[]);
    let any_port = router.flow(BEHIND, (4096, 0), 32_000.0);
    let flows = [
        router.flow(BEHIND, (4097, SCREENED_PORT), 30_000.0),
        router.flow(BEHIND, (4096, SCREENED_PORT), 30_000.0),
        FlowSpec { destination_port_bits: 16, ..any_port },
    ];
    router.while_sent(&flows, || {
        // For several times as long as it takes to begin to discard.
        let began = Instant::now();
        wait_until("two seconds have passed", || began.elapsed() > Duration::from_secs(2));
        // The first count may see too few to tell. What is then found holds for ten seconds.
        let passes = || {
            let (before, refused) = (discarded(&counters), screened.refused());
            wait_until("the queue refuses packets", || screened.refused() > refused + 20_000);
            discarded(&counters) == before
        };
        assert!(wait(TRIES_MAX, passes), "{} discarded", discarded(&counters));
    });
    daemon.interrupt();
}

/// It sees what the queue refuses, too.
#[test]
fn beside_a_rule_that_counts_by_sender_everything_passes() {
    const PACKETS: u64 = 5_000;
    let screened =
        Screened::new(&format!("-p udp --dport {SCREENED_PORT}"), Room { packets: None });
    let router = &screened.router;
    let (daemon, counters) = router.start(&["--awake"]);
    let rule = |what: &str| {
        sh(&router.network, &format!("iptables {what} FORWARD -m recent --name x --set"))
    };
    router.while_sent(&[router.flow(BEHIND, (4096, SCREENED_PORT), FLOOD_PPS)], || {
        wait_until("the gate discards", || discarded(&counters) > PACKETS);
        rule("-I");
        let stops = wait(PROMISED, || {
            let (before, refused) = (discarded(&counters), screened.refused());
            wait_until("packets have come", || {
                screened.refused() > refused + PACKETS || discarded(&counters) > before
            });
            discarded(&counters) == before
        });
        assert!(stops, "it discards still");
        let (before, refused) = (discarded(&counters), screened.refused());
        wait_until("the queue refuses", || screened.refused() > refused + 4 * PACKETS);
        assert_eq!(discarded(&counters), before);
        rule("-D");
        wait_until("the gate discards", || discarded(&counters) > before + PACKETS);
    });
    daemon.interrupt();
}

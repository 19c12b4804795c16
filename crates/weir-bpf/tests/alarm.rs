//! Gates that sleep while nothing is wrong, and what wakes them, on real packets.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use common::{FAR_IP4, NEAR_IP4, Network, alone, wait_until};
use weir_bpf::alarm::{Alarm, Cause, Rings, TRIAL};
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::sys::link::Links;
use weir_bpf::units::{IfIndex, Nanos};
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
const AT_ONCE: Nanos = Nanos(0);
const MINUTE: Nanos = Nanos(60_000_000_000);

struct Bench {
    gate: Gate,
    alarm: Alarm,
    near: UdpSocket,
    far: UdpSocket,
    network: Network,
    probe: QueueProbe,
    /// A queue that is full anywhere on the host wakes every gate.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(mode: AttachMode) -> Self {
        let alone = alone();
        let (network, gate, probe) = Network::gated(mode);
        let near = network.bind(NEAR_IP4, PORT);
        let far = network.far.run(|| UdpSocket::bind((FAR_IP4, PORT)).unwrap()).unwrap();
        far.connect((NEAR_IP4, PORT)).unwrap();
        let alarm = Alarm::of(&probe).unwrap();
        Self { gate, alarm, near, far, network, probe, _alone: alone }
    }

    fn count(&self, reason: Reason) -> u64 {
        self.gate.counters().unwrap().get(reason).packets
    }

    fn seen(&self) -> u64 {
        Reason::ALL.into_iter().map(|reason| self.count(reason)).sum()
    }

    /// Sends one packet, and waits until the gate has seen it.
    fn send(&self) {
        let before = self.seen();
        self.far.send(b"fourteen bytes").unwrap();
        wait_until("the gate has seen a packet", || self.seen() > before);
    }

    fn drain(&self) -> usize {
        std::iter::from_fn(|| self.near.recv(&mut [0; 64]).ok()).count()
    }

    /// The line of `/proc/net/udp` of the near socket of this port, word by word.
    fn socket(&self, port: u16) -> Vec<String> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let text = self.network.near.run(read).unwrap();
        let port = format!(":{port:04X}");
        let mut lines = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        // By its own address: whoever sends to it has that one, too.
        let words = lines.find(|words| words[1].ends_with(&port)).unwrap();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Packets that the kernel has refused for want of room in its queue.
    fn refused(&self) -> u64 {
        self.refused_at(PORT)
    }

    fn refused_at(&self, port: u16) -> u64 {
        self.socket(port).last().unwrap().parse().unwrap()
    }

    /// What its queue is charged for those that it holds, in bytes.
    fn queued(&self) -> u64 {
        // tx_queue:rx_queue, in hexadecimal.
        let socket = self.socket(PORT);
        u64::from_str_radix(socket[4].split_once(':').unwrap().1, 16).unwrap()
    }

    fn woken(&self, cause: Cause) -> u64 {
        self.alarm.woken().find(|(of, _)| *of == cause).unwrap().1
    }
}

fn the_first_packet_that_is_refused_wakes_it(mode: AttachMode) {
    let bench = Bench::new(mode);
    let mut rings = Rings::listen(&bench.probe).unwrap();
    assert!(!bench.alarm.is_asleep(), "at first it is awake");
    bench.send();
    assert_eq!((bench.count(Reason::UdpRoom), bench.count(Reason::Asleep)), (1, 0));

    assert!(bench.alarm.rest(AT_ONCE) && bench.alarm.is_asleep());
    for _ in 0..10 {
        bench.send();
    }
    assert_eq!(bench.drain(), 11, "all pass");
    assert_eq!((bench.count(Reason::UdpRoom), bench.count(Reason::Asleep)), (1, 10));
    let length = bench.gate.counters().unwrap().get(Reason::Asleep).bytes / 10;
    assert!((14 + 28..=60).contains(&length), "{length} bytes a packet");
    assert_eq!(rings.heard().unwrap(), []);

    // One at a time, until the queue is full.
    let (mut sent, mut queued) = (10, 0);
    while bench.refused() == 0 {
        assert!(bench.alarm.is_asleep(), "nothing has been wrong yet");
        bench.send();
        sent += 1;
        // When the gate has seen it, it is not in the queue yet.
        wait_until("it has arrived", || bench.queued() > queued || bench.refused() > 0);
        queued = bench.queued();
    }
    assert_eq!(bench.refused(), 1);
    assert!(!bench.alarm.is_asleep());
    assert_eq!(bench.count(Reason::Asleep), sent);
    let mut heard = Vec::new();
    wait_until("it is heard", || {
        heard = rings.heard().unwrap();
        !heard.is_empty()
    });
    assert_eq!(heard, [Cause::UdpQueue]);
    assert_eq!(bench.woken(Cause::UdpQueue), 1);

    let rung = bench.alarm.rung();
    wait_until("packets are judged, and it goes on being rung for", || {
        // Within the time for which the kernel's word on what a packet is charged is believed.
        for _ in 0..100 {
            bench.far.send(b"fourteen bytes").unwrap();
        }
        bench.count(Reason::UdpFull) > 0 && bench.alarm.rung() > rung
    });
    assert!(!bench.alarm.rest(MINUTE), "something has just been wrong");
    assert_eq!(bench.count(Reason::Asleep), sent);
    assert_eq!(bench.woken(Cause::UdpQueue), 1, "it was awake");
    assert!(rings.heard().unwrap().len() < 50, "but seldom");

    bench.drain();
    wait_until("it sleeps again", || bench.alarm.rest(Nanos(300_000_000)));
    let judged = bench.seen() - bench.count(Reason::Asleep);
    bench.send();
    assert_eq!(bench.seen() - bench.count(Reason::Asleep), judged);
    assert_eq!(bench.woken(Cause::UdpQueue), 1);
}

#[test]
fn the_first_packet_that_is_refused_wakes_a_gate_in_the_driver() {
    the_first_packet_that_is_refused_wakes_it(AttachMode::Native);
}

#[test]
fn the_first_packet_that_is_refused_wakes_a_gate_at_tc() {
    the_first_packet_that_is_refused_wakes_it(AttachMode::Tcx);
}

/// No gate could have spared them.
#[test]
fn what_is_refused_on_the_loopback_wakes_nothing() {
    let bench = Bench::new(AttachMode::Native);
    let set_up = || Links::open().unwrap().set_up(IfIndex(1)).unwrap();
    bench.network.near.run(set_up).unwrap();
    let to_itself = bench.network.near.run(|| UdpSocket::bind((NEAR_IP4, 0)).unwrap()).unwrap();
    to_itself.connect(bench.near.local_addr().unwrap()).unwrap();
    let refuse = || {
        let before = bench.refused();
        wait_until("the kernel refuses some", || {
            (0..1000).for_each(|_| drop(to_itself.send(b"fourteen bytes")));
            bench.refused() > before
        });
    };
    refuse();
    // Others on this host may have some refused meanwhile.
    wait_until("it stays asleep", || {
        bench.alarm.rest(AT_ONCE);
        refuse();
        bench.alarm.is_asleep()
    });
    bench.send();
    wait_until("one from elsewhere wakes it", || !bench.alarm.is_asleep());
}

/// What this host sends to a group comes to its members by the interface that it was sent by.
#[test]
fn what_a_host_sends_to_its_own_groups_wakes_nothing_when_it_is_refused() {
    let group = (Ipv4Addr::new(239, 1, 1, 1), PORT + 1);
    let bench = Bench::new(AttachMode::Native);
    let made = bench.network.near.run(|| {
        let member = UdpSocket::bind(group).unwrap();
        member.join_multicast_v4(&group.0, &NEAR_IP4.parse().unwrap()).unwrap();
        (member, UdpSocket::bind((NEAR_IP4, 0)).unwrap())
    });
    let (_member, to_itself) = made.unwrap();
    // Others on this host may have some refused meanwhile.
    wait_until("it stays asleep", || {
        bench.alarm.rest(AT_ONCE);
        let before = bench.refused_at(group.1);
        wait_until("the kernel refuses some", || {
            (0..1000).for_each(|_| drop(to_itself.send_to(b"fourteen bytes", group)));
            bench.refused_at(group.1) > before
        });
        bench.alarm.is_asleep()
    });
    wait_until("one from elsewhere wakes it", || {
        bench.send();
        !bench.alarm.is_asleep()
    });
}

#[test]
fn whoever_reads_counters_keeps_it_awake_for_as_long_as_he_says() {
    let bench = Bench::new(AttachMode::Native);
    assert!(bench.alarm.rest(AT_ONCE));
    bench.send();
    assert_eq!(bench.count(Reason::UdpRoom), 0);

    bench.alarm.watch(MINUTE);
    assert!(!bench.alarm.is_asleep() && !bench.alarm.rest(AT_ONCE));
    bench.send();
    assert_eq!((bench.count(Reason::UdpRoom), bench.count(Reason::Asleep)), (1, 1));

    bench.alarm.watch(AT_ONCE);
    assert!(bench.alarm.rest(AT_ONCE));
    bench.alarm.keep_awake(true);
    assert!(!bench.alarm.rest(AT_ONCE));
    bench.send();
    assert_eq!((bench.count(Reason::UdpRoom), bench.count(Reason::Asleep)), (2, 1));
    assert!(Cause::ALL.into_iter().all(|cause| bench.woken(cause) == 0), "nothing was wrong");
}

#[test]
fn a_gate_that_is_kept_awake_still_tells_that_something_is_wrong() {
    let bench = Bench::new(AttachMode::Native);
    let mut rings = Rings::listen(&bench.probe).unwrap();
    bench.alarm.watch(MINUTE);
    wait_until("it is heard", || {
        bench.send();
        rings.heard().unwrap().contains(&Cause::UdpQueue)
    });
    assert_eq!(bench.woken(Cause::UdpQueue), 0, "it was awake");
}

#[test]
fn user_space_rings_too() {
    let bench = Bench::new(AttachMode::Native);
    let other = Alarm::open(bench.alarm.map_id()).unwrap();
    assert!(bench.alarm.rest(AT_ONCE) && other.is_asleep());

    other.ring(Cause::TcpQueue);
    assert!(!bench.alarm.is_asleep());
    assert_eq!(bench.woken(Cause::TcpQueue), 1);
    assert!(!bench.alarm.rest(MINUTE));
    let rung = bench.alarm.rung();
    assert!(rung > Nanos(0));
    bench.send();
    assert_eq!((bench.count(Reason::UdpRoom), bench.count(Reason::Asleep)), (1, 0));

    bench.alarm.ring(Cause::TcpQueue);
    assert!(bench.alarm.rung() > rung);
    assert_eq!(bench.woken(Cause::TcpQueue), 1, "it was awake");
    assert_eq!(bench.woken(Cause::UdpQueue), 0);
}

/// A router or a monitor at its limit has nothing to discard, and the gate only costs it packets.
#[test]
fn where_cpu_time_alone_is_short_it_looks_for_a_moment_and_seldom() {
    let bench = Bench::new(AttachMode::Native);
    let second = Nanos(1_000_000_000);
    assert!(bench.alarm.rest(AT_ONCE));
    let began = Instant::now();
    bench.alarm.try_gates();
    assert!(!bench.alarm.is_asleep());
    bench.send();
    assert_eq!((bench.count(Reason::UdpRoom), bench.count(Reason::Asleep)), (1, 0));
    wait_until("it sleeps again", || bench.alarm.rest(second));
    assert!(began.elapsed() >= Duration::from_nanos(TRIAL.0), "after {:?}", began.elapsed());
    while began.elapsed() < Duration::from_millis(900) {
        bench.alarm.try_gates();
        assert!(bench.alarm.is_asleep() || began.elapsed() > Duration::from_secs(1));
    }
    wait_until("it is tried again", || {
        bench.alarm.try_gates();
        !bench.alarm.is_asleep()
    });
    assert_eq!((bench.woken(Cause::CpuShare), bench.alarm.slept()), (2, 2));
    assert_eq!(bench.alarm.rung(), Nanos(0), "nothing was wrong");
}

//! Several sources of input on one CPU, one of them flooded at top speed (Mogul & Ramakrishnan,
//! section 5.2): each has a ring and a thread of its own, and a light one loses nothing.
//!
//! On a machine that others use too, the CPU may be away for longer than a ring of 256 lasts. So the light
//! flow is slow, and sent again until all of it arrives: where input is not fair, it never does.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::host::Host;
use common::*;
use rustix::net::sockopt;
use serde_json::Value;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::sched;
use weir_bpf::sys::sysfs::NetSysfs;

/// One try, more than a ring holds, at 333 packets/s: 0.8 s until a ring is full.
const PACKETS: u64 = 400;
const APART: Duration = Duration::from_millis(3);
/// How long the last of them may take.
const LATE_MAX: Duration = Duration::from_secs(1);
/// In so many looks, ten a second, a thread that would become heavy was not.
const LIGHT_LOOKS: u64 = 50;
/// A flooded socket and another one of the flooded interface.
const FULL_PORT: u16 = 7000;
const BESIDE_PORT: u16 = 7001;

/// A host that receives on one CPU, and its socket that is flooded.
fn with_full_socket() -> (Host, UdpSocket) {
    let host = Host::new();
    let full = host.network.near_socket(&format!("{NEAR_IP}:{FULL_PORT}"));
    (host, full)
}

impl Host {
    /// A socket with room for all that a test sends to it.
    fn roomy(&self, address: &str) -> UdpSocket {
        let socket = self.network.near_socket(address);
        sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
        socket
    }

    /// Sends the light flow until all of one try has been received, and until `seen` holds meanwhile; what
    /// was sent and received in all.
    fn light_flow(
        &self,
        (sender, receiver): (&UdpSocket, &UdpSocket),
        seen: impl Fn() -> bool,
    ) -> (u64, u64) {
        let is_seen = AtomicBool::new(false);
        let beside = |received: &AtomicU64| {
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    sched::pin_current_thread(self.cpus.elsewhere).unwrap();
                    let (mut tries, mut none_lost) = (Vec::new(), false);
                    let done = wait(TRIES_MAX, || {
                        tries.push(send_once(sender, received));
                        none_lost |= tries.last() == Some(&PACKETS);
                        none_lost && is_seen.load(Ordering::Relaxed)
                    });
                    assert!(none_lost, "received of {PACKETS}: {tries:?}");
                    (done, tries.len() as u64 * PACKETS)
                });
                while !sending.is_finished() {
                    if !is_seen.load(Ordering::Relaxed) {
                        is_seen.store(seen(), Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                let (done, sent) = sending.join().unwrap();
                assert!(done, "{:?}, {:?}", self.governed(NEAR), self.governed(NEAR2));
                (sent, received.load(Ordering::Relaxed))
            })
        };
        while_consuming(&[receiver], self.cpus.cpu, beside)
    }

    /// What the status says of an interface's governed threads.
    fn governed(&self, interface: &str) -> Vec<Value> {
        let published = self.network.published();
        let found = published.iter().find(|each| each["interface"] == interface);
        found.map_or(vec![], |found| found["governed"].as_array().unwrap().clone())
    }

    fn is_flooded(&self, interface: &str) -> bool {
        self.governed(interface).iter().any(|thread| thread["wasted"].as_f64() > Some(0.0))
    }

    fn is_heavy(&self, interface: &str) -> bool {
        self.governed(interface).iter().any(|thread| thread["nice"].as_i64() < Some(0))
    }
}

/// One try of the light flow; how many of its packets have been received in good time.
fn send_once(sender: &UdpSocket, received: &AtomicU64) -> u64 {
    let before = received.load(Ordering::Relaxed);
    let here = || received.load(Ordering::Relaxed) - before;
    for _ in 0..PACKETS {
        sender.send(&[0; 14]).unwrap();
        std::thread::sleep(APART);
    }
    wait(LATE_MAX, || here() == PACKETS);
    here()
}

/// The other interface's light flow: who sends it and who receives it.
fn by_the_other_interface(host: &Host) -> (UdpSocket, UdpSocket) {
    let sender = host.network.far_socket("198.19.0.2:0");
    sender.connect("198.19.0.1:8000").unwrap();
    (sender, host.roomy("198.19.0.1:8000"))
}

/// Every packet of the light interface is accounted for, and the gate has discarded none.
fn assert_light_interface(host: &Host, (sent, received): (u64, u64)) {
    assert_eq!(sent - received, host.network.ring_drops(FAR2));
    let seen = || host.network.count_on(NEAR2, "udp-room");
    wait_until("the gate has counted all", || seen() == received);
    assert_eq!(host.network.count_on(NEAR2, "udp-full"), 0);
}

#[test]
fn a_light_interface_beside_a_flooded_one_loses_nothing() {
    let (host, _full) = with_full_socket();
    host.network.add_pair();
    let (sender, receiver) = by_the_other_interface(&host);
    let daemon = host.start(&[NEAR2]);
    let flood = host.network.flow(FULL_PORT, None);
    let light = host.while_sent(&[flood], || {
        wait_until("the flood is discarded", || host.network.count("udp-full") > 0);
        host.light_flow((&sender, &receiver), || true)
    });
    assert_light_interface(&host, light);
    // It was a flood.
    wait_until("the flood has been counted", || host.network.count("udp-full") > 100 * light.0);
    host.network.assert_left_untouched_by(daemon);
}

/// The thread that tells a flood from its own interface's other channels becomes heavy for that. Who reads
/// the flood takes the rest of the CPU, so a thread that stayed light beside them would starve. On a machine that
/// sends less than fills the ring, the first need not become heavy, nor then the other.
#[test]
fn a_light_interface_beside_one_that_separates_does_so_too() {
    let (host, full) = with_full_socket();
    host.network.add_pair();
    let (sender, receiver) = by_the_other_interface(&host);
    let beside = host.roomy(&format!("{NEAR_IP}:{BESIDE_PORT}"));
    let daemon = host.start(&[NEAR2]);
    let flows = [host.network.flow(BESIDE_PORT, Some(1_000.0)), host.network.flow(FULL_PORT, None)];
    let light = while_consuming(&[&full], host.cpus.cpu, |_| {
        host.while_sent(&flows, || {
            let light = AtomicU64::default();
            let joins = || match host.is_heavy(NEAR) {
                true => host.is_heavy(NEAR2),
                false => light.fetch_add(1, Ordering::Relaxed) >= LIGHT_LOOKS,
            };
            host.light_flow((&sender, &receiver), || host.is_flooded(NEAR) && joins())
        })
    });
    assert_light_interface(&host, light);
    drop(beside);
    wait_until("it is over", || !host.is_flooded(NEAR) && !host.is_heavy(NEAR2));
    host.network.assert_left_untouched_by(daemon);
}

/// A veth takes a redirected frame to the queue of the CPU that it is made on, and a socket's to that of
/// the sender's transmit queue, which XPS says.
#[test]
fn a_light_queue_beside_a_flooded_one_loses_nothing() {
    const QUEUES: u32 = 2;
    let (host, _full) = with_full_socket();
    if host.cpus.cpu == host.cpus.elsewhere {
        println!("skipped: on one CPU a veth has one queue");
        return;
    }
    let (near, far) = (&host.network.near, &host.network.far);
    far.run(|| ethtool::set_queues("far", QUEUES).unwrap()).unwrap();
    near.run(|| ethtool::set_queues(NEAR, QUEUES).unwrap()).unwrap();
    let light_queue = (host.cpus.elsewhere.0 + 1) % QUEUES;
    let steer = || {
        let (attribute, cpus) =
            (format!("queues/tx-{light_queue}/xps_cpus"), 1_u32 << host.cpus.elsewhere.0);
        NetSysfs::open().unwrap().write("far", &attribute, &format!("{cpus:x}")).unwrap();
    };
    far.run(steer).unwrap();
    let receiver = host.roomy(&format!("{NEAR_IP}:8000"));
    let sender = host.network.far_socket(&format!("{FAR_IP}:0"));
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let daemon = host.start(&[]);
    let flood = host.network.flow(FULL_PORT, None);
    host.while_sent(&[flood], || {
        wait_until("the flood is discarded", || host.network.count("udp-full") > 0);
        // Each is where it is meant to be.
        let apart = || {
            let threads = host.governed(NEAR);
            let count = |field: &str| {
                let share = |thread: &&Value| thread[field].as_f64().unwrap() > 0.0;
                threads.iter().filter(share).count()
            };
            (threads.len(), count("used"), count("wasted")) == (2, 2, 1)
        };
        host.light_flow((&sender, &receiver), apart);
    });
    host.network.assert_left_untouched_by(daemon);
}

//! The gate discards what the kernel would drop, and nothing else.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use weir_bpf::verdict::Reason;

/// Fewer than the veth's ring holds (256), so that none is lost before the gate.
const BURST: u64 = 64;
const PAYLOAD: [u8; 14] = [0x5a; 14];

fn send_burst(sender: &UdpSocket, to: &str) {
    for _ in 0..BURST {
        sender.send_to(&PAYLOAD, to).unwrap();
    }
}

/// A sender that never overruns the veth's ring.
struct Paced {
    sender: UdpSocket,
    /// Reached by a packet only after all that were sent before it.
    marker: UdpSocket,
    sent: u64,
}

impl Paced {
    fn new(network: &Network, marker_at: &str, sender_at: &str) -> Self {
        let (sender, marker) = (network.far_socket(sender_at), network.near_socket(marker_at));
        Self { sender, marker, sent: 0 }
    }

    /// Sends a burst, and waits until it has been dealt with.
    fn burst(&mut self, to: &str) {
        send_burst(&self.sender, to);
        self.sender.send_to(b"marker", self.marker.local_addr().unwrap()).unwrap();
        assert_eq!(self.marker.recv(&mut [0; 8]).unwrap(), 6);
        self.sent += BURST + 1;
    }
}

/// Waits until the status accounts for every packet sent, under these reasons or as ring drops.
fn wait_for_all(network: &Network, sent: u64, reasons: &[&str]) {
    let account = || {
        let seen: Vec<u64> = reasons.iter().map(|reason| network.count(reason)).collect();
        (seen, network.ring_drops("far"))
    };
    let complete = wait(PATIENCE, || {
        let (seen, ring) = account();
        let accounted = seen.iter().sum::<u64>() + ring;
        (sent..=sent + network.unasked_max).contains(&accounted)
    });
    assert!(complete, "{sent} sent, but {reasons:?} and ring drops are {:?}", account());
}

/// Sends bursts to a socket that nobody reads until the gate discards, and waits until the status
/// accounts for all of them.
fn flood(network: &Network, sender: &UdpSocket, to: &str) {
    let before = network.count("udp-full");
    let mut sent = 0;
    wait_until("the gate discards", || {
        // Many at once: the gate believes a packet's size for 10 ms after the kernel refused one.
        for _ in 0..20 {
            send_burst(sender, to);
            sent += BURST;
        }
        network.count("udp-full") > before
    });
    wait_for_all(
        network,
        sent,
        // An address is news to the gate until it has been told.
        &["udp-room", "udp-full", "neighbour", "group", "multicast-room", "icmp", "no-route"],
    );
}

fn a_full_socket(network: &Network, receiver_at: &str, sender_at: &str) {
    let full = network.near_socket(receiver_at);
    let sender = network.far_socket(sender_at);
    let daemon = Daemon::start(network, &[]);
    flood(network, &sender, receiver_at);
    let (room, discarded) = (network.count("udp-room"), network.count("udp-full"));
    wait_until("what is published is what the gate has counted", || {
        Reason::ALL.iter().all(|of| network.published_count(of.name()) == network.count(of.name()))
    });
    // Each packet that passed is in the queue, or was dropped late.
    let queued = drain(&full);
    wait_until("all that passed are accounted for", || room == network.late_drops() + queued);
    assert!(discarded > 0);
    let said = daemon.interrupt();
    assert!(said.contains(&format!("discarded: {discarded} udp-full")), "{said}");
    network.assert_untouched();
}

#[test]
fn packets_to_a_full_socket_are_discarded_and_counted() {
    a_full_socket(&Network::ipv4_only(), "198.18.0.1:5000", "198.18.0.2:0");
}

#[test]
fn packets_to_a_full_ipv6_socket_are_discarded_and_counted() {
    a_full_socket(&Network::new(), "[2001:2::1]:5000", "[2001:2::2]:0");
}

#[test]
fn in_a_time_namespace_a_full_sockets_flood_keeps_the_gate_awake() {
    const BURSTS: u64 = 1000;
    let network = Network::ipv4_only();
    let _full = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start_by(a_day_ahead(), &network, &[]);
    for _ in 0..BURSTS {
        send_burst(&sender, "198.18.0.1:5000");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(network.count("udp-full") > BURST * BURSTS / 2);
    let sleep = &network.interface_status()["sleep"];
    assert!(sleep["slept"].as_u64().unwrap() <= 1, "{sleep}");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn a_socket_beside_a_full_one_loses_nothing() {
    let network = Network::ipv4_only();
    let _full = network.near_socket("198.18.0.1:5000");
    let beside = network.near_socket("198.18.0.1:5001");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    flood(&network, &sender, "198.18.0.1:5000");
    for number in 0..500_u64 {
        send_burst(&sender, "198.18.0.1:5000");
        sender.send_to(&number.to_be_bytes(), "198.18.0.1:5001").unwrap();
        let mut received = [0; 8];
        assert_eq!(beside.recv(&mut received).unwrap(), 8);
        assert_eq!(u64::from_be_bytes(received), number);
    }
    daemon.interrupt();
}

/// Sends to an empty queue, `at_once` packets before each read, while the gate believes that it knows
/// what a packet is charged: none may be lost.
fn an_empty_queue(network: &Network, receiver: &UdpSocket, at_once: u64) {
    const BATCHES: u64 = 2000;
    /// Less than the 10 ms for which the gate believes what the kernel's last refusal taught it.
    const BELIEVED: Duration = Duration::from_millis(8);
    let to = "198.18.0.1:5000";
    let mut paced = Paced::new(network, "198.18.0.1:5001", "198.18.0.2:0");
    let daemon = Daemon::start(network, &[]);
    let deadline = Instant::now() + 6 * PATIENCE;
    let mut batches = 0;
    while batches < BATCHES {
        assert!(Instant::now() < deadline, "only {batches} batches while the charge is believed");
        let refused_before = network.late_drops();
        let mut refused_at = Instant::now();
        paced.burst(to);
        while network.late_drops() == refused_before {
            refused_at = Instant::now();
            paced.burst(to);
        }
        drain(receiver);
        receiver.set_nonblocking(false).unwrap();
        let refused = network.late_drops();
        while refused_at.elapsed() < BELIEVED {
            let numbers = batches * at_once..(batches + 1) * at_once;
            for number in numbers.clone() {
                // As long as those refused: the gate lets shorter ones try.
                let mut payload = PAYLOAD;
                payload[..8].copy_from_slice(&number.to_be_bytes());
                paced.sender.send_to(&payload, to).unwrap();
            }
            for number in numbers {
                let mut payload = [0; PAYLOAD.len()];
                assert_eq!(receiver.recv(&mut payload).unwrap(), PAYLOAD.len());
                assert_eq!(payload[..8], number.to_be_bytes());
            }
            batches += 1;
        }
        assert_eq!(network.late_drops(), refused);
    }
    wait_for_all(network, paced.sent + batches * at_once, &["udp-room", "udp-full"]);
    assert_eq!(network.ring_drops("far"), 0);
    daemon.interrupt();
}

#[test]
fn with_an_empty_queue_nothing_is_lost() {
    let network = Network::ipv4_only();
    let receiver = network.near_socket("198.18.0.1:5000");
    // A quarter of a burst fits into any ordinary queue.
    an_empty_queue(&network, &receiver, BURST / 4);
}

#[test]
fn the_smallest_queue_takes_one_packet_at_a_time() {
    let network = Network::ipv4_only();
    let receiver = network.near_socket("198.18.0.1:5000");
    // The kernel makes it its minimum.
    sockopt::set_socket_recv_buffer_size(&receiver, 1).unwrap();
    an_empty_queue(&network, &receiver, 1);
}

#[test]
fn a_connected_socket_beside_a_full_one_on_its_port_loses_nothing() {
    let network = Network::ipv4_only();
    let shared: SocketAddr = "198.18.0.1:5000".parse().unwrap();
    let share_port = |peer: Option<SocketAddr>| {
        let open = || {
            let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
            let fd = socket_with(family, SocketType::DGRAM, flags, None).unwrap();
            sockopt::set_socket_reuseaddr(&fd, true).unwrap();
            bind(&fd, &shared).unwrap();
            if let Some(peer) = peer {
                connect(&fd, &peer).unwrap();
            }
            UdpSocket::from(fd)
        };
        let socket = network.near.run(open).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let stranger = network.far_socket("198.18.0.2:0");
    let friend = network.far_socket("198.18.0.2:6000");
    let full = share_port(None);
    let connected = share_port(Some(friend.local_addr().unwrap()));
    let daemon = Daemon::start(&network, &[]);
    flood(&network, &stranger, "198.18.0.1:5000");
    for number in 0..500_u64 {
        send_burst(&stranger, "198.18.0.1:5000");
        let mut payload = PAYLOAD;
        payload[..8].copy_from_slice(&number.to_be_bytes());
        friend.send_to(&payload, shared).unwrap();
        assert_eq!(connected.recv(&mut payload).unwrap(), PAYLOAD.len());
        assert_eq!(payload[..8], number.to_be_bytes());
    }
    connected.set_nonblocking(true).unwrap();
    assert!(connected.recv(&mut [0; 16]).is_err(), "it has got a stranger's packet");
    assert!(drain(&full) > 0);
    daemon.interrupt();
}

#[test]
fn two_interfaces_of_one_daemon_are_each_counted_and_restored() {
    let network = Network::ipv4_only();
    network.add_pair();
    let full = [network.near_socket("198.18.0.1:5000"), network.near_socket("198.19.0.1:5000")];
    let mut paths = [
        (NEAR, "198.18.0.1:5000", Paced::new(&network, "198.18.0.1:5001", "198.18.0.2:0")),
        (NEAR2, "198.19.0.1:5000", Paced::new(&network, "198.19.0.1:5001", "198.19.0.2:0")),
    ];
    let daemon = Daemon::start(&network, &[NEAR2]);
    wait_until("both are published", || network.published().len() == paths.len());
    assert_eq!(network.threaded_on(NEAR2), "1");
    for (interface, to, paced) in &mut paths {
        wait_until("the gate discards", || {
            (0..20).for_each(|_| paced.burst(to));
            network.count_on(interface, "udp-full") > 0
        });
    }
    let mut discarded = [0; 2];
    for ((interface, _, paced), discarded) in paths.iter().zip(&mut discarded) {
        wait_until("every packet is counted at its own interface", || {
            *discarded = network.count_on(interface, "udp-full");
            network.count_on(interface, "udp-room") + *discarded == paced.sent
        });
    }
    let said = daemon.interrupt();
    for ((interface, _, paced), discarded) in paths.iter().zip(discarded) {
        let expected =
            format!("{interface}: {} packets seen; discarded: {discarded} udp-full", paced.sent);
        assert!(said.contains(&expected), "{said}");
    }
    drop(full);
    network.assert_untouched();
    assert_eq!(network.threaded_on(NEAR2), "0");
    assert!(!network.has_xdp_on(NEAR2));
}

#[test]
fn an_address_added_later_is_known() {
    let (network, daemon) = protected_ipv4(&[]);
    network.links(|links, ifindex| {
        links.add_address(ifindex, "198.18.0.9".parse().unwrap(), 24).unwrap();
    });
    let _full = network.near_socket("198.18.0.9:5000");
    let sender = network.far_socket("198.18.0.2:0");
    flood(&network, &sender, "198.18.0.9:5000");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn with_the_policy_off_every_packet_passes_under_its_own_reason() {
    let network = Network::ipv4_only();
    let full = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &["--policy", "off"]);
    for _ in 0..20 {
        send_burst(&sender, "198.18.0.1:5000");
    }
    wait_for_all(&network, 20 * BURST, &["policy-off"]);
    assert_eq!(network.count("udp-full"), 0);
    assert!(network.late_drops() > 0);
    assert!(drain(&full) > 0);
    daemon.interrupt();
}

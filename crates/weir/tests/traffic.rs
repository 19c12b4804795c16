//! The gate discards what the kernel would drop, and nothing else.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::net::UdpSocket;

use common::*;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::snmp;

/// Fewer than the veth's ring holds (256), so that none is lost before the gate.
const BURST: u64 = 64;
const PAYLOAD: [u8; 14] = [0x5a; 14];

fn send_burst(sender: &UdpSocket, to: &str) {
    for _ in 0..BURST {
        sender.send_to(&PAYLOAD, to).unwrap();
    }
}

/// Packets for which the veth's ring had no room: its peer counts them.
fn ring_drops(network: &Network) -> u64 {
    let drops = network.far.run(|| {
        let links = Links::open().unwrap();
        links.stats(links.index("far").unwrap()).unwrap().tx_dropped
    });
    drops.unwrap()
}

/// Waits until the status accounts for every packet sent, under these reasons or as ring drops.
fn wait_for_all(network: &Network, sent: u64, reasons: &[&str]) {
    let account = || {
        let seen: Vec<u64> = reasons.iter().map(|reason| network.count(reason)).collect();
        (seen, ring_drops(network))
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
    wait_for_all(network, sent, &["udp-room", "udp-full", "other-address"]);
}

/// Packets in a socket's queue. Afterwards it is empty.
fn drain(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut count = 0;
    while socket.recv(&mut [0; 64]).is_ok() {
        count += 1;
    }
    count
}

fn late_drops(network: &Network) -> u64 {
    let (ipv4, ipv6) = network.near.run(snmp::udp_stats).unwrap().unwrap();
    ipv4.rcvbuf_errors + ipv6.rcvbuf_errors
}

fn a_full_socket(network: &Network, receiver_at: &str, sender_at: &str) {
    let full = network.near_socket(receiver_at);
    let sender = network.far_socket(sender_at);
    let daemon = Daemon::start(network, &[]);
    flood(network, &sender, receiver_at);
    let (room, discarded) = (network.count("udp-room"), network.count("udp-full"));
    // Each packet that passed is in the queue, or was dropped late.
    let queued = drain(&full);
    wait_until("all that passed are accounted for", || room == late_drops(network) + queued);
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

#[test]
fn with_an_empty_queue_nothing_is_lost() {
    let network = Network::ipv4_only();
    let receiver = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    // A quarter of a burst fits into any socket's queue.
    const AT_ONCE: u64 = BURST / 4;
    for _ in 0..500 {
        for _ in 0..AT_ONCE {
            sender.send_to(&PAYLOAD, "198.18.0.1:5000").unwrap();
        }
        for _ in 0..AT_ONCE {
            assert_eq!(receiver.recv(&mut [0; 64]).unwrap(), PAYLOAD.len());
        }
    }
    wait_until("all are counted", || network.count("udp-room") == 500 * AT_ONCE);
    assert_eq!(network.count("udp-full"), 0);
    assert_eq!(late_drops(&network), 0);
    daemon.interrupt();
}

#[test]
fn an_address_added_later_is_known() {
    let network = Network::ipv4_only();
    let daemon = Daemon::start(&network, &[]);
    network.links(|links, ifindex| {
        links.add_address(ifindex, "198.18.0.9".parse().unwrap(), 24).unwrap();
    });
    let _full = network.near_socket("198.18.0.9:5000");
    let sender = network.far_socket("198.18.0.2:0");
    flood(&network, &sender, "198.18.0.9:5000");
    daemon.interrupt();
    network.assert_untouched();
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
    assert!(late_drops(&network) > 0);
    assert!(drain(&full) > 0);
    daemon.interrupt();
}

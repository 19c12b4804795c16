//! Which addresses are this host's is the routing table's to say: one that was handed to another machine, and one
//! that no interface on the wire has.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::run_in as sh;
use crate::common::*;
use weir_bpf::sys::netns::NetNs;

/// Within which a change of routes must take effect: a look each 500 ms, and the daemon's waiting time.
const PROMISED: Duration = Duration::from_secs(1);
const PORT: u16 = 5000;
/// Known to the peer as well.
const OTHER: &str = "198.18.0.9";

/// Few enough for the veth's ring, all with this number.
fn burst(sender: &UdpSocket, address: &str, number: u8) {
    for _ in 0..32 {
        let _ = sender.send_to(&[number; 14], (address, PORT));
    }
    std::thread::sleep(Duration::from_millis(1));
}

/// Of all CPUs, which other tests flood: what comes by a veth without NAPI waits there (`enqueue_to_backlog()`).
fn backlog_drops() -> u64 {
    let stat = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let second = |line: &str| u64::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap();
    stat.lines().map(second).sum()
}

/// As a virtual machine gets its host's address: `near` still has it, a route leads to `guest`.
#[test]
fn packets_for_an_address_handed_to_a_guest_reach_the_guest() {
    let network = Network::ipv4_only();
    let guest = NetNs::create().unwrap();
    let _full = network.near_socket("0.0.0.0:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let connect = "ip link add tovm type veth peer name eth address 02:00:00:00:00:09 netns $GUEST
         ip link set tovm up
         ip neigh add 198.18.0.1 lladdr 02:00:00:00:00:09 dev tovm
         echo 1 >/proc/sys/net/ipv4/ip_forward";
    sh(&network.near, &connect.replace("$GUEST", guest.path().to_str().unwrap()));
    sh(&guest, "ip link set eth up; ip addr add 198.18.0.1/24 dev eth");
    let in_guest = guest.run(|| UdpSocket::bind(("198.18.0.1", PORT)).unwrap()).unwrap();
    in_guest.set_nonblocking(true).unwrap();
    // Another address keeps the socket full.
    network.links(|links, near| links.add_address(near, OTHER.parse().unwrap(), 32).unwrap());
    let daemon = Daemon::start(&network, &[]);
    let flood = || burst(&sender, OTHER, 0);
    while_doing(flood, || {
        wait_until("the gate discards", || network.count("udp-full") > 0);
        let client = network.far_socket("198.18.0.2:0");
        let (mut number, mut buffer) = (0_u64, [0; 64]);
        // Whether a packet reaches the guest. One that an interface or a CPU had no room for is sent again, when that
        // may have passed: a CPU that another has taken away is full for as long.
        let mut arrives_within = |limit| {
            let sent = Instant::now();
            while sent.elapsed() < PATIENCE {
                number += 1;
                let packet = number.to_ne_bytes();
                let dropped = (network.ring_drops("far"), backlog_drops());
                let _ = client.send_to(&packet, (NEAR_IP, PORT));
                let mut received = || {
                    let next =
                        || in_guest.recv(&mut buffer).ok().map(|len| buffer[..len] == packet);
                    std::iter::from_fn(next).any(|it| it)
                };
                let has_dropped = || (network.ring_drops("far"), backlog_drops()) != dropped;
                let mut arrived = false;
                wait(limit, || {
                    arrived = received();
                    arrived || has_dropped()
                });
                if arrived || !has_dropped() {
                    return arrived;
                }
                thread::sleep(Duration::from_millis(5));
            }
            false
        };

        sh(
            &network.near,
            "ip route del local 198.18.0.1 dev near table local
             ip route add 198.18.0.1 dev tovm",
        );
        // One alone may be among the few that the gate lets go to a full socket.
        wait(PROMISED, || (0..100).all(|_| arrives_within(Duration::from_millis(20))));
        let all = (0..100).all(|_| arrives_within(PATIENCE));
        assert!(all, "discarded for a socket that they are not for");
        wait_until("they are counted", || network.count("forward") > 100);
    });
    daemon.interrupt();
}

/// An address of a service is often on no wire's interface: anycast, or a real server of LVS-DR.
#[test]
fn a_services_address_that_is_on_the_loopback_is_protected() {
    protected_behind_another_interface("ip link set lo up; ip addr add 198.19.7.1/32 dev lo");
}

/// As on a dummy interface, which is not in every kernel.
#[test]
fn a_services_address_that_is_on_an_interface_without_a_wire_is_protected() {
    protected_behind_another_interface(
        "ip tuntap add unwired mode tun; ip link set unwired up; ip addr add 198.19.7.1/32 dev unwired",
    );
}

/// The gate passes what is for it, although it is the host's.
#[test]
fn a_prefix_that_is_local_as_a_whole_is_noted() {
    let (network, daemon) = protected(&[]);
    let note =
        "this host has the prefix 2001:2:0:88::/64 of its own; the gate knows single addresses";
    assert!(!network.says(&["status"]).contains("this host has"));
    sh(&network.near, "ip link set lo up; ip route add local 2001:2:0:88::/64 dev lo");
    daemon.said(note);
    wait_until("it is noted", || network.says(&["status"]).contains(&format!("note: {note}")));
    assert!(network.interface_status()["notes"].to_string().contains(note));
    sh(&network.near, "ip route del local 2001:2:0:88::/64 dev lo");
    wait_until("it is noted no more", || !network.says(&["status"]).contains(note));
    network.assert_left_untouched_by(daemon);
}

fn protected_behind_another_interface(give_address: &str) {
    let network = Network::ipv4_only();
    sh(&network.near, give_address);
    sh(&network.far, "ip route add 198.19.7.1 via 198.18.0.1 dev far");
    let full = network.near_socket("198.19.7.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    wait_until("the gate discards", || {
        burst(&sender, "198.19.7.1", 0);
        network.count("udp-full") > 0
    });
    // A reader gets what there is room for.
    drain(&full);
    std::thread::sleep(Duration::from_millis(20));
    for number in 1..=20 {
        burst(&sender, "198.19.7.1", number);
        let (mut received, mut buffer) = (0, [0; 64]);
        wait_until("all 32 are read", || {
            while full.recv(&mut buffer).is_ok() {
                received += usize::from(buffer[0] == number);
            }
            received == 32
        });
    }
    assert_eq!(network.count("no-route"), 0);
    network.assert_left_untouched_by(daemon);
}

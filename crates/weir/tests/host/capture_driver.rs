//! `weir capture --attach native`: frames for other hosts end in the driver while nobody else wants them.

use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use weir_bpf::units::MacAddr;

use crate::capture::*;
use crate::captures::*;
use crate::common::*;

/// How many frames have ended in the driver, by its statistics.
fn ended(network: &Network) -> u64 {
    let said = sh(network, "ethtool -S near");
    let drops = said.lines().filter(|line| line.contains("xdp_drops"));
    drops.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn in_the_driver_other_hosts_frames_end_while_nobody_else_wants_them() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let path = dir.path().join("all.pcapng");
    let ended = || ended(&network);
    let others = udp_to(MacAddr([2, 0, 0, 0, 0, 9]), NEAR_IP, 5000, b"fourteen bytes");
    let socket = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    // A gate at tc wants none of them.
    let daemon = Daemon::start(&network, &["--attach", "tc"]);
    let capture = Running::weir(&network, &["--attach", "native", "-w", path.to_str().unwrap()]);
    let mut sent = 0;
    wait_until("they end", || {
        replay(&network, &vec![others.clone(); 10]);
        sent += 10;
        ended() > 20
    });
    // What is for the host gets there.
    sender.send_to(b"for the host", "198.18.0.1:5000").unwrap();
    assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 12);
    // A program wants some protocol's.
    let open = || {
        let (raw, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        socket_with(AddressFamily::PACKET, raw, flags, Some(eth::ARP)).unwrap()
    };
    let of_arp = network.near.run(open).unwrap();
    wait_until("they pass", || {
        let before = ended();
        replay(&network, &vec![others.clone(); 10]);
        sent += 10;
        ended() == before
    });
    drop(of_arp);
    // Another capture wants them.
    let theirs = dir.path().join("theirs");
    let tcpdump = tcpdump(&network, &theirs, "");
    wait_until("the other capture has them", || {
        replay(&network, std::slice::from_ref(&others));
        sent += 1;
        read_pcap(&theirs).contains(&others)
    });
    let before = ended();
    replay(&network, &vec![others.clone(); 100]);
    sent += 100;
    wait_until("it has them all", || {
        read_pcap(&theirs).iter().filter(|packet| **packet == others).count() >= 100
    });
    assert_eq!(ended(), before);
    tcpdump.interrupt();
    capture.interrupt();
    network.assert_left_untouched_by(daemon);
    let written = read_pcapng(&path);
    assert_eq!(written.packets.iter().filter(|packet| **packet == others).count(), sent);
}

/// Whoever sees frames before IP does may give the host those of others.
#[test]
fn in_the_driver_other_hosts_frames_pass_to_filters_and_rules_at_ingress() {
    let network = Network::ipv4_only();
    let others = udp_to(MacAddr([2, 0, 0, 0, 0, 9]), NEAR_IP, 5000, b"fourteen bytes");
    let socket = network.near_socket("198.18.0.1:5000");
    let capture = Running::weir(&network, &["--attach", "native", "--count"]);
    let are_ended = |wanted: bool| {
        wait_until(if wanted { "they end" } else { "they pass" }, || {
            let before = ended(&network);
            replay(&network, &vec![others.clone(); 10]);
            (ended(&network) > before) == wanted
        });
    };
    are_ended(true);
    let chain = "type filter hook ingress device near priority 0";
    sh(
        &network,
        &format!("nft 'table netdev n {{ chain c {{ {chain}; meta pkttype set host; }}; }}'"),
    );
    are_ended(false);
    assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 14);
    sh(&network, "nft delete table netdev n");
    are_ended(true);
    sh(
        &network,
        "tc qdisc add dev near clsact && tc filter add dev near ingress protocol ip u32 match ip dport 53 0xffff \
         flowid 1:1",
    );
    are_ended(false);
    sh(&network, "tc qdisc del dev near clsact");
    are_ended(true);
    capture.interrupt();
}

/// Its address changes, and an interface comes on top, more often than user space looks.
#[test]
fn in_the_driver_nothing_for_the_host_ends_while_its_addresses_change() {
    const CHANGES: u8 = 50;
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 9, u8::MAX]);
    let network = Network::ipv4_only();
    let to = |mac| udp_to(mac, NEAR_IP, 5000, b"fourteen bytes");
    let others = to(OTHER);
    let socket = network.near_socket("198.18.0.1:5000");
    let capture = Running::weir(&network, &["--attach", "native", "--count"]);
    let others_end = || {
        wait_until("they end", || {
            let before = ended(&network);
            replay(&network, &vec![others.clone(); 10]);
            ended(&network) > before
        });
    };
    others_end();
    for last in 0..CHANGES {
        let own = MacAddr([2, 0, 0, 0, 9, last]);
        sh(&network, &format!("ip link set near address {own}"));
        let mut sent = vec![others.clone(); 20];
        sent[10..].fill(to(own));
        replay(&network, &sent);
        for number in 0..10 {
            let received = socket.recv(&mut [0; 64]);
            assert_eq!(received.ok(), Some(14), "packet {number} after change {last}");
        }
    }
    for _ in 0..10 {
        others_end();
        sh(&network, &format!("ip link add on link near address {OTHER} type macvlan"));
        let before = ended(&network);
        replay(&network, &vec![others.clone(); 10]);
        assert_eq!(ended(&network), before);
        sh(&network, "ip link del on");
    }
    capture.interrupt();
}

#[test]
fn in_the_driver_it_ends_with_the_interface() {
    let network = Network::ipv4_only();
    let gone = Running::weir(&network, &["--count", "--attach", "native"]);
    network.links(|links, ifindex| links.delete(ifindex).unwrap());
    let said = gone.end_with(1);
    assert!(said.contains("near is down or gone"), "{said}");
}

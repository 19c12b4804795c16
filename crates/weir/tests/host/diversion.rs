//! What would go elsewhere is not discarded: a rule that comes while the gate discards stops it, and
//! its removal lets it go on.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use weir_bpf::verdict::Reason;

/// Within which a change of rules must take effect.
const PROMISED: Duration = Duration::from_secs(1);
const FULL: &str = "198.18.0.1:5000";

/// Sends to the full socket until it is dropped, slowly enough for the veth's ring.
fn while_flooding(sender: &UdpSocket, test: impl FnOnce()) {
    let burst = || {
        for _ in 0..32 {
            let _ = sender.send_to(&[0x5a; 14], FULL);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    while_doing(burst, test);
}

/// The kinds in `weir status --json`.
fn kinds(network: &Network) -> Vec<String> {
    let status = network.interface_status();
    let diversions = status["diversions"].as_array().unwrap();
    diversions.iter().map(|each| each["kind"].as_str().unwrap().to_owned()).collect()
}

/// What is listed, under which reason packets pass, and what is said of it when it comes.
struct Expected<'a> {
    kinds: &'a [&'a str],
    reason: Reason,
    said: &'a str,
}

/// The gate discards; between `add` and `remove` everything passes.
fn stops_and_resumes(kind: &str, rules: [&str; 2], meanwhile: impl FnOnce(&Network)) {
    let (kinds, reason) = (&[kind][..], Reason::Diverted);
    let said = "the gate passes every packet of this interface";
    let said = stops_and_resumes_as(&Expected { kinds, reason, said }, rules, meanwhile);
    assert!(said.contains("the gate discards again"), "{said}");
}

/// The gate discards; between `add` and `remove` it does not. Its last words.
fn stops_and_resumes_as(
    expected: &Expected<'_>,
    [add, remove]: [&str; 2],
    meanwhile: impl FnOnce(&Network),
) -> String {
    let kind = expected.kinds.join(", ");
    let network = Network::ipv4_only();
    let _full = network.near_socket(FULL);
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    assert_eq!(kinds(&network), [] as [&str; 0]);
    let counters = network.counters_on(NEAR);
    let count = |reason| counters.counters().unwrap().get(reason).packets;
    while_flooding(&sender, || {
        wait_until("the gate discards", || count(Reason::UdpFull) > 0);

        sh(&network, add);
        let changed = Instant::now();
        let all = || Reason::ALL.iter().map(|reason| count(*reason)).sum::<u64>();
        // While packets come.
        let grows = |reason| {
            let (before, all_before) = (count(reason), all());
            std::thread::sleep(Duration::from_millis(20));
            wait_until("packets come", || all() > all_before);
            count(reason) > before
        };
        // What is translated is counted only where it would have been discarded.
        let is_told = || expected.reason == Reason::Translated || count(expected.reason) > 0;
        let stopped = wait(PROMISED, || is_told() && !grows(Reason::UdpFull));
        assert!(stopped, "{kind}: still discarding {PROMISED:?} later");
        println!("{kind}: discards stopped {:?} later", changed.elapsed());
        let discarded = count(Reason::UdpFull);
        meanwhile(&network);
        wait_until("the status lists it", || kinds(&network) == expected.kinds);
        assert_eq!(count(Reason::UdpFull), discarded, "{kind}: discarded while diverted");

        sh(&network, remove);
        let changed = Instant::now();
        let passes = wait(PROMISED, || !grows(expected.reason));
        assert!(passes, "{kind}: everything passes still");
        println!("{kind}: everything passed until {:?} later", changed.elapsed());
        wait_until("discards resume", || count(Reason::UdpFull) > discarded);
        wait_until("the status does not list it", || kinds(&network).is_empty());
    });
    let said = daemon.interrupt();
    assert_eq!(said.matches(expected.said).count(), 1, "{said}");
    assert_eq!(said.matches("near: no longer: ").count(), expected.kinds.len(), "{said}");
    said
}

#[test]
fn a_redirect_of_nftables_stops_discards_and_its_target_gets_the_packets() {
    let add = "nft 'table ip t { chain c { type nat hook prerouting priority -100; \
               udp dport 5000 redirect to :5001; }; }'";
    let expected = Expected {
        kinds: &["translated-connections", "translated-ports"],
        reason: Reason::Translated,
        said: "(udp 5000: table ip t, chain c): packets to these ports pass",
    };
    stops_and_resumes_as(&expected, [add, "nft delete table ip t"], |network| {
        let target = network.near_socket("198.18.0.1:5001");
        target.set_nonblocking(true).unwrap();
        // A connection that was tracked before the rule was whole is not redirected any more.
        let new = network.far_socket("198.18.0.2:0");
        let mut received = 0;
        wait_until("1000 packets are redirected", || {
            for _ in 0..32 {
                let _ = new.send_to(&[0x5a; 14], FULL);
            }
            while target.recv(&mut [0; 16]).is_ok_and(|len| len == 14) {
                received += 1;
            }
            received >= 1000
        });
        wait_until("the status for people names it", || {
            let text = network.says(&["status"]);
            text.contains(
                "diversion: rules translate what comes to these ports (udp 5000: table ip t, \
                 chain c): packets to these ports pass",
            ) && !text.contains("everything passes")
        });
    });
}

#[test]
fn a_redirect_of_tc_stops_discards() {
    let add = "tc qdisc add dev near clsact; tc filter add dev near ingress protocol ip u32 \
               match ip dport 5000 0xffff action mirred egress redirect dev near";
    stops_and_resumes("tc-redirect", [add, "tc qdisc del dev near clsact"], |_| {});
}

#[test]
fn a_screen_of_legacy_iptables_which_sends_no_notice_stops_discards() {
    let rule = "INPUT -p udp --dport 5000 -j NFQUEUE --queue-num 3 --queue-bypass";
    let add = format!("iptables-legacy -A {rule}");
    let remove = format!("iptables-legacy -D {rule}");
    stops_and_resumes("nf-queue", [&add, &remove], |_| {});
}

/// A rule that keeps out who sends too much must see what he sends.
#[test]
fn a_rule_that_bans_senders_sees_the_flood() {
    let add = "nft 'table ip t { counter banned { }; set s { type ipv4_addr; flags dynamic; }; \
               chain c { type filter hook input priority 0; udp dport 5000 \
               add @s { ip saddr limit rate over 5000/second burst 100 packets } \
               counter name banned drop; }; }'";
    stops_and_resumes("sender-rules", [add, "nft delete table ip t"], |network| {
        let banned = || !sh(network, "nft list counters").contains("packets 0 ");
        wait_until("the sender is banned", banned);
    });
}

#[test]
fn a_capture_that_begins_later_is_told_and_stops_nothing() {
    let (network, daemon) = protected_ipv4(&[]);
    assert_eq!(kinds(&network), [] as [&str; 0]);
    let open = || {
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        socket_with(family, SocketType::RAW, flags, Some(eth::ALL)).unwrap()
    };
    let capture = network.near.run(open).unwrap();
    wait_until("the status lists it", || kinds(&network) == ["packet-socket"]);
    let status = network.interface_status();
    assert_eq!(status["diversions"][0]["passes_all"], false);
    drop(capture);
    wait_until("the status does not list it", || kinds(&network).is_empty());
    let said = daemon.interrupt();
    assert!(said.contains("`ss --packet --raw --processes` says whose they are"), "{said}");
    assert!(said.contains("no longer: packet or raw sockets receive copies"), "{said}");
}

#[test]
fn what_diverts_already_is_known_before_the_first_packet() {
    let network = Network::ipv4_only();
    let full = network.near_socket(FULL);
    sh(
        &network,
        "nft 'table ip t { chain c { type nat hook prerouting priority -100; \
                  iifname other redirect; }; }'",
    );
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    for _ in 0..50 {
        for _ in 0..64 {
            sender.send_to(&[0x5a; 14], FULL).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    wait_until("they are counted", || network.count("diverted") > 1000);
    for reason in ["udp-room", "udp-full"] {
        assert_eq!(network.count(reason), 0);
    }
    drop(full);
    let said = daemon.interrupt();
    assert!(said.contains("near: packets may be translated"), "{said}");
    network.assert_untouched();
}

/// A multicast router takes what is for groups, and nothing else.
#[test]
fn beside_multicast_routing_only_packets_to_groups_pass() {
    const GROUP: &str = "239.1.2.3:5000";
    const ROUTES: &str = "import socket,struct,sys\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_IGMP)\n\
        s.setsockopt(0,200,1)\n\
        near=socket.inet_aton('198.18.0.1')\n\
        s.setsockopt(0,202,struct.pack('HBBI4s4s',0,0,1,0,near,bytes(4)))\n\
        sys.stdin.read()\n";
    let network = Network::ipv4_only();
    let full = network.near_socket("0.0.0.0:5000");
    full.join_multicast_v4(&"239.1.2.3".parse().unwrap(), &NEAR_IP.parse().unwrap()).unwrap();
    run_in(&network.far, "ip route add 239.0.0.0/8 dev far");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    let counters = network.counters_on(NEAR);
    let count = |reason| counters.counters().unwrap().get(reason).packets;
    let grows = |reason| {
        let before = count(reason);
        wait(PROMISED, || count(reason) > before + 100)
    };
    let to_group = || {
        let _ = sender.send_to(&[0x5a; 14], GROUP);
        std::thread::sleep(Duration::from_micros(200));
    };
    while_flooding(&sender, || {
        while_doing(to_group, || {
            wait_until("both are discarded", || grows(Reason::MulticastFull));
            let mut python = Command::new("python3");
            python.args(["-c", ROUTES]).stdin(Stdio::piped());
            let mut router = network.near.run(|| python.spawn().unwrap()).unwrap();
            wait_until("the status lists it", || kinds(&network) == ["multicast-forwarding"]);
            wait_until("packets to the group pass", || !grows(Reason::MulticastFull));
            assert!(grows(Reason::Diverted) && grows(Reason::UdpFull));
            drop(router.stdin.take());
            router.wait().unwrap();
            wait_until("they are discarded again", || grows(Reason::MulticastFull));
        });
    });
    let said = daemon.interrupt();
    assert!(said.contains("multicast packets are forwarded"), "{said}");
    assert!(!said.contains("passes every packet"), "{said}");
}

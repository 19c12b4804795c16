//! What keeps the gate from answering connection requests, and what does not.

use std::time::Duration;

use super::super::CookieFilters;
use super::*;
use crate::sys::test_support::assert_cheap;

/// Docker's, but for its raw table: nothing that a request to the host itself meets.
const DOCKER: &str = "add table ip nat; add chain ip nat PREROUTING { type nat hook prerouting priority -100; };
    add chain ip nat DOCKER; add rule ip nat PREROUTING fib daddr type local counter jump DOCKER;
    add rule ip nat DOCKER tcp dport 8080 counter dnat to 198.18.5.2:80;
    add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; };
    add chain ip filter DOCKER-USER; add rule ip filter FORWARD counter jump DOCKER-USER;
    add rule ip filter DOCKER-USER counter return;
    add chain ip filter INPUT { type filter hook input priority 0; };";

#[test]
fn only_what_requests_and_their_answers_meet_keeps_the_gate_from_answering() {
    with_pair(|_, near, _| {
        let near = (near, "near".to_owned());
        sh("sysctl -qw net.ipv4.tcp_syncookies=1");
        let mut filters = CookieFilters::default();
        let mut why_not = || filters.why_not(&near, false);
        assert_eq!(why_not(), None);
        sh(&format!("nft '{DOCKER}'"));
        assert_eq!(why_not(), None);
        for family in ["arp", "bridge"] {
            sh(&format!(
                "nft 'table {family} t {{ chain c {{ type filter hook input priority 0; policy drop; }}; }}'"
            ));
            assert_eq!(why_not(), None, "{family}");
        }
        for (add, delete, why) in [
            (
                "nft add rule ip filter INPUT tcp dport 80 accept",
                "nft flush chain ip filter INPUT",
                "table ip filter, chain INPUT has rules",
            ),
            (
                "nft add rule ip filter INPUT jump DOCKER-USER",
                "nft flush chain ip filter INPUT",
                "table ip filter, chain DOCKER-USER has rules",
            ),
            (
                "nft 'add chain ip filter INPUT { policy drop; }'",
                "nft 'add chain ip filter INPUT { policy accept; }'",
                "table ip filter, chain INPUT has the policy drop",
            ),
            (
                "nft 'table inet m { chain c { type filter hook postrouting priority 0; counter; }; }'",
                "nft delete table inet m",
                "table inet m, chain c has rules",
            ),
            (
                "nft 'table inet m { chain c { type filter hook output priority 0; counter; }; }'",
                "nft delete table inet m",
                "table inet m, chain c has rules",
            ),
            (
                "sysctl -qw net.ipv4.tcp_syncookies=2",
                "sysctl -qw net.ipv4.tcp_syncookies=1",
                "net.ipv4.tcp_syncookies is not 1",
            ),
            ("ip rule add from 198.18.7.1 table 7", "ip rule del from 198.18.7.1 table 7", "rule"),
            (
                "nft 'add chain ip nat PREROUTING { policy drop; }'",
                "nft 'add chain ip nat PREROUTING { policy accept; }'",
                "table ip nat, chain PREROUTING has the policy drop",
            ),
        ] {
            sh(add);
            let found = why_not();
            assert!(found.as_ref().is_some_and(|found| found.contains(why)), "{add}: {found:?}");
            sh(delete);
            assert_eq!(why_not(), None, "{delete}");
        }
    });
}

#[test]
fn a_veth_answers_in_its_driver_if_its_peer_takes_frames() {
    with_pair(|_, near, _| {
        let mut filters = CookieFilters::default();
        let near = (near, "near".to_owned());
        let mut why_not = |native| filters.why_not(&near, native);
        sh("sysctl -qw net.ipv4.tcp_syncookies=1; ip link set near up; ip link set far up");
        assert_eq!(why_not(false), None);
        assert!(why_not(true).is_some_and(|why| why.contains("ethtool -K PEER gro on")));
        sh("ethtool -K far gro on");
        assert_eq!(why_not(true), None);
        // What it sends, no queueing discipline and none of its filters sees.
        for add in [
            "tc qdisc add dev near clsact",
            "tc qdisc del dev near clsact; tc qdisc add dev near root tbf rate 1mbit burst 9k limit 9k",
        ] {
            sh(add);
            assert_eq!(why_not(false), None, "{add}");
            assert!(why_not(true).is_some_and(|why| why.contains("queueing discipline")), "{add}");
        }
    });
}

/// Twice a second, and every two seconds while the gate sleeps.
#[test]
fn what_a_look_costs() {
    with_pair(|_, near, _| {
        sh("sysctl -qw net.ipv4.tcp_syncookies=1; ip link set near up; ip link set far up;
            ethtool -K far gro on");
        let near = (near, "near".to_owned());
        let mut filters = CookieFilters::default();
        assert_eq!(filters.why_not(&near, true), None);
        assert_cheap("nothing there", 100, Duration::from_millis(2), || {
            filters.why_not(&near, true);
        });
    });
}

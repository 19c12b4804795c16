//! Following changes, and what a look costs.

use std::time::Duration;

use super::DiversionKind::*;
use super::*;
use crate::sys::test_support::assert_cheap;

#[test]
fn changes_are_told_and_elements_of_sets_are_not() {
    with_watch(|watch| {
        sh("nft 'table inet t { set s { type ipv4_addr; }; chain c { \
            type filter hook prerouting priority 0; }; }'");
        assert!(watch.changed().unwrap());
        assert!(!watch.changed().unwrap());
        sh("nft add element inet t s '{ 198.18.0.1 }'");
        assert!(!watch.changed().unwrap());
        for change in [
            "nft add rule inet t c ip daddr set 198.18.0.9",
            "nft flush chain inet t c",
            "nft delete table inet t",
            "iptables-nft -t nat -A PREROUTING -j ACCEPT",
            "tc qdisc add dev near clsact",
            "ip link add name upper type bridge; ip link set near master upper",
            "ip -6 rule add pref 60 lookup 100",
        ] {
            sh(change);
            assert!(watch.changed().unwrap(), "{change}");
            assert!(!watch.changed().unwrap(), "{change}");
        }
        sh("nft 'table inet t { chain c { type filter hook prerouting priority 0; }; }'");
        watch.changed().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(watch.fds().next().unwrap(), 1).unwrap();
        sh("for i in $(seq 30); do nft add rule inet t c counter; done");
        assert!(watch.changed().unwrap(), "lost notifications count as a change");
    });
}

/// As containers come and go by the thousand.
#[test]
fn other_interfaces_and_what_is_set_of_them_are_not_told() {
    with_watch(|watch| {
        for change in [
            "ip link add pod type veth peer name pod0; ip link set pod up; ip link set pod0 up",
            "ip link add upper type bridge; ip link set pod master upper",
            "tc qdisc add dev pod clsact",
            "sysctl -qw net.ipv4.conf.pod.rp_filter=1 net.ipv6.conf.pod.forwarding=1",
            "ip link del pod; ip link del upper",
        ] {
            sh(change);
            assert!(!watch.changed().unwrap(), "{change}");
        }
        // With the number in its namespace that this one has here.
        let container = "unshare --net sleep 10 & sleep 0.2; trap \"kill $!\" EXIT; \
            for i in $(seq 3 $(ip -o link show near | cut -d: -f1)); do \
            nsenter --net=/proc/$!/ns/net ip link add type bridge; done; \
            ip link add pod type veth peer name eth0 netns $!; \
            ip link add bridge type bridge; ip link set pod master bridge; ip link set pod up";
        sh(container);
        assert!(!watch.changed().unwrap(), "{container}");
        for change in [
            "tc qdisc add dev near ingress_block 7 clsact",
            "sysctl -qw net.ipv4.conf.near.rp_filter=1",
            "sysctl -qw net.ipv4.conf.all.rp_filter=1",
            "ip link add link near name upper type macvlan",
        ] {
            sh(change);
            assert!(watch.changed().unwrap(), "{change}");
        }
    });
}

#[test]
fn an_interface_that_has_gone_is_not_known() {
    with_watch(|watch| {
        sh("ip link del near");
        assert_eq!(watch.read(&[]).iter().map(|one| one.kind).collect::<Vec<_>>(), [Unknown]);
    });
}

/// Looks are made twice a second: twenty times what they take (ADR 5) would still be little.
#[test]
fn what_a_look_costs() {
    with_watch(|watch| {
        let mut measure = |what: &str| {
            watch.read(&[]);
            assert_cheap(what, 20, Duration::from_millis(50), || drop(watch.read(&[])));
        };
        measure("nothing there");
        sh("iptables-legacy -A INPUT -j DROP; ip6tables-legacy -A INPUT -j DROP");
        measure("legacy filter tables");
        sh("(echo 'table inet t { chain c { type filter hook input priority 0; ';
             seq -f 'udp dport %g drop;' 5000; echo '}; }') | nft -f -");
        measure("5000 rules of nftables, unchanged");
        sh("(echo '*filter'; seq -f '-A INPUT -p udp --dport %g -j DROP' 5000; echo COMMIT) |
            iptables-legacy-restore");
        measure("5000 rules of legacy iptables");
    });
}

//! What lazy sockets would be given past.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;

use super::super::{Filters, ForwardFilters, Interface, cgroup_programs};
use super::*;
use crate::sys::caps::{self, CapabilitySet};
use crate::sys::test_support::wait_until;

fn named(interface: &str) -> Interface {
    (Links::open().unwrap().index(interface).unwrap(), interface.into())
}

#[test]
fn ipv6_that_is_off_drops_what_is_for_other_interfaces_addresses() {
    with_pair(|links, near, far| {
        links.set_up(near).unwrap();
        links.set_up(far).unwrap();
        let told = || {
            let found = Filters::default().read(&[named("near")]);
            found.into_iter().filter(|line| line.contains("IPv6")).collect::<Vec<_>>()
        };
        assert_eq!(told(), [] as [&str; 0]);
        sh("ip link set lo up; sysctl -qw net.ipv6.conf.near.disable_ipv6=1");
        assert_eq!(told(), [] as [&str; 0], "there are ::1 and another link's");
        sh("ip address add 2001:2::1/64 dev far");
        let found = told();
        assert!(found.len() == 1 && found[0].contains("near.disable_ipv6"), "{found:?}");
        sh("sysctl -qw net.ipv6.conf.near.disable_ipv6=0; ip link set near mtu 1000");
        assert_eq!(told(), found, "nor is IPv6 on where the MTU is too small for it");
        sh("ip link set near mtu 1500");
        assert_eq!(told(), [] as [&str; 0]);
    });
}

#[test]
fn rules_of_another_interface_are_those_of_its_own() {
    with_pair(|_, _, _| {
        sh(
            "nft 'table netdev n { chain c { type filter hook ingress device far priority 0; drop; }; }'",
        );
        let mut filters = Filters::default();
        let mut told = |name: &str| {
            filters.read(&[named(name)]).iter().any(|line| line.contains("table netdev n"))
        };
        assert_eq!(["near", "far", "near"].map(&mut told), [false, true, false]);
    });
}

/// The kernel drops what comes from there; the gate knows single addresses.
#[test]
fn own_prefixes_are_no_sources() {
    with_pair(|_, _, _| {
        let told = || Filters::default().read(&[named("near")]);
        sh("ip link set lo up");
        assert_eq!(told(), [] as [&str; 0]);
        for prefix in ["198.19.8.0/24", "0.0.0.0/0"] {
            sh(&format!("ip route add local {prefix} dev lo table local"));
            assert_eq!(told(), [format!("the prefix {prefix} of this host's own")]);
            sh(&format!("ip route del local {prefix} dev lo table local"));
            assert_eq!(told(), [] as [&str; 0]);
        }
    });
}

/// It asks the rules in their order, and the tables that they name.
#[test]
fn a_loose_reverse_path_filter_drops_what_no_route_leads_to() {
    const DEFAULT: &str = "ip route add default via 198.18.0.2";
    const NO_DEFAULT: &str = "ip route del default via 198.18.0.2";
    with_pair(|_, _, _| {
        let told = || {
            let near = [named("near")];
            let through = ForwardFilters::default().on_the_way(&near).into_iter();
            let through: Vec<_> = through.filter(|line| line.contains("rp_filter")).collect();
            let found = Filters::default().read(&near);
            let instead = |line: &String| line.replace("lazy sockets", "the fast path");
            assert_eq!(found.iter().map(instead).collect::<Vec<_>>(), through);
            found
        };
        sh("ip link set lo up; ip link set far up; ip link set near up
            ip addr add 198.18.0.1/24 dev near; echo 2 >/proc/sys/net/ipv4/conf/near/rp_filter
            ip link add idle type veth peer other; ip link set idle up");
        sh(DEFAULT);
        assert_eq!(told(), [] as [&str; 0]);
        for (set, unset, said) in [
            (NO_DEFAULT, DEFAULT, "no default route"),
            (
                "ip route del default; ip route add default via 198.18.0.2 table 100",
                "ip route flush table 100; ip route add default via 198.18.0.2",
                "no default route",
            ),
            (
                "ip route del default; ip route add default via 198.18.0.2 tos 0x10",
                "ip route del default tos 0x10; ip route add default via 198.18.0.2",
                "no default route",
            ),
            (
                "ip route del default; ip route add default dev idle",
                "ip route del default; ip route add default via 198.18.0.2",
                "no default route",
            ),
            (
                "ip route del default; ip route add default nexthop dev idle nexthop dev idle",
                "ip route del default; ip route add default via 198.18.0.2",
                "no default route",
            ),
            (
                "ip route add unreachable 203.0.113.0/24",
                "ip route del unreachable 203.0.113.0/24",
                "routes that lead nowhere",
            ),
            (
                "ip route add local 203.0.113.0/24 dev lo table 100",
                "ip route flush table 100",
                "routes that lead nowhere",
            ),
            (
                "ip rule add to 203.0.113.0/24 prohibit priority 7",
                "ip rule del priority 7",
                "the rule with priority 7 ",
            ),
            (
                "ip rule del priority 32766; ip rule add from 10.0.0.0/8 table main priority 7",
                "ip rule del priority 7; ip rule add table main priority 32766",
                "no rule ",
            ),
            (
                "ip addr flush dev near; ip route add default dev near",
                "ip route del default; ip addr add 198.18.0.1/24 dev near; \
                 ip route add default via 198.18.0.2",
                "near has no IPv4 address",
            ),
        ] {
            sh(set);
            let found = told();
            assert!(found.len() == 1 && found[0].contains(said), "{set}: {found:?}");
            sh(unset);
            assert_eq!(told(), [] as [&str; 0], "{unset}");
        }
        // What only adds routes, and a default route of several next hops.
        sh("ip rule add from 10.0.0.0/8 table 100; ip route del default
            ip route add default nexthop via 198.18.0.2 nexthop dev idle");
        let found = Filters::default().read(&[named("near")]);
        assert_eq!(found, [] as [&str; 0]);
    });
}

/// A control group with a process in it.
struct Group(PathBuf, Child);

impl Group {
    fn new(name: &str) -> Self {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists());
        let root = root.expect("the test needs control groups of version 2");
        let path = root.join(format!("weir-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let group = Self(path, Command::new("sleep").arg("60").spawn().unwrap());
        std::fs::write(group.0.join("cgroup.procs"), group.1.id().to_string()).unwrap();
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
        std::fs::remove_dir(&self.0).unwrap();
    }
}

#[test]
fn programs_of_the_control_group_are_found() {
    let group = Group::new("filter");
    let told = || cgroup_programs(group.1.id().cast_signed());
    assert_eq!(told(), None);
    let target = File::open(&group.0).unwrap();
    for (kind, place) in [
        (libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB, libbpf_sys::BPF_CGROUP_INET_INGRESS),
        (libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, libbpf_sys::BPF_CGROUP_UDP4_RECVMSG),
        (libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, libbpf_sys::BPF_CGROUP_UDP6_RECVMSG),
    ] {
        let attached = attach(kind, place, &target);
        assert!(told().is_some_and(|line| line.contains("BPF program")), "{place}: {:?}", told());
        drop(attached);
        // A child of another test's may hold it until it has become another program.
        wait_until("it is detached", || told().is_none());
    }
}

/// A process that has asked, and is dead when it is looked at, stays in a group that its parent may have removed.
#[test]
fn a_control_group_that_is_gone_hides_no_programs() {
    let mut group = Group::new("gone");
    assert_eq!(cgroup_programs(group.1.id().cast_signed()), None);
    let inner = group.0.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let pid = group.1.id();
    std::fs::write(inner.join("cgroup.procs"), pid.to_string()).unwrap();
    group.1.kill().unwrap();
    // As long as nobody waits for it, its number is its own.
    wait_until("it is dead", || std::fs::remove_dir(&inner).is_ok());
    let told = cgroup_programs(pid.cast_signed());
    assert!(told.as_ref().is_some_and(|line| line.contains("cannot be opened")), "{told:?}");
}

#[test]
fn programs_at_netfilters_hooks_are_found_on_the_way_of_what_they_see() {
    const NF_INET_LOCAL_IN: u32 = 1;
    const NF_INET_FORWARD: u32 = 2;
    // As the packaged service.
    let kept = CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::PERFMON;
    let look = || {
        caps::confine(kept).unwrap();
        let read = [ForwardFilters::default().on_the_way(&[]), Filters::default().read(&[])];
        read.map(|lines| lines.iter().any(|line| line.contains("netfilter hook")))
    };
    let found = || thread::scope(|scope| scope.spawn(look).join().unwrap());
    Sandbox::new().run(|| {
        for (hooknum, is_there) in
            [(NF_INET_LOCAL_IN, [false, true]), (NF_INET_FORWARD, [true, false])]
        {
            let mut options = libbpf_sys::bpf_link_create_opts {
                sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
                ..Default::default()
            };
            options.__bindgen_anon_1.netfilter.pf = libc::AF_INET as u32;
            options.__bindgen_anon_1.netfilter.hooknum = hooknum;
            options.__bindgen_anon_1.netfilter.priority = 10;
            let kind = libbpf_sys::BPF_PROG_TYPE_NETFILTER;
            let link = attach_with(kind, libbpf_sys::BPF_NETFILTER, 0, Some(&options));
            assert_eq!(found(), is_there);
            Sandbox::new().run(|| assert_eq!(found(), [false; 2], "another namespace"));
            drop(link);
            wait_until("it is gone", || found() == [false; 2]);
        }
    });
}

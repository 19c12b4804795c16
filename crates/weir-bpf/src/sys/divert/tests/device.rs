//! What is attached to the interface, lies on top of it or routes its packets.

use std::os::fd::AsFd;

use libbpf_rs::Program;
use rustix::net::SocketFlags;

use super::DiversionKind::*;
use super::*;
use crate::attach::{AttachMode, by_link};
use crate::sys::sockopt;
use crate::sys::tc::FilterId;
use crate::sys::test_support::wait_until;
use crate::tc_bpf;
use crate::units::IfIndex;

#[test]
fn tc_filters_are_found() {
    let filter = |action: &str| {
        format!("tc filter add dev near ingress protocol ip u32 match ip dport 53 0xffff {action}")
    };
    with_watch(|watch| {
        for (qdisc, remove) in [("clsact", "clsact"), ("handle ffff: ingress", "ingress")] {
            sh(&format!("tc qdisc add dev near {qdisc}"));
            assert_eq!(watch.read(&[]), []);
            for action in ["redirect dev far", "mirror dev far"] {
                let add = filter(&format!("action mirred egress {action}"));
                let delete = "tc filter del dev near ingress";
                comes_and_goes(watch, TcRedirect, "action mirred", [&add, delete]);
            }
            sh(&filter("flowid 1:1"));
            assert_eq!(watch.read(&[]), [], "a filter without an action");
            sh(&format!("tc qdisc del dev near {remove}"));
        }
        let shared =
            filter("action mirred egress redirect dev far").replace("dev near ingress", "block 7");
        let add = format!("tc qdisc add dev near ingress_block 7 clsact; {shared}");
        let delete = "tc qdisc del dev near clsact";
        comes_and_goes(watch, TcRedirect, "action mirred", [&add, delete]);
        sh("tc qdisc add dev near clsact");
        sh(&filter("action mirred egress redirect dev far").replace("ingress", "egress"));
        assert_eq!(watch.read(&[]), [], "outgoing packets are no matter");
    });
}

#[test]
fn programs_at_tc_are_found_but_for_the_callers_own() {
    with_watch(|watch| {
        let ifindex = Links::open().unwrap().index("near").unwrap();
        let kind = libbpf_sys::BPF_PROG_TYPE_SCHED_CLS;
        let program = load_returning(kind, c"nothing", 0, Default::default()).unwrap();
        let id = Program::id_from_fd(program.as_fd()).unwrap();
        let attached = by_link(program.as_fd(), ifindex, "near", AttachMode::Tcx).unwrap();
        let found = watch.read(&[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, TcBpf);
        assert_eq!(found[0].detail, format!("tcx ingress, program {id}"));
        assert_eq!(watch.read(&[id]), []);
        drop(attached);
        // A child of another test's may hold it until it has become another program.
        wait_until("it is detached", || watch.read(&[]).is_empty());

        tc_bpf::create_hook(ifindex).unwrap();
        let filter = FilterId { chain: 0, priority: 1, handle: 1 };
        filter.attach(program.as_fd(), ifindex, 0).unwrap();
        let found = watch.read(&[]);
        assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [TcBpf], "{found:?}");
        assert_eq!(watch.read(&[id]), []);
        filter.detach(ifindex).unwrap();
        sh("tc qdisc del dev near clsact");
        assert_eq!(watch.read(&[]), []);
    });
}

#[test]
fn masters_are_found() {
    with_watch(|watch| {
        let port = |kind: &str, found, detail: &str, watch: &mut DiversionWatch, feature: &str| {
            let add =
                format!("ip link add name upper type {kind}; ip link set near down master upper");
            comes_and_goes_if_present(watch, found, detail, [&add, "ip link del upper"], feature);
        };
        port("bridge", Enslaved, "master: bridge upper", watch, "bridges (CONFIG_BRIDGE)");
        port("bond", Enslaved, "master: bond upper", watch, "bonds (CONFIG_BONDING)");
        port("team", Enslaved, "master: team upper", watch, "teams (CONFIG_NET_TEAM)");
        port("vrf table 7", VrfPort, "master: vrf upper", watch, "VRFs (CONFIG_NET_VRF)");
    });
}

#[test]
fn interfaces_on_top_are_found_in_any_namespace() {
    let upper = |kind: &str| format!("ip link add link near name upper type {kind}");
    let remove = "ip link del upper";
    with_watch(|watch| {
        for kind in ["macvlan mode bridge", "macvlan mode passthru"] {
            let feature = "macvlan (CONFIG_MACVLAN)";
            let commands = [&upper(kind), remove];
            comes_and_goes_if_present(watch, Upper, "macvlan upper", commands, feature);
        }
        let feature = "ipvlan (CONFIG_IPVLAN)";
        let commands = [&upper("ipvlan"), remove];
        comes_and_goes_if_present(watch, Upper, "ipvlan upper", commands, feature);
        let feature = "VLANs (CONFIG_VLAN_8021Q)";
        let vlan = upper("vlan id 7");
        let detail = "1 VLAN interface(s): vlan upper";
        comes_and_goes_if_present(watch, UntaggedVlan, detail, [&vlan, remove], feature);
        let other = Sandbox::new();
        let add = format!(
            "{}; ip link set upper netns {}",
            upper("macvlan mode bridge"),
            other.ns.path().display()
        );
        let remove = format!("nsenter --net={} ip link del upper", other.ns.path().display());
        let feature = "macvlan (CONFIG_MACVLAN)";
        let detail = "in another network namespace";
        comes_and_goes_if_present(watch, Upper, detail, [&add, &remove], feature);
    });
}

#[test]
fn routing_rules_before_the_local_addresses_are_found() {
    with_watch(|watch| {
        for family in ["-4", "-6"] {
            // Behind the local table, and for another interface: no matter.
            sh(&format!(
                "ip {family} rule add pref 200 lookup local; ip {family} rule del pref 0
                 ip {family} rule add pref 50 iif far lookup 100
                 ip {family} rule add pref 300 fwmark 1 lookup 100"
            ));
            assert_eq!(watch.read(&[]), []);
            for rule in ["fwmark 1 lookup 100", "iif near lookup 100", "lookup 100"] {
                let add = format!("ip {family} rule add pref 60 {rule}");
                let delete = format!("ip {family} rule del pref 60");
                comes_and_goes(watch, PolicyRouting, "priority 60", [&add, &delete]);
            }
        }
    });
}

/// The kernel takes an alternative name in a rule, and tells the rule with it.
#[test]
fn routing_rules_are_for_an_interface_by_any_of_its_names() {
    with_watch(|watch| {
        sh("ip link property add dev near altname near0; ip link property add dev far altname far0
            ip rule add pref 200 lookup local; ip rule del pref 0
            ip rule add pref 50 iif far0 lookup 100; ip rule add pref 51 iif gone lookup 100");
        assert_eq!(watch.read(&[]), []);
        let commands = ["ip rule add pref 60 iif near0 lookup 100", "ip rule del pref 60"];
        comes_and_goes(watch, PolicyRouting, "priority 60", commands);
        // The rule stays the interface's.
        let forget = format!("{}; ip link property del dev near altname near0", commands[0]);
        comes_and_goes(watch, PolicyRouting, "priority 60", [&forget, commands[1]]);
    });
}

#[test]
fn multicast_forwarding_is_found() {
    with_watch(|watch| {
        sh("ip address add 198.18.0.1/24 dev near");
        let ifindex = Links::open().unwrap().index("near").unwrap();
        watch.changed().unwrap();
        let router = multicast_router(ifindex);
        assert!(watch.changed().unwrap());
        let found = watch.read(&[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, MulticastForwarding);
        assert!(!found[0].kind.passes());
        assert!(found[0].detail.contains("ipv4/conf/near/mc_forwarding"));
        drop(router);
        // Another test's child may hold the socket for a moment, until it executes its program.
        wait_until("nobody routes", || watch.read(&[]).is_empty());
    });
}

#[test]
fn beside_programs_that_choose_sockets_everything_passes() {
    with_watch(|watch| {
        let netns = File::open("/proc/thread-self/ns/net").unwrap();
        let attached =
            attach(libbpf_sys::BPF_PROG_TYPE_SK_LOOKUP, libbpf_sys::BPF_SK_LOOKUP, &netns);
        let found = watch.read(&[]);
        assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [SkLookup], "{found:?}");
        assert!(found[0].kind.passes());
        drop(attached);
        // A child of another test's may hold it until it has become another program.
        wait_until("it is detached", || watch.read(&[]).is_empty());
    });
}

/// What a multicast routing daemon does at its start.
fn multicast_router(ifindex: IfIndex) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket_with};
    const MRT_INIT: i32 = 200;
    const MRT_ADD_VIF: i32 = 202;
    const VIFF_USE_IFINDEX: u8 = 8;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::IGMP));
    let socket = socket.unwrap();
    sockopt::set(&socket, libc::IPPROTO_IP, MRT_INIT, 1i32).unwrap();
    let mut vif = [0_u8; 16];
    vif[2] = VIFF_USE_IFINDEX;
    vif[3] = 1; // threshold
    vif[8..12].copy_from_slice(&ifindex.0.to_ne_bytes());
    sockopt::set(&socket, libc::IPPROTO_IP, MRT_ADD_VIF, vif).unwrap();
    socket
}

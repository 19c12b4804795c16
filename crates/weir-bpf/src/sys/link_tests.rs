//! On real veth pairs in namespaces of the tests' own.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use super::*;
use crate::sys::ipv6::{disable_ipv6, quiet_ipv6};
use crate::sys::test_support::{Sandbox, sh, wait_until, with_pair};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

#[test]
fn names_and_indices_agree() {
    with_pair(|links, near, far| {
        assert_ne!(near, far);
        assert_eq!(links.name(near).unwrap(), "near");
        assert_eq!(links.name(far).unwrap(), "far");
        let absent = links.index("absent");
        assert!(matches!(absent, Err(Error::NoInterface(name)) if name == "absent"));
        assert_eq!(links.name(IfIndex(0x7fff)).unwrap_err().errno(), Some(Errno::NODEV));
        assert!(matches!(links.index("sixteen-bytes-xx"), Err(Error::NoInterface(_))));
    });
}

/// The kernel takes any bytes for a name or an alias.
#[test]
fn what_is_no_text_hides_no_interface_but_its_own() {
    with_pair(|links, near, far| {
        let script = "odd=$(printf 'n\\377') && ip link add $odd type veth peer name even && \
            ip link set near alias $odd && ip link property add dev near altname $odd-";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let names: Vec<_> =
            links.list().unwrap().into_iter().map(|link| (link.ifindex, link.name)).collect();
        assert!(names.contains(&(near, "near".into())), "{names:?}");
        assert!(names.contains(&(far, "far".into())), "{names:?}");
        assert_eq!(names.len(), 4, "lo and even, too: {names:?}");
        assert_eq!(links.index("near").unwrap(), near);
    });
}

/// A tunnel by its own bridge is a circle, which the kernel does not refuse.
#[test]
fn what_is_below_an_interface_is_what_its_packets_come_in_by() {
    with_pair(|links, _, _| {
        sh("ip tuntap add tap0 mode tap; ip link add br0 type bridge; ip link set near master br0
            ip link add mac0 link br0 type macvlan");
        let below = |name| {
            let below = links.below(links.index(name).unwrap()).unwrap();
            below.into_iter().map(|it| (it.name, it.kind.unwrap())).collect::<BTreeMap<_, _>>()
        };
        let names = |name| below(name).into_keys().collect::<Vec<_>>();
        assert_eq!(names("near"), ["near"], "not its peer");
        assert_eq!(names("br0"), ["br0", "near"]);
        sh("ip link set tap0 master br0");
        assert_eq!(names("mac0"), ["br0", "mac0", "near", "tap0"]);
        assert_eq!(below("br0")["tap0"], "tun");
        sh("ip link set tap0 nomaster");
        assert_eq!(names("br0"), ["br0", "near"]);
    });
}

#[test]
fn info_follows_changes() {
    with_pair(|links, near, _| {
        let before = links.info(near).unwrap();
        assert_eq!(before.kind.as_deref(), Some("veth"));
        assert_eq!(before.mtu, 1500);
        assert_eq!(before.mac, Some(links.mac(near).unwrap()));
        assert!(!before.up);
        links.set_mac(near, MAC).unwrap();
        links.set_up(near).unwrap();
        let after = links.info(near).unwrap();
        assert_eq!(after, LinkInfo { mac: Some(MAC), up: true, ..before.clone() });
        links.set_down(near).unwrap();
        assert!(!links.info(near).unwrap().up);
        assert_eq!(links.xdp(near).unwrap(), None);
    });
}

#[test]
fn loopback_has_no_kind() {
    with_pair(|links, _, _| {
        let info = links.info(links.index("lo").unwrap()).unwrap();
        assert_eq!((info.kind, info.mac), (None, Some(MacAddr([0; 6]))));
    });
}

#[test]
fn own_addresses_are_listed_per_interface() {
    with_pair(|links, near, far| {
        quiet_ipv6("near").unwrap();
        let (v4, v6) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        links.set_up(near).unwrap();
        links.add_address(near, v4, 24).unwrap();
        links.add_address(near, v6, 64).unwrap();
        assert_eq!(links.addresses(near).unwrap(), [v4, v6]);
        assert!(links.addresses(far).unwrap().is_empty());
        let again = links.add_address(near, v4, 24).unwrap_err();
        assert!(again.to_string().contains("10.0.0.1/24"), "{again}");
    });
}

#[test]
fn a_route_needs_a_gateway_that_can_be_reached() {
    with_pair(|links, near, _| {
        links.set_up(near).unwrap();
        let route = || links.add_route(("10.1.0.0".parse().unwrap(), 16), [10, 0, 0, 2].into());
        let unreachable = route().unwrap_err().to_string();
        assert!(unreachable.contains("10.1.0.0/16 by 10.0.0.2"), "{unreachable}");
        links.add_address(near, "10.0.0.1".parse().unwrap(), 24).unwrap();
        route().unwrap();
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect("10.1.2.3:9").unwrap();
        assert_eq!(socket.local_addr().unwrap().ip().to_string(), "10.0.0.1");
    });
}

#[test]
fn ipv6_addresses_are_usable_at_once() {
    with_pair(|links, near, far| {
        links.set_up(near).unwrap();
        links.set_up(far).unwrap();
        links.add_address(near, "fd00::1".parse().unwrap(), 64).unwrap();
        let address: SocketAddr = "[fd00::1]:9".parse().unwrap();
        UdpSocket::bind(address).expect("a tentative address cannot be bound");
    });
}

#[test]
fn packets_to_a_permanent_neighbour_are_counted_on_both_ends() {
    const PACKETS: u64 = 10;
    with_pair(|links, near, far| {
        assert!(!links.info(near).unwrap().oper_up);
        for (ifindex, name) in [(near, "near"), (far, "far")] {
            disable_ipv6(name).unwrap();
            links.set_up(ifindex).unwrap();
        }
        links.add_address(near, "10.0.0.1".parse().unwrap(), 24).unwrap();
        links.add_neighbour(near, "10.0.0.2".parse().unwrap(), MAC).unwrap();
        links.add_neighbour(near, "10.0.0.2".parse().unwrap(), MAC).unwrap(); // replaced
        // Until then the queue of the interface is one that drops.
        wait_until("the pair carries packets", || links.info(near).unwrap().oper_up);
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..PACKETS {
            socket.send_to(b"x", "10.0.0.2:9").unwrap();
        }
        wait_until("all have arrived", || links.stats(far).unwrap().rx_packets == PACKETS);
        assert_eq!(links.stats(near).unwrap().tx_packets, PACKETS);
    });
}

#[test]
fn a_peer_can_be_born_in_another_namespace_and_dies_with_the_pair() {
    let (here, there) = (Sandbox::new(), Sandbox::new());
    here.run(|| {
        let links = Links::open().unwrap();
        links.create_veth("near", "far", Some(there.ns.as_fd())).unwrap();
        assert!(matches!(links.index("far"), Err(Error::NoInterface(_))));
        let beyond = there.run(|| Links::open().unwrap());
        // Bound to the namespace it was opened in, whatever thread asks.
        let far = beyond.index("far").unwrap();
        links.delete(links.index("near").unwrap()).unwrap();
        assert!(matches!(links.index("near"), Err(Error::NoInterface(_))));
        wait_until("the peer is gone", || beyond.name(far).is_err());
    });
}

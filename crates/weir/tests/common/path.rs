//! A client and a server with a router between them: `peer` is theirs, `in` and `out` are the router's interfaces.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_bpf::sys::ethtool;
use weir_bpf::sys::ipv6::quiet_ipv6;
use weir_bpf::sys::netns::NetNs;

use super::{PATIENCE, WEIR, reset, run_in, start_what_stays, wait_until};

pub const SERVER: &str = "198.19.0.2";
pub const SERVER6: &str = "2001:2:0:1::2";

pub struct Path {
    pub client: NetNs,
    pub router: NetNs,
    pub server: NetNs,
}

impl Path {
    pub fn new() -> Self {
        start_what_stays();
        let [client, router, server] = [(); 3].map(|()| NetNs::create().unwrap());
        let (to_client, to_server) = (client.path(), server.path());
        // The router asks for neighbours from its link-local addresses: it has them as soon as its links are up.
        let at_once = || {
            for of in ["all", "default"] {
                fs::write(format!("/proc/sys/net/ipv6/conf/{of}/accept_dad"), "0").unwrap();
            }
        };
        router.run(at_once).unwrap();
        run_in(
            &router,
            &format!(
                "ip link add in address 02:00:00:00:01:01 type veth peer name peer netns {}
                 ip link add out address 02:00:00:00:02:01 mtu 1400 type veth peer name peer netns {}",
                to_client.display(),
                to_server.display()
            ),
        );
        for netns in [&client, &server] {
            netns.run(|| quiet_ipv6("peer")).unwrap().unwrap();
        }
        run_in(
            &router,
            "ip addr add 198.18.0.1/24 dev in
             ip addr add 2001:2::1/64 dev in nodad
             ip addr add 198.19.0.1/24 dev out
             ip addr add 2001:2:0:1::1/64 dev out nodad
             ip link set in up; ip link set out up; ip link set lo up",
        );
        run_in(
            &client,
            "ip link set peer address 02:00:00:00:01:02
             ip addr add 198.18.0.2/24 dev peer
             ip addr add 2001:2::2/64 dev peer nodad
             ip link set peer up; ip link set lo up
             ip route add default via 198.18.0.1
             ip route add default via 2001:2::1",
        );
        run_in(
            &server,
            &format!(
                "ip link set peer mtu 1400 address 02:00:00:00:02:02
                 ip addr add {SERVER}/24 dev peer
                 ip addr add {SERVER6}/64 dev peer nodad
                 ip link set peer up
                 ip route add default via 198.19.0.1
                 ip route add default via 2001:2:0:1::1"
            ),
        );
        let forward = || {
            for (path, value) in [
                ("ipv4/ip_forward", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/in/rp_filter", "0"),
                ("ipv4/conf/out/rp_filter", "0"),
            ] {
                fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
            }
        };
        router.run(forward).unwrap();
        // Without it, or XDP, a veth takes no frame that is redirected.
        for end in [&client, &server] {
            end.run(|| ethtool::set_gro("peer", true)).unwrap().unwrap();
        }
        // An address is asked for in a group that is joined after whoever holds RTNL is done, and so is it asked from one.
        for (netns, group) in [(&client, "ff000002"), (&router, "ff000001"), (&server, "ff000002")]
        {
            let groups = || fs::read_to_string("/proc/thread-self/net/igmp6").unwrap();
            wait_until("IPv6 addresses are asked for", || {
                netns.run(groups).unwrap().contains(&format!("ff0200000000000000000001{group}"))
            });
        }
        wait_until("the router asks for IPv6 addresses", || {
            let addresses = || fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
            let addresses = router.run(addresses).unwrap();
            // Permanent, and not tentative (linux/if_addr.h); of an interface that is not `lo`.
            addresses.lines().filter(|it| it.starts_with("fe80") && it.contains(" 80 ")).count()
                == 2
        });
        Self { client, router, server }
    }

    /// What the router's `weir` says.
    pub fn weir(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(WEIR);
        command.args(arguments);
        self.router.run(|| command.output().unwrap()).unwrap()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        reset(&self.router);
    }
}

/// Whether a datagram gets there, where one that comes does within moments.
pub fn arrives(client: &UdpSocket, server: &UdpSocket, to: &str) -> bool {
    arrives_within(Duration::from_millis(300), client, server, to)
}

/// The same of one that is not to be lost, however late it is.
pub fn arrives_in_the_end(client: &UdpSocket, server: &UdpSocket, to: &str) -> bool {
    arrives_within(PATIENCE, client, server, to)
}

fn arrives_within(limit: Duration, client: &UdpSocket, server: &UdpSocket, to: &str) -> bool {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_ne_bytes();
    client.send_to(&number, to).unwrap();
    server.set_read_timeout(Some(limit)).unwrap();
    let mut buffer = [0; 16];
    let arrived = loop {
        match server.recv(&mut buffer) {
            // An earlier one may come late.
            Ok(len) if buffer[..len] != number => {}
            Ok(_) => break true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
            // A receive that has a timeout is not begun again after a signal (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    };
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    arrived
}

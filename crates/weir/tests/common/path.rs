//! A client and a server with a router between them: `peer` is theirs, `in` and `out` are the router's interfaces.

use std::fs;
use std::process::{Command, Output};

use weir_bpf::sys::ethtool;
use weir_bpf::sys::netns::NetNs;

use super::router::run_in;
use super::{WEIR, killed, reset};

pub const SERVER: &str = "198.19.0.2";
pub const SERVER6: &str = "2001:2:0:1::2";

pub struct Path {
    pub client: NetNs,
    pub router: NetNs,
    pub server: NetNs,
}

impl Path {
    pub fn new() -> Self {
        killed::mark();
        let [client, router, server] = [(); 3].map(|()| NetNs::create().unwrap());
        let (to_client, to_server) = (client.path(), server.path());
        run_in(
            &router,
            &format!(
                "ip link add in address 02:00:00:00:01:01 type veth peer name peer netns {}
                 ip link add out address 02:00:00:00:02:01 mtu 1400 type veth peer name peer netns {}
                 ip addr add 198.18.0.1/24 dev in
                 ip addr add 2001:2::1/64 dev in nodad
                 ip addr add 198.19.0.1/24 dev out
                 ip addr add 2001:2:0:1::1/64 dev out nodad
                 ip link set in up; ip link set out up; ip link set lo up",
                to_client.display(),
                to_server.display()
            ),
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

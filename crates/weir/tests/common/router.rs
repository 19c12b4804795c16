//! A router: the near end forwards to a host behind [`NEAR2`], and to one behind a third pair.

use std::os::fd::AsFd;
use std::process::Command;

use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::traffic::FlowSpec;

use super::{NEAR, NEAR2, Network};

/// The second egress, and a host there.
pub const OUT: &str = "out";
pub const BEHIND_OUT: &str = "198.19.1.2";
/// The host behind [`NEAR2`].
pub const BEHIND: &str = "198.19.0.2";

/// What the script prints that the near end runs.
pub fn sh(network: &Network, script: &str) -> String {
    run_in(&network.near, script)
}

pub fn run_in(netns: &NetNs, script: &str) -> String {
    let run = || Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    let output = netns.run(run).unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A network whose near end forwards.
pub fn router() -> Network {
    let network = Network::ipv4_only();
    network.add_pair();
    let far = network.far.as_fd();
    network
        .near
        .run(|| Links::open().unwrap().create_veth(OUT, "far3", Some(far)))
        .unwrap()
        .unwrap();
    let mac = network.far.run(|| {
        let links = Links::open().unwrap();
        let ifindex = links.index("far3").unwrap();
        links.set_up(ifindex).unwrap();
        links.mac(ifindex).unwrap()
    });
    network.links(|links, _| {
        let ifindex = links.index(OUT).unwrap();
        links.set_up(ifindex).unwrap();
        links.add_address(ifindex, "198.19.1.1".parse().unwrap(), 24).unwrap();
        links.add_neighbour(ifindex, BEHIND_OUT.parse().unwrap(), mac.unwrap()).unwrap();
    });
    // Without it, or XDP, a veth takes no frame that the generator redirects.
    network.near.run(|| ethtool::set_gro(NEAR, true)).unwrap().unwrap();
    for interface in [NEAR, NEAR2, OUT] {
        sh(&network, &format!("echo 1 > /proc/sys/net/ipv4/conf/{interface}/forwarding"));
    }
    network
}

/// Of an interface of the near end.
pub fn statistic(network: &Network, interface: &str, name: &str) -> u64 {
    let file = format!("statistics/{name}");
    let read = || NetSysfs::open().unwrap().read(interface, &file).unwrap();
    network.near.run(read).unwrap().trim().parse().unwrap()
}

/// UDP packets from one port to a host behind the router.
pub fn flow_to(network: &Network, to: &str, (source, port): (u16, u16), pps: f64) -> FlowSpec {
    let flow = network.flow(port, Some(pps));
    FlowSpec { address: (flow.address.0, to.parse().unwrap()), port: (source, port), ..flow }
}

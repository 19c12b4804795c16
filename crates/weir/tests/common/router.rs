//! A router: the near end forwards to a host behind [`NEAR2`], and to one behind a third pair.

use std::ops::Deref;
use std::os::fd::AsFd;

use weir_bpf::counters::CountersReader;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::traffic::FlowSpec;
use weir_bpf::verdict::Reason;

use super::host::Host;
use super::{Daemon, NEAR, NEAR2, Network, mac, run_in, sh};

/// The second egress, and a host there.
pub const OUT: &str = "out";
pub const BEHIND_OUT: &str = "198.19.1.2";
/// The host behind [`NEAR2`].
pub const BEHIND: &str = "198.19.0.2";

/// At tc egress: gives each packet a tag that the device is to write, as a VLAN interface does.
const TAGS: &str = r#"
#include <linux/bpf.h>
static long (*push)(struct __sk_buff *, __be16, __u16) = (void *)BPF_FUNC_skb_vlan_push;
__attribute__((section("tc"), used)) int tags(struct __sk_buff *skb)
{
	push(skb, __builtin_bswap16(0x8100), 5);
	return -1;
}
char terms[] __attribute__((section("license"), used)) = "GPL";
"#;

/// Has every packet that leaves by an interface be of VLAN 5, until its `clsact` is removed.
pub fn tag_what_leaves(netns: &NetNs, interface: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (source, object) = (directory.path().join("tags.c"), directory.path().join("tags.o"));
    std::fs::write(&source, TAGS).unwrap();
    let (source, object) = (source.display(), object.display());
    run_in(
        netns,
        &format!(
            "clang-19 -target bpf -O2 -idirafter /usr/include/$(uname -m)-linux-gnu -c {source} -o {object}
             tc qdisc add dev {interface} clsact
             tc filter add dev {interface} egress bpf direct-action object-file {object} section tc"
        ),
    );
}

/// A router whose CPU is every test's.
pub struct Router {
    host: Host,
}

impl Router {
    pub fn new() -> Self {
        Self { host: Host::of(router) }
    }

    /// Its daemon, and the counters of its gate.
    pub fn start(&self, options: &[&str]) -> (Daemon, CountersReader) {
        let daemon = self.start_sleepy(options);
        (daemon, self.network.counters_on(NEAR))
    }

    /// Runs `body` without weir, with packets polled where weir has them polled: by a thread on the programs' CPU.
    /// softirqs poll what comes over a veth on its sender's CPU, and then receiving costs these programs nothing.
    pub fn polled_by_thread<T>(&self, body: impl FnOnce() -> T) -> T {
        sched::set_affinity(self.network.poll_by_thread(), &[self.cpus.cpu]).unwrap();
        let result = body();
        self.network.set_threaded("0");
        result
    }

    /// UDP packets from one port to a host behind the router, or to itself.
    pub fn flow(&self, to: &str, ports: (u16, u16), pps: f64) -> FlowSpec {
        flow_to(&self.network, to, ports, pps)
    }

    /// Sends these while `body` runs; how many of each were sent.
    pub fn while_sent(&self, flows: &[FlowSpec], body: impl FnOnce()) -> Vec<u64> {
        self.host.while_sent(flows, body);
        (0..flows.len()).map(|flow| self.network.sent(flow)).collect()
    }
}

impl Deref for Router {
    type Target = Host;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

/// What a gate has discarded of what it forwards.
pub fn discarded(counters: &CountersReader) -> u64 {
    counters.counters().unwrap().get(Reason::ForwardFull).packets
}

/// A network whose near end forwards.
pub fn router() -> Network {
    let network = Network::ipv4_only();
    network.add_pair();
    let far = network.far.as_fd();
    network.links(|links, _| links.create_veth(OUT, "far3", Some(far)).unwrap());
    run_in(&network.far, "ip link set far3 up");
    let mac = mac(&network.far, "far3");
    network.links(|links, _| {
        let ifindex = links.index(OUT).unwrap();
        links.set_up(ifindex).unwrap();
        links.add_address(ifindex, "198.19.1.1".parse().unwrap(), 24).unwrap();
        links.add_neighbour(ifindex, BEHIND_OUT.parse().unwrap(), mac).unwrap();
    });
    network.poll_by_napi();
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

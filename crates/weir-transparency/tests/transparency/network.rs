//! One world: a host under test (`near`), its peer (`far`), and what it forwards to (`beyond`).

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_bpf::sys::ipv6::{disable_ipv6, quiet_ipv6};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::{ethtool, napi, sched, sysfs};
use weir_bpf::units::{CpuId, IfIndex};

/// Two addresses of each family, for sockets that are bound to one of them.
pub const NEAR_ADDRESSES: [&str; 4] = ["198.18.0.1", "198.18.0.2", "2001:2::1", "2001:2::2"];

const FAR: &str = "
link add far address 02:00:00:00:00:02 type veth peer name near address 02:00:00:00:00:01 netns @near
addr add 198.18.0.128/24 dev far
neigh add 198.18.0.1 lladdr 02:00:00:00:00:01 dev far
";

/// Peers of which the kernel in `far` knows nothing: their packets are ours alone.
const NEAR: &str = "
link add side address 02:00:00:00:00:03 type veth peer name beyond address 02:00:00:00:00:04 netns @beyond
addr add 198.18.0.1/24 brd + dev near
addr add 198.18.0.2/24 dev near
addr add 2001:2::1/64 dev near nodad
addr add 2001:2::2/64 dev near nodad
addr add 198.18.1.1/24 dev side
addr add 2001:2:0:1::1/64 dev side nodad
";

const NEAR_UP: &str = "
link set near up
link set side up
link add vx0 type vxlan id 1 dstport 4789 local 198.18.0.1 dev near
addr add 198.18.2.1/24 dev vx0
link set vx0 address 02:00:00:00:00:05 up
neigh add 198.18.0.128 lladdr 02:00:00:00:00:02 dev near
neigh add 198.18.0.200 lladdr 02:00:00:00:00:02 dev near
neigh add 198.18.0.201 lladdr 02:00:00:00:00:02 dev near
neigh add 2001:2::200 lladdr 02:00:00:00:00:02 dev near
neigh add 198.18.1.2 lladdr 02:00:00:00:00:04 dev side
neigh add 2001:2:0:1::2 lladdr 02:00:00:00:00:04 dev side
";

const BEYOND: &str = "
addr add 198.18.1.2/24 dev beyond
addr add 2001:2:0:1::2/64 dev beyond nodad
link set beyond up
route add default via 198.18.1.1
route add 2001:2::/64 via 2001:2:0:1::1
";

const NEAR_SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/conf/all/accept_source_route", "1"),
    ("ipv4/conf/near/accept_source_route", "1"),
    ("ipv4/conf/side/accept_source_route", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/near/rp_filter", "0"),
    // Every unreachable port is told, in both worlds.
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv6/icmp/ratemask", "255"),
    // What fragments that never get whole occupy depends on the driver, and there is a limit to it.
    ("ipv4/ipfrag_high_thresh", "67108864"),
    ("ipv6/ip6frag_high_thresh", "67108864"),
    // Nothing may depend on when this host last talked to a peer.
    ("ipv4/tcp_no_metrics_save", "1"),
];

const BEYOND_SYSCTLS: [(&str, &str); 4] = [
    ("ipv4/conf/all/accept_source_route", "1"),
    ("ipv4/conf/beyond/accept_source_route", "1"),
    ("ipv4/icmp_ratemask", "0"),
    ("ipv6/icmp/ratemask", "255"),
];

pub struct Network {
    pub near: NetNs,
    pub far: NetNs,
    pub beyond: NetNs,
    pub near_ifindex: IfIndex,
}

impl Network {
    pub fn new() -> Self {
        let [near, far, beyond] = [0; 3].map(|_| NetNs::create().expect("the test needs root"));
        let path = |namespace: &NetNs| namespace.path().display().to_string();
        let batch = |namespace: &NetNs, commands: &str| {
            let commands = commands.replace("@near", &path(&near));
            let commands = commands.replace("@beyond", &path(&beyond));
            namespace.run(|| pipe("ip", &["-batch", "-"], &commands)).unwrap();
        };
        batch(&far, FAR);
        far.run(|| disable_ipv6("far").unwrap()).unwrap();
        near.run(|| quiet_ipv6("near").unwrap()).unwrap();
        batch(&near, NEAR);
        near.run(|| {
            quiet_ipv6("side").unwrap();
            ethtool::set_gro("near", true).unwrap();
            set(NEAR_SYSCTLS);
        })
        .unwrap();
        beyond
            .run(|| {
                quiet_ipv6("beyond").unwrap();
                set(&BEYOND_SYSCTLS);
            })
            .unwrap();
        batch(&near, NEAR_UP);
        batch(&beyond, BEYOND);
        batch(&far, "link set far up\n");
        let near_ifindex = near
            .run(|| {
                let links = Links::open().unwrap();
                let near = links.index("near").unwrap();
                wait_until("the link is up", || links.info(near).unwrap().oper_up);
                near
            })
            .unwrap();
        let network = Self { near, far, beyond, near_ifindex };
        network.poll_in_thread();
        network
    }

    /// Has `near` poll what arrives also without an XDP program (`veth_skb_is_eligible_for_gro()`).
    pub fn poll_without_xdp(&self) {
        self.far.run(|| ethtool::set_tso("far", false).unwrap()).unwrap();
    }

    /// Has `near` polled by a thread on this CPU that runs when the caller sleeps, so that what is sent
    /// in one go is received in one NAPI poll. To be called after each change of the program.
    pub fn poll_in_thread(&self) {
        let threads = self
            .near
            .run(|| {
                let sysfs = sysfs::NetSysfs::open().unwrap();
                // A change of the program makes a new NAPI instance, which is not threaded.
                sysfs.write("near", "threaded", "0").unwrap();
                sysfs.write("near", "threaded", "1").unwrap();
                napi::napi_threads(self.near_ifindex, "near").unwrap()
            })
            .unwrap();
        assert!(!threads.is_empty(), "near is polled by no thread");
        for thread in threads {
            sched::set_affinity(thread.pid, &[cpu()]).unwrap();
            let pid = thread.pid.as_raw_nonzero().to_string();
            pipe("chrt", &["-f", "-p", "1", &pid], "");
        }
    }
}

fn set(sysctls: &[(&str, &str)]) {
    for (key, value) in sysctls {
        std::fs::write(format!("/proc/sys/net/{key}"), value)
            .unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

/// The CPU on which everything happens, in one order.
pub fn cpu() -> CpuId {
    *sched::online_cpus().unwrap().last().unwrap()
}

/// Runs `f` in a namespace, on this thread.
pub fn inside<T>(namespace: &NetNs, f: impl FnOnce() -> T) -> T {
    let home = NetNs::current().unwrap();
    namespace.enter_current_thread().unwrap();
    let value = f();
    home.enter_current_thread().unwrap();
    value
}

/// Runs a command on an input; it must succeed.
pub fn pipe(command: &str, arguments: &[&str], input: &str) {
    let mut child = Command::new(command)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{command} {arguments:?} on {input:?}: {status}");
}

/// Waits until the condition holds; fails the test after 10 s.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

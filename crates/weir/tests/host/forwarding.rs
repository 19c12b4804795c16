//! `weir run in out --forward xdp`: what the fast path does to packets is what the kernel does, and it stands down for
//! what the kernel alone can do.

mod sorts;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::path::{self, Path};
use crate::common::router::tag_what_leaves;
use crate::common::screen::Screen;
use crate::common::{ConfigFile, Owned, WEIR, failure, published, run_in as sh, wait, wait_until};
use serde_json::Value;
use sorts::{CLIENT4, SERVER4, outcome, packets};
use weir_bpf::counters::CountersReader;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::napi;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::traffic::{FlowSpec, Generator};
use weir_bpf::units::{MacAddr, Nice, PacketsPerSec};
use weir_bpf::verdict::Reason;

/// Within which the fast path stands down.
const PROMISED: Duration = Duration::from_secs(1);
const FORWARD_RULE: &str = "nft 'table inet t { chain forward { type filter hook forward priority 0; udp dport 5000 drop; }; }'";
const OTHER_RULE: &str = "nft 'table inet t { chain forward { type filter hook forward priority 0; udp dport 53 drop; }; }'";

impl Path {
    /// Packets that the fast path has sent on from `in`, by the published status.
    fn forwarded(&self) -> u64 {
        let reasons = self.status()["reasons"].clone();
        let all = reasons.as_array().unwrap();
        let one = all.iter().find(|each| each["reason"] == "forwarded").unwrap();
        one["packets"].as_u64().unwrap()
    }

    fn status(&self) -> Value {
        let mut published = published(&self.router).into_iter();
        published.find(|each| each["interface"] == "in").unwrap_or_default()
    }

    fn notes(&self) -> String {
        self.status()["notes"].to_string()
    }

    fn refusal(&self) -> String {
        let arguments =
            ["run", "in", "out", "--forward", "xdp", "--config", "/dev/null", "--napi", "softirq"];
        let said = failure(&self.weir(&arguments), 1);
        // Nothing is said to be protected that is then refused.
        assert!(!said.contains("protecting"), "{said}");
        said
    }
}

/// A running `weir run in out --forward xdp`. Dropping it ends it.
struct Daemon(#[expect(dead_code, reason = "held, not used")] Owned);

impl Daemon {
    fn start(path: &Path, config: &str) -> Self {
        match config {
            "/dev/null" => Self::start_with(path, config, &["--forward", "xdp"]),
            _ => Self::start_with(path, config, &[]),
        }
    }

    fn start_with(path: &Path, config: &str, options: &[&str]) -> Self {
        let mut command = Command::new(WEIR);
        command.args(["run", "in", "out", "--json", "--config", config]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = path.router.run(|| Owned::start(&mut command)).unwrap();
        let mut first = [0];
        if child.stdout.as_mut().unwrap().read(&mut first).unwrap() == 0 {
            panic!("it ended: {}", child.last_words());
        }
        wait_until("the status is published", || !path.status()["notes"].is_null());
        Self(child)
    }
}

fn names(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_becomes_of_every_sort_of_packet_is_what_the_kernel_makes_of_it() {
    let path = Path::new();
    the_server_is_silent(&path);
    let kernel = outcome(&path, None);
    assert!(kernel[0].len() >= 5 && kernel[1].len() >= 12, "{kernel:?}");
    let _weir = Daemon::start(&path, "/dev/null");
    assert!(path.notes().contains("the fast path sends by out"), "{}", path.notes());
    let expected = kernel.iter().flat_map(|it| it.values()).sum();
    // Each second the kernel forwards a packet of each next hop.
    let before = path.forwarded();
    outcome(&path, Some(expected));
    let fast = outcome(&path, Some(expected));
    assert_same(&kernel, &fast);
    let (_, count) = packets();
    wait_until("they are counted", || path.forwarded() - before >= 2 * count as u64 - 8);
    let forwarded = path.forwarded() - before;
    assert!(forwarded <= 2 * count as u64, "{forwarded} of {count} that it may take, twice");
}

/// Neighbours are known, errors are not counted out, and the server does not answer.
fn the_server_is_silent(path: &Path) {
    for (from, to) in
        [("198.18.0.2:4001", "198.19.0.2:5001"), ("[2001:2::2]:4001", "[2001:2:0:1::2]:5001")]
    {
        let talk = Talk::between(path, from, to);
        wait_until("neighbours are known", || talk.arrives());
    }
    sh(
        &path.server,
        "nft 'table inet t { chain in { type filter hook input priority 0; ip saddr 198.18.0.2 drop; \
         ip6 saddr 2001:2::2 drop; }; }'",
    );
    sh(
        &path.router,
        "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit",
    );
}

/// Of every sort of packets the same has come, at both ends.
fn assert_same(kernel: &[BTreeMap<Vec<u8>, u32>; 2], fast: &[BTreeMap<Vec<u8>, u32>; 2]) {
    for (end, (kernel, fast)) in ["client", "server"].iter().zip(kernel.iter().zip(fast)) {
        for (frame, count) in kernel {
            let found = fast.get(frame).copied().unwrap_or_default();
            assert_eq!(found, *count, "the {end}'s {} by the kernel", names(frame));
        }
        for frame in fast.keys() {
            assert!(kernel.contains_key(frame), "the {end}'s {} by the fast path", names(frame));
        }
    }
}

/// What has gone by the fast path behind a screen.
fn forwarded_by(screen: &mut Screen) -> u64 {
    screen.stats()["outcomes"]["forwarded"].as_u64().unwrap()
}

const BEHIND_A_SCREEN: [&str; 4] = ["--attach", "native", "--forward", "xdp"];

#[test]
fn what_a_screen_has_accepted_is_forwarded_as_the_kernel_does_it() {
    let path = Path::new();
    the_server_is_silent(&path);
    // Its own twice, so that packets for it may not be delivered; as a source it is its own.
    sh(&path.router, "ip addr add 198.19.0.1/32 dev in");
    let rules = ConfigFile::new("rules", "accept\n");
    // First each flow is judged, and its packets come late.
    let of_a_screen = |options: &[&str], expected| {
        let mut screen = Screen::start(&path, &rules, options);
        outcome(&path, expected);
        let before = forwarded_by(&mut screen);
        let seen = outcome(&path, expected);
        (seen, forwarded_by(&mut screen) - before)
    };
    let (kernel, none) = of_a_screen(&["--attach", "native"], None);
    assert!(kernel[0].len() >= 5 && kernel[1].len() >= 12 && none == 0, "{kernel:?}");
    let expected = kernel.iter().flat_map(|it| it.values()).sum();
    let (fast, forwarded) = of_a_screen(&BEHIND_A_SCREEN, Some(expected));
    assert_same(&kernel, &fast);
    let count = packets().1 as u64;
    assert!((count - 4..=count).contains(&forwarded), "{forwarded} of {count} that it may take");
}

#[test]
fn a_screens_fast_path_stands_down_for_rules_and_without_the_screen() {
    let path = Path::new();
    let rules = ConfigFile::new("rules", "accept udp to any port 5000\n");
    sh(&path.router, FORWARD_RULE);
    let (name, at) = (["screen", rules.path()], ["--in", "in", "--out", "out"]);
    let is_refused = || {
        let refused = path.weir(&[&name[..], &at, &BEHIND_A_SCREEN].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("chain forward has rules"), "{said}");
        assert!(!said.contains("stays closed"), "{said}");
    };
    is_refused();
    sh(&path.router, "nft delete table inet t");
    let talk = Talk::new(&path);
    // Nor does one that is refused put itself in the place of another.
    let plain = Screen::start(&path, &rules, &BEHIND_A_SCREEN[..2]);
    sh(&path.router, OTHER_RULE);
    is_refused();
    sh(&path.router, "nft delete table inet t");
    wait_until("the first screens on", || talk.arrives());
    drop(plain);
    let mut screen = Screen::start(&path, &rules, &BEHIND_A_SCREEN);
    let mut is_fast = |talk: &Talk<'_>| {
        let before = forwarded_by(&mut screen);
        wait_until("the fast path forwards", || {
            talk.arrives() && forwarded_by(&mut screen) > before
        });
    };
    is_fast(&talk);
    sh(&path.router, FORWARD_RULE);
    assert!(talk.is_cut_off());
    sh(&path.router, "nft delete table inet t");
    is_fast(&talk);
    // Nobody looks any more, but the kernel goes on with what was accepted.
    screen.kill();
    std::thread::sleep(3 * PROMISED);
    sh(&path.router, FORWARD_RULE);
    assert!(talk.is_cut_off());
    sh(&path.router, "nft delete table inet t");
    wait_until("packets arrive again", || talk.arrives());
}

/// Client and server, and whether the fast path takes what they say.
struct Talk<'a> {
    path: &'a Path,
    client: UdpSocket,
    server: UdpSocket,
    to: String,
}

impl<'a> Talk<'a> {
    fn new(path: &'a Path) -> Self {
        let talk = Self::between(path, "198.18.0.2:4000", "198.19.0.2:5000");
        // As from a wire: the client finishes its checksums.
        sh(&path.client, "ethtool -K peer tx off");
        wait_until("neighbours are known", || talk.arrives());
        talk
    }

    fn between(path: &'a Path, from: &str, to: &str) -> Self {
        let bind =
            |netns: &NetNs, address: &str| netns.run(|| UdpSocket::bind(address).unwrap()).unwrap();
        let (client, server) = (bind(&path.client, from), bind(&path.server, to));
        Self { path, client, server, to: to.to_owned() }
    }

    fn arrives(&self) -> bool {
        path::arrives(&self.client, &self.server, &self.to)
    }

    fn arrives_in_the_end(&self) -> bool {
        path::arrives_in_the_end(&self.client, &self.server, &self.to)
    }

    /// Whether nothing arrives any more, in time. One packet may be lost on a busy machine.
    fn is_cut_off(&self) -> bool {
        wait(PROMISED, || (0..5).all(|_| !self.arrives()))
    }

    /// Waits until packets go by the fast path.
    fn is_fast(&self) {
        let before = self.path.forwarded();
        wait_until("the fast path forwards", || {
            assert!(self.arrives_in_the_end(), "{}", self.path.notes());
            self.path.forwarded() > before
        });
    }
}

#[test]
fn a_packet_whose_checksum_a_veth_has_left_out_is_the_kernels() {
    let path = Path::new();
    let _weir = Daemon::start(&path, "/dev/null");
    let talk = Talk::between(&path, "198.18.0.2:4000", "198.19.0.2:5000");
    wait_until("neighbours are known", || talk.arrives());
    assert!((0..50).all(|_| talk.arrives_in_the_end()));
    sh(&path.client, "ethtool -K peer tx off");
    talk.is_fast();
}

#[test]
fn a_packet_whose_tag_a_veth_has_taken_off_is_the_kernels() {
    let path = Path::new();
    let _weir = Daemon::start(&path, "/dev/null");
    let talk = Talk::new(&path);
    talk.is_fast();
    tag_what_leaves(&path.client, "peer");
    assert!(
        (0..5).all(|_| !talk.arrives()),
        "the kernel drops what is of a VLAN that it does not know"
    );
    sh(&path.client, "tc qdisc del dev peer clsact");
    talk.is_fast();
}

#[test]
fn it_refuses_to_bypass_what_the_operator_has_set() {
    let path = Path::new();
    for (set, unset, said) in [
        (OTHER_RULE, "nft delete table inet t", "table inet t, chain forward has rules"),
        (
            "nft 'table inet t { chain post { type nat hook postrouting priority srcnat; }; }'",
            "nft delete table inet t",
            "table inet t, chain post translates",
        ),
        (
            "nft 'table ip t { chain pre { type filter hook prerouting priority 0; policy drop; }; }'",
            "nft delete table ip t",
            "chain pre has the policy drop",
        ),
        (
            "tc qdisc add dev out root tbf rate 5mbit burst 64kb limit 100kb",
            "tc qdisc del dev out root",
            "out has the queueing discipline tbf",
        ),
        (
            "tc qdisc add dev in clsact",
            "tc qdisc del dev in clsact",
            "in has the queueing discipline clsact",
        ),
        (
            "ip rule add from 198.18.0.7 table 7",
            "ip rule del from 198.18.0.7 table 7",
            "a routing rule with priority",
        ),
        (
            "echo 1 > /proc/sys/net/ipv4/conf/in/rp_filter",
            "echo 0 > /proc/sys/net/ipv4/conf/in/rp_filter",
            "rp_filter is 1",
        ),
        (
            "ip xfrm policy add src 198.18.0.9 dst 198.19.0.9 dir fwd action block",
            "ip xfrm policy flush",
            "IPsec policies",
        ),
        (
            "ip xfrm policy setdefault fwd block",
            "ip xfrm policy setdefault fwd accept",
            "IPsec's default policy blocks",
        ),
        (
            "echo 1 > /proc/sys/net/ipv6/conf/in/disable_ipv6",
            "echo 0 > /proc/sys/net/ipv6/conf/in/disable_ipv6",
            "IPv6 is off there",
        ),
        (
            "ip route add local 198.19.8.0/24 dev lo",
            "ip route del local 198.19.8.0/24 dev lo",
            "the prefix 198.19.8.0/24",
        ),
    ] {
        sh(&path.router, set);
        let refusal = path.refusal();
        assert!(refusal.contains(said), "{set}: {refusal}");
        sh(&path.router, unset);
    }
    path.server.run(|| ethtool::set_gro("peer", false)).unwrap().unwrap();
    assert!(path.refusal().contains("sends no frames for XDP"));
    let tc = ["run", "in", "out", "--forward", "xdp", "--attach", "tc", "--config", "/dev/null"];
    let output = path.weir(&tc);
    assert!(String::from_utf8_lossy(&output.stderr).contains("in the driver"), "{output:?}");
}

/// As after `iptables-legacy -t nat -F`: connections that it knows are translated still.
#[test]
fn a_legacy_nat_table_without_rules_counts() {
    let path = Path::new();
    sh(&path.router, "iptables-legacy -t nat -L >/dev/null");
    let refusal = path.refusal();
    assert!(refusal.contains("iptables-legacy table nat translates"), "{refusal}");
}

#[test]
fn it_stands_down_for_rules_that_come_and_takes_over_when_they_go() {
    let path = Path::new();
    let config = ConfigFile::new("forward", "forward = \"xdp\"\n");
    let _weir = Daemon::start(&path, config.path());
    let talk = Talk::new(&path);
    talk.is_fast();
    // A rule that drops drops.
    sh(&path.router, FORWARD_RULE);
    assert!(talk.is_cut_off(), "{}", path.notes());
    wait_until("the status says why", || path.notes().contains("chain forward has rules"));
    sh(&path.router, "nft delete table inet t");
    talk.is_fast();
    // A queueing discipline that shapes shapes: one of no rate worth speaking of, but of a full bucket.
    sh(&path.router, "tc qdisc add dev out root tbf rate 8bit burst 1540 limit 1540");
    assert!(talk.is_cut_off(), "{}", path.notes());
    wait_until("the status says why", || path.notes().contains("discipline tbf"));
    sh(&path.router, "tc qdisc del dev out root");
    talk.is_fast();
    // A peer that takes no frames any more.
    path.server.run(|| ethtool::set_gro("peer", false)).unwrap().unwrap();
    wait_until("the status says why", || path.notes().contains("sends no frames"));
    assert!(talk.arrives());
    // The only one to send by goes.
    sh(&path.router, "ip link del out");
    wait_until("the status says why", || path.notes().contains("no other interface to send by"));
}

/// Packets that `out` has taken from XDP, and refused: the driver's own figures.
fn taken_and_refused(path: &Path) -> (u64, u64) {
    let text = sh(&path.router, "ethtool -S out");
    let sum = |name: &str| {
        let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        let of = lines.filter(|(key, _)| key.starts_with("tx_queue_") && key.ends_with(name));
        of.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    };
    (sum("_xdp_xmit"), sum("_xdp_xmit_errors"))
}

/// Each packet is counted: sent on, refused by a full ring or an egress that takes no more, or left to the kernel.
#[test]
fn what_the_egress_does_not_take_is_counted() {
    let path = Path::new();
    let cpus = sched::online_cpus().unwrap();
    let (elsewhere, cpu) = (cpus[0], *cpus.last().unwrap());
    // Awake, so that what is left to the kernel is told from the rest.
    let _weir = Daemon::start_with(&path, "/dev/null", &["--forward", "xdp", "--awake"]);
    let talk = Talk::new(&path);
    talk.is_fast();
    // The server hardly reads its ring.
    let busy = Owned::compute_bound(cpu);
    let threads = || {
        NetSysfs::open().unwrap().write("peer", "threaded", "1").unwrap();
        let index = Links::open().unwrap().index("peer").unwrap();
        napi::napi_threads(index, "peer").unwrap()
    };
    for thread in path.server.run(threads).unwrap() {
        sched::set_affinity(thread.pid, &[cpu]).unwrap();
        sched::set_weight(thread.pid, SchedPolicy::Idle, Nice(0), None).unwrap();
    }
    let mac = |last: u8| MacAddr([2, 0, 0, 0, 1, last]);
    let flow = FlowSpec {
        rate: Some(PacketsPerSec(200_000.0)),
        ..FlowSpec::udp((mac(2), mac(1)), (CLIENT4.into(), SERVER4.into()), (4096, 5001))
    };
    let dropped = || {
        let links = Links::open().unwrap();
        links.stats(links.index("peer").unwrap()).unwrap().tx_dropped
    };
    let ring = || path.client.run(dropped).unwrap();
    let map = path.status()["counters_map_id"].as_u64().unwrap();
    let counters = CountersReader::open(map.try_into().unwrap()).unwrap();
    let count = |reason| counters.counters().unwrap().get(reason).packets;
    let seen = || count(Reason::Forwarded) + count(Reason::Forward) + ring();
    let before = seen();
    let load = || Generator::load(Links::open().unwrap().index("peer").unwrap()).unwrap();
    let mut generator = path.client.run(load).unwrap();
    generator.set_flows(&[flow]).unwrap();
    let unsent = || path.status()["drops"]["unsent"].as_u64().unwrap();
    let body = || {
        generator.start();
        wait_until("the ring refuses", || unsent() > 1_000);
        // Whoever changes the peer waits for its thread, and everybody else for the lock that is held meanwhile.
        drop(busy);
        // Until the fast path stands down, the kernel refuses each packet by itself.
        path.server.run(|| ethtool::set_gro("peer", false)).unwrap().unwrap();
        wait_until("the status says why", || path.notes().contains("sends no frames"));
    };
    generator.run_while(&path.client, Some(elsewhere), body).unwrap();
    let sent = generator.counts(0).sent;
    wait_until("every packet is accounted for", || {
        let ((taken, refused), unsent) = (taken_and_refused(&path), unsent());
        seen() - before == sent && count(Reason::Forwarded) == taken + unsent && unsent >= refused
    });
    let text = String::from_utf8(path.weir(&["status"]).stdout).unwrap();
    assert!(text.contains(", unsent "), "{text}");
}

#[test]
fn a_neighbour_that_moves_is_found() {
    let path = Path::new();
    // Quick to doubt, so that the test is.
    sh(
        &path.router,
        "cd /proc/sys/net/ipv4/neigh/out
         echo 1 > base_reachable_time; echo 1 > delay_first_probe_time; echo 100 > retrans_time_ms
         echo 1 > ucast_solicit",
    );
    let _weir = Daemon::start(&path, "/dev/null");
    let talk = Talk::new(&path);
    talk.is_fast();
    sh(&path.server, "ip link set peer address 02:00:00:00:02:03");
    wait_until("packets arrive again", || talk.arrives());
    talk.is_fast();
}

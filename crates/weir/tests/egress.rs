//! A router whose egress is slower than what is sent to it, by a real queueing discipline.
//!
//! The flood is one that the ring holds, so that what is lost was discarded, or refused by the queue.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::router::{BEHIND, BEHIND_OUT, OUT, Router, discarded, statistic};
use common::*;
use etherparse::{IpDscp, IpHeaders, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket, sockopt};
use serde_json::Value;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::packet::PacketSocket;
use weir_bpf::traffic::{FlowSpec, Lengths};

const PORT: u16 = 5000;
const FLOOD_PPS: f64 = 100_000.0;
const LIGHT_PPS: f64 = 500.0;
/// Some 10,000 of the flood's packets a second; the queue holds some hundred.
const TBF: &str = "tc qdisc add dev near2 root handle 1: tbf rate 5mbit burst 5k limit 6k";
/// Full of a flood that the ring holds on a busy machine, too.
const SLOW: &str = "tc qdisc add dev near2 root handle 1: tbf rate 1mbit burst 5k limit 6k";
const OVERFULL_PPS: f64 = 20_000.0;

/// A router with these queues at [`NEAR2`].
fn router(queues: &str) -> Router {
    let router = Router::new();
    sh(&router.network, queues);
    router
}

/// UDP packets from the usual port.
fn flow(router: &Router, to: &str, port: u16, pps: f64) -> FlowSpec {
    router.flow(to, (4096, port), pps)
}

/// Packets that the egress queue has sent, and those that it has refused.
fn egress(router: &Router) -> (u64, u64) {
    let json: Value =
        serde_json::from_str(&sh(&router.network, "tc -j -s qdisc show dev near2")).unwrap();
    let root = json.as_array().unwrap().iter().find(|queue| queue["root"] == true).unwrap();
    let field = |name: &str| root[name].as_u64().unwrap();
    (field("packets"), field("drops"))
}

/// While the egress sent so many packets.
#[derive(Debug)]
struct Window {
    sent_pps: f64,
    refused: u64,
    discarded: u64,
}

fn window(router: &Router, discarded: impl Fn() -> u64, packets: u64) -> Window {
    let (began, before, discarded_before) = (Instant::now(), egress(router), discarded());
    assert!(wait(TRIES_MAX, || egress(router).0 > before.0 + packets), "{before:?}");
    let (elapsed, after) = (began.elapsed(), egress(router));
    Window {
        sent_pps: (after.0 - before.0) as f64 / elapsed.as_secs_f64(),
        refused: after.1 - before.1,
        discarded: discarded() - discarded_before,
    }
}

/// The egress sends as much as without, most of the rest is discarded at the gate, and nothing else is.
fn an_egress_stays_full(queues: &str, options: &[&str]) {
    an_egress_stays_full_of(queues, options, |flood| flood);
}

/// The same, of a flood of another kind.
fn an_egress_stays_full_of(
    queues: &str,
    options: &[&str],
    kind: impl FnOnce(FlowSpec) -> FlowSpec,
) {
    let router = router(queues);
    let flood = kind(flow(&router, BEHIND, PORT, FLOOD_PPS));
    let mut without = 0.0;
    router.while_sent(std::slice::from_ref(&flood), || {
        wait_until("the queue refuses", || egress(&router).1 > 0);
        without = window(&router, || 0, 10_000).sent_pps;
    });
    let local = router.network.near_socket(&format!("{NEAR_IP}:8000"));
    sockopt::set_socket_recv_buffer_size_force(&local, 64 << 20).unwrap();
    let (daemon, counters) = router.start(options);
    let flows = [
        flow(&router, NEAR_IP, 8000, LIGHT_PPS),
        flow(&router, BEHIND_OUT, PORT, LIGHT_PPS),
        flood,
    ];
    let (ring, out) =
        (router.network.ring_drops("far"), statistic(&router.network, OUT, "tx_packets"));
    let sent = router.while_sent(&flows, || {
        let good =
            |seen: &Window| seen.sent_pps > 0.97 * without && seen.refused * 20 < seen.discarded;
        let mut last = None;
        let done = wait(TRIES_MAX, || {
            last = Some(window(&router, || discarded(&counters), 5_000)).filter(|seen| !good(seen));
            last.is_none()
        });
        assert!(done, "{last:?}; without weir {without}/s");
    });
    let mut received = 0;
    let mut lost = || {
        received += drain(&local);
        let out = statistic(&router.network, OUT, "tx_packets") - out;
        sent[0].saturating_sub(received) + sent[1].saturating_sub(out)
    };
    let most = router.network.ring_drops("far") - ring;
    assert!(wait(PATIENCE, || lost() <= most), "{} lost of {sent:?}; the ring {most}", lost());
    router.network.assert_left_untouched_by(daemon);
}

#[test]
fn what_would_overflow_a_token_bucket_is_discarded_early() {
    an_egress_stays_full(TBF, &[]);
}

/// One queue stands before all of a device's transmit queues.
#[test]
fn so_is_what_would_leave_by_another_transmit_queue() {
    let by_the_second = "ethtool -L near2 tx 2
        unshare --mount sh -e -c 'mount -t sysfs sysfs /sys; cd /sys/class/net/near2/queues
            echo 0 > tx-0/xps_cpus; printf %x $(((1 << $(nproc --all)) - 1)) > tx-1/xps_cpus'";
    an_egress_stays_full(&format!("{by_the_second}\n{TBF}"), &[]);
}

/// Which queue a packet is for does not depend on its port.
#[test]
fn a_flood_to_ever_new_ports_is_discarded_early_too() {
    an_egress_stays_full_of(TBF, &[], |flood| FlowSpec {
        port: (4096, 0),
        destination_port_bits: 16,
        ..flood
    });
}

/// What takes the place of a queue in the kernel's memory may count in another unit.
#[test]
fn a_queue_that_is_replaced_is_not_read_as_the_old_one() {
    const ROUNDS: usize = 30;
    let router = router(TBF);
    let (daemon, counters) = router.start(&["--awake"]);
    let flood = flow(&router, BEHIND, PORT, FLOOD_PPS);
    // Far from the limit in packets, and beyond the same number of bytes.
    let light = flow(&router, BEHIND, PORT, 20_000.0);
    // On one CPU, so that memory that is free is used again.
    let replace = |router: &Router, handles, queue| {
        let each = format!("tc qdisc replace dev near2 parent 1:1 handle $i: {queue}");
        let on = format!("taskset -cp {} $$ > /dev/null", router.cpus.cpu);
        sh(&router.network, &format!("{on}; for i in $(seq {handles}); do {each}; done"));
    };
    for round in 0..ROUNDS {
        replace(&router, "10 20", "bfifo limit 6k");
        let refused = egress(&router).1;
        router.while_sent(std::slice::from_ref(&flood), || {
            wait_until("it refuses", || egress(&router).1 > refused);
        });
        replace(&router, "21 21", "pfifo limit 2000");
        let before = discarded(&counters);
        router.while_sent(std::slice::from_ref(&light), || {
            replace(&router, "22 80", "pfifo limit 2000");
        });
        assert_eq!(discarded(&counters), before, "in round {round}");
    }
    assert!(discarded(&counters) > 0);
    daemon.interrupt();
}

/// The interface is followed by its number.
#[test]
fn a_protected_interface_that_is_renamed_still_forwards() {
    let router = router(TBF);
    let (daemon, counters) = router.start(&[]);
    let flood = flow(&router, BEHIND, PORT, FLOOD_PPS);
    router.while_sent(&[flood], || {
        wait_until("the gate discards", || discarded(&counters) > 1_000);
        // Before Linux 6.2 only one that is down can be renamed.
        sh(
            &router.network,
            "ip link set near down; ip link set near name renamed; ip link set renamed up",
        );
        // Three seconds: what was learned is believed for one, and interfaces are looked at every second.
        window(&router, || 0, 30_000);
        let seen = window(&router, || discarded(&counters), 3_000);
        assert!(seen.refused < seen.discarded, "{seen:?}");
    });
    daemon.interrupt();
}

/// Whether the daemon hears what queues refuse.
fn hears(daemon: &Daemon) -> bool {
    let fds = std::fs::read_dir(format!("/proc/{}/fdinfo", daemon.pid().as_raw_nonzero())).unwrap();
    let texts = fds.filter_map(|fd| std::fs::read_to_string(fd.unwrap().path()).ok());
    texts.filter(|text| text.contains("tp_name:\tkfree_skb")).count() > 0
}

/// Another interface that has its name is not protected.
#[test]
fn an_interface_that_is_made_anew_forwards_nothing_for_the_one_that_is_gone() {
    let router = router(TBF);
    let daemon = Daemon::start_sleepy(&router.network, &[OUT]);
    wait_until("it hears", || hears(&daemon));
    sh(
        &router.network,
        "echo 0 > /proc/sys/net/ipv4/conf/near/forwarding
         ip link del out; ip link add out type veth peer name peer
         echo 1 > /proc/sys/net/ipv4/conf/out/forwarding",
    );
    wait_until("it hears no more", || !hears(&daemon));
}

/// A firewall's drops would cost each packet the same comparison.
#[test]
fn what_the_host_drops_is_looked_at_only_while_there_is_a_queue_to_read() {
    let router = router("tc qdisc add dev near2 root pfifo_fast");
    let daemon = Daemon::start_sleepy(&router.network, &[]);
    // Two looks.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!hears(&daemon));
    sh(&router.network, &TBF.replace("add", "replace"));
    wait_until("it hears", || hears(&daemon));
    // While everything passes there is nothing to hear for.
    sh(
        &router.network,
        "tc qdisc add dev near clsact
         tc filter add dev near ingress protocol ip u32 match ip dport 9 0xffff \
            action mirred egress redirect dev near2",
    );
    wait_until("it hears no more", || !hears(&daemon));
    sh(&router.network, "tc qdisc del dev near clsact");
    wait_until("it hears", || hears(&daemon));
    sh(&router.network, "tc qdisc del dev near2 root");
    wait_until("it hears no more", || !hears(&daemon));
}

/// Rules behind the gate that copy packets, or hold senders to what they have sent, see those that the queue refuses.
#[test]
fn what_a_rule_copies_or_counts_by_sender_is_left_to_the_queue() {
    const PACKETS: u64 = 20_000;
    let table = |at: &str, rule: &str| {
        let script = format!(
            "table ip t {{ set s {{ type ipv4_addr; flags dynamic; timeout 1m; }}; \
             chain c {{ type filter hook {at} priority 0; {rule}; }}; }}"
        );
        [format!("nft '{script}'"), "nft delete table ip t".into()]
    };
    let legacy =
        |rule: &str| ["-A", "-D"].map(|what| format!("iptables-legacy -t mangle {what} {rule}"));
    let rules = [
        table("forward", &format!("ip daddr {BEHIND} dup to {BEHIND_OUT}")),
        table("postrouting", "ip protocol tcp add @s { ip saddr limit rate over 9/second } drop"),
        legacy("FORWARD -m recent --name x --set"),
    ];
    let router = router(SLOW);
    let (daemon, counters) = router.start(&["--awake"]);
    let flood = flow(&router, BEHIND, PORT, OVERFULL_PPS);
    let refused_more = |packets| {
        let refused = egress(&router).1;
        wait_until("the queue refuses", || egress(&router).1 > refused + packets);
    };
    router.while_sent(&[flood], || {
        for [add, remove] in &rules {
            let before = discarded(&counters);
            wait_until("the gate discards", || discarded(&counters) > before);
            sh(&router.network, add);
            wait_until(add, || !hears(&daemon));
            // What was learned before is believed for one second.
            refused_more(PACKETS);
            let before = discarded(&counters);
            refused_more(PACKETS / 5);
            assert_eq!(discarded(&counters), before, "{add}");
            sh(&router.network, remove);
        }
        // A limit of all senders together is reached later, no more.
        sh(&router.network, &table("forward", "limit rate over 9/second counter")[0]);
        let before = discarded(&counters);
        wait_until("the gate discards", || discarded(&counters) > before + PACKETS / 5);
    });
    daemon.interrupt();
}

/// What a rule of the operator's sends another way than the full queue arrives there.
fn passes_another_way(rule: &str, of: impl FnOnce(FlowSpec) -> FlowSpec) {
    let router = router(SLOW);
    sh(&router.network, rule);
    let other = of(flow(&router, BEHIND, PORT, LIGHT_PPS));
    passes_beside(&router, other, flow(&router, BEHIND, PORT, OVERFULL_PPS));
}

/// What leaves by [`OUT`] arrives there while the other queue is full.
fn passes_beside(router: &Router, other: FlowSpec, flood: FlowSpec) {
    let (daemon, counters) = router.start(&[]);
    let refused = || egress(router).1 + discarded(&counters);
    let out = || statistic(&router.network, OUT, "tx_packets");
    let (before, refused_before, ring) = (out(), refused(), router.network.ring_drops("far"));
    let sent = router.while_sent(&[other, flood], || {
        wait_until("the queue is full", || refused() > refused_before + 5_000);
    });
    let lost = || sent[0].saturating_sub(out() - before);
    let most = router.network.ring_drops("far") - ring;
    assert!(wait(PATIENCE, || lost() <= most), "{} lost of {sent:?}; the ring {most}", lost());
    daemon.interrupt();
}

const ELSEWHERE: u16 = 5001;

#[test]
fn what_goes_another_way_by_its_port_passes() {
    let rule = format!(
        "ip rule add fwmark 7 table 7; ip route add {BEHIND} via {BEHIND_OUT} table 7
         iptables -t mangle -A PREROUTING -p udp --dport {ELSEWHERE} -j MARK --set-mark 7"
    );
    passes_another_way(&rule, |flow| FlowSpec { port: (flow.port.0, ELSEWHERE), ..flow });
}

/// To the same port.
#[test]
fn what_goes_another_way_by_its_sender_passes() {
    const SENDER: &str = "198.18.0.77";
    let rule = format!(
        "ip rule add from {SENDER} table 7; ip route add {BEHIND} via {BEHIND_OUT} table 7"
    );
    passes_another_way(&rule, |flow| FlowSpec {
        address: (SENDER.parse().unwrap(), flow.address.1),
        ..flow
    });
}

/// The same UDP packets, behind this IP header.
fn behind(flow: &FlowSpec, header: IpHeaders) -> FlowSpec {
    let (mac, port) = (flow.mac, flow.port);
    let builder = PacketBuilder::ethernet2(mac.0.0, mac.1.0).ip(header).udp(port.0, port.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).unwrap();
    FlowSpec { rate: flow.rate, ..FlowSpec::raw(frame) }
}

/// To the same port, from the same sender.
#[test]
fn what_goes_another_way_by_its_type_of_service_passes() {
    const TOS: u8 = 0x10;
    let rule = format!("ip route add {BEHIND} tos {TOS:#x} via {BEHIND_OUT}");
    passes_another_way(&rule, |flow| {
        let (IpAddr::V4(from), IpAddr::V4(to)) = flow.address else { unreachable!() };
        let header = Ipv4Header {
            dscp: IpDscp::try_new(TOS >> 2).unwrap(),
            time_to_live: 64,
            source: from.octets(),
            destination: to.octets(),
            ..Default::default()
        };
        behind(&flow, IpHeaders::Ipv4(header, Default::default()))
    });
}

/// Senders label their flows, and the label chooses among several routes.
#[test]
fn what_goes_another_way_by_its_flow_label_passes() {
    const SENT: u64 = 8;
    let router = router(SLOW);
    let [far2, far3] = [FAR2, "far3"].map(|name| mac(&router.network.far, name));
    sh(
        &router.network,
        &format!(
            "cd /proc/sys/net/ipv6/conf
             for it in near near2 out; do echo 0 >$it/disable_ipv6; echo 1 >$it/forwarding; done
             echo 1 >all/forwarding
             ip addr add 2001:2:0:1::1/64 dev near2 nodad; ip addr add 2001:2:0:2::1/64 dev out nodad
             ip neigh replace 2001:2:0:1::2 lladdr {far2} dev near2
             ip neigh replace 2001:2:0:2::2 lladdr {far3} dev out
             ip route add 2001:2:0:5::/64 nexthop via 2001:2:0:1::2 nexthop via 2001:2:0:2::2"
        ),
    );
    let labelled = |host: u16, label: u32, pps| {
        let address = |network, host| Ipv6Addr::new(0x2001, 2, 0, network, 0, 0, 0, host).octets();
        let header = Ipv6Header {
            flow_label: Ipv6FlowLabel::try_new(label).unwrap(),
            hop_limit: 64,
            source: address(0, 2),
            destination: address(5, host),
            ..Default::default()
        };
        let header = IpHeaders::Ipv6(header, Default::default());
        behind(&flow(&router, BEHIND, PORT, pps), header)
    };
    let open = || PacketSocket::sender(Links::open().unwrap().index("far").unwrap()).unwrap();
    let sender = router.network.far.run(open).unwrap();
    let leaves_by_out = |host, label| {
        let sent = || [NEAR2, OUT].map(|it| statistic(&router.network, it, "tx_packets"));
        let before = sent();
        for _ in 0..SENT {
            sender.send(&labelled(host, label, LIGHT_PPS).frame).unwrap();
        }
        wait_until("they are forwarded", || {
            sent().iter().sum::<u64>() >= before.iter().sum::<u64>() + SENT
        });
        sent()[1] >= before[1] + SENT
    };
    // Without a label it is the full queue's.
    let host = (2..).find(|host| !leaves_by_out(*host, 0)).unwrap();
    let label = (1..).find(|label| leaves_by_out(host, *label)).unwrap();
    passes_beside(&router, labelled(host, label, LIGHT_PPS), labelled(host, 0, OVERFULL_PPS));
}

/// A program or a filter at the egress sees packets before the queue does.
#[test]
fn what_a_filter_at_the_egress_sends_another_way_passes() {
    let rule = format!(
        "tc qdisc add dev near2 clsact
         tc filter add dev near2 egress protocol ip u32 match ip dport {ELSEWHERE} 0xffff \
            action mirred egress redirect dev {OUT}"
    );
    passes_another_way(&rule, |flow| FlowSpec { port: (flow.port.0, ELSEWHERE), ..flow });
}

/// It is emptied while a poll lasts, so that what had room when the poll began says little.
#[test]
fn a_short_queue_in_front_of_a_faster_device_takes_most_of_what_it_took() {
    const PACKETS: u64 = 20_000;
    let router = router("tc qdisc add dev near2 root tbf rate 200mbit burst 20k limit 10k");
    // More than the bucket and the queue hold, each of which is to hold some.
    let flow = FlowSpec {
        lengths: Lengths::One(586),
        burst: 256,
        ..flow(&router, BEHIND, PORT, 32_000.0)
    };
    let share = || {
        let before = egress(&router);
        let sent = router.while_sent(std::slice::from_ref(&flow), || {
            assert!(wait(TRIES_MAX, || egress(&router).0 > before.0 + PACKETS));
        });
        (egress(&router).0 - before.0) as f64 / sent[0] as f64
    };
    // Of the same moment: how much fits depends on how fast the machine is.
    let mut last = (0.0, 0.0);
    let most = wait(TRIES_MAX, || {
        let without = share();
        let (daemon, _counters) = router.start(&["--awake"]);
        last = (share(), without);
        daemon.interrupt();
        last.0 > 0.75 * without
    });
    assert!(most, "{} of the packets; without weir {}", last.0, last.1);
}

/// `ip_forward()` looks at both before the queue: traceroute and the discovery of path MTUs work whatever is full.
#[test]
fn senders_are_told_of_packets_that_go_too_far_or_are_too_long_while_the_egress_is_full() {
    const TIME_EXCEEDED: u8 = 11;
    const UNREACHABLE: u8 = 3;
    const MTU: usize = 1000;
    /// Beyond [`BEHIND`], so that it is nobody's in the sender's namespace.
    const BEYOND: &str = "198.19.5.1";
    let router = router(TBF);
    sh(
        &router.network,
        &format!("echo 0 >/proc/sys/net/ipv4/icmp_ratemask; ip link set near2 mtu {MTU}"),
    );
    let (daemon, counters) = router.start(&["--awake"]);
    let (probe, answers) = router
        .network
        .far
        .run(|| {
            let probe = UdpSocket::bind((FAR_IP, 0)).unwrap();
            // Else a socket believes what the router has said of a path.
            sockopt::set_ip_mtu_discover(&probe, sockopt::Ipv4PathMtuDiscovery::PROBE).unwrap();
            let answers =
                socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
            sockopt::set_socket_timeout(&answers, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
            (probe, answers)
        })
        .unwrap();
    sh(&router.network, &format!("ip route add {BEYOND} via {BEHIND}"));
    run_in(&router.network.far, &format!("ip route add {BEYOND} via {NEAR_IP}"));
    let flood = flow(&router, BEYOND, PORT, FLOOD_PPS);
    router.while_sent(&[flood], || {
        wait_until("the gate discards", || discarded(&counters) > 1000);
        for (ttl, len, kind) in [(1, 14, TIME_EXCEEDED), (9, MTU, UNREACHABLE)] {
            probe.set_ttl(ttl).unwrap();
            let mut told = 0;
            while told < 100 {
                let ring = router.network.ring_drops("far");
                probe.send_to(&vec![0x5a; len], (BEYOND, PORT)).unwrap();
                let mut answer = [0; 128];
                let read = recv(&answers, &mut answer, RecvFlags::empty());
                let lost = router.network.ring_drops("far") > ring;
                assert!(read.is_ok() || lost, "type {kind}: after {told}");
                told += u32::from(read.is_ok() && answer[20] == kind);
            }
        }
        assert!(discarded(&counters) > 1000);
    });
    daemon.interrupt();
}

/// As RSVP's are: `ip_forward()` gives them to whoever listens, before it looks at any queue.
#[test]
fn packets_that_alert_routers_reach_who_listens_while_the_egress_is_full() {
    const LISTENS: &str = "import socket\n\
        s=socket.socket(2,3,17)\n\
        s.setsockopt(0,5,1);s.setsockopt(1,33,1<<26);print('listens',flush=True)\n\
        s.recv(99);n=1;s.settimeout(2)\n\
        try:\n\
        \twhile s.recv(99):n+=1\n\
        except TimeoutError:print(n)\n";
    let router = router(SLOW);
    let mut python = Command::new("timeout");
    python.args(["60", "python3", "-c", LISTENS]).stdout(Stdio::piped());
    let mut python = router.network.near.run(|| python.spawn().unwrap()).unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("listens"));
    let alerting = flow(&router, BEHIND, PORT, LIGHT_PPS);
    let (IpAddr::V4(from), IpAddr::V4(to)) = alerting.address else { unreachable!() };
    let header = Ipv4Header {
        time_to_live: 64,
        source: from.octets(),
        destination: to.octets(),
        options: [148, 4, 0, 0].into(),
        ..Default::default()
    };
    let alerting = behind(&alerting, IpHeaders::Ipv4(header, Default::default()));
    let (daemon, counters) = router.start(&[]);
    let ring = router.network.ring_drops("far");
    let flood = flow(&router, BEHIND, PORT, OVERFULL_PPS);
    let sent = router.while_sent(&[alerting, flood], || {
        wait_until("the gate discards", || discarded(&counters) > 10_000);
    });
    let heard: u64 = lines.next().unwrap().parse().unwrap();
    let lost = router.network.ring_drops("far") - ring;
    assert!(heard + lost >= sent[0], "{heard} of {sent:?}; the ring {lost}");
    python.wait().unwrap();
    daemon.interrupt();
}

#[test]
fn what_would_overflow_a_queue_of_packets_is_discarded_early() {
    an_egress_stays_full(&format!("{TBF}\ntc qdisc add dev near2 parent 1:1 pfifo limit 100"), &[]);
}

#[test]
fn at_tc_it_is_discarded_early_too() {
    an_egress_stays_full(TBF, &["--attach", "tc"]);
}

/// A queue of bytes that refuses long packets has room for short ones: they get through as often as without weir.
#[test]
fn what_is_shorter_still_fits() {
    let router = router(TBF);
    let far = |script: &str| run_in(&router.network.far, script);
    far("iptables -A INPUT -p udp -m length --length 0:100");
    let count = || -> u64 {
        let table = far("iptables -L INPUT -v -x -n");
        table.lines().last().unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    let long = FlowSpec { lengths: Lengths::One(1000), ..flow(&router, BEHIND, PORT, 20_000.0) };
    let flows = [flow(&router, BEHIND, PORT, LIGHT_PPS), long];
    let share = |body: &dyn Fn()| {
        let before = count();
        let sent = router.while_sent(&flows, body)[0];
        (count() - before) as f64 / sent as f64
    };
    let without = share(&|| {
        wait_until("it sends", || egress(&router).0 > 3_000);
    });
    let (daemon, counters) = router.start(&[]);
    let mut with = 0.0;
    // The thread that polls may not get its CPU meanwhile, and the ring lose them.
    let as_many = wait(TRIES_MAX, || {
        let before = discarded(&counters);
        with = share(&|| {
            wait_until("it discards", || discarded(&counters) > before + 20_000);
        });
        with > without - 0.1
    });
    assert!(as_many, "{with} of the short packets arrive, without weir {without}");
    daemon.interrupt();
}

/// A bucket refuses what is longer than itself, though its queue has room.
#[test]
fn a_refusal_by_a_queue_with_room_discards_nothing() {
    let router = router(TBF);
    let (daemon, counters) = router.start(&["--awake"]);
    let too_long =
        FlowSpec { lengths: Lengths::One(1450), ..flow(&router, BEHIND, PORT, LIGHT_PPS) };
    sh(
        &router.network,
        "tc qdisc change dev near2 root handle 1: tbf rate 5mbit burst 1k limit 6k",
    );
    let (ring, before) = (router.network.ring_drops("far"), egress(&router));
    let sent = router.while_sent(&[flow(&router, BEHIND, PORT, LIGHT_PPS), too_long], || {
        wait_until("it refuses", || egress(&router).1 > before.1 + 500);
    });
    assert_eq!(discarded(&counters), 0);
    let arrived = || egress(&router).0 - before.0 + router.network.ring_drops("far") - ring;
    assert!(wait(PATIENCE, || arrived() >= sent[0]), "{} of {sent:?}", arrived());
    daemon.interrupt();
}

/// Classes have queues of their own: one that is full says nothing of the others.
#[test]
fn what_a_discipline_with_classes_refuses_discards_nothing() {
    let router = router(
        "tc qdisc add dev near2 root handle 1: htb default 1
         tc class add dev near2 parent 1: classid 1:1 htb rate 100mbit
         tc class add dev near2 parent 1: classid 1:2 htb rate 2mbit ceil 2mbit
         tc qdisc add dev near2 parent 1:2 pfifo limit 10
         tc filter add dev near2 parent 1: protocol ip u32 match ip sport 4096 0xffff flowid 1:2",
    );
    let (daemon, counters) = router.start(&[]);
    let good = router.flow(BEHIND, (4097, PORT), LIGHT_PPS);
    let before = egress(&router);
    router.while_sent(&[good, flow(&router, BEHIND, PORT, 20_000.0)], || {
        wait_until("it has refused many", || egress(&router).1 > before.1 + 20_000);
    });
    assert_eq!(discarded(&counters), 0);
    daemon.interrupt();
}

//! A host with containers: its own services are protected, and nothing that NAT sends elsewhere is lost.

use std::net::{TcpListener, TcpStream, UdpSocket};

use crate::common::run_in as sh;
use crate::common::*;
use etherparse::PacketBuilder;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::test_run::XdpProgram;

/// The host's own, and what it publishes of the container's. Somebody on the host has the same port, as Docker's
/// userland proxy does, and reads nothing.
const SERVICE: &str = "198.18.0.1:5000";
const PUBLISHED: &str = "198.18.0.1:8080";
const INSIDE: &str = "198.18.5.2:80";
/// As Docker writes them with iptables.
const RULES: &str = "table ip nat {
    chain PREROUTING { type nat hook prerouting priority dstnat; fib daddr type local counter jump DOCKER; }
    chain OUTPUT { type nat hook output priority -100;
        ip daddr != 127.0.0.0/8 fib daddr type local counter jump DOCKER; }
    chain POSTROUTING { type nat hook postrouting priority srcnat;
        oifname != \"docker0\" ip saddr 198.18.5.0/24 counter masquerade; }
    chain DOCKER { iifname \"docker0\" counter return;
        iifname != \"docker0\" tcp dport 8080 counter dnat to 198.18.5.2:80;
        iifname != \"docker0\" udp dport 8080 counter dnat to 198.18.5.2:80; }
}";

/// Behind a bridge of the host's.
struct Container {
    netns: NetNs,
}

impl Container {
    fn start(network: &Network) -> Self {
        let container = Self { netns: NetNs::create().unwrap() };
        let connect = "ip link add docker0 type bridge
             ip link add vethc type veth peer name eth0 netns $CONTAINER
             ip link set vethc master docker0
             ip link set vethc up
             ip link set docker0 up
             ip addr add 198.18.5.1/24 dev docker0
             echo 1 >/proc/sys/net/ipv4/ip_forward";
        sh(&network.near, &connect.replace("$CONTAINER", container.netns.path().to_str().unwrap()));
        sh(
            &container.netns,
            "ip link set eth0 up; ip addr add 198.18.5.2/24 dev eth0; ip route add default via 198.18.5.1",
        );
        container
    }

    fn socket(&self, address: &str) -> UdpSocket {
        let socket = self.netns.run(|| UdpSocket::bind(address).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

fn nft(ns: &NetNs, rules: &str) {
    sh(ns, &format!("nft '{rules}'"));
}

/// Few enough for the veth's ring.
fn burst(sender: &UdpSocket, address: &str) {
    for _ in 0..32 {
        let _ = sender.send_to(&[0x5a; 14], address);
    }
}

/// A packet of this number, and that it arrives.
fn arrives(number: u32, from: &UdpSocket, to: &str, at: &UdpSocket) -> std::net::SocketAddr {
    from.send_to(&number.to_be_bytes(), to).unwrap();
    let mut got = [0; 64];
    let (len, source) = at.recv_from(&mut got).unwrap_or_else(|error| {
        panic!("packet {number} to {to} does not arrive: {error}");
    });
    assert_eq!(got[..len], number.to_be_bytes());
    source
}

/// Waits until the kernel has nothing of the flood in hand: the packets of one poll are judged one by one.
fn is_discarding(network: &Network, sender: &UdpSocket, address: &str) {
    let before = network.count("udp-full");
    wait_until("the gate discards", || {
        burst(sender, address);
        network.count("udp-full") > before
    });
    network.wait_for_calm();
}

/// In the driver and at tc.
fn at_each_place(test: impl Fn(&Network, &Container, &[&str])) {
    for options in [&["--attach", "native"], &["--attach", "tc"]] {
        let network = Network::ipv4_only();
        let container = Container::start(&network);
        test(&network, &container, options);
    }
}

#[test]
fn what_docker_publishes_and_masquerades_arrives_and_the_hosts_own_is_protected() {
    at_each_place(|network, container, options| {
        nft(&network.near, RULES);
        let _full = network.near_socket(SERVICE);
        let _proxy = network.near_socket(PUBLISHED);
        let inside = container.socket(INSIDE);
        let flood = network.far_socket("198.18.0.2:0");
        let daemon = Daemon::start(network, options);
        let status = network.says(&["status"]);
        let line = "(tcp 8080, udp 8080: table ip nat, chain DOCKER): packets to these ports pass";
        assert!(status.contains(line), "{status}");
        assert!(status.contains("connections may be translated (NAT) (table ip nat)"), "{status}");
        is_discarding(network, &flood, SERVICE);

        // The client in the container has the port of the socket that is full, and masquerading leaves it to it.
        let server = network.far_socket("198.18.0.2:7000");
        let client = container.socket("198.18.5.2:5000");
        let seen_as = arrives(0, &client, "198.18.0.2:7000", &server);
        assert_eq!(seen_as.to_string(), SERVICE);
        // A visitor of the published port, who is known to conntrack after the first packet.
        let visitor = network.far_socket("198.18.0.2:0");
        for number in 1..500 {
            burst(&flood, SERVICE);
            arrives(number, &server, SERVICE, &client);
            // Nobody's connection yet, and the port of a socket that is full.
            let new = network.far_socket("198.18.0.2:0");
            let back = arrives(number, &new, PUBLISHED, &inside);
            arrives(number, &inside, &back.to_string(), &new);
            arrives(number, &visitor, PUBLISHED, &inside);
        }
        wait_until("the flood is counted", || network.count("udp-full") > 10_000);
        wait_until("what passes is counted", || network.count("translated") >= 400);
        assert_eq!(network.count("diverted"), 0);

        // TCP through the published port, beside a listener of the host's whose queue is full.
        let listener = container.netns.run(|| TcpListener::bind(INSIDE).unwrap()).unwrap();
        let connect = || TcpStream::connect_timeout(&PUBLISHED.parse().unwrap(), PATIENCE).unwrap();
        for _ in 0..20 {
            let stream = network.far.run(connect).unwrap();
            listener.accept().unwrap();
            drop(stream);
        }
        network.assert_left_untouched_by(daemon);
    });
}

/// A container that is started publishes a port that the host's socket has, and another that ends.
#[test]
fn a_port_is_let_pass_while_it_is_published() {
    at_each_place(|network, container, options| {
        nft(&network.near, RULES);
        let _full = network.near_socket(SERVICE);
        let inside = container.socket(INSIDE);
        let flood = network.far_socket("198.18.0.2:0");
        let daemon = Daemon::start(network, options);
        is_discarding(network, &flood, SERVICE);
        nft(
            &network.near,
            "insert rule ip nat DOCKER iifname != \"docker0\" udp dport 5000 dnat to 198.18.5.2:80",
        );
        daemon.said("tcp 8080, udp 5000, udp 8080: table ip nat, chain DOCKER");
        for number in 0..100 {
            let new = network.far_socket("198.18.0.2:0");
            arrives(number, &new, SERVICE, &inside);
        }
        nft(&network.near, "delete table ip nat");
        daemon.said("no longer: connections may be translated");
        // What was translated is so no more, and is the host's again.
        is_discarding(network, &flood, SERVICE);
        daemon.interrupt();
    });
}

/// Docker's proxy holds the published port of any address and gets nothing: `weir channels` does not name it.
#[test]
fn nobody_is_named_for_what_rules_translate() {
    let network = Network::ipv4_only();
    let container = Container::start(&network);
    nft(&network.near, RULES);
    let _own = network.near_socket(SERVICE);
    let _proxy = network.near_socket("0.0.0.0:8080");
    let _tcp_proxy = network.near.run(|| TcpListener::bind("0.0.0.0:8080").unwrap()).unwrap();
    let inside = container.socket(INSIDE);
    let listener = container.netns.run(|| TcpListener::bind(INSIDE).unwrap()).unwrap();
    let visitor = network.far_socket("198.18.0.2:0");
    let _daemon = Daemon::start(&network, &[]);
    arrives(1, &visitor, PUBLISHED, &inside);
    let connect = || TcpStream::connect_timeout(&PUBLISHED.parse().unwrap(), PATIENCE).unwrap();
    let _client = network.far.run(connect).unwrap();
    listener.accept().unwrap();
    visitor.send_to(&[0], SERVICE).unwrap();

    let json = |name: &str| {
        let report = network.json(&["channels", NEAR, "--json", "--interval", "50ms"]);
        let channels = report["interfaces"][0]["channels"].as_array().unwrap();
        channels.iter().find(|each| each["name"] == name).cloned().unwrap_or_default()
    };
    wait_until("the host's own is listed", || !json("udp 198.18.0.1:5000").is_null());
    let own = json("udp 198.18.0.1:5000");
    assert_eq!((&own["translated"], &own["sockets"]["count"]), (&false.into(), &1.into()));
    assert_eq!(own["owner"]["processes"][0]["pid"], std::process::id());
    for name in ["udp 198.18.0.1:8080", "tcp 198.18.0.1:8080"] {
        let published = json(name);
        assert_eq!(published["translated"], true, "{name}: {published}");
        assert!(published["owner"].is_null() && published["sockets"].is_null(), "{published}");
    }
    let table = network.says(&["channels", "--interval", "50ms"]);
    let mut lines = table.lines().skip_while(|line| !line.contains("udp 198.18.0.1:8080"));
    let columns: Vec<&str> = lines.next().unwrap().split_whitespace().skip(2).collect();
    assert_eq!(columns[4..7], ["-"; 3], "{table}");
    let line = "    rules translate what comes to this port (NAT): it may go elsewhere";
    assert!(lines.next().unwrap().starts_with(line), "{table}");
}

/// Chains without rules go on translating the connections that they know.
#[test]
fn a_connection_stays_its_clients_after_the_rule_has_gone() {
    at_each_place(|network, container, options| {
        nft(&network.near, RULES);
        // Without a rule that wants it, the kernel stops tracking connections.
        let wants =
            "chain f { type filter hook forward priority filter; ct state established accept; }\n";
        nft(&network.near, &format!("table ip filter {{ {wants} }}"));
        let _full = network.near_socket(SERVICE);
        let flood = network.far_socket("198.18.0.2:0");
        let server = network.far_socket("198.18.0.2:7000");
        let client = container.socket("198.18.5.2:5000");
        arrives(0, &client, "198.18.0.2:7000", &server);
        nft(&network.near, "flush table ip nat");
        let _daemon = Daemon::start(network, options);
        is_discarding(network, &flood, SERVICE);
        for number in 1..100 {
            burst(&flood, SERVICE);
            arrives(number, &server, SERVICE, &client);
        }
        wait_until("they are counted", || network.count("translated") >= 90);
    });
}

/// Prints it. It costs something beside NAT, and nothing without: there nobody is asked.
#[test]
fn what_a_look_up_before_a_discard_costs() {
    const RUNS: usize = 41;
    const PACKETS: u32 = 2000;
    const XDP_DROP: u32 = 1;
    let network = Network::ipv4_only();
    let _full = network.near_socket(SERVICE);
    let flood = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    is_discarding(&network, &flood, SERVICE);
    let (far, near) = network.macs();
    let measure = |source: u16| {
        let mut packet = Vec::new();
        PacketBuilder::ethernet2(far.0, near.0)
            .ipv4([198, 18, 0, 2], [198, 18, 0, 1], 64)
            .udp(source, 5000)
            .write(&mut packet, &[0x5a; 14])
            .unwrap();
        let mut means = Vec::new();
        wait_until("enough runs discard", || {
            // What a packet is charged is learned from those that are refused.
            burst(&flood, SERVICE);
            let run = || {
                let id = Links::open().unwrap().xdp(network.ifindex).unwrap().unwrap().prog_id;
                let program = XdpProgram::by_id(id).unwrap();
                program.timed(&packet, network.ifindex, PACKETS).unwrap()
            };
            let run = network.near.run(run).unwrap();
            if run.returned == XDP_DROP {
                means.push(run.mean.0);
            }
            means.len() == RUNS
        });
        means.sort_unstable();
        (means[RUNS / 2], means[RUNS / 10], means[RUNS - 1 - RUNS / 10])
    };
    let known = flood.local_addr().unwrap().port();
    println!("ns per discard: median, and the range of 80 % of the runs");
    // Of the fastest tenth of each round, which others disturb least.
    let mut fastest: [Vec<u64>; 3] = Default::default();
    for round in 0..3 {
        let without = measure(known);
        println!("{round}: no NAT {without:?}");
        fastest[0].push(without.1);
        nft(&network.near, RULES);
        daemon.said("(NAT)");
        wait_until("it is told", || !network.interface_status()["diversions"][0].is_null());
        for _ in 0..64 {
            burst(&flood, SERVICE);
        }
        let sources = [("a connection that is known", known), ("one that is not", 9)];
        for ((of, source), fastest) in sources.into_iter().zip(&mut fastest[1..]) {
            let with = measure(source);
            println!("{round}: {of} {with:?}");
            fastest.push(with.1);
        }
        nft(&network.near, "delete table ip nat");
        wait_until("it is told", || network.interface_status()["diversions"][0].is_null());
    }
    let [without, known, unknown] = fastest.map(|each| each.into_iter().min().unwrap());
    for with in [known, unknown] {
        assert!(with > without * 3 / 2 && with < without * 10, "{with} ns, not {without}");
    }
    daemon.interrupt();
}

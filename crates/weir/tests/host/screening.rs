//! `weir screen` between real clients and servers: a router with a network on each side.

mod ends;
mod reload;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::path::{Path, SERVER, SERVER6, arrives, arrives_in_the_end};
use crate::common::router::tag_what_leaves;
use crate::common::screen::{Screen, screened};
use crate::common::{
    ConfigFile, Owned, PATIENCE, WEIR, failure, fields, mac, run_in as sh, wait_until,
};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, bind, connect as connect_to, ipproto, sendto,
};
use rustix::process::Signal;
use serde_json::Value;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::traffic::{FlowSpec, Generator, Sources};
use weir_bpf::units::{MacAddr, PacketsPerSec};

const RULES: &str = "\
    # what the test needs\n\
    accept udp to 198.19.0.0/24,2001:2:0:1::/64 port 5000,5002\n\
    accept tcp to 198.19.0.2 port 8000 flags syn\n\
    reject tcp to any port 25 log\n";

fn socket(netns: &NetNs, address: &str) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The client's socket, the server's at this port, and where that is.
fn ends(path: &Path, port: u16) -> (UdpSocket, UdpSocket, String) {
    let there = format!("{SERVER}:{port}");
    (socket(&path.client, "198.18.0.2:4000"), socket(&path.server, &there), there)
}

fn clear(path: &Path) {
    let output = path.weir(&["screen", "--clear", "in", "--clear", "out"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("in: the wall is gone"));
}

/// Sends one datagram, and has it back.
fn echoes(client: &UdpSocket, server: &UdpSocket, to: &str) {
    client.send_to(b"there", to).unwrap();
    let mut buffer = [0; 16];
    let (len, from) = server.recv_from(&mut buffer).unwrap();
    server.send_to(&buffer[..len], from).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 5);
}

fn connect(path: &Path, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    path.client.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap()
}

fn of_rule(stats: &Value, rule: &str, what: &str) -> u64 {
    let rules = stats["rules"].as_array().unwrap();
    let found = rules.iter().find(|it| it["rule"].as_str().unwrap().contains(rule)).unwrap();
    found[what].as_u64().unwrap()
}

fn the_rules_hold(place: &str) {
    let (path, rules, mut screen) = screened(RULES, &["--attach", place]);
    let (client, server, there) = ends(&path, 5000);
    assert!(!arrives(&server, &client, "198.18.0.2:4000"), "in answer to nothing");
    // Neither the first packet is lost nor the reply.
    for _ in 0..3 {
        echoes(&client, &server, &there);
    }
    let stats = screen.stats();
    for (what, expected) in [("asked", 1), ("released", 1), ("lost", 0), ("packets", 6)] {
        assert_eq!(of_rule(&stats, "port 5000", what), expected, "{what}: {stats}");
    }
    let client6 = socket(&path.client, "[2001:2::2]:4000");
    let server6 = socket(&path.server, &format!("[{SERVER6}]:5000"));
    echoes(&client6, &server6, &format!("[{SERVER6}]:5000"));
    let other = socket(&path.server, &format!("{SERVER}:5001"));
    assert!(!arrives(&client, &other, &format!("{SERVER}:5001")), "by no rule");

    let own = socket(&path.router, "198.18.0.1:5001");
    assert!(arrives(&client, &own, "198.18.0.1:5001"), "the router itself");
    let listener = path.server.run(|| TcpListener::bind(format!("{SERVER}:8000")).unwrap());
    let listener = listener.unwrap();
    let mut stream = connect(&path, &format!("{SERVER}:8000")).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let sender = std::thread::spawn(move || stream.write_all(&vec![7; 1 << 20]).unwrap());
    let mut received = Vec::new();
    accepted.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert_eq!(received.len(), 1 << 20);
    let refused = connect(&path, &format!("{SERVER}:25")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    let stats = screen.stats();
    assert_eq!(of_rule(&stats, "port 25", "rejections"), 1, "{stats}");
    assert!(stats["outcomes"]["own"].as_u64().unwrap() > 0, "{stats}");

    // A file with a mistake, or without a rule, changes nothing; another one holds for flows that were accepted, too.
    for wrong in ["accept udp to any port none\n", "# nothing\n"] {
        rules.write(wrong);
        screen.signal(Signal::HUP);
        screen.stats();
        echoes(&client, &server, &there);
    }
    // Nor does a pipe that nobody writes into: it is not waited for.
    std::fs::remove_file(rules.path()).unwrap();
    assert!(Command::new("mkfifo").arg(rules.path()).status().unwrap().success());
    screen.signal(Signal::HUP);
    screen.stats();
    echoes(&client, &server, &there);
    std::fs::remove_file(rules.path()).unwrap();
    rules.write("accept icmp\n");
    screen.signal(Signal::HUP);
    screen.event("reloaded");
    assert!(!arrives(&client, &server, &there), "the rule is gone");
    rules.write(RULES);
    screen.signal(Signal::HUP);
    screen.event("reloaded");
    echoes(&client, &server, &there);

    // Dead: what was accepted goes on, what is new does not.
    screen.kill();
    echoes(&client, &server, &there);
    let third = socket(&path.server, &format!("{SERVER}:5002"));
    assert!(!arrives(&client, &third, &format!("{SERVER}:5002")), "fails closed");
    // Another screen takes over; and then nobody.
    let mut next = Screen::start(&path, &rules, &["--attach", place]);
    echoes(&client, &third, &format!("{SERVER}:5002"));
    next.kill();
    clear(&path);
    echoes(&client, &other, &format!("{SERVER}:5001"));
}

#[test]
fn the_rules_hold_at_tc() {
    the_rules_hold("tc");
}

#[test]
fn the_rules_hold_in_the_driver() {
    the_rules_hold("native");
}

/// Each packet is of a flow of its own, and of no rule.
const FLOOD_PPS: f64 = 100_000.0;

fn generator(netns: &NetNs) -> Generator {
    let load = || Generator::load(Links::open().unwrap().index("peer").unwrap()).unwrap();
    netns.run(load).unwrap()
}

/// Does something while packets are sent from one side.
fn while_sent<T>(
    netns: &NetNs,
    generator: &mut Generator,
    flow: FlowSpec,
    body: impl FnOnce(&Generator) -> T,
) -> T {
    generator.set_flows(&[flow]).unwrap();
    let generator = &*generator;
    let body = || {
        generator.start();
        body(generator)
    };
    generator.run_while(netns, None, body).unwrap()
}

/// UDP packets from this address on the client's side, and those beside it, from any port.
fn flood(path: &Path, source: &str, address_bits: u8, pps: f64) -> FlowSpec {
    let macs = (mac(&path.client, "peer"), mac(&path.router, "in"));
    FlowSpec {
        rate: Some(PacketsPerSec(pps)),
        sources: Sources::Random { address_bits, port_bits: 15 },
        ..FlowSpec::udp(macs, (source.parse().unwrap(), SERVER.parse().unwrap()), (1 << 15, 5999))
    }
}

/// Each flow of the flood is accepted, and its first packet answered: only one that goes on after a reply is established.
#[test]
fn a_flood_of_forged_flows_that_are_accepted_evicts_none_that_is_established() {
    const FLOWS: u64 = 1024;
    for place in ["tc", "native"] {
        let path = Path::new();
        // Else it takes no frame of the generator's at tc.
        path.router.run(|| ethtool::set_gro("in", true).unwrap()).unwrap();
        let rules = ConfigFile::new(&format!("screening-forged-{place}"), "accept udp\n");
        let options = ["--attach", place, "--flows", &FLOWS.to_string()];
        let mut screen = Screen::start(&path, &rules, &options);
        let (client, server, there) = ends(&path, 5000);
        for _ in 0..2 {
            echoes(&client, &server, &there);
        }
        let answers = socket(&path.server, "198.19.0.2:5999");
        let flood = flood(&path, "198.18.0.64", 6, 20_000.0);
        while_sent(&path.client, &mut generator(&path.client), flood, |_| {
            let begun = of_rule(&screen.stats(), "udp", "released");
            let mut buffer = [0; 64];
            wait_until("more are accepted and answered than are remembered", || {
                for _ in 0..FLOWS {
                    let (len, from) = answers.recv_from(&mut buffer).unwrap();
                    let _ = answers.send_to(&buffer[..len], from);
                }
                let stats = screen.stats();
                of_rule(&stats, "udp", "released") > begun + 4 * FLOWS
                    && stats["outcomes"]["reply"].as_u64().unwrap() > 2 * FLOWS
            });
        });
        // Nobody accepts them again.
        screen.kill();
        echoes(&client, &server, &there);
        let new = socket(&path.client, "198.18.0.2:4001");
        assert!(!arrives(&new, &server, &there), "{place}");
    }
}

/// What comes in at one side has its own room, and its own share of what is judged at once.
#[test]
fn a_flood_from_one_side_leaves_room_and_time_for_the_other() {
    for (place, flooded) in [("tc", "out"), ("native", "in")] {
        let path = Path::new();
        // Else they take no frame of the generator's at tc.
        for interface in ["in", "out"] {
            path.router.run(|| ethtool::set_gro(interface, true).unwrap()).unwrap();
        }
        let rules =
            ConfigFile::new(&format!("screening-sides-{place}"), "accept udp to any port 5000\n");
        let mut screen = Screen::start(&path, &rules, &["--attach", place, "--log"]);
        let ends = [(&path.client, "198.18.0.2", "in"), (&path.server, SERVER, "out")];
        let [inside, outside] = ends;
        let (flooding, flooded) =
            if flooded == "in" { (inside, outside) } else { (outside, inside) };
        let client = socket(flooded.0, &format!("{}:4000", flooded.1));
        let server = socket(flooding.0, &format!("{}:5000", flooding.1));
        let macs = (mac(flooding.0, "peer"), mac(&path.router, flooding.2));
        let source = flooding.1.replace(".2", ".64");
        let addresses = (source.parse().unwrap(), flooded.1.parse().unwrap());
        let flood = FlowSpec {
            rate: Some(PacketsPerSec(FLOOD_PPS)),
            sources: Sources::Random { address_bits: 6, port_bits: 15 },
            ..FlowSpec::udp(macs, addresses, (1 << 15, 5999))
        };
        screen.signal(Signal::STOP);
        while_sent(flooding.0, &mut generator(flooding.0), flood, |sent| {
            let full = || sent.counts(0).sent > 40_000;
            wait_until("far more came than there is room for", full);
            client.send_to(b"there", format!("{}:5000", flooding.1)).unwrap();
        });
        screen.signal(Signal::CONT);
        assert_eq!(server.recv(&mut [0; 16]).unwrap(), 5, "at {place}");
        let before =
            (0..).take_while(|_| screen.event("decision")["interface"] != flooded.2).count();
        assert!(before <= 256, "{before} were judged before it");
        assert!(screen.stats()["outcomes"]["no-room"].as_u64().unwrap() > 1000);
    }
}

/// Only what is for the router's own addresses passes unasked: that a packet's route is not found at the wall does not
/// say that it has none.
fn what_the_rules_drop_crosses_by_no_route(place: &str) {
    const BY_TOS: &str = "198.19.5.2:5000";
    const BY_MARK: &str = "198.19.6.2:5000";
    const LATER: &str = "198.19.7.1:5000";
    let path = Path::new();
    sh(&path.server, "ip addr add 198.19.5.2/32 dev peer; ip addr add 198.19.6.2/32 dev peer");
    sh(
        &path.router,
        &format!(
            "ip route add 198.19.5.2 tos 0x10 via {SERVER}
             ip rule add fwmark 1 table 100; ip route add 198.19.6.2 via {SERVER} table 100
             iptables -t mangle -A PREROUTING -d 198.19.6.2 -j MARK --set-mark 1"
        ),
    );
    let client = socket(&path.client, "198.18.0.2:4000");
    rustix::net::sockopt::set_ip_tos(&client, 0x10).unwrap();
    let server = socket(&path.server, "0.0.0.0:5000");
    let crosses = |to: &str| (0..3).any(|_| arrives(&client, &server, to));
    assert!(crosses(BY_TOS) && crosses(BY_MARK));
    let rules = ConfigFile::new("screening-routes", "drop\n");
    let _screen = Screen::start(&path, &rules, &["--attach", place]);
    assert!(!crosses(BY_TOS) && !crosses(BY_MARK));
    let own = socket(&path.router, "0.0.0.0:5000");
    assert!(!arrives(&client, &own, LATER));
    sh(&path.router, "ip addr add 198.19.7.1/32 dev out");
    wait_until("it is the router's own", || arrives(&client, &own, LATER));
}

#[test]
fn at_tc_what_the_rules_drop_crosses_by_no_route() {
    what_the_rules_drop_crosses_by_no_route("tc");
}

#[test]
fn in_the_driver_what_the_rules_drop_crosses_by_no_route() {
    what_the_rules_drop_crosses_by_no_route("native");
}

/// Lets both sides have what they sent: a datagram in fragments each.
#[test]
fn a_fragment_answers_nothing() {
    let (path, _rules, _screen) = screened("accept udp from 198.18.0.0/24\n", &["--attach", "tc"]);
    let (client, server, there) = ends(&path, 5000);
    echoes(&client, &server, &there);
    let mut buffer = [0; 4000];
    client.send_to(&[1; 3000], &there).unwrap();
    assert_eq!(server.recv(&mut buffer).unwrap(), 3000);
    server.send_to(&[1; 3000], "198.18.0.2:4000").unwrap();
    // Nothing that is sent after it arrives before it.
    server.send_to(b"whole", "198.18.0.2:4000").unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 5);
}

/// A write of several datagrams comes to tc as one packet, which is not to become one datagram.
#[test]
fn datagrams_of_one_write_stay_apart() {
    let (path, _rules, mut screen) = screened("accept udp\n", &["--attach", "tc"]);
    let (client, server, there) = ends(&path, 5000);
    setsockopt(&client, sockopt::UdpGsoSegment, &400).unwrap();
    client.send_to(&[1; 1200], &there).unwrap();
    wait_until("it has been judged", || of_rule(&screen.stats(), "accept udp", "asked") == 1);
    client.send_to(&[2; 1200], &there).unwrap();
    let mut buffer = [0; 2000];
    for _ in 0..3 {
        assert_eq!(server.recv(&mut buffer).unwrap(), 400);
        assert_eq!(buffer[0], 2, "the first write is to be sent again");
    }
}

/// A packet's VLAN tag is beside it on a veth, in the driver too: put back without it, it would be of no VLAN.
#[test]
fn a_packet_does_not_lose_its_vlan() {
    for place in ["tc", "native"] {
        let (path, _rules, mut screen) = screened("accept udp\n", &["--attach", place]);
        let neighbour = "ip neigh add 198.18.0.1 lladdr 02:00:00:00:01:01 dev peer";
        sh(&path.client, neighbour);
        tag_what_leaves(&path.client, "peer");
        let (client, server, there) = ends(&path, 5000);
        assert!(!arrives(&client, &server, &there), "there is no VLAN");
        wait_until("it has been judged", || of_rule(&screen.stats(), "accept udp", "asked") == 1);
        let stats = screen.stats();
        assert_eq!(stats["outcomes"]["not-held"], 1, "{stats}");
    }
}

#[test]
fn times_have_bounds_that_are_told() {
    let check = ["screen", "/dev/null", "--check"];
    let capture = ["capture", "-i", "nosuch0", "--count"];
    for (command, option) in [
        (&check[..], ["--idle", "300y"]),
        (&check, ["--idle", "0s"]),
        (&check, ["--stats", "400000000000y"]),
        (&check, ["--stats", "0s"]),
        (&capture, ["--duration", "400000000000y"]),
    ] {
        let output = Command::new(WEIR).args(command).args(option).output().unwrap();
        let said = failure(&output, 2);
        assert!(said.contains("from 1s to 1year"), "{option:?}: {said}");
    }
}

/// Sends an echo request, and has its reply.
fn ping(netns: &NetNs, to: &str, number: u8) {
    let to = SocketAddr::new(to.parse().unwrap(), 0);
    let (family, protocol, [request, reply], header_len) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, [8, 0], 20),
        SocketAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, [128, 129], 0),
    };
    let open = || rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
    let raw = netns.run(open).unwrap();
    set_socket_timeout(&raw, Timeout::Recv, Some(PATIENCE)).unwrap();
    let sum = (!(u16::from(request) << 8)).wrapping_sub(number.into()).to_be_bytes();
    sendto(&raw, &[request, 0, sum[0], sum[1], 0, 0, 0, number], SendFlags::empty(), &to).unwrap();
    let mut buffer = [0; 256];
    loop {
        let len = rustix::net::recv(&raw, &mut buffer[..], RecvFlags::empty()).unwrap().0;
        let message = &buffer[header_len..len];
        if message[0] == reply && message[7] == number {
            return;
        }
    }
}

/// Each side begins a flow of the same addresses: the type alone tells them apart.
#[test]
fn echo_requests_from_both_sides_are_two_flows() {
    let (path, _rules, mut screen) = screened("accept icmp type 8\naccept icmp6 type 128\n", &[]);
    let ping_all = || {
        for number in 0..4 {
            for (client, server) in [("198.18.0.2", SERVER), ("2001:2::2", SERVER6)] {
                ping(&path.client, server, number);
                ping(&path.server, client, number);
            }
        }
    };
    ping_all();
    let stats = screen.stats();
    for rule in ["type 8", "type 128"] {
        assert_eq!(of_rule(&stats, rule, "asked"), 2, "{stats}");
        assert_eq!(of_rule(&stats, rule, "packets"), 16, "{stats}");
    }
    assert_eq!(stats["outcomes"]["reply"], 16, "{stats}");
    screen.kill();
    ping_all();
}

/// A batch puts back up to 256 packets, whose flows the kernel half is to know still.
#[test]
fn no_fewer_flows_are_remembered_than_are_judged_at_once() {
    let check = |flows| {
        let mut command = Command::new(WEIR);
        command.args(["screen", "/dev/null", "--check", "--flows", flows]).output().unwrap()
    };
    let said = failure(&check("1023"), 2);
    assert!(said.contains("1024..=16777216"), "{said}");
    // The file has no rule.
    assert_eq!(check("1024").status.code(), Some(1));
}

/// What the router sends to a group comes in again at its own interface, from the IP header on: this one's source would be
/// an ethertype of IPv4.
#[test]
fn what_the_router_sends_to_a_group_comes_back_to_it() {
    const OWN: &str = "8.0.0.1";
    const GROUP: &str = "224.0.1.1";
    let path = Path::new();
    sh(
        &path.router,
        &format!("ip addr add {OWN}/24 dev in; ip route add {GROUP} dev in src {OWN}"),
    );
    let sender = socket(&path.router, &format!("{OWN}:4000"));
    let receiver = socket(&path.router, "0.0.0.0:5000");
    receiver.join_multicast_v4(&GROUP.parse().unwrap(), &OWN.parse().unwrap()).unwrap();
    assert!(arrives(&sender, &receiver, &format!("{GROUP}:5000")));
    let rules = ConfigFile::new("screening-looped", "drop\n");
    let mut screen = Screen::start(&path, &rules, &["--attach", "tc"]);
    assert!(arrives(&sender, &receiver, &format!("{GROUP}:5000")));
    let stats = screen.stats();
    assert_eq!(stats["outcomes"]["unclear"], 0, "{stats}");
    assert!(stats["outcomes"]["own"].as_u64().unwrap() > 0, "{stats}");
}

/// A segment that no rule accepts, of a connection that is to come, denies that nothing.
#[test]
fn a_denied_segment_denies_no_handshake() {
    for place in ["tc", "native"] {
        let (path, _rules, mut screen) = screened(RULES, &["--attach", place]);
        let listener = path.server.run(|| TcpListener::bind(format!("{SERVER}:8000")).unwrap());
        let (from, to) = (SocketAddrV4::new([198, 18, 0, 2].into(), 4100), (SERVER, 8000));
        let to = SocketAddrV4::new(to.0.parse().unwrap(), to.1);
        let open = |kind, protocol| {
            let open = || rustix::net::socket(AddressFamily::INET, kind, protocol).unwrap();
            path.client.run(open).unwrap()
        };
        let mut ack = [0; 20];
        ack[..2].copy_from_slice(&from.port().to_be_bytes());
        ack[2..4].copy_from_slice(&to.port().to_be_bytes());
        (ack[12], ack[13]) = (0x50, 0x10);
        let raw = open(SocketType::RAW, Some(ipproto::TCP));
        sendto(&raw, &ack, SendFlags::empty(), &to).unwrap();
        wait_until("it is denied", || of_rule(&screen.stats(), "default", "asked") == 1);
        sendto(&raw, &ack, SendFlags::empty(), &to).unwrap();
        wait_until("it stays denied", || screen.stats()["outcomes"]["denied"] == 1);
        let client = open(SocketType::STREAM, None);
        set_socket_timeout(&client, Timeout::Send, Some(PATIENCE)).unwrap();
        bind(&client, &from).unwrap();
        connect_to(&client, &to).expect("the handshake passes");
        TcpStream::from(client).write_all(b"there").unwrap();
        let mut received = [0; 5];
        listener.as_ref().unwrap().accept().unwrap().0.read_exact(&mut received).unwrap();
        let stats = screen.stats();
        assert_eq!(of_rule(&stats, "port 8000", "asked"), 1, "once for all flags: {stats}");
    }
}

/// Sends packets to a host behind the router in frames to this address, until they have been counted.
fn in_frames_to(path: &Path, sender: &mut Generator, to: MacAddr, counted: impl FnMut() -> bool) {
    let flow = seldom((mac(&path.client, "peer"), to));
    while_sent(&path.client, sender, flow, |_| wait_until("they are counted", counted));
}

/// Packets of one flow from the client's address to the server's.
fn seldom(macs: (MacAddr, MacAddr)) -> FlowSpec {
    let addresses = ("198.18.0.2".parse().unwrap(), SERVER.parse().unwrap());
    let rate = Some(PacketsPerSec(100.0));
    FlowSpec { rate, ..FlowSpec::udp(macs, addresses, (4000, 5000)) }
}

/// Frames to another host pass: the kernel drops them. A frame to all is judged, but its sender is told nothing.
#[test]
fn only_what_the_router_is_to_forward_is_judged_and_answered() {
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 1, 9]);
    for place in ["tc", "native"] {
        let path = Path::new();
        // Else it takes no frame of the generator's at tc.
        path.router.run(|| ethtool::set_gro("in", true).unwrap()).unwrap();
        let rules = ConfigFile::new(&format!("screening-other-{place}"), "reject udp\n");
        let mut screen = Screen::start(&path, &rules, &["--attach", place]);
        let mut sender = generator(&path.client);
        let elsewhere = |stats: &Value| stats["outcomes"]["elsewhere"].as_u64().unwrap();
        in_frames_to(&path, &mut sender, OTHER, || elsewhere(&screen.stats()) > 2);
        let stats = screen.stats();
        assert_eq!(of_rule(&stats, "reject", "asked"), 0, "{stats}");

        // An interface on top has an address of its own.
        sh(&path.router, &format!("ip link add on link in address {OTHER} type macvlan"));
        in_frames_to(&path, &mut sender, OTHER, || {
            of_rule(&screen.stats(), "reject", "packets") > 0
        });
        sh(&path.router, "ip link del on");

        screen.signal(Signal::HUP);
        screen.event("reloaded");
        in_frames_to(&path, &mut sender, MacAddr([0xff; 6]), || {
            of_rule(&screen.stats(), "reject", "packets") > 0
        });
        let stats = screen.stats();
        assert_eq!(of_rule(&stats, "reject", "rejections"), 0, "{stats}");

        // Nor does a wall that is not told of a new address let what is sent to it pass.
        screen.kill();
        sh(&path.router, &format!("ip link set in address {OTHER}"));
        let server = socket(&path.server, &format!("{SERVER}:5000"));
        server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        in_frames_to(&path, &mut sender, OTHER, || server.recv(&mut [0; 16]).is_err());
    }
}

/// Nor does one that is not told that an address is another host's now; what is still the router's passes.
#[test]
fn an_address_that_has_left_the_router_is_no_longer_its_own() {
    let rules = "accept udp to any port 5000\n";
    for place in ["tc", "native"] {
        let path = Path::new();
        let rules = ConfigFile::new(&format!("screening-own-{place}"), rules);
        // Without duplicate address detection.
        sh(&path.server, "sysctl -qw net.ipv6.conf.peer.accept_dad=0");
        let addresses = ["198.19.0.77/32", "2001:2:0:1::77/128"];
        for address in addresses {
            sh(&path.router, &format!("ip addr add {address} dev lo"));
        }
        let mut screen = Screen::start(&path, &rules, &["--attach", place]);
        let to = ["198.19.0.77:5001", "[2001:2:0:1::77]:5001"];
        let from = ["198.18.0.2:4000", "[2001:2::2]:4000"];
        let clients = from.map(|it| socket(&path.client, it));
        for (client, to) in clients.iter().zip(to) {
            assert!(arrives_in_the_end(client, &socket(&path.router, to), to));
        }
        screen.kill();
        for address in addresses {
            sh(&path.router, &format!("ip addr del {address} dev lo"));
            sh(&path.server, &format!("ip addr add {address} dev peer"));
        }
        // An IPv6 address is tentative until a worker has had RTNL, detection or not.
        let tentative =
            "until [ -z \"$(ip -6 addr show dev peer tentative)\" ]; do sleep 0.01; done";
        sh(&path.server, &format!("timeout 15 sh -c '{tentative}'"));
        let servers = to.map(|it| socket(&path.server, it));
        for ((client, server), to) in clients.iter().zip(&servers).zip(to) {
            wait_until("its new host gets nothing", || !arrives(client, server, to));
        }
        let own = ["198.18.0.1:5001", "[2001:2::1]:5001"];
        for (client, to) in clients.iter().zip(own) {
            assert!(arrives_in_the_end(client, &socket(&path.router, to), to));
        }
    }
}

/// A packet from outside with an inside source is no reason to let in what would answer it.
#[test]
fn a_reply_comes_in_at_the_other_side() {
    let (path, _rules, mut screen) =
        screened("accept udp from 198.18.0.0/24\n", &["--attach", "native"]);
    let (client, server, _) = ends(&path, 5000);
    let forged = seldom((mac(&path.server, "peer"), mac(&path.router, "out")));
    while_sent(&path.server, &mut generator(&path.server), forged, |_| {
        wait_until("it is accepted", || of_rule(&screen.stats(), "udp", "asked") > 0);
        assert!(!arrives(&server, &client, "198.18.0.2:4000"), "in answer to a forged one");
    });
    // What was forged may have come here.
    let again = socket(&path.server, &format!("{SERVER}:5002"));
    echoes(&client, &again, &format!("{SERVER}:5002"));
}

/// A source may be forged: it is told once a second, whatever comes in its name.
#[test]
fn a_screen_that_rejects_is_no_reflector() {
    let path = Path::new();
    // Else it takes no frame of the generator's at tc.
    path.router.run(|| ethtool::set_gro("in", true).unwrap()).unwrap();
    let rules = ConfigFile::new("screening-reflector", "reject udp\n");
    let mut screen = Screen::start(&path, &rules, &[]);
    let flood = flood(&path, "198.18.0.2", 0, 5_000.0);
    let begun = Instant::now();
    while_sent(&path.client, &mut generator(&path.client), flood, |_| {
        wait_until("they are judged", || of_rule(&screen.stats(), "reject", "asked") > 5_000);
    });
    let stats = screen.stats();
    let told = of_rule(&stats, "reject", "rejections");
    assert!((1..=begun.elapsed().as_secs() + 1).contains(&told), "{stats}");
}

#[test]
fn a_gate_protects_beside_a_wall_at_tc() {
    let (path, _rules, _screen) = screened(RULES, &["--attach", "tc"]);
    let mut command = Command::new(WEIR);
    command.args(["run", "in", "--quiet", "--config", "/dev/null", "--attach", "tc"]);
    let gate = path.router.run(|| Owned::start(&mut command)).unwrap();
    // The wall takes nothing that is for the router itself.
    wait_until("it protects", || path.weir(&["status", "--check"]).stdout == b"protected: in\n");
    let (client, server, there) = ends(&path, 5000);
    echoes(&client, &server, &there);
    gate.signal(Signal::INT);
}

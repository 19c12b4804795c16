//! Interfaces whose packets have no Ethernet header: a tun device, fed by the test as a tunnel's program feeds it.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use crate::captures;
use crate::common::*;
use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcap::PcapHeader;
use serde_json::Value;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::tun::Tun;

const TUN: &str = "tun0";
/// Of the host under test and of its peer at the other end of the tunnel.
const FAMILIES: [Family; 2] = [
    Family { ethertype: 0x0800, host: "198.19.0.1", peer: "198.19.0.2" },
    Family { ethertype: 0x86dd, host: "2001:2:0:1::1", peer: "2001:2:0:1::2" },
];
const FULL: u16 = 5000;
const READ: u16 = 5001;
const FLOOD: u64 = 20_000;

/// Addresses of one family.
struct Family {
    ethertype: u16,
    host: &'static str,
    peer: &'static str,
}

impl Family {
    /// A datagram from the peer, from its IP header on.
    fn udp(&self, port: u16, payload: &[u8]) -> Vec<u8> {
        let builder = match (self.peer.parse().unwrap(), self.host.parse().unwrap()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), 64)
            }
            _ => unreachable!(),
        };
        let mut packet = Vec::new();
        builder.udp(4096, port).write(&mut packet, payload).unwrap();
        packet
    }

    fn channel(&self) -> String {
        let address: IpAddr = self.host.parse().unwrap();
        format!("udp {}", std::net::SocketAddr::new(address, FULL))
    }
}

/// A host with a tunnel.
struct Host {
    network: Network,
    tun: Tun,
}

impl Host {
    fn new() -> Self {
        let network = Network::ipv4_only();
        let create = || {
            let tun = Tun::create(TUN).unwrap();
            let links = Links::open().unwrap();
            let ifindex = links.index(TUN).unwrap();
            links.set_up(ifindex).unwrap();
            for family in &FAMILIES {
                let address: IpAddr = family.host.parse().unwrap();
                let prefix_len = if address.is_ipv4() { 24 } else { 64 };
                links.add_address(ifindex, address, prefix_len).unwrap();
            }
            tun
        };
        let tun = network.near.run(create).unwrap();
        Self { network, tun }
    }

    /// The tunnel, and beside it the usual interface.
    fn protect(&self, options: &[&str]) -> Daemon {
        Daemon::start(&self.network, &[&[TUN, "--attach", "auto"], options].concat())
    }

    fn socket(&self, family: &Family, port: u16) -> UdpSocket {
        let address: IpAddr = family.host.parse().unwrap();
        let bind = || UdpSocket::bind((address, port)).unwrap();
        let socket = self.network.near.run(bind).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn send(&self, family: &Family, port: u16, count: u64) {
        let packet = family.udp(port, &[0x5a; 14]);
        for _ in 0..count {
            self.tun.receive(family.ethertype, &packet).unwrap();
        }
    }

    /// Does something while a socket is flooded.
    fn while_flooding<T>(&self, family: &Family, body: impl FnOnce() -> T) -> T {
        let flood = || {
            self.send(family, FULL, 100);
            std::thread::sleep(Duration::from_millis(1));
        };
        while_doing(flood, body)
    }

    fn count(&self, reason: &str) -> u64 {
        self.network.count_on(TUN, reason)
    }

    fn status(&self) -> Value {
        self.network.status_of(TUN)
    }
}

/// A packet is where it was going when the device has taken it, so everything can be counted to the packet.
#[test]
fn a_flood_by_a_tunnel_is_discarded_and_its_neighbour_loses_nothing() {
    for family in &FAMILIES {
        let host = Host::new();
        let (full, read) = (host.socket(family, FULL), host.socket(family, READ));
        let daemon = host.protect(&[]);
        let status = host.status();
        assert_eq!(status["attach"], "tcx", "{status}");
        assert!(status["attach_reason"].as_str().unwrap().contains("Ethernet header"), "{status}");
        assert_eq!(status["softirq_limit"], Value::Null, "{status}");
        assert!(
            status["not_threaded"].as_str().unwrap().contains("the program that writes them"),
            "{status}"
        );
        // The first packets that do not fit say so.
        let mut sent = 0;
        wait_until("the gate discards", || {
            host.send(family, FULL, 100);
            sent += 100;
            host.count("udp-full") > 0
        });
        let counted = || host.count("udp-full") + host.count("udp-room");
        wait_until("all is counted", || counted() == sent);
        let discarded = host.count("udp-full");
        let late = host.network.late_drops();
        let mut received = 0;
        for _ in 0..FLOOD / 32 {
            host.send(family, FULL, 32);
            host.send(family, READ, 1);
            received += drain(&read);
        }
        assert_eq!(received, FLOOD / 32, "the neighbour's");
        wait_until("all is counted", || counted() == sent + FLOOD + FLOOD / 32);
        let discarded = host.count("udp-full") - discarded;
        let late = host.network.late_drops() - late;
        println!("{}: {discarded} of {FLOOD} discarded, {late} dropped late", family.host);
        assert!(late < FLOOD / 100, "{late} dropped late");
        assert!(discarded > FLOOD * 9 / 10, "{discarded}");
        assert_eq!(host.count("other-mac") + host.count("malformed"), 0);

        // Below the limit nothing is lost.
        let first = drain(&full);
        assert!(first > 100, "{first}");
        std::thread::sleep(Duration::from_millis(20));
        let mut received = 0;
        for _ in 0..1000 {
            host.send(family, FULL, 20);
            received += drain(&full);
        }
        assert_eq!(received, 20_000, "the socket's own, when it is read");
        host.network.assert_left_untouched_by(daemon);
    }
}

#[test]
fn a_gate_that_sleeps_wakes_for_a_tunnel() {
    let host = Host::new();
    let family = &FAMILIES[0];
    let _full = host.socket(family, FULL);
    // On both interfaces nothing is to be limited in softirqs.
    host.network.poll_by_napi();
    let daemon = Daemon::start_sleepy(&host.network, &[TUN, "--attach", "auto"]);
    let asleep = || host.count("asleep");
    let before = asleep();
    // A socket that refuses packets in any namespace, as other tests' do, keeps it awake.
    let sleeps = wait(TRIES_MAX, || {
        host.send(family, READ, 100);
        asleep() >= before + 100
    });
    assert!(sleeps, "{}", host.network.status());
    wait_until("it wakes, and discards", || {
        host.send(family, FULL, 100);
        host.count("udp-full") > 0
    });
    host.network.assert_left_untouched_by(daemon);
}

/// The kernel goes by the protocol that stands beside a packet, not by its first byte.
#[test]
fn what_is_not_ip_by_name_passes() {
    let host = Host::new();
    let family = &FAMILIES[0];
    let _full = host.socket(family, FULL);
    let daemon = host.protect(&[]);
    wait_until("the gate discards", || {
        host.send(family, FULL, 100);
        host.count("udp-full") > 0
    });
    let packet = family.udp(FULL, &[0x5a; 14]);
    // An experimental one (IEEE 802), IPv6, and IP that is neither.
    for (ethertype, packet) in
        [(0x88b5, &packet[..]), (0x86dd, &packet[..]), (0x0800, &[0x5a; 40][..])]
    {
        let before = host.count("other-ethertype");
        for _ in 0..10 {
            host.tun.receive(ethertype, packet).unwrap();
        }
        wait_until("they pass", || host.count("other-ethertype") == before + 10);
    }
    daemon.interrupt();
}

#[test]
fn its_packets_are_explained_and_their_senders_named() {
    for family in &FAMILIES {
        let host = Host::new();
        let _full = host.socket(family, FULL);
        let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
        let packet = captures::whole(family.udp(FULL, &[0x5a; 14]));
        let file = ConfigFile::new("packets", &captures::pcap(header, &[packet]));
        host.while_flooding(family, || {
            // Without a gate, when the kernel refuses packets.
            wait_until("a packet for the full socket is explained", || {
                host.network
                    .says(&["explain", "--interface", TUN, file.path()])
                    .contains("udp-full")
            });
            let daemon = host.protect(&[]);
            wait_until("the gate discards", || host.count("udp-full") > 0);
            let sources = host.network.says(&["channels", "--sources", TUN]);
            let names = [&family.channel(), family.peer];
            assert!(names.iter().all(|name| sources.contains(*name)), "{sources}");
            daemon.interrupt();
        });
    }
}

#[test]
fn doctor_and_a_first_file_name_it() {
    let host = Host::new();
    let _full = host.socket(&FAMILIES[0], FULL);
    let dir = killed::temp_dir();
    let path = dir.path().join("weir.toml");
    let path = path.to_str().unwrap();
    host.while_flooding(&FAMILIES[0], || {
        let output = host.network.weir(&["doctor"]);
        let text = String::from_utf8(output.stdout).unwrap();
        // What it advises depends on how busy the CPU is.
        assert!(text.contains(&FAMILIES[0].channel()), "{text}");
        assert!(host.network.weir(&["config", "init", path]).status.success());
    });
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("[interface.tun0]\nprotect = true\n"), "{text}");
    let daemon = Daemon::start(&host.network, &["--attach", "auto", "--config", path, TUN]);
    assert_eq!(host.network.status()["interfaces"][0]["running"], true);
    daemon.interrupt();
}

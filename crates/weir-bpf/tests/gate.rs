//! The loaded gate, packet by packet (`BPF_PROG_TEST_RUN`): bytes in, verdict and counter out. The
//! sockets that it finds are real ones.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use common::{BEYOND_IP4, NEAR_IP4, NEAR_IP6, Network, local, wait_until};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use weir_bpf::accounts::{Accounts, until};
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Lengths};
use weir_bpf::units::{CpuId, MacAddr, Permille};
use weir_bpf::verdict::{Kind, Reason, Verdict};

const OPEN: u16 = 5000;
const CLOSED: u16 = 5999;
const SHARED: u16 = 5001;
const VXLAN: u16 = 4789;
const ETHERNET: usize = 14;
const ALL_HOSTS: [u8; 4] = [224, 0, 0, 1];
/// Of a kernel's clock, and more.
const TICK_MAX: Duration = Duration::from_millis(20);

struct Bench {
    network: Network,
    gate: Gate,
    _probe: QueueProbe,
}

impl Bench {
    fn new() -> Self {
        let network = Network::new();
        let (mut gate, probe) =
            network.gate(AttachMode::Native, &[NEAR_IP4, NEAR_IP6], &["198.18.0.255"]);
        network.near.run(|| gate.stand_for(network.near_ifindex)).unwrap().unwrap();
        Self { network, gate, _probe: probe }
    }

    /// What the gate says of one packet: the reason whose counter moved, and only it, by one packet
    /// of this length, and its verdict.
    fn judge(&self, packet: &[u8]) -> Reason {
        self.network.near.run(|| self.network.judge(&self.gate, packet)).unwrap()
    }

    /// Outlasts what the gate remembers of a packet's destination: `WEIR_REMEMBERED` packets at most.
    /// Without a NAPI poll in between, only packets make it look again.
    fn forget(&self, packet: &[u8]) {
        for _ in 0..64 {
            self.judge(packet);
        }
    }

    fn udp(&self, destination: &str, port: u16) -> Vec<u8> {
        self.network.datagram(destination, port, b"fourteen bytes")
    }

    /// Floods the open port until `seen`; the kernel keeps telling what it charges for a packet.
    fn while_flooded(&self, payload_len: u16, cpu: CpuId, mut seen: impl FnMut() -> bool) {
        let network = &self.network;
        let lengths = Lengths::One(payload_len);
        let flow = FlowSpec { lengths, ..network.flow(OPEN, Some(20_000.0)) };
        network.while_sent(&mut network.generator(), &[flow], Some(cpu), |_| {
            wait_until("a full queue is seen", &mut seen);
        });
    }
}

/// A copy of a packet with some bytes replaced.
fn with(packet: &[u8], changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    for (at, bytes) in changes {
        packet[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    packet
}

/// The packet with IPv4 options (a multiple of 4 bytes), and its lengths corrected.
fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut long = packet[..ETHERNET + 20].to_vec();
    long.extend(options);
    long.extend(&packet[ETHERNET + 20..]);
    let total_len = (long.len() - ETHERNET) as u16;
    let first = 0x45 + options.len() as u8 / 4;
    with(&long, &[(ETHERNET, &[first]), (ETHERNET + 2, &total_len.to_be_bytes())])
}

/// An IPv6 extension header of 8 bytes, or more: type, then everything after its length field.
fn with_extension(packet: &[u8], kind: u8, rest: &[u8]) -> Vec<u8> {
    let at = ETHERNET + 40;
    let mut long = packet[..at].to_vec();
    long.extend([packet[ETHERNET + 6], (rest.len() as u8 + 2) / 8 - 1]);
    long.extend(rest);
    long.extend(&packet[at..]);
    let payload_len = (long.len() - at) as u16;
    with(&long, &[(ETHERNET + 6, &[kind]), (ETHERNET + 4, &payload_len.to_be_bytes())])
}

fn tagged(packet: &[u8], tag: &[u8; 4]) -> Vec<u8> {
    [&packet[..12], tag, &packet[12..]].concat()
}

fn shared_socket(address: &str, port: u16) -> UdpSocket {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    let address = std::net::SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
    bind(&socket, &address).unwrap();
    socket.into()
}

#[test]
fn every_packet_has_one_reason() {
    let mut bench = Bench::new();
    let near = &bench.network.near;
    // A dual-stack socket on every address, as most servers have.
    let _open = bench.network.bind("::", OPEN);
    let _group = near.run(|| [(); 2].map(|()| shared_socket(NEAR_IP4, SHARED))).unwrap();
    let vxlan = near.run(|| {
        let arguments = "link add vx0 type vxlan id 1 dstport 4789 local 198.18.0.1 dev near";
        let added = Command::new("ip").args(arguments.split(' ')).status().unwrap().success();
        added && Command::new("ip").args(["link", "set", "vx0", "up"]).status().unwrap().success()
    });
    assert!(vxlan.unwrap(), "this kernel has no VXLAN, which the test of kernel receivers needs");

    let v4 = bench.udp(NEAR_IP4, OPEN);
    let v6 = bench.udp(NEAR_IP6, OPEN);
    let ip = ETHERNET;
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        ("IPv4 to a dual-stack socket", v4.clone(), Reason::UdpRoom),
        ("IPv6 to a socket", v6.clone(), Reason::UdpRoom),
        ("IPv4 with 40 bytes of options", with_options(&v4, &[1; 40]), Reason::UdpRoom),
        ("no socket", bench.udp(NEAR_IP4, CLOSED), Reason::UdpNoSocket),
        ("no socket, IPv6", bench.udp(NEAR_IP6, CLOSED), Reason::UdpNoSocket),
        ("SO_REUSEPORT", bench.udp(NEAR_IP4, SHARED), Reason::UdpRoom),
        ("VXLAN", bench.udp(NEAR_IP4, VXLAN), Reason::UdpEncap),
        ("another host's MAC", with(&v4, &[(0, &[2, 0, 0, 0, 0, 9])]), Reason::OtherMac),
        ("broadcast MAC", with(&v4, &[(0, &[0xff; 6])]), Reason::UdpRoom),
        (
            "broadcast MAC, another host's address",
            with(&bench.udp("198.18.0.77", OPEN), &[(0, &[0xff; 6])]),
            Reason::OtherMac,
        ),
        ("another host's address", bench.udp("198.18.0.77", OPEN), Reason::NoRoute),
        ("another host's IPv6 address", bench.udp("2001:2::77", OPEN), Reason::NoRoute),
        ("multicast", bench.udp("224.0.0.251", OPEN), Reason::MulticastRoom),
        ("first fragment", with(&v4, &[(ip + 6, &[0x20, 0])]), Reason::UdpRoom),
        ("its last fragment", with(&v4, &[(ip + 6, &[0, 0x10])]), Reason::Fragment),
        (
            "a fragment before the first",
            with(&v4, &[(ip + 4, &[7, 7, 0, 16])]),
            Reason::FragmentEarly,
        ),
        ("the first after it", with(&v4, &[(ip + 4, &[7, 7, 0x20, 0])]), Reason::Fragment),
        ("don't-fragment is none", with(&v4, &[(ip + 6, &[0x40, 0])]), Reason::UdpRoom),
        (
            "a byte like a source route's in an option",
            with_options(&v4, &[0x1e, 4, 131, 0]),
            Reason::UdpRoom,
        ),
        ("a source route", with_options(&v4, &[131, 3, 4, 0]), Reason::SourceRouted),
        (
            "an option longer than what is left",
            with_options(&v4, &[0x1e, 5, 0, 0]),
            Reason::Malformed,
        ),
        ("IPv6 hop-by-hop", with_extension(&v6, 0, &[0; 6]), Reason::UdpRoom),
        ("IPv6 destination options", with_extension(&v6, 60, &[0; 14]), Reason::UdpRoom),
        ("IPv6 routing header, done", with_extension(&v6, 43, &[0; 6]), Reason::UdpRoom),
        ("IPv6 routing header", with_extension(&v6, 43, &[0, 1, 0, 0, 0, 0]), Reason::SourceRouted),
        ("IPv6 atomic fragment", with_extension(&v6, 44, &[0; 6]), Reason::UdpRoom),
        ("IPv6 first fragment", with_extension(&v6, 44, &[0, 1, 0, 0, 0, 9]), Reason::UdpRoom),
        ("IPv6 last fragment", with_extension(&v6, 44, &[0, 8, 0, 0, 0, 9]), Reason::Fragment),
        ("TCP to no socket", with(&v4, &[(ip + 9, &[6]), (ip + 32, &[0x50])]), Reason::TcpNoSocket),
        ("ICMP", with(&v4, &[(ip + 9, &[1])]), Reason::Icmp),
        ("Fragmentation needed", with(&v4, &[(ip + 9, &[1]), (ip + 20, &[3])]), Reason::IcmpError),
        ("IGMP", with(&v4, &[(ip + 8, &[1, 2]), (ip + 16, &ALL_HOSTS)]), Reason::Group),
        ("IGMP by the last router", with(&v4, &[(ip + 8, &[1, 2])]), Reason::Icmp),
        ("IGMP from off the link", with(&v4, &[(ip + 9, &[2])]), Reason::Icmp),
        ("ESP", with(&v4, &[(ip + 9, &[50])]), Reason::OtherProtocol),
        ("ICMPv6 echo", with(&v6, &[(ip + 6, &[58]), (ip + 40, &[128])]), Reason::Icmp),
        ("Packet too big", with(&v6, &[(ip + 6, &[58]), (ip + 40, &[2])]), Reason::IcmpError),
        ("neighbour", with(&v6, &[(ip + 6, &[58, 255]), (ip + 40, &[135])]), Reason::Neighbour),
        (
            "neighbour from off the link",
            with(&v6, &[(ip + 6, &[58]), (ip + 40, &[135])]),
            Reason::Icmp,
        ),
        ("MLD", with(&v6, &[(ip + 6, &[58, 1, 0xfe, 0x80]), (ip + 40, &[143])]), Reason::Group),
        (
            "MLD by the last router",
            with(&v6, &[(ip + 6, &[58, 1]), (ip + 40, &[143])]),
            Reason::Icmp,
        ),
        (
            "MLD from off the link",
            with(&v6, &[(ip + 6, &[58, 2]), (ip + 40, &[143])]),
            Reason::Icmp,
        ),
        ("ARP", with(&v4, &[(12, &[0x08, 0x06])]), Reason::Neighbour),
        ("LLDP", with(&v4, &[(12, &[0x88, 0xcc])]), Reason::OtherEthertype),
        ("802.1Q", tagged(&v4, &[0x81, 0, 0, 5]), Reason::Vlan),
        ("802.1Q, a priority alone", tagged(&v4, &[0x81, 0, 0xe0, 0]), Reason::UdpRoom),
        (
            "802.1ad, VLAN 0, around VLAN 5",
            tagged(&tagged(&v4, &[0x81, 0, 0, 5]), &[0x88, 0xa8, 0, 0]),
            Reason::Vlan,
        ),
        ("802.1ad", tagged(&tagged(&v4, &[0x81, 0, 0, 5]), &[0x88, 0xa8, 0, 6]), Reason::Vlan),
        ("IPv4 header cut short", v4[..ip + 19].to_vec(), Reason::Malformed),
        ("header length below 5 words", with(&v4, &[(ip, &[0x44])]), Reason::Malformed),
        ("version 6 in an IPv4 frame", with(&v4, &[(ip, &[0x65])]), Reason::Malformed),
        ("options beyond the end", with(&v4, &[(ip, &[0x4f])]), Reason::Malformed),
        ("UDP header cut short", v4[..ip + 27].to_vec(), Reason::Malformed),
        ("IPv6 header cut short", v6[..ip + 39].to_vec(), Reason::Malformed),
        ("IPv6 UDP header cut short", v6[..ip + 47].to_vec(), Reason::Malformed),
        ("UDP length beyond the IP packet", with(&v4, &[(ip + 24, &[0, 60])]), Reason::Malformed),
        ("UDP length below its header", with(&v4, &[(ip + 24, &[0, 7])]), Reason::Malformed),
        ("IPv4 length beyond the frame", with(&v4, &[(ip + 2, &[1, 0])]), Reason::Malformed),
        ("IPv4 length below its header", with(&v4, &[(ip + 2, &[0, 19])]), Reason::Malformed),
        ("IPv6 length beyond the frame", with(&v6, &[(ip + 4, &[1, 0])]), Reason::Malformed),
        ("UDP in IPv6 of length 0", with(&v6, &[(ip + 44, &[0, 0])]), Reason::UdpRoom),
        ("UDP in IPv4 of length 0", with(&v4, &[(ip + 24, &[0, 0])]), Reason::Malformed),
        ("Ethernet header alone", v4[..ETHERNET].to_vec(), Reason::Malformed),
    ];
    for (name, packet, reason) in cases {
        assert_eq!(bench.judge(&packet), reason, "{name}");
    }
    bench.gate.set_vlans(true);
    let priority = tagged(&v4, &[0x81, 0, 0xe0, 0]);
    assert_eq!(bench.judge(&priority), Reason::Vlan, "a VLAN interface may be of VLAN 0");
}

#[test]
fn in_shadow_what_would_be_discarded_is_counted_and_passes() {
    let mut bench = Bench::new();
    bench.gate.configure(bench.network.near_mac, Policy::Shadow);
    bench.gate.limit_input(Some(Permille(0)));
    let packet = bench.udp(NEAR_IP4, OPEN);
    let judge = || bench.gate.test_run(&packet, bench.network.near_ifindex).unwrap();
    assert_eq!(bench.network.near.run(judge).unwrap(), Verdict::Pass);
    assert_eq!(bench.gate.counters().unwrap().get(Reason::CpuShare).packets, 1);
}

#[test]
fn policy_off_passes_and_counts() {
    let mut bench = Bench::new();
    bench.gate.configure(bench.network.near_mac, Policy::Off);
    assert_eq!(bench.judge(&bench.udp(NEAR_IP4, OPEN)), Reason::PolicyOff);
}

/// The first of a datagram's fragments or, further on, its last, with the datagram's number.
fn fragment(packet: &[u8], number: u16, first: bool) -> Vec<u8> {
    let place: [u8; 2] = if first { [0x20, 0] } else { [0, 16] };
    with(packet, &[(ETHERNET + 4, &number.to_be_bytes()), (ETHERNET + 6, &place)])
}

/// Whatever it is a datagram of.
#[test]
fn the_tail_of_a_datagram_shares_its_head_s_verdict() {
    let bench = Bench::new();
    let udp = bench.udp(NEAR_IP4, OPEN);
    let icmp = with(&udp, &[(ETHERNET + 9, &[1])]);
    let judge = |number, first| bench.judge(&fragment(&icmp, number, first));
    assert_eq!([judge(1, true), judge(1, false)], [Reason::Icmp, Reason::Fragment]);
    // One that comes last is held to its share all the same.
    assert_eq!([judge(2, false), judge(2, true)], [Reason::FragmentEarly, Reason::Icmp]);
    assert_eq!(judge(2, false), Reason::Fragment, "one in between");
    let short = with(&udp, &[(ETHERNET + 24, &[0, 7])]);
    let short = |first| bench.judge(&fragment(&short, 3, first));
    assert_eq!([short(true), short(false)], [Reason::Malformed, Reason::Fragment]);
}

#[test]
fn past_a_share_the_tail_is_discarded_with_its_head() {
    let cpu = *sched::online_cpus().unwrap().last().unwrap();
    sched::pin_current_thread(cpu).unwrap();
    let bench = Bench::new();
    let icmp = with(&bench.udp(NEAR_IP4, OPEN), &[(ETHERNET + 9, &[1])]);
    let judge = |number, first| bench.judge(&fragment(&icmp, number, first));
    // What is admitted in a poll is charged when it ends.
    let accounts = Accounts::open(bench.gate.channel_map_ids().unwrap().accounts).unwrap();
    accounts.limit(cpu, Kind::Icmp as u32, Permille(0), until(Duration::from_secs(60)));
    let mut numbers = 10..;
    for _ in 0..10 {
        let is_discarded = |number: &u16| judge(*number, true) == Reason::IcmpShare;
        let discarded = numbers.find(is_discarded).unwrap();
        assert_eq!(judge(discarded, false), Reason::FragmentDiscarded);
        let overtaken = numbers.next().unwrap();
        assert_eq!(judge(overtaken, false), Reason::FragmentEarly);
        assert_ne!(judge(overtaken, true), Reason::Fragment, "its head is held to its share");
    }
}

/// With nothing for input at all every packet is past the limit. Nobody marks the ends of polls here, so
/// that holds for 1,024 packets (`WEIR_UNMARKED_MAX`).
#[test]
fn past_the_limit_only_what_keeps_the_network_together_passes() {
    sched::pin_current_thread(*sched::online_cpus().unwrap().last().unwrap()).unwrap();
    let mut bench = Bench::new();
    let _open = bench.network.bind("::", OPEN);
    let (v4, v6) = (bench.udp(NEAR_IP4, OPEN), bench.udp(NEAR_IP6, OPEN));
    let ip = ETHERNET;
    let icmp6 =
        |kind: u8, hop_limit: u8| with(&v6, &[(ip + 6, &[58, hop_limit]), (ip + 40, &[kind])]);
    // Of a link-local address.
    let mld = |kind: u8| with(&icmp6(kind, 1), &[(ip + 8, &[0xfe, 0x80])]);
    let arp = with(&v4, &[(12, &[0x08, 0x06])]);
    let vlan = [0x81, 0, 0, 5];
    bench.gate.limit_input(Some(Permille(0)));
    bench.gate.set_diverted(true);
    assert_eq!(bench.judge(&v4), Reason::CpuShare, "wherever it would have gone");
    bench.gate.set_diverted(false);
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        ("UDP", v4.clone(), Reason::CpuShare),
        ("UDP, IPv6", v6.clone(), Reason::CpuShare),
        ("TCP", with(&v4, &[(ip + 9, &[6]), (ip + 32, &[0x50])]), Reason::CpuShare),
        ("ICMP", with(&v4, &[(ip + 9, &[1])]), Reason::CpuShare),
        ("ICMPv6 echo", icmp6(128, 64), Reason::CpuShare),
        ("to be routed on", bench.udp("198.18.0.77", OPEN), Reason::CpuShare),
        ("802.1Q", tagged(&v4, &vlan), Reason::CpuShare),
        ("two tags", tagged(&tagged(&v6, &vlan), &[0x88, 0xa8, 0, 6]), Reason::CpuShare),
        ("cut short", v4[..ip + 19].to_vec(), Reason::CpuShare),
        ("options, IPv6", with_extension(&v6, 0, &[0; 6]), Reason::CpuShare),
        ("many options, then MLD", with_extension(&mld(143), 0, &[0; 14]), Reason::CpuShare),
        ("ARP", arp.clone(), Reason::Neighbour),
        ("ARP, 802.1Q", tagged(&arp, &vlan), Reason::Vlan),
        ("LLDP", with(&v4, &[(12, &[0x88, 0xcc])]), Reason::OtherEthertype),
        ("IGMP", with(&v4, &[(ip + 8, &[1, 2]), (ip + 16, &ALL_HOSTS)]), Reason::Group),
        ("IGMP by the last router", with(&v4, &[(ip + 8, &[1, 2])]), Reason::CpuShare),
        ("IGMP from off the link", with(&v4, &[(ip + 9, &[2])]), Reason::CpuShare),
        ("neighbour", icmp6(135, 255), Reason::Neighbour),
        ("neighbour from off the link", icmp6(135, 254), Reason::CpuShare),
        ("redirect", icmp6(137, 255), Reason::Neighbour),
        ("MLD", mld(131), Reason::Group),
        ("MLDv2", with_extension(&mld(143), 0, &[0; 6]), Reason::Group),
        ("MLD by the last router", icmp6(131, 1), Reason::CpuShare),
        ("an error of ICMPv6", icmp6(1, 255), Reason::CpuShare),
        ("Ethernet header alone", v4[..ETHERNET].to_vec(), Reason::CpuShare),
    ];
    for (name, packet, reason) in cases {
        assert_eq!(bench.judge(&packet), reason, "{name}");
    }
    // Whoever would end the period is gone.
    for _ in 0..1024 {
        bench.judge(&v4);
    }
    assert_eq!(bench.judge(&v4), Reason::UdpRoom);
    bench.gate.limit_input(None);
    assert_eq!(bench.judge(&v4), Reason::UdpRoom);
}

#[test]
fn addresses_come_and_go() {
    // Each CPU has a memory of its own.
    sched::pin_current_thread(*sched::online_cpus().unwrap().last().unwrap()).unwrap();
    let mut bench = Bench::new();
    let _open = bench.network.bind("0.0.0.0", OPEN);
    let packet = bench.udp(NEAR_IP4, OPEN);
    bench.gate.set_local(&local(&[])).unwrap();
    bench.forget(&packet);
    assert_eq!(bench.judge(&packet), Reason::NoRoute);
    bench.gate.set_local(&local(&[NEAR_IP4])).unwrap();
    bench.forget(&packet);
    assert_eq!(bench.judge(&packet), Reason::UdpRoom);
    bench.gate.configure(MacAddr([2, 0, 0, 0, 0, 1]), Policy::On);
    assert_eq!(bench.judge(&packet), Reason::OtherMac);
}

#[test]
fn too_many_addresses_are_cut_off_not_refused() {
    let mut bench = Bench::new();
    let own = (0..2000_u32).map(|n| Ipv4Addr::from(0xc613_0000 + n).into()).collect();
    bench.gate.set_local(&LocalAddresses { own, ..Default::default() }).unwrap();
    bench.gate.set_local(&local(&[NEAR_IP4])).unwrap();
    let _open = bench.network.bind("0.0.0.0", OPEN);
    assert_eq!(bench.judge(&bench.udp(NEAR_IP4, OPEN)), Reason::UdpRoom);
}

/// A queue that is full is full at once, and one that is drained has room at once: the gate reads the
/// socket, and remembers only what a packet costs.
#[test]
fn a_full_queue_is_discarded_and_a_drained_one_is_not() {
    let bench = Bench::new();
    let cpu = *sched::online_cpus().unwrap().last().unwrap();
    // The NAPI poll in which a packet was refused is known per CPU.
    sched::pin_current_thread(cpu).unwrap();
    let full = bench.network.bind(NEAR_IP4, OPEN);
    let neighbour = bench.network.bind(NEAR_IP4, OPEN + 1);
    let packet = bench.udp(NEAR_IP4, OPEN);

    bench.while_flooded(14, cpu, || bench.judge(&packet) == Reason::UdpFull);
    assert_eq!(bench.judge(&bench.udp(NEAR_IP4, OPEN + 1)), Reason::UdpRoom);

    let mut buffer = [0; 64];
    let mut drained = 0;
    while full.recv(&mut buffer).is_ok() {
        drained += 1;
    }
    assert!(drained > 10, "{drained} packets were queued");
    // As in a poll that lasts: the next packet after a tick of the clock is looked at anew.
    std::thread::sleep(TICK_MAX);
    assert_eq!(bench.judge(&packet), Reason::UdpRoom);
    drop(neighbour);
}

/// A packet of a class of shorter lengths than any that the kernel refused may be charged less, and fit.
#[test]
fn a_shorter_packet_is_left_to_the_kernel() {
    shorter_packets_are_the_kernels(false);
}

#[test]
fn so_it_is_where_heavy_sources_are_shed() {
    shorter_packets_are_the_kernels(true);
}

/// Before Linux 6.18 what counts is that a queue is over its limit, not what a packet would be charged.
fn a_full_queue_refuses_any_length() -> bool {
    let release = rustix::system::uname().release().to_str().unwrap().to_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) < (Some(6), Some(18))
}

fn shorter_packets_are_the_kernels(selective: bool) {
    let mut bench = Bench::new();
    bench.gate.set_selective(selective);
    let cpu = *sched::online_cpus().unwrap().last().unwrap();
    sched::pin_current_thread(cpu).unwrap();
    let _full = bench.network.bind(NEAR_IP4, OPEN);
    let long = bench.network.datagram(NEAR_IP4, OPEN, &[0; 1000]);
    let longer = bench.network.datagram(NEAR_IP4, OPEN, &[0; 1400]);
    let short = bench.network.datagram(NEAR_IP4, OPEN, &[0; 980]);
    let of_short = match a_full_queue_refuses_any_length() {
        true => Reason::UdpFull,
        false => Reason::UdpRoom,
    };
    bench.while_flooded(1000, cpu, || {
        // Within the time that the charge is believed: all three, one after the other.
        bench.judge(&long) == Reason::UdpFull
            && bench.judge(&short) == of_short
            && bench.judge(&longer) == Reason::UdpFull
            && bench.judge(&short) == of_short
    });
}

#[test]
fn while_packets_may_be_diverted_all_pass_whatever_else_is_configured() {
    let mut bench = Bench::new();
    let _open = bench.network.bind(NEAR_IP4, OPEN);
    let packet = bench.udp(NEAR_IP4, OPEN);
    assert_eq!(bench.judge(&packet), Reason::UdpRoom);
    bench.gate.set_diverted(true);
    assert_eq!(bench.judge(&packet), Reason::Diverted);
    bench.gate.configure(bench.network.near_mac, Policy::On);
    assert_eq!(bench.judge(&packet), Reason::Diverted);
    bench.gate.set_diverted(false);
    assert_eq!(bench.judge(&packet), Reason::UdpRoom);
}

/// A multicast router takes no others, in whatever frame they come.
#[test]
fn while_multicast_is_routed_only_packets_to_groups_pass_for_that() {
    let mut bench = Bench::new();
    let _open = bench.network.bind("::", OPEN);
    let to = |address| bench.udp(address, OPEN);
    let groups = [to("224.0.0.251"), to("239.1.2.3"), to("ff05::7")];
    let igmp = with(&groups[1], &[(ETHERNET + 9, &[2])]);
    let tail = with(&groups[1], &[(ETHERNET + 6, &[0, 9])]);
    let own_mac = with(&groups[1], &[(0, &to(NEAR_IP4)[..6])]);
    let others = [to(NEAR_IP4), to(NEAR_IP6), to("255.255.255.255")];
    let judge_all = |bench: &mut Bench, packets: &[Vec<u8>]| {
        packets.iter().map(|packet| bench.judge(packet)).collect::<Vec<_>>()
    };
    let before = judge_all(&mut bench, &others);
    assert!(!before.contains(&Reason::Diverted), "{before:?}");
    assert_ne!(bench.judge(&groups[1]), Reason::Diverted);
    assert_ne!(bench.judge(&own_mac), Reason::Diverted);
    bench.gate.set_routes_groups(true);
    bench.forget(&own_mac);
    for packet in groups.iter().chain([&igmp, &tail, &own_mac]) {
        assert_eq!(bench.judge(packet), Reason::Diverted);
    }
    assert_eq!(judge_all(&mut bench, &others), before);
}

/// Even if it is taken away while a NAPI poll goes on, whose answers hold until its end.
#[test]
fn an_address_that_goes_is_forgotten() {
    sched::pin_current_thread(*sched::online_cpus().unwrap().last().unwrap()).unwrap();
    let mut bench = Bench::new();
    let socket = bench.network.bind("0.0.0.0", OPEN);
    let packet = bench.udp(NEAR_IP4, OPEN);
    for _ in 0..20 {
        bench.gate.set_local(&local(&[NEAR_IP4])).unwrap();
        bench.forget(&packet);
        assert_eq!(bench.judge(&packet), Reason::UdpRoom);
        bench.gate.set_local(&local(&[])).unwrap();
        let run = || bench.gate.test_run(&packet, bench.network.near_ifindex).unwrap();
        bench.network.near.run(|| assert!((0..200).all(|_| run() == Verdict::Pass))).unwrap();
        bench.forget(&packet);
        assert_eq!(bench.judge(&packet), Reason::NoRoute);
    }
    drop(socket);
}

/// The kernel forwards it in pieces, or tells its sender.
#[test]
fn a_packet_that_is_longer_than_its_way_takes_has_one() {
    const MTU: u32 = 1000;
    let network = Network::new();
    network.make_near_a_router(MTU);
    let packet = network.datagram(BEYOND_IP4, OPEN, &[0; MTU as usize]);
    for place in [AttachMode::Native, AttachMode::Tcx] {
        let (gate, _probe) = network.gate(place, &[NEAR_IP4], &[]);
        let reason = network.near.run(|| network.judge(&gate, &packet)).unwrap();
        assert_eq!(reason, Reason::Forward, "{place:?}");
    }
}

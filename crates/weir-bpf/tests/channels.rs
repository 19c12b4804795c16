//! Channels, counted: one by one, those beyond the bound together, and those that were deleted too. And
//! one packet, explained.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use common::{FAR_IP4, NEAR_IP4, NEAR_IP6, Network};
use etherparse::TcpHeader;
use weir_bpf::abi;
use weir_bpf::attach::AttachMode;
use weir_bpf::channels::{Channel, Channels, ChannelsReader, Seen};
use weir_bpf::counters::Counter;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::parser::{Fragment, Parse};
use weir_bpf::prune::Pruner;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::sched;
use weir_bpf::verdict::{Kind, Reason};

struct Bench {
    network: Network,
    gate: Gate,
    probe: QueueProbe,
}

impl Bench {
    fn new(own: Vec<IpAddr>) -> Self {
        let network = Network::new();
        let probe = QueueProbe::load().expect("the tests need root");
        let mut gate = Gate::load_explaining(&probe).unwrap();
        gate.configure(network.near_mac, Policy::On);
        network.near.run(|| gate.stand_for(network.near_ifindex)).unwrap().unwrap();
        gate.set_local(&LocalAddresses { own, ..Default::default() }).unwrap();
        // What a packet is remembered for, it is per CPU.
        let cpu = sched::online_cpus().unwrap()[0];
        sched::pin_current_thread(cpu).unwrap();
        Self { network, gate, probe }
    }

    fn packet(&self, to: Ipv4Addr, port: u16) -> Vec<u8> {
        self.network.datagram(&to.to_string(), port, b"fourteen bytes")
    }

    fn run(&self, packets: &[Vec<u8>]) {
        // On this thread: `NetNs::run` takes another one, which is on other CPUs.
        let ifindex = self.network.near_ifindex;
        let cpu = sched::online_cpus().unwrap()[0];
        let run = || {
            sched::pin_current_thread(cpu).unwrap();
            packets.iter().for_each(|packet| {
                self.gate.test_run(packet, ifindex).unwrap();
            });
        };
        self.network.near.run(run).unwrap();
    }

    /// What has been counted under the reasons of kinds that have channels.
    fn counted(&self) -> Counter {
        let counters = self.gate.counters().unwrap();
        let mut sum = Counter::default();
        Reason::ALL
            .into_iter()
            .filter(|reason| reason.kind().is_addressed())
            .for_each(|reason| sum += counters.get(reason));
        sum
    }
}

fn sum(channels: &Channels, retired: Seen) -> Counter {
    let mut sum = channels.overflow;
    channels.by_channel.values().for_each(|seen| sum += *seen);
    sum += retired;
    Counter { packets: sum.packets(), bytes: sum.bytes() }
}

fn many_addresses(count: u32) -> Vec<Ipv4Addr> {
    (0..count).map(|n| Ipv4Addr::from(0xc613_0000 + n)).collect()
}

fn udp(address: Ipv4Addr, port: u16) -> Channel {
    Channel { local: Some((address.into(), port)), ..Channel::of_kind(Kind::Udp) }
}

#[test]
fn channels_beyond_the_bound_are_counted_together() {
    // One socket on every address is as many channels as there are addresses.
    let addresses = many_addresses(1000);
    let bench = Bench::new(addresses.iter().map(|ip| IpAddr::V4(*ip)).collect());
    let ports: Vec<u16> = (5000..5006).collect();
    let _sockets: Vec<_> = ports.iter().map(|port| bench.network.bind("0.0.0.0", *port)).collect();
    let packets: Vec<Vec<u8>> =
        ports.iter().flat_map(|port| addresses.iter().map(|ip| bench.packet(*ip, *port))).collect();
    assert!(packets.len() > abi::CHANNELS + 1024, "beyond what the memories hold");
    bench.run(&packets);
    bench.run(&packets[..100]);

    let channels = bench.gate.channels().unwrap();
    assert!(channels.overflow.passed.packets > 0);
    assert!(channels.by_channel.len() >= abi::CHANNELS);
    // A channel's packets are told to the table when another one takes its place in the destination cache. By then the
    // table may be full: by the seed of the hash that is so for some of them.
    let twice = |ip: &Ipv4Addr| {
        channels.by_channel.get(&udp(*ip, 5000)).is_some_and(|seen| seen.passed.packets == 2)
    };
    assert!(addresses[..100].iter().any(twice));
    assert_eq!(sum(&channels, Seen::default()), bench.counted());
    assert_eq!(bench.counted().packets, packets.len() as u64 + 100);

    let reader = ChannelsReader::open(bench.gate.channel_map_ids().unwrap()).unwrap();
    assert_eq!(reader.channels().unwrap(), channels);
}

#[test]
fn quiet_channels_make_room_and_stay_counted() {
    let addresses = many_addresses(400);
    let bench = Bench::new(addresses.iter().map(|ip| IpAddr::V4(*ip)).collect());
    let ports = [5000, 5001, 5002, 5003, 5004];
    let _sockets = ports.map(|port| bench.network.bind("0.0.0.0", port));
    let packets: Vec<Vec<u8>> =
        ports.iter().flat_map(|port| addresses.iter().map(|ip| bench.packet(*ip, *port))).collect();
    bench.run(&packets);
    let before = bench.gate.channels().unwrap();
    assert_eq!(before.by_channel.len(), packets.len());

    let minute = Duration::from_secs(60);
    let mut pruner = Pruner::new(100, minute);
    let mut now = Instant::now();
    bench.gate.prune_channels(&mut pruner, now).unwrap();
    assert_eq!(pruner.retired().channels, 0, "nothing has been quiet for a minute yet");

    // The last ones stay busy.
    let busy = &packets[packets.len() - 50..];
    bench.run(busy);
    now += minute / 2;
    bench.gate.prune_channels(&mut pruner, now).unwrap();
    assert_eq!(pruner.retired().channels, 0);
    now += minute / 2;
    bench.gate.prune_channels(&mut pruner, now).unwrap();
    let retired = pruner.retired();
    assert!(retired.channels > 500, "{retired:?}");
    let after = bench.gate.channels().unwrap();
    assert_eq!(after.by_channel.len() as u64 + retired.channels, packets.len() as u64);
    assert_eq!(sum(&after, retired.seen), bench.counted());
    for ip in &addresses[350..] {
        assert_eq!(after.by_channel[&udp(*ip, 5004)].passed.packets, 2, "{ip} has been busy");
    }

    // Few now, but for those that the memories hold: nothing more goes.
    let mut few = Pruner::new(abi::CHANNELS, Duration::ZERO);
    bench.gate.prune_channels(&mut few, now).unwrap();
    assert_eq!(few.retired().channels, 0);
    // A channel that has been deleted begins again.
    bench.run(&packets);
    let again = bench.gate.channels().unwrap();
    assert_eq!(again.by_channel.len(), packets.len());
    assert_eq!(sum(&again, retired.seen), bench.counted());
}

#[test]
fn a_packet_is_explained() {
    let near: Ipv4Addr = NEAR_IP4.parse().unwrap();
    let far: Ipv4Addr = FAR_IP4.parse().unwrap();
    let mut bench = Bench::new(vec![near.into(), NEAR_IP6.parse().unwrap()]);
    let _socket = bench.network.bind("0.0.0.0", 5000);
    let listen = || TcpListener::bind((near, 80)).unwrap();
    let _listener = bench.network.near.run(listen).unwrap();
    let ifindex = bench.network.near_ifindex;
    let explain_at = |bench: &Bench, packet: &[u8]| {
        bench.network.near.run(|| bench.gate.explain(packet, ifindex).unwrap()).unwrap()
    };

    let explain = |packet: &[u8]| explain_at(&bench, packet);

    let packet = bench.packet(near, 5000);
    let explanation = explain(&packet);
    assert_eq!(explanation.reason, Reason::UdpRoom);
    assert_eq!(explanation.channel, udp(near, 5000));
    let parsed = explanation.parsed.unwrap();
    assert_eq!((parsed.ethertype, parsed.vlan_tags, parsed.protocol), (0x800, 0, 17));
    assert_eq!((parsed.reached(), parsed.udp_len), (Parse::WEIR_PARSE_UDP, 22));
    assert_eq!((parsed.part(), parsed.routed), (Fragment::WEIR_FRAGMENT_NONE, 0));
    assert_eq!(parsed.addresses(), Some((far.into(), near.into())));
    assert_eq!(parsed.ports(), Some((40_000, 5000)));

    let mut header = TcpHeader::new(40_001, 80, 1, 1024);
    header.syn = true;
    let explanation = explain(&bench.network.segment(far.into(), near.into(), header));
    assert_eq!(explanation.reason, Reason::TcpSyn);
    assert_eq!(explanation.channel.local, Some((near.into(), 80)));
    let parsed = explanation.parsed.unwrap();
    assert_eq!((parsed.reached(), parsed.tcp_flags), (Parse::WEIR_PARSE_TCP, 2));
    assert_eq!(parsed.ports(), Some((40_001, 80)));

    let explanation = explain(&packet[..20]);
    assert_eq!(explanation.reason, Reason::Malformed);
    assert!(explanation.parsed.is_none());
    assert_eq!(explanation.channel, Channel::of_kind(Kind::Malformed));

    let mute = Gate::load(&bench.probe, AttachMode::Native).unwrap();
    let refused = bench.network.near.run(|| mute.explain(&packet, ifindex)).unwrap().unwrap_err();
    assert!(refused.to_string().contains("load_explaining"), "{refused}");

    bench.gate.set_diverted(true);
    assert_eq!(explain_at(&bench, &packet).reason, Reason::Diverted);
    bench.gate.configure(bench.network.near_mac, Policy::Off);
    assert_eq!(explain_at(&bench, &packet).reason, Reason::PolicyOff);
}

//! `weir explain`: what it says of captures, good and broken. The sockets that the gate finds are real.

use std::borrow::Cow;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::captures::*;
use crate::common::*;
use pcap_file::pcap::PcapHeader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use serde_json::Value;
use weir_bpf::sys::link::Links;

/// A host whose Ethernet address is always the same.
fn network() -> Network {
    let network = Network::ipv4_only();
    network.links(|links, ifindex| links.set_mac(ifindex, NEAR_MAC).unwrap());
    let know = || {
        let links = Links::open().unwrap();
        let far = links.index("far").unwrap();
        links.add_neighbour(far, NEAR_IP.parse().unwrap(), NEAR_MAC).unwrap();
    };
    network.far.run(know).unwrap();
    network
}

fn explain(network: &Network, name: &str, bytes: &[u8], options: &[&str]) -> Output {
    let file = ConfigFile::new(name, bytes);
    let config = if options.contains(&"--config") { &[] } else { NO_CONFIG };
    let mut output = network.weir(&[&["explain", file.path()], config, options].concat());
    for text in [&mut output.stdout, &mut output.stderr] {
        *text = String::from_utf8_lossy(text).replace(file.path(), "FILE").into_bytes();
    }
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A listener whose accept queue is over its limit of 0 with one connection.
fn full_listener(network: &Network, port: u16) -> (OwnedFd, TcpStream) {
    let address = SocketAddr::new(NEAR_IP.parse().unwrap(), port);
    let open = || {
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        listener
    };
    let listener = network.near.run(open).unwrap();
    let client = network.far.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let mut waiting = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 15, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut waiting, Some(&patience)).unwrap(), 1);
    (listener, client)
}

#[test]
fn every_packet_is_explained_whatever_the_format() {
    let network = network();
    network.add_pair();
    let forwarding = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    network.near.run(forwarding).unwrap();
    sh(&network, "ip route add 198.19.1.0/24 dev near2");
    let _udp = network.near_socket("[::]:5000");
    let listen = || TcpListener::bind((NEAR_IP, 80)).unwrap();
    let _listener = network.near.run(listen).unwrap();
    let _full = full_listener(&network, 81);

    let packets = packets();
    let header = PcapHeader {
        snaplen: 60,
        endianness: Endianness::Little,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let near = ["--interface", NEAR];
    let first = explain(&network, "golden.pcap", &pcap(header, &packets), &near);
    assert!(first.status.success(), "{first:?}");
    let golden = text(&first.stdout);
    insta::assert_snapshot!(golden);

    let big = PcapHeader {
        endianness: Endianness::Big,
        ts_resolution: TsResolution::MicroSecond,
        ..header
    };
    let little = PcapHeader { endianness: Endianness::Little, ..big };
    for (name, bytes) in [
        ("big.pcap", pcap(big, &packets)),
        ("little.pcap", pcap(little, &packets)),
        ("big.pcapng", pcapng(Endianness::Big, &packets)),
        ("little.pcapng", pcapng(Endianness::Little, &packets)),
    ] {
        let other = explain(&network, name, &bytes, &near);
        assert!(other.status.success(), "{name}: {other:?}");
        let rest = |text: &str| text.split_once('\n').unwrap().1.to_owned();
        assert_eq!(rest(&text(&other.stdout)), rest(&golden), "{name}");
    }
}

/// As in a capture on a tun device.
#[test]
fn packets_without_ethernet_headers_are_judged_as_addressed_to_the_interface() {
    let network = network();
    let _udp = network.near_socket("198.18.0.1:5000");
    let built = [udp(NEAR_IP, 5000), syn(80)];
    let packets = built.clone().map(whole);
    let frames = objects(&explain(
        &network,
        "frames.pcap",
        &pcap(PcapHeader::default(), &packets),
        &["--json"],
    ));
    let bare = built.map(|packet| whole(packet[14..].to_vec()));
    for datalink in [DataLink::RAW, DataLink::IPV4, DataLink::from(12)] {
        let header = PcapHeader { datalink, ..PcapHeader::default() };
        let raw = objects(&explain(&network, "raw.pcap", &pcap(header, &bare), &["--json"]));
        for (raw, frame) in raw.iter().zip(&frames).skip(1).take(2) {
            assert_eq!(raw["reason"], frame["reason"], "{datalink:?}");
            assert_eq!(raw["channel"], frame["channel"], "{datalink:?}");
            let len = |object: &serde_json::Value| object["wire_bytes"].as_u64().unwrap();
            assert_eq!(len(raw) + 14, len(frame));
        }
    }
}

#[test]
fn json_is_one_object_a_line() {
    let network = network();
    let _udp = network.near_socket("198.18.0.1:5000");
    let packets = [whole(udp(NEAR_IP, 5000)), whole(syn(80)), whole(vec![0; 3])];
    let bytes = pcap(PcapHeader::default(), &packets);
    let lines = objects(&explain(&network, "json.pcap", &bytes, &["--json"]));
    assert_eq!(lines.len(), 5);
    let about = &lines[0];
    assert_eq!((&about["event"], &about["schema"]), (&"capture".into(), &1.into()));
    assert_eq!((&about["format"], &about["interface"]), (&"pcap".into(), &NEAR.into()));
    fields::EXPLAIN.has_all_of(&lines, &["mac", "tcp_flags", "notes"]);
    insta::assert_json_snapshot!(lines[1..]);
}

#[test]
fn a_file_that_is_cut_short_is_explained_up_to_there() {
    let network = network();
    let _udp = network.near_socket("198.18.0.1:5000");
    let packets: Vec<Captured> = (0..3).map(|_| whole(udp(NEAR_IP, 5000))).collect();
    let record = RECORD_HEADER + packets[0].0.len();
    let third = PCAP_HEADER + 2 * record;
    let good = pcap(PcapHeader::default(), &packets);
    assert_eq!(good.len(), third + record);
    // Within the third packet's data, and within its header.
    for len in [good.len() - 1, third + 7] {
        let output = explain(&network, "short.pcap", &good[..len], &[]);
        let message = failure(&output, 1);
        let expected =
            format!("FILE: cannot read packet 3, at byte {third}: the file ends in the middle");
        assert!(message.contains(&expected), "{message}");
        let printed = text(&output.stdout);
        assert!(printed.contains("2 packets: 2 judged, 0 not"), "{printed}");
        let lines = objects(&explain(&network, "short.pcap", &good[..len], &["--json"]));
        assert_eq!(lines.len(), 4);
        assert!(lines[3]["error"].as_str().unwrap().contains("packet 3"), "{}", lines[3]);
    }
    // A length that cannot be: more than there is, and more than any packet has.
    for (length, why) in [(0x0001_0000_u32, "cut short"), (0x0010_0000, "cut short")] {
        let damaged = with(good.clone(), third + 8, &length.to_be_bytes());
        let message = failure(&explain(&network, "length.pcap", &damaged, &[]), 1);
        assert!(message.contains(&format!("packet 3, at byte {third}")), "{message}");
        assert!(message.contains(why), "{message}");
    }
    let mut long = with(good.clone(), third + 8, &0x0010_0000_u32.to_be_bytes());
    long.resize(third + RECORD_HEADER + 0x0010_0000, 0);
    let message = failure(&explain(&network, "long.pcap", &long, &[]), 1);
    assert!(message.contains("its length, 1048576 bytes, is wrong"), "{message}");

    let ng = pcapng(Endianness::Little, &packets);
    let block = 32 + packets[0].0.len().next_multiple_of(4);
    let third = ng.len() - block;
    let message = failure(&explain(&network, "short.pcapng", &ng[..ng.len() - 1], &[]), 1);
    let expected = format!("packet 3, at byte {third}: the file ends in the middle");
    assert!(message.contains(&expected), "{message}");
    let damaged = with(ng.clone(), third + 20, &u32::MAX.to_le_bytes());
    let message = failure(&explain(&network, "damaged.pcapng", &damaged, &[]), 1);
    assert!(message.contains(&format!("packet 3, at byte {third}: it is too short")), "{message}");
    let stranger = with(ng, third + 8, &7_u32.to_le_bytes());
    let message = failure(&explain(&network, "interface.pcapng", &stranger, &[]), 1);
    assert!(message.contains("it names interface 7"), "{message}");
}

#[test]
fn what_is_no_capture_of_frames_or_packets_is_refused() {
    let network = network();
    let cooked = PcapHeader { datalink: DataLink::LINUX_SLL, ..PcapHeader::default() };
    let message = failure(&explain(&network, "cooked.pcap", &pcap(cooked, &[]), &[]), 1);
    assert!(message.contains("link of type LINUX_SLL"), "{message}");
    assert!(message.contains("`tcpdump -i eth1`"), "{message}");

    // Of two interfaces' packets, one's are Ethernet frames.
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little).unwrap();
    for link in [DataLink::ETHERNET, DataLink::LINUX_SLL] {
        let interface = InterfaceDescriptionBlock::new(link, 0);
        writer.write_pcapng_block(interface).unwrap();
    }
    let frame = udp(NEAR_IP, 5000);
    let simple =
        SimplePacketBlock { original_len: frame.len() as u32, data: Cow::Borrowed(&frame) };
    writer.write_block(&simple.clone().into_block()).unwrap();
    let raw = EnhancedPacketBlock {
        interface_id: 1,
        timestamp: Duration::ZERO,
        original_len: 60,
        data: Cow::Owned(vec![0x45; 60]),
        options: vec![],
    };
    writer.write_pcapng_block(raw).unwrap();
    writer.write_block(&simple.into_block()).unwrap();
    let mixed = writer.into_inner();
    let lines = objects(&explain(&network, "mixed.pcapng", &mixed, &["--json"]));
    let not_judged = lines[2]["not_judged"].as_str().unwrap();
    assert!(not_judged.contains("neither Ethernet nor raw IP"), "{not_judged}");
    assert_eq!(
        (&lines[1]["reason"], &lines[3]["reason"]),
        (&"udp-no-socket".into(), &lines[1]["reason"])
    );
    assert_eq!((&lines[4]["packets"], &lines[4]["judged"]), (&3.into(), &2.into()));
    assert!(lines[4]["error"].as_str().unwrap().contains("packet 2"), "{}", lines[4]);
    let output = explain(&network, "mixed.pcapng", &mixed, &[]);
    let message = failure(&output, 1);
    assert!(message.contains("cannot read packet 2"), "{message}");
    assert!(message.contains("link of type LINUX_SLL"), "{message}");
    assert!(text(&output.stdout).contains("udp-no-socket"), "{output:?}");

    for bad in [&b""[..], b"\xa1\xb2", b"nothing of the kind, but long enough", &[0x0a; 40]] {
        let message = failure(&explain(&network, "bad", bad, &[]), 1);
        assert!(message.contains("begins like neither a pcap nor a pcapng file"), "{message}");
    }
    for (compressed, reader) in [
        (&b"\x1f\x8b\x08\0"[..], "zcat"),
        (b"\xfd7zXZ\0", "xzcat"),
        (b"\x28\xb5\x2f\xfd", "zstdcat"),
    ] {
        let message = failure(&explain(&network, "compressed", compressed, &[]), 1);
        assert!(
            message.contains(&format!("compressed; `{reader} FILE | weir explain -`")),
            "{message}"
        );
    }
    let cut = &pcap(PcapHeader::default(), &[])[..PCAP_HEADER - 1];
    let message = failure(&explain(&network, "header.pcap", cut, &[]), 1);
    assert!(message.contains("the file ends in the middle"), "{message}");
    let message = failure(&network.weir(&["explain", "/nonexistent"]), 1);
    assert!(message.contains("cannot read /nonexistent: No such file"), "{message}");
    let message = failure(&network.weir(&["explain", "/"]), 1);
    assert!(message.contains("cannot read /: "), "{message}");
}

#[test]
fn the_interface_is_the_protected_one_or_the_only_one() {
    let network = network();
    let bytes = pcap(PcapHeader::default(), &[whole(udp(NEAR_IP, 5999))]);
    let interface = |options: &[&str]| {
        objects(&explain(&network, "interface.pcap", &bytes, &[&["--json"], options].concat()))[0]
            ["interface"]
            .clone()
    };
    assert_eq!(interface(&[]), NEAR);
    network.add_pair();
    let message = failure(&explain(&network, "two.pcap", &bytes, &[]), 1);
    assert!(message.contains("(near, near2)") || message.contains("(near2, near)"), "{message}");
    assert!(message.contains("--interface NAME"), "{message}");
    let daemon = Daemon::start(&network, &[]);
    assert_eq!(interface(&[]), NEAR);
    assert_eq!(interface(&["--interface", NEAR2]), NEAR2);
    daemon.interrupt();
    let message = failure(&explain(&network, "no.pcap", &bytes, &["--interface", "eth99"]), 1);
    assert!(message.contains("no interface named \"eth99\""), "{message}");

    let elsewhere = explain(&network, "elsewhere.pcap", &bytes, &["--interface", NEAR2]);
    let elsewhere = text(&elsewhere.stdout);
    assert!(elsewhere.contains("note: no frame here is addressed to near2 ("), "{elsewhere}");
}

#[test]
fn what_diverts_packets_is_told() {
    let network = network();
    let rules = "nft 'add table ip t; add chain ip t c { type nat hook prerouting priority -100; }; \
                 add rule ip t c udp dport 5000 redirect to :5001'";
    sh(&network, rules);
    let bytes = pcap(PcapHeader::default(), &[whole(udp(NEAR_IP, 5000))]);
    // Its port is translated, and it would pass anyway: there is nothing to be said.
    let said = text(&explain(&network, "translated.pcap", &bytes, &[]).stdout);
    assert!(!said.contains("diverted"), "{said}");
    sh(&network, "nft add rule ip t c redirect");
    let said = text(&explain(&network, "diverted.pcap", &bytes, &[]).stdout);
    assert!(said.contains("198.18.0.2:40000 > 198.18.0.1:5000 UDP 22 B: diverted"), "{said}");
    assert!(said.contains("note: the gate passes everything on near"), "{said}");
}

#[test]
fn standard_input_is_read_as_it_comes() {
    let network = network();
    let bytes = pcap(PcapHeader::default(), &[whole(udp(NEAR_IP, 5999))]);
    let file = ConfigFile::new("stdin.pcap", &bytes);
    let run = || {
        Command::new(WEIR)
            .args(["explain", "-"])
            .stdin(Stdio::from(std::fs::File::open(file.path()).unwrap()))
            .output()
            .unwrap()
    };
    let said = success(&network.near.run(run).unwrap());
    assert!(said.starts_with("standard input (pcap)"), "{said}");
    assert!(said.contains("udp-no-socket"), "{said}");
}

#[test]
fn a_queue_that_is_full_now_is_told() {
    let network = network();
    let _full = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let packets: Vec<Captured> = (0..2000).map(|_| whole(udp(NEAR_IP, 5000))).collect();
    let bytes = pcap(PcapHeader::default(), &packets);
    let flood = || {
        (0..32).for_each(|_| drop(sender.send_to(&[0x5a; 14], "198.18.0.1:5000")));
        std::thread::sleep(Duration::from_millis(1));
    };
    while_doing(flood, || {
        wait_until("the full queue is told", || {
            let said = text(&explain(&network, "full.pcap", &bytes, &[]).stdout);
            said.lines().any(|line| line.contains("discard  udp 198.18.0.1:5000"))
        });
    });
}

/// By the file that it is given, as a running weir tells them.
#[test]
fn connections_to_a_protected_port_of_a_peers_are_told_apart() {
    const PORT: u16 = 5179;
    let network = network();
    let listener = network.far.run(|| TcpListener::bind((FAR_IP, PORT)).unwrap()).unwrap();
    let connect = || TcpStream::connect((FAR_IP, PORT)).unwrap();
    let client = network.near.run(connect).unwrap();
    let _server = listener.accept().unwrap();
    let mut frame = Vec::new();
    let builder = ethernet(NEAR_MAC).ipv4(ip4(FAR_IP), ip4(NEAR_IP), 64);
    let own = client.local_addr().unwrap().port();
    builder.tcp(PORT, own, 1, 1024).ack(1).write(&mut frame, &[]).unwrap();
    let bytes = pcap(PcapHeader::default(), &[whole(frame)]);
    let kind = |options: &[&str]| {
        let output = explain(&network, "peer.pcap", &bytes, &[options, &["--json"]].concat());
        objects(&output)[1]["channel"]["kind"].clone()
    };
    assert_eq!(kind(&[]), "tcp-client");
    let file = ConfigFile::new("explain", &format!("[shares]\nprotected = [{PORT}]\n"));
    assert_eq!(kind(&["--config", file.path()]), "tcp-peer");
    let broken = ConfigFile::new("explain-broken", "[shares]\nprotected = [\"bgp\"]\n");
    let output = explain(&network, "peer.pcap", &bytes, &["--config", broken.path()]);
    assert!(failure(&output, 1).contains("protected"), "{output:?}");
}

//! Captures, made for the tests.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use etherparse::{PacketBuilder, PacketBuilderStep, VlanId};
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::{DataLink, Endianness, TsResolution};
use weir_bpf::units::MacAddr;

use crate::common::{FAR_IP, FAR_IP6, NEAR_IP, NEAR_IP6};

pub const NEAR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const FAR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub const ETHERNET: usize = 14;
pub const PCAP_HEADER: usize = 24;
pub const RECORD_HEADER: usize = 16;
/// 2023-11-14T22:13:20Z.
pub const BEGUN_SECS: u32 = 1_700_000_000;

/// A captured packet: how much of it, of how much.
pub struct Captured(pub Vec<u8>, pub usize);

pub fn whole(frame: Vec<u8>) -> Captured {
    let len = frame.len();
    Captured(frame, len)
}

pub fn ethernet(to: MacAddr) -> PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2(FAR_MAC.0, to.0)
}

pub fn ip4(text: &str) -> [u8; 4] {
    text.parse::<Ipv4Addr>().unwrap().octets()
}

pub fn ip6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

pub fn udp_to(mac: MacAddr, to: &str, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = ethernet(mac).ipv4(ip4(FAR_IP), ip4(to), 64).udp(40_000, port);
    builder.write(&mut frame, payload).unwrap();
    frame
}

pub fn udp(to: &str, port: u16) -> Vec<u8> {
    udp_to(NEAR_MAC, to, port, b"fourteen bytes")
}

pub fn syn(port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = ethernet(NEAR_MAC).ipv4(ip4(FAR_IP), ip4(NEAR_IP), 64);
    builder.tcp(40_000, port, 1, 1024).syn().write(&mut frame, &[]).unwrap();
    frame
}

pub fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// One of everything.
pub fn packets() -> Vec<Captured> {
    let mut v6 = Vec::new();
    let builder = ethernet(NEAR_MAC).ipv6(ip6(FAR_IP6), ip6(NEAR_IP6), 64).udp(40_000, 5000);
    builder.write(&mut v6, b"fourteen bytes").unwrap();
    let mut ping = Vec::new();
    let builder = ethernet(NEAR_MAC).ipv4(ip4(FAR_IP), ip4(NEAR_IP), 64);
    builder.icmpv4_echo_request(1, 1).write(&mut ping, b"ping").unwrap();
    let mut tagged = Vec::new();
    let builder = ethernet(NEAR_MAC).single_vlan(VlanId::try_new(5).unwrap());
    let builder = builder.ipv4(ip4(FAR_IP), ip4(NEAR_IP), 64).udp(40_000, 5000);
    builder.write(&mut tagged, b"fourteen bytes").unwrap();
    let mut push = Vec::new();
    let builder = ethernet(NEAR_MAC).ipv4(ip4(FAR_IP), ip4(NEAR_IP), 64);
    builder.tcp(40_000, 80, 1, 1024).psh().ack(1).write(&mut push, b"x").unwrap();
    let (flags, id) = (ETHERNET + 6, ETHERNET + 4);
    let datagram = with(udp(NEAR_IP, 5000), id, &[0, 77]);
    let long = udp_to(NEAR_MAC, NEAR_IP, 5000, &[0; 1000]);
    let mut frames = vec![
        whole(udp(NEAR_IP, 5000)),
        whole(udp(NEAR_IP, 5999)),
        whole(v6),
        whole(syn(80)),
        whole(syn(81)),
        whole(syn(82)),
        whole(push),
        whole(ping),
        whole(with(udp(NEAR_IP, 5000), 12, &[0x08, 0x06])),
        whole(with(udp(NEAR_IP, 5000), 12, &[0x88, 0xcc])),
        whole(tagged),
        whole(with(datagram.clone(), flags, &[0x20, 0])),
        whole(with(datagram, flags, &[0, 2])),
        whole(udp("198.19.1.1", 5000)),
        whole(udp("198.18.0.77", 5000)),
        whole(udp_to(MacAddr([2, 0, 0, 0, 0, 9]), NEAR_IP, 5000, b"fourteen bytes")),
        whole(udp_to(MacAddr([1, 0, 0x5e, 0, 0, 0xfb]), "224.0.0.251", 5353, b"mdns")),
        whole(with(udp(NEAR_IP, 5000), ETHERNET, &[0x44])),
        whole(udp(NEAR_IP, 5000)[..10].to_vec()),
    ];
    frames.push(Captured(long[..60].to_vec(), long.len()));
    frames
}

pub fn pcap(header: PcapHeader, packets: &[Captured]) -> Vec<u8> {
    let per_packet = match header.ts_resolution {
        TsResolution::MicroSecond => 1,
        TsResolution::NanoSecond => 1000,
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (number, Captured(data, len)) in packets.iter().enumerate() {
        let packet = RawPcapPacket {
            ts_sec: BEGUN_SECS,
            ts_frac: number as u32 * per_packet,
            incl_len: data.len() as u32,
            orig_len: *len as u32,
            data: Cow::Borrowed(data),
        };
        writer.write_raw_packet(&packet).unwrap();
    }
    writer.into_writer()
}

pub fn pcapng(endianness: Endianness, packets: &[Captured]) -> Vec<u8> {
    let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
    let ethernet = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
    writer.write_pcapng_block(ethernet).unwrap();
    for (number, Captured(data, len)) in packets.iter().enumerate() {
        // The writer counts in nanoseconds, the file by default in microseconds.
        let micros = u64::from(BEGUN_SECS) * 1_000_000 + number as u64;
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(micros),
            original_len: *len as u32,
            data: Cow::Borrowed(data),
            options: vec![],
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    writer.into_inner()
}

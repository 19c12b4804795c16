//! Packets of every sort, and what becomes of them on their way.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt,
};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::packet::PacketSocket;

use crate::common::path::Path;
use crate::common::{PATIENCE, wait};

const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
pub const CLIENT4: [u8; 4] = [198, 18, 0, 2];
pub const SERVER4: [u8; 4] = [198, 19, 0, 2];

fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], *it.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ethernet(kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
    let (router, client) = ([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]);
    [&router[..], &client, &kind, rest].concat()
}

/// UDP from the client to the server, of so many bytes of payload; then the header is changed.
fn ipv4(mark: u8, payload: usize, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let len = (28 + payload) as u16;
    let mut packet = [
        &[0x45, 0][..],
        &len.to_be_bytes(),
        &[0, mark, 0, 0, 64, 17, 0, 0],
        &CLIENT4,
        &SERVER4,
        &[0x10, 0, 0x13, 0x88],
        &(8 + payload as u16).to_be_bytes(),
        &[0, 0],
        &vec![mark; payload],
    ]
    .concat();
    change(&mut packet);
    let header = 4 * usize::from(packet[0] & 15);
    if packet[10..12] == [0, 0] && header <= packet.len() {
        let sum = sum(&packet[..header]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
    }
    ethernet(IPV4, &packet)
}

fn ipv6(mark: u8, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let address = |network: u8| [0x20, 1, 0, 2, 0, 0, 0, network, 0, 0, 0, 0, 0, 0, 0, 2];
    let mut packet = [
        &[0x60, 0, 0, mark][..],
        &[0, 16, 17, 64],
        &address(0),
        &address(1),
        &[0x10, 0, 0x13, 0x88, 0, 16, 0xab, 0xcd],
        &[mark; 8],
    ]
    .concat();
    change(&mut packet);
    ethernet(IPV6, &packet)
}

/// Packets of every sort, each with a mark; and how many of them need nothing but routing.
pub fn packets() -> (Vec<Vec<u8>>, usize) {
    let set = |at: usize, bytes: &'static [u8]| {
        move |packet: &mut Vec<u8>| packet[at..at + bytes.len()].copy_from_slice(bytes)
    };
    let fast = vec![
        ipv4(1, 14, |_| {}),
        ipv4(2, 1372, set(6, &[0x40, 0])),
        ipv4(3, 0, set(8, &[2])),
        ipv4(4, 100, set(1, &[0xb8])),
        // TCP, and a protocol without ports.
        ipv4(5, 14, set(9, &[6])),
        ipv4(6, 14, set(9, &[47])),
        // Fragments.
        ipv4(7, 64, set(6, &[0x20, 0])),
        ipv4(8, 64, set(6, &[0, 9])),
        // Padded by Ethernet.
        [ipv4(9, 1, |_| {}), vec![0; 17]].concat(),
        ipv6(10, |_| {}),
        ipv6(11, set(7, &[2])),
        ipv6(12, set(6, &[44])),
    ];
    let others = vec![
        ipv4(21, 14, set(8, &[1])),
        ipv4(22, 14, set(8, &[0])),
        // Longer than what the egress takes, with DF and without.
        ipv4(23, 1440, set(6, &[0x40, 0])),
        ipv4(24, 1440, |_| {}),
        // A no-op option, record route.
        ipv4(25, 14, |packet| {
            packet[0] = 0x46;
            packet[2..4].copy_from_slice(&46_u16.to_be_bytes());
            packet.splice(20..20, [1, 1, 1, 1]);
        }),
        ipv4(26, 14, set(10, &[0xbe, 0xef])),
        // To the router. Behind a packet to the same address nobody asks whose the next one's source is
        // (ip_route_use_hint()).
        ipv4(32, 14, set(16, &[198, 18, 0, 1])),
        // From the router's own address, nobody's, loopback, a group.
        ipv4(27, 14, set(12, &[198, 19, 0, 1])),
        ipv4(28, 14, set(12, &[0, 0, 0, 1])),
        ipv4(29, 14, set(12, &[127, 0, 0, 1])),
        ipv4(30, 14, set(12, &[224, 0, 0, 9])),
        ipv4(31, 14, set(12, &[198, 18, 0, 255])),
        // To loopback, a group, broadcast, behind no route, back by where it came.
        ipv4(33, 14, set(16, &[127, 0, 0, 2])),
        ipv4(34, 14, set(16, &[224, 0, 0, 9])),
        ipv4(35, 14, set(16, &[255, 255, 255, 255])),
        ipv4(36, 14, set(16, &[198, 19, 0, 255])),
        ipv4(37, 14, set(16, &[203, 0, 113, 9])),
        ipv4(38, 14, set(2, &[0, 19])),
        ipv4(39, 14, set(2, &[2, 0])),
        // Behind its end, 40 bytes that are not padding.
        [ipv4(40, 64, |_| {}), vec![7; 40]].concat(),
        ipv6(41, set(7, &[1])),
        ipv6(42, set(6, &[0])),
        ipv6(43, set(8, &[0xfe, 0x80])),
        ipv6(44, set(24, &[0xfe, 0x80])),
        ipv6(45, set(24, &[0xff, 0x0e])),
        ipv6(46, set(5, &[200])),
        // To another station, behind a VLAN tag, of another version.
        [&[2, 0, 0, 0, 9, 9][..], &ipv4(47, 14, |_| {})[6..]].concat(),
        {
            let frame = ipv4(48, 14, |_| {});
            [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
        },
        ipv4(49, 14, set(0, &[0x65])),
        // ICMP.
        ipv4(50, 14, set(9, &[1])),
        ipv6(51, set(6, &[58])),
    ];
    let count = fast.len();
    (fast.into_iter().chain(others).collect(), count)
}

/// Everything that comes in at `peer` of one end.
struct Tap(OwnedFd);

impl Tap {
    fn open(netns: &NetNs) -> Self {
        let open = || {
            let all =
                Protocol::from_raw(std::num::NonZeroU32::new(u32::from(3_u16.to_be())).unwrap());
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(all)).unwrap()
        };
        let socket = netns.run(open).unwrap();
        sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20).unwrap();
        Self(socket)
    }

    /// Adds what has come from the router, but for neighbour discovery and the like.
    fn read(&self, seen: &mut BTreeMap<Vec<u8>, u32>) {
        let mut buffer = vec![0; 4096];
        while let Ok((_, len)) = recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
            let mut frame = buffer[..len].to_vec();
            // The kernel cuts padding off, and the wire would have it again; the fast path leaves it.
            if len <= 60 && frame[12..14] == IPV4 {
                frame.truncate(14 + usize::from(u16::from_be_bytes([frame[16], frame[17]])));
            }
            let from_router = frame[6..10] == [2, 0, 0, 0] && frame[11] == 1;
            let is_udp_or_error = match (&frame[12..14], frame.get(14 + 9), frame.get(14 + 6)) {
                ([8, 0], Some(1), _) => {
                    // What the kernel numbers.
                    frame[18..20].fill(0);
                    frame[24..26].fill(0);
                    true
                }
                ([8, 0], Some(protocol), _) => *protocol != 2,
                ([0x86, 0xdd], _, Some(58)) => frame[54] < 128,
                ([0x86, 0xdd], _, Some(next)) => *next != 0 || frame[14 + 40] != 58,
                _ => false,
            };
            if from_router && is_udp_or_error {
                *seen.entry(frame).or_default() += 1;
            }
        }
    }
}

/// What comes of every sort of packets, at both ends.
pub fn outcome(path: &Path, expected: Option<u32>) -> [BTreeMap<Vec<u8>, u32>; 2] {
    let taps = [Tap::open(&path.client), Tap::open(&path.server)];
    let (packets, _) = packets();
    let sender = path.client.run(|| {
        let index = Links::open().unwrap().index("peer").unwrap();
        PacketSocket::sender(index).unwrap()
    });
    let sender = sender.unwrap();
    for packet in &packets {
        sender.send(packet).unwrap();
    }
    let mut seen = [BTreeMap::new(), BTreeMap::new()];
    let count =
        |seen: &[BTreeMap<Vec<u8>, u32>; 2]| seen.iter().flat_map(|it| it.values()).sum::<u32>();
    let (mut last, mut quiet) = (0, 0);
    wait(PATIENCE, || {
        taps.iter().zip(&mut seen).for_each(|(tap, seen)| tap.read(seen));
        let now = count(&seen);
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        // A hundred looks, 5 ms apart, without anything new.
        quiet > 100 && expected.is_none_or(|expected| now >= expected)
    });
    seen
}

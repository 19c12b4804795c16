//! What the reference says rests in places on what Linux does. These are the places, asked of the
//! running kernel: frames that an interface receives, and a real socket.

use weir_bpf::parser::Parser;

use crate::common::{FAR_IP6, NEAR_IP6, Network};
use crate::{coverage, reference};

const PORT: u16 = 5000;

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// Whether the socket receives it, what the gate is to take it for, the first next header, and what
/// follows the IPv6 header.
type Row = (bool, &'static str, u8, Vec<u8>);

fn rows() -> Vec<Row> {
    let six = [60, 60, 60, 60, 60, UDP].map(|next| options(next, 8)).concat();
    let atomic = |next| vec![next, 0, 0, 0, 0, 0, 0, 7];
    vec![
        (true, "UDP", UDP, udp(8 + 1)),
        (true, "UDP", DESTINATION_OPTIONS, [options(UDP, 2048), udp(9)].concat()),
        (true, "UDP", DESTINATION_OPTIONS, [six, udp(9)].concat()),
        (true, "UDP", HOP_BY_HOP, [options(UDP, 8), udp(9)].concat()),
        (true, "UDP", FRAGMENT, [atomic(UDP), udp(9)].concat()),
        (
            false,
            "other protocol",
            DESTINATION_OPTIONS,
            [options(HOP_BY_HOP, 8), options(UDP, 8), udp(9)].concat(),
        ),
        (
            false,
            "other protocol",
            HOP_BY_HOP,
            [options(HOP_BY_HOP, 8), options(UDP, 8), udp(9)].concat(),
        ),
        (false, "malformed", FRAGMENT, [atomic(FRAGMENT), atomic(UDP), udp(9)].concat()),
        (
            false,
            "malformed",
            FRAGMENT,
            [atomic(DESTINATION_OPTIONS), options(FRAGMENT, 8), atomic(UDP), udp(9)].concat(),
        ),
        (false, "malformed", UDP, udp(10)),
        (false, "malformed", UDP, udp(7)),
        // As long as its packet: RFC 2675.
        (true, "UDP", UDP, udp(0)),
    ]
}

/// A header of `len` bytes with options that a host skips which does not know them; Linux admits
/// eight.
fn options(next: u8, len: usize) -> Vec<u8> {
    let mut header = vec![next, (len / 8 - 1) as u8];
    while header.len() < len {
        let option = (len - header.len()).min(257);
        header.extend([0x1e, (option - 2) as u8]);
        header.resize(header.len() + option - 2, 0);
    }
    header
}

/// One byte of payload, under a header that claims to be `len` bytes of datagram.
fn udp(len: u8) -> Vec<u8> {
    let mut datagram = vec![0x30, 0x39, (PORT >> 8) as u8, PORT as u8, 0, len, 0, 0, b'!'];
    let pseudo = [address(FAR_IP6), address(NEAR_IP6)].concat();
    let words = |bytes: &[u8]| -> u32 {
        let pairs = bytes.chunks(2);
        pairs.map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b))).sum()
    };
    // Length 0 stands for what is there.
    let covered = if len == 0 { 9 } else { u32::from(len) };
    let sum = words(&pseudo) + covered + u32::from(UDP) + words(&datagram);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    datagram[6..8].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    datagram
}

fn address(text: &str) -> Vec<u8> {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()
}

#[test]
fn reference_says_what_linux_does() {
    let network = Network::new();
    let socket = network.bind(NEAR_IP6, PORT);
    let frame = |next: u8, after: &[u8]| {
        let macs = [network.near_mac.0, network.far_mac.0].concat();
        let mut ip = vec![0x86, 0xdd, 0x60, 0, 0, 0];
        ip.extend((after.len() as u16).to_be_bytes());
        ip.extend([next, 64]);
        [macs, ip, address(FAR_IP6), address(NEAR_IP6), after.to_vec()].concat()
    };
    let mut parser = Parser::load().expect("the tests need root");
    let mut received_after = |frame: &[u8]| {
        network.near.run(|| parser.deliver(frame, network.near_ifindex).unwrap()).unwrap();
        let mut byte = [0];
        socket.recv(&mut byte).is_ok()
    };
    for (delivered, parse, next, after) in rows() {
        let frame = frame(next, &after);
        let parsed = reference::parse(&frame, frame.len());
        assert_eq!(coverage::name(parsed.parse), parse, "{next} {after:02x?}");
        assert_eq!(received_after(&frame), delivered, "{next} {after:02x?}");
    }
}

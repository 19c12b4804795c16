//! What a flow of generated packets is to be.

use std::net::IpAddr;

use crate::error::Error;
use crate::units::{MacAddr, PacketsPerSec};

pub(super) const ETHERNET_LEN: usize = 14;
/// Longest frame that an Ethernet interface takes, without its checksum.
pub(super) const FRAME_LEN_MAX: usize = 1514;
/// Bytes of [`Stamp`] at the start of a UDP payload that has room for them.
pub const STAMP_LEN: usize = 14;

/// What stands at the start of each generated UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When the packet was made, `CLOCK_MONOTONIC`, nanoseconds.
    pub sent_ns: u64,
    /// Number of the packet in its flow, from 0, modulo 2^32.
    pub sequence: u32,
}

impl Stamp {
    /// The stamp of a payload, or `None` if it is too short for one.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let sent_ns = u64::from_ne_bytes(payload.get(..8)?.try_into().ok()?);
        let sequence = u32::from_ne_bytes(payload.get(8..12)?.try_into().ok()?);
        (payload.len() >= STAMP_LEN).then_some(Self { sent_ns, sequence })
    }
}

/// What a flow's packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP; the payload begins with a [`Stamp`] if it has room.
    Udp,
    /// A TCP segment with SYN alone set, and no payload.
    TcpSyn,
    /// The same with ACK alone.
    TcpAck,
    /// As [`Transport::Udp`], but with a checksum that is wrong in every packet.
    UdpBadChecksum,
    /// The same bytes under a protocol that no host has: 253 (RFC 3692).
    OtherProtocol,
    /// An ICMP or ICMPv6 echo request; its identifier is the flow's source port, its sequence number
    /// the destination port.
    Echo,
    /// A neighbour solicitation for the destination, by the source's Ethernet address; IPv6 alone.
    Solicitation {
        /// 255, or nobody believes it (RFC 4861, 7.1.1).
        hop_limit: u8,
    },
    /// The first fragment of a UDP datagram, a different one each time, of which nothing else comes.
    /// Of IPv4 the random address bits are not random, but count the datagrams beyond 2^16.
    FirstFragment,
    /// The last fragment of one, as above.
    LastFragment,
    /// A packet that contradicts itself.
    Malformed(Flaw),
    /// [`FlowSpec::frame`], the same each time.
    Raw,
}

/// What is wrong with a packet that is UDP otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The IP header says that the packet is longer than its frame.
    IpLength,
    /// The IPv4 header says that it is shorter than any can be (IHL 4), or the IPv6 header that it is
    /// of another version.
    IpHeader,
    /// The UDP header says that the datagram is longer than its packet.
    UdpLength,
}

/// How long a flow's payloads are, bytes. A fragment is made longer, to a multiple of 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All the same.
    One(u16),
    /// Each length in this range is as frequent as any other.
    Uniform {
        /// The shortest.
        from: u16,
        /// The longest.
        to: u16,
    },
    /// Each of these is as frequent as any other, in any order; a length that is there twice is twice
    /// as frequent. 256 quantiles of them are drawn from, so shares are multiples of 1/256.
    Table(Vec<u16>),
}

/// Lengths of DNS messages over UDP, each with its share in 256 packets: queries and answers, half each.
///
/// They are not measured but made up, from the sizes of a message's parts: a query has 16 bytes of
/// header, type and class and a name of some 14 to 30 bytes (RFC 1035), and may have an OPT record of 11
/// bytes (RFC 6891), with a cookie 23 (RFC 7873). An answer adds records of 16 bytes (A) and more. Some
/// are signed, and a tail is as long as servers let an answer be (1,232 bytes: DNS flag day 2020).
const DNS: [(u16, u16); 14] = [
    (30, 14),
    (36, 24),
    (42, 34),
    (48, 28),
    (55, 18),
    (60, 10),
    (64, 32),
    (84, 28),
    (112, 24),
    (168, 16),
    (256, 10),
    (384, 8),
    (512, 6),
    (1232, 4),
];

impl Lengths {
    /// A mix of lengths as of DNS: queries of 30 to 60 bytes, answers of 60 to 512 and a few of 1,232.
    /// A made distribution, not a measured one.
    pub fn dns() -> Self {
        let of = |&(length, share): &(u16, u16)| vec![length; share.into()];
        Self::Table(DNS.iter().flat_map(of).collect())
    }
}

/// Where a flow's packets come from. Random bits must be zero in the flow's source address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// The flow's source address and port.
    One,
    /// So many addresses from the flow's source address upwards, drawn at random; one port.
    Some(u32),
    /// Low bits are random in each packet.
    Random {
        /// Of the address: 0 to 32.
        address_bits: u8,
        /// Of the port: 0 to 16.
        port_bits: u8,
    },
}

/// One flow of generated packets. Begin with [`FlowSpec::udp`] or [`FlowSpec::raw`].
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// What its packets are.
    pub transport: Transport,
    /// Source and destination Ethernet address.
    pub mac: (MacAddr, MacAddr),
    /// Source and destination address, of the same family.
    pub address: (IpAddr, IpAddr),
    /// Where in the sources' range each packet comes from. Fragments of IPv4 have no random port, and
    /// those of IPv6 one source.
    pub sources: Sources,
    /// Source and destination port.
    pub port: (u16, u16),
    /// How many low bits of the destination port are random in each packet (0 to 16). They must be
    /// zero in the port. For UDP and TCP.
    pub destination_port_bits: u8,
    /// IPv4 options, for UDP: a multiple of 4 bytes, at most 40.
    pub options: Vec<u8>,
    /// UDP or echo payload; of no effect on TCP and solicitations.
    pub lengths: Lengths,
    /// For [`Transport::Raw`] alone, for which all else but the pace is void: a frame from its
    /// Ethernet header on, 14 to [`crate::abi::TRAFFIC_START_LEN`] bytes.
    pub frame: Vec<u8>,
    /// Packets per second; `None`: as many as the CPU can.
    pub rate: Option<PacketsPerSec>,
    /// How many packets are sent back to back, at that rate in the mean; 1: evenly. Without a rate it
    /// is void.
    pub burst: u16,
}

impl FlowSpec {
    /// UDP packets with a payload of a stamp alone, between these addresses and ports, evenly and as
    /// many as the CPU can.
    pub fn udp(mac: (MacAddr, MacAddr), address: (IpAddr, IpAddr), port: (u16, u16)) -> Self {
        Self {
            transport: Transport::Udp,
            mac,
            address,
            sources: Sources::One,
            port,
            destination_port_bits: 0,
            options: Vec::new(),
            lengths: Lengths::One(STAMP_LEN as u16),
            frame: Vec::new(),
            rate: None,
            burst: 1,
        }
    }

    /// This frame over and over, as many times as the CPU can.
    pub fn raw(frame: Vec<u8>) -> Self {
        let nowhere = IpAddr::from([0; 4]);
        let nobody = MacAddr([0; 6]);
        Self {
            transport: Transport::Raw,
            frame,
            ..Self::udp((nobody, nobody), (nowhere, nowhere), (0, 0))
        }
    }
}

pub(super) fn refused(problem: String) -> Error {
    Error::refused(problem, "see the limits in weir_bpf::traffic::FlowSpec")
}

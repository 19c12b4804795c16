//! What the gate makes of one packet, and why: what its parser saw, the channel, the reason.
//!
//! The packet goes through the very program that discards packets (`BPF_PROG_TEST_RUN`), which looks
//! at this host's sockets, routes and queues as they are at that moment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::channels::{Channel, is_addressed};
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::skeleton::gate::types;
use crate::units::IfIndex;
use crate::verdict::{Kind, Reason, Verdict};

/// Shortest packet that the kernel runs a program on: an Ethernet header, in bytes
/// (`bpf_prog_test_run_xdp()`).
pub const PACKET_LEN_MIN: usize = 14;
/// Longest one, in bytes: 16 of the 17 fragments of 4,096 bytes that a frame may have
/// (`MAX_SKB_FRAGS`), so that nothing depends on how long the first buffer is.
pub const PACKET_LEN_MAX: usize = 65_536;

/// What became of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Why.
    pub reason: Reason,
    /// Where it was going.
    pub channel: Channel,
    /// What the parser saw; `None` if the packet is malformed, or passed without being parsed.
    pub headers: Option<Headers>,
}

impl Explanation {
    fn unparsed(reason: Reason) -> Self {
        Self { reason, channel: Channel::of_kind(reason.kind()), headers: None }
    }

    /// What the gate does with the packet.
    pub fn verdict(&self) -> Verdict {
        self.reason.verdict()
    }
}

/// What the parser saw of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// After the VLAN tags.
    pub ethertype: u16,
    /// How many VLAN tags there are, at most two of which are looked behind.
    pub vlan_tags: u8,
    /// The IP header; `None` of anything but IP.
    pub ip: Option<IpHeader>,
}

/// What the parser saw of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number of the transport header.
    pub protocol: u8,
    /// A source route or routing header may send the packet elsewhere.
    pub source_routed: bool,
    /// Which part of a datagram this is.
    pub fragment: Fragment,
    /// The transport header.
    pub transport: Transport,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    Whole,
    /// The beginning. The number tells datagrams apart.
    First(u32),
    /// A part without a transport header.
    Later(u32),
}

/// What the parser saw of a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Bytes of header and payload, as the header says.
        len: u16,
    },
    /// TCP.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Flags.
        flags: TcpFlags,
    },
    /// ICMP.
    Icmp {
        /// Type.
        kind: u8,
    },
    /// ICMPv6.
    Icmpv6 {
        /// Type.
        kind: u8,
    },
    /// IGMP.
    Igmp,
    /// Another protocol.
    Other,
    /// None: a later fragment.
    Absent,
    /// Not found: more IPv6 extension headers than the gate looks behind.
    BehindChain,
}

/// A TCP header's flags: the low eight bits, FIN lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// Names of those that are set, such as `SYN` and `ACK` (RFC 9293, RFC 3168).
    pub fn names(self) -> Vec<&'static str> {
        let all = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let set = |bit: &usize| self.0 >> bit & 1 == 1;
        (0..all.len()).filter(set).map(|bit| all[bit]).collect()
    }
}

impl Gate {
    /// Runs a packet through a gate that was loaded by [`Gate::load_explaining`], as if it had come in on
    /// `ifindex` of the calling thread's network namespace.
    ///
    /// One thread at a time, pinned to a CPU: what the gate remembers for the next packets, it remembers
    /// per CPU.
    ///
    /// # Errors
    /// For packets that are shorter than [`PACKET_LEN_MIN`] or longer than [`PACKET_LEN_MAX`], or when the
    /// kernel refuses the run.
    pub fn explain(&self, packet: &[u8], ifindex: IfIndex) -> Result<Explanation> {
        self.test_run(packet, ifindex)?;
        let maps = &self.skel().maps;
        let explaining = maps.rodata_data.is_some_and(|rodata| rodata.explaining);
        let said = maps.bss_data.as_deref().filter(|_| explaining).map(|bss| {
            // Judged before it was parsed.
            match (bss.interface.policy_off, bss.interface.diverted) {
                (0, 0) => explanation_of(&bss.explanation),
                (0, _) => Some(Explanation::unparsed(Reason::Diverted)),
                (_, _) => Some(Explanation::unparsed(Reason::PolicyOff)),
            }
        });
        said.flatten().ok_or_else(|| {
            Error::refused(
                "the gate did not explain a packet",
                "load it by Gate::load_explaining()",
            )
        })
    }
}

fn explanation_of(said: &types::weir_explanation) -> Option<Explanation> {
    let reason = Reason::ALL.into_iter().find(|reason| *reason as u32 == said.reason)?;
    let headers = headers_of(said);
    Some(Explanation { reason, channel: channel_of(reason, headers, said.egress_ifindex), headers })
}

fn channel_of(reason: Reason, headers: Option<Headers>, egress: u32) -> Channel {
    let kind = reason.kind();
    let of_kind = Channel::of_kind(kind);
    if kind == Kind::Forward {
        return Channel { egress: Some(IfIndex(egress)), ..of_kind };
    }
    if !is_addressed(kind) {
        return of_kind;
    }
    let local = headers.and_then(|headers| headers.ip).and_then(|ip| match ip.transport {
        Transport::Tcp { source, .. } if kind == Kind::TcpPeer => Some((ip.destination, source)),
        Transport::Udp { destination, .. } | Transport::Tcp { destination, .. } => {
            Some((ip.destination, destination))
        }
        _ => None,
    });
    Channel { local, ..of_kind }
}

fn headers_of(said: &types::weir_explanation) -> Option<Headers> {
    use types::weir_parse as parse;

    let parsed = &said.parsed;
    let transport = match said.parse {
        parse::WEIR_PARSE_MALFORMED => return None,
        parse::WEIR_PARSE_UDP => Transport::Udp {
            source: parsed.source_port,
            destination: parsed.destination_port,
            len: parsed.udp_len,
        },
        parse::WEIR_PARSE_TCP => Transport::Tcp {
            source: parsed.source_port,
            destination: parsed.destination_port,
            flags: TcpFlags(parsed.tcp_flags),
        },
        parse::WEIR_PARSE_ICMP => Transport::Icmp { kind: parsed.icmp_type },
        parse::WEIR_PARSE_ICMPV6 => Transport::Icmpv6 { kind: parsed.icmp_type },
        parse::WEIR_PARSE_IGMP => Transport::Igmp,
        parse::WEIR_PARSE_LATER_FRAGMENT => Transport::Absent,
        parse::WEIR_PARSE_IPV6_CHAIN => Transport::BehindChain,
        _ => Transport::Other,
    };
    Some(Headers {
        ethertype: parsed.ethertype,
        vlan_tags: parsed.vlan_tags,
        ip: ip_of(said, transport),
    })
}

fn ip_of(said: &types::weir_explanation, transport: Transport) -> Option<IpHeader> {
    let parsed = &said.parsed;
    let address: fn(&[u8; 16]) -> IpAddr = match types::weir_family(parsed.family.into()) {
        types::weir_family::WEIR_FAMILY_IPV4 => ipv4,
        types::weir_family::WEIR_FAMILY_IPV6 => |octets| Ipv6Addr::from(*octets).into(),
        _ => return None,
    };
    let fragment = match said.fragment {
        types::weir_fragment::WEIR_FRAGMENT_FIRST => Fragment::First(parsed.fragment_id),
        types::weir_fragment::WEIR_FRAGMENT_LATER => Fragment::Later(parsed.fragment_id),
        _ => Fragment::Whole,
    };
    Some(IpHeader {
        source: address(&parsed.source),
        destination: address(&parsed.destination),
        protocol: parsed.protocol,
        source_routed: parsed.routed != 0,
        fragment,
        transport,
    })
}

fn ipv4(octets: &[u8; 16]) -> IpAddr {
    Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into()
}

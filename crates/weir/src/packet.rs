//! What a packet is, by its headers.

use std::fmt;
use std::net::IpAddr;

use etherparse::{LaxPacketHeaders, LaxPayloadSlice, NetHeaders, TransportHeader};
use weir_bpf::parser::{Fragment, Parse, Parsed};

/// IP protocols that have names.
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

/// A packet's headers, as far as rules look at them and people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub source_port: u16,
    pub destination_port: u16,
    pub tcp_flags: u8,
    pub icmp_type: u8,
    pub fragment: bool,
}

impl Packet {
    /// From what the gate's parser says; none of what is not IP, or cannot be read.
    pub fn of(parsed: &Parsed) -> Option<Self> {
        let unread = [Parse::WEIR_PARSE_MALFORMED, Parse::WEIR_PARSE_IPV6_CHAIN];
        if unread.contains(&parsed.reached()) {
            return None;
        }
        let (source, destination) = parsed.addresses()?;
        Some(Self {
            source,
            destination,
            protocol: parsed.protocol,
            source_port: parsed.source_port,
            destination_port: parsed.destination_port,
            tcp_flags: parsed.tcp_flags,
            icmp_type: parsed.icmp_type,
            fragment: parsed.part() != Fragment::WEIR_FRAGMENT_NONE,
        })
    }

    /// From headers that may be cut off somewhere; none of what is not IP.
    pub fn of_headers(headers: &LaxPacketHeaders<'_>) -> Option<Self> {
        let (source, destination, fragment): (IpAddr, IpAddr, bool) = match headers.net.as_ref()? {
            NetHeaders::Ipv4(ip, _) => {
                (ip.source.into(), ip.destination.into(), ip.is_fragmenting_payload())
            }
            NetHeaders::Ipv6(ip, extensions) => {
                (ip.source.into(), ip.destination.into(), extensions.is_fragmenting_payload())
            }
            NetHeaders::Arp(_) => return None,
        };
        let transport = headers.transport.as_ref();
        let (source_port, destination_port) = match transport {
            Some(TransportHeader::Udp(udp)) => (udp.source_port, udp.destination_port),
            Some(TransportHeader::Tcp(tcp)) => (tcp.source_port, tcp.destination_port),
            _ => (0, 0),
        };
        let (protocol, tcp_flags, icmp_type) = match (transport, &headers.payload) {
            (Some(TransportHeader::Udp(_)), _) => (UDP, 0, 0),
            (Some(TransportHeader::Tcp(tcp)), _) => (TCP, tcp.to_bytes()[13], 0),
            (Some(TransportHeader::Icmpv4(icmp)), _) => (ICMP, 0, icmp.to_bytes()[0]),
            (Some(TransportHeader::Icmpv6(icmp)), _) => (ICMPV6, 0, icmp.to_bytes()[0]),
            (_, LaxPayloadSlice::Ip(payload)) => (payload.ip_number.0, 0, 0),
            _ => (0, 0, 0),
        };
        Some(Self {
            source,
            destination,
            protocol,
            source_port,
            destination_port,
            tcp_flags,
            icmp_type,
            fragment,
        })
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            ICMP => "icmp".to_owned(),
            TCP => "tcp".to_owned(),
            UDP => "udp".to_owned(),
            ICMPV6 => "icmp6".to_owned(),
            other => format!("proto {other}"),
        };
        write!(f, "{protocol} {}", self.source)?;
        let ports = matches!(self.protocol, TCP | UDP) && !self.fragment;
        if ports {
            write!(f, " port {}", self.source_port)?;
        }
        write!(f, " > {}", self.destination)?;
        if ports {
            write!(f, " port {}", self.destination_port)?;
        }
        if matches!(self.protocol, ICMP | ICMPV6) && !self.fragment {
            write!(f, " type {}", self.icmp_type)?;
        }
        if self.fragment { f.write_str(" fragment") } else { Ok(()) }
    }
}

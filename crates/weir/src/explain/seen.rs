//! What the parser saw of a packet, for programs and for people.

use serde::Serialize;
use weir_bpf::explain::{Explanation, Fragment, Headers, IpHeader, Transport};
use weir_bpf::units::MacAddr;
use weir_bpf::verdict::Kind;

/// For programs. Fields that a packet does not have are `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Destination Ethernet address.
    pub destination_mac: String,
    /// Source Ethernet address.
    pub source_mac: String,
    /// After the VLAN tags.
    pub ethertype: Option<u16>,
    /// How many VLAN tags there are.
    pub vlan_tags: Option<u8>,
    /// IP address.
    pub source: Option<String>,
    /// IP address.
    pub destination: Option<String>,
    /// IP protocol number of the transport header.
    pub protocol: Option<u8>,
    /// UDP's or TCP's.
    pub source_port: Option<u16>,
    /// UDP's or TCP's.
    pub destination_port: Option<u16>,
    /// Bytes of header and payload, as the UDP header says.
    pub udp_len: Option<u16>,
    /// Names of those that are set.
    pub tcp_flags: Option<Vec<&'static str>>,
    /// ICMP's or ICMPv6's.
    pub icmp_type: Option<u8>,
    /// `first` or `later`, of a part of a datagram.
    pub fragment: Option<&'static str>,
    /// What the parts of a datagram have in common.
    pub fragment_id: Option<u32>,
    /// A source route or routing header may send the packet elsewhere.
    pub source_routed: Option<bool>,
}

/// The Ethernet addresses of a frame, destination first.
pub fn macs(frame: &[u8]) -> Option<(MacAddr, MacAddr)> {
    let (destination, rest) = frame.split_first_chunk::<6>()?;
    Some((MacAddr(*destination), MacAddr(*rest.first_chunk::<6>()?)))
}

/// What was seen of a frame; `None` if it is too short for Ethernet addresses.
pub fn seen(frame: &[u8], explanation: &Explanation) -> Option<Seen> {
    let (destination_mac, source_mac) = macs(frame)?;
    let headers = explanation.headers;
    let ip = headers.and_then(|headers| headers.ip);
    let transport = ip.map(|ip| ip.transport);
    let (source_port, destination_port) = match transport {
        Some(
            Transport::Udp { source, destination, .. } | Transport::Tcp { source, destination, .. },
        ) => (Some(source), Some(destination)),
        _ => (None, None),
    };
    let (fragment, fragment_id) = match ip.map(|ip| ip.fragment) {
        Some(Fragment::First(id)) => (Some("first"), Some(id)),
        Some(Fragment::Later(id)) => (Some("later"), Some(id)),
        Some(Fragment::Whole) | None => (None, None),
    };
    Some(Seen {
        destination_mac: destination_mac.to_string(),
        source_mac: source_mac.to_string(),
        ethertype: headers.map(|headers| headers.ethertype),
        vlan_tags: headers.map(|headers| headers.vlan_tags),
        source: ip.map(|ip| ip.source.to_string()),
        destination: ip.map(|ip| ip.destination.to_string()),
        protocol: ip.map(|ip| ip.protocol),
        source_port,
        destination_port,
        udp_len: match transport {
            Some(Transport::Udp { len, .. }) => Some(len),
            _ => None,
        },
        tcp_flags: match transport {
            Some(Transport::Tcp { flags, .. }) => Some(flags.names()),
            _ => None,
        },
        icmp_type: match transport {
            Some(Transport::Icmp { kind } | Transport::Icmpv6 { kind }) => Some(kind),
            _ => None,
        },
        fragment,
        fragment_id,
        source_routed: ip.map(|ip| ip.source_routed),
    })
}

/// For people: `198.18.0.2:4000 > 198.18.0.1:53 UDP`.
pub fn text(frame: &[u8], explanation: &Explanation) -> String {
    let mut parts = Vec::new();
    let ip = explanation.headers.and_then(|headers| headers.ip);
    // Where the addresses say nothing, or the Ethernet address is what decided.
    if ip.is_none() || explanation.channel.kind == Kind::Tap {
        parts.extend(macs(frame).map(|(to, from)| format!("{from} > {to}")));
    }
    if let Some(headers) = &explanation.headers {
        if headers.vlan_tags > 0 {
            parts.push(format!("VLAN x{}", headers.vlan_tags));
        }
        parts.push(headers.ip.map_or_else(|| ethertype(headers), |ip| ip_text(&ip)));
    }
    parts.join(", ")
}

fn ethertype(headers: &Headers) -> String {
    match headers.ethertype {
        0x0806 => "ARP".into(),
        // The parser stopped before the header.
        0x0800 => "IPv4".into(),
        0x86dd => "IPv6".into(),
        // IEEE 802.3: not a type, but a length.
        len if len < 0x0600 => "LLC".into(),
        other => format!("ethertype {other:#06x}"),
    }
}

fn ip_text(ip: &IpHeader) -> String {
    let (source, destination) = (ip.source, ip.destination);
    let ends = |from: u16, to: u16| {
        let end = |ip, port| std::net::SocketAddr::new(ip, port);
        format!("{} > {}", end(source, from), end(destination, to))
    };
    let hosts = format!("{source} > {destination}");
    let mut text = match ip.transport {
        Transport::Udp { source, destination, len } => {
            format!("{} UDP {len} B", ends(source, destination))
        }
        Transport::Tcp { source, destination, flags } => {
            format!("{} TCP {}", ends(source, destination), flags.names().join("+"))
        }
        Transport::Icmp { kind } => format!("{hosts} ICMP type {kind}"),
        Transport::Icmpv6 { kind } => format!("{hosts} ICMPv6 type {kind}"),
        Transport::Igmp => format!("{hosts} IGMP"),
        Transport::Other | Transport::Absent => format!("{hosts} protocol {}", ip.protocol),
        Transport::BehindChain => format!("{hosts} protocol behind too many headers"),
    };
    match ip.fragment {
        Fragment::Whole => {}
        Fragment::First(id) => text += &format!(", first fragment of {id}"),
        Fragment::Later(id) => text += &format!(", later fragment of {id}"),
    }
    if ip.source_routed {
        text += ", source-routed";
    }
    text
}

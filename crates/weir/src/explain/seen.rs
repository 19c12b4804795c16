//! What the parser saw of a packet, for programs and for people.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use weir_bpf::explain::Explanation;
use weir_bpf::parser::{Fragment, Parse, Parsed};
use weir_bpf::units::MacAddr;
use weir_bpf::verdict::Kind;

/// The Ethernet addresses of a frame, destination first.
pub fn macs(frame: &[u8]) -> Option<(MacAddr, MacAddr)> {
    let (destination, rest) = frame.split_first_chunk::<6>()?;
    Some((MacAddr(*destination), MacAddr(*rest.first_chunk::<6>()?)))
}

/// What was seen of a frame, for programs; `None` if it is too short for Ethernet addresses.
pub fn seen(frame: &[u8], explanation: &Explanation) -> Option<Value> {
    let (destination_mac, source_mac) = macs(frame)?;
    let parsed = explanation.parsed;
    let addresses = parsed.and_then(|parsed| parsed.addresses());
    let ports = parsed.and_then(|parsed| parsed.ports());
    let ip = parsed.filter(|_| addresses.is_some());
    let of = |kinds: &[Parse]| ip.filter(|ip| kinds.contains(&ip.reached()));
    let fragment = ip.and_then(|ip| fragment(&ip));
    Some(json!({
        "destination_mac": destination_mac.to_string(),
        "source_mac": source_mac.to_string(),
        "ethertype": parsed.map(|parsed| parsed.ethertype),
        "vlan_tags": parsed.map(|parsed| parsed.vlan_tags),
        "source": addresses.map(|(source, _)| source.to_string()),
        "destination": addresses.map(|(_, destination)| destination.to_string()),
        "protocol": ip.map(|ip| ip.protocol),
        "source_port": ports.map(|(source, _)| source),
        "destination_port": ports.map(|(_, destination)| destination),
        "udp_len": of(&[Parse::WEIR_PARSE_UDP]).map(|udp| udp.udp_len),
        "tcp_flags": of(&[Parse::WEIR_PARSE_TCP]).map(|tcp| flags(tcp.tcp_flags)),
        "icmp_type":
            of(&[Parse::WEIR_PARSE_ICMP, Parse::WEIR_PARSE_ICMPV6]).map(|icmp| icmp.icmp_type),
        "fragment": fragment,
        "fragment_id": ip.filter(|_| fragment.is_some()).map(|ip| ip.fragment_id),
        "source_routed": ip.map(|ip| ip.routed != 0),
    }))
}

fn fragment(ip: &Parsed) -> Option<&'static str> {
    match ip.part() {
        Fragment::WEIR_FRAGMENT_FIRST => Some("first"),
        Fragment::WEIR_FRAGMENT_LATER => Some("later"),
        _ => None,
    }
}

/// Names of the TCP flags that are set, such as `SYN` and `ACK` (RFC 9293, RFC 3168).
fn flags(set: u8) -> Vec<&'static str> {
    let all = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    (0..all.len()).filter(|bit| set >> bit & 1 == 1).map(|bit| all[bit]).collect()
}

/// For people: `198.18.0.2:4000 > 198.18.0.1:53 UDP`.
pub fn text(frame: &[u8], explanation: &Explanation) -> String {
    let mut parts = Vec::new();
    let addresses = explanation.parsed.and_then(|parsed| parsed.addresses());
    // Where the addresses say nothing, or the Ethernet address is what decided.
    if addresses.is_none() || explanation.channel.kind == Kind::Tap {
        parts.extend(macs(frame).map(|(to, from)| format!("{from} > {to}")));
    }
    if let Some(parsed) = &explanation.parsed {
        if parsed.vlan_tags > 0 {
            parts.push(format!("VLAN x{}", parsed.vlan_tags));
        }
        parts.push(addresses.map_or_else(|| ethertype(parsed), |ends| ip_text(parsed, ends)));
    }
    parts.join(", ")
}

fn ethertype(parsed: &Parsed) -> String {
    match parsed.ethertype {
        0x0806 => "ARP".into(),
        // The parser stopped before the header.
        0x0800 => "IPv4".into(),
        0x86dd => "IPv6".into(),
        // IEEE 802.3: not a type, but a length.
        len if len < 0x0600 => "LLC".into(),
        other => format!("ethertype {other:#06x}"),
    }
}

fn ip_text(ip: &Parsed, (source, destination): (IpAddr, IpAddr)) -> String {
    let mut text = match ip.ports() {
        Some((from, to)) => {
            format!("{} > {}", SocketAddr::new(source, from), SocketAddr::new(destination, to))
        }
        None => format!("{source} > {destination}"),
    };
    text += &match ip.reached() {
        Parse::WEIR_PARSE_UDP => format!(" UDP {} B", ip.udp_len),
        Parse::WEIR_PARSE_TCP => format!(" TCP {}", flags(ip.tcp_flags).join("+")),
        Parse::WEIR_PARSE_ICMP => format!(" ICMP type {}", ip.icmp_type),
        Parse::WEIR_PARSE_ICMPV6 => format!(" ICMPv6 type {}", ip.icmp_type),
        Parse::WEIR_PARSE_IGMP => " IGMP".into(),
        Parse::WEIR_PARSE_IPV6_CHAIN => " protocol behind too many headers".into(),
        _ => format!(" protocol {}", ip.protocol),
    };
    if let Some(part) = fragment(ip) {
        text += &format!(", {part} fragment of {}", ip.fragment_id);
    }
    if ip.routed != 0 {
        text += ", source-routed";
    }
    text
}

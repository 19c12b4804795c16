//! What a channel is called.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use weir_bpf::channels::Channel;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::Kind;

use crate::error::Result;

/// A channel, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChannelName {
    /// What kind of channel it is.
    pub kind: &'static str,
    /// As printed: `udp 198.18.0.1:53`, `tcp-peer 198.18.0.1 to port 179`, `forward via eth1`, `icmp`.
    pub name: String,
    /// Local address; `null` of a kind that has none.
    pub address: Option<String>,
    /// Local port; of kind `tcp-peer` the peers'; `null` of a kind that has none.
    pub port: Option<u16>,
    /// The interface that packets leave by, of kind `forward`; else `null`.
    pub interface: Option<String>,
}

/// Gives channels of one network namespace their names.
pub struct Namer {
    links: HashMap<IfIndex, String>,
}

impl Namer {
    /// Learns what interfaces are called.
    pub fn new(links: &Links) -> Result<Self> {
        let links = links.list()?.into_iter().map(|link| (link.ifindex, link.name)).collect();
        Ok(Self { links })
    }

    /// A channel's name.
    pub fn name(&self, channel: &Channel) -> ChannelName {
        let kind = channel.kind.name();
        // One that has been removed since.
        let interface =
            |ifindex| self.links.get(&ifindex).cloned().unwrap_or_else(|| unnamed(ifindex));
        let interface = channel.egress.map(interface);
        ChannelName {
            kind,
            name: text(kind, channel.local, interface.as_deref()),
            address: channel.local.map(|(address, _)| address.to_string()),
            port: channel.local.map(|(_, port)| port),
            interface,
        }
    }
}

/// An interface that has no name any more.
pub fn unnamed(ifindex: IfIndex) -> String {
    format!("interface {}", ifindex.0)
}

/// As printed, by the kind's name, the local address and port, and the interface that packets leave by.
pub fn text(kind: &str, local: Option<(IpAddr, u16)>, interface: Option<&str>) -> String {
    match (local, interface) {
        (Some((address, port)), _) if kind == Kind::TcpPeer.name() => {
            format!("{kind} {address} to port {port}")
        }
        (Some((address, port)), _) => format!("{kind} {}", SocketAddr::new(address, port)),
        (None, Some(interface)) if kind == Kind::Forward.name() => {
            format!("{kind} via {interface}")
        }
        (None, _) => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_have_names() {
        let namer = Namer { links: [(IfIndex(3), "eth1".into())].into() };
        let name = |channel: &Channel| namer.name(channel).name;
        let local = |kind, address: &str, port| Channel {
            local: Some((address.parse().unwrap(), port)),
            ..Channel::of_kind(kind)
        };
        assert_eq!(name(&local(Kind::Udp, "198.18.0.1", 53)), "udp 198.18.0.1:53");
        assert_eq!(name(&local(Kind::Tcp, "2001:2::1", 443)), "tcp [2001:2::1]:443");
        let peers = local(Kind::TcpPeer, "198.18.0.1", 179);
        assert_eq!(name(&peers), "tcp-peer 198.18.0.1 to port 179");
        let via =
            |ifindex| Channel { egress: Some(IfIndex(ifindex)), ..Channel::of_kind(Kind::Forward) };
        assert_eq!(name(&via(3)), "forward via eth1");
        assert_eq!(name(&via(4)), "forward via interface 4");
        assert_eq!(name(&Channel::of_kind(Kind::TcpClient)), "tcp-client");
    }
}

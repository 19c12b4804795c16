//! What rtnetlink tells about one interface.

use std::fmt;

use netlink_packet_core::{DecodeError, Emitable, Parseable};
use netlink_packet_route::link::{LinkFlags, LinkHeader, LinkLayerType};
use netlink_packet_route::stats::{StatsAttribute, StatsMessage};
use serde::{Deserialize, Serialize};

use super::netlink::Attributes;
use crate::error::{Error, Result};
use crate::units::{IfIndex, MacAddr};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its number.
    pub ifindex: IfIndex,
    /// Name within its network namespace.
    pub name: String,
    /// Ethernet address; `None` where there is none, as on a tunnel.
    pub mac: Option<MacAddr>,
    /// Its packets begin with their IP headers, without Ethernet's (`ARPHRD_NONE`, `ARPHRD_PPP` and `ARPHRD_RAWIP`: tun,
    /// WireGuard, PPP, modems). Other tunnels without an Ethernet address have headers of their own.
    pub bare: bool,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Carries packets (RFC 2863's operational state is up). The kernel gets there some time after
    /// both ends are up, up to a second later, and drops what is sent through sockets before.
    /// Never set for drivers that do not tell, loopback among them.
    pub oper_up: bool,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Kind of a virtual interface (`veth`, `bridge`, ...); `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// The bridge, bond or the like whose port it is.
    pub master: Option<IfIndex>,
    /// The interface below, in the same namespace.
    pub lower: Option<IfIndex>,
}

/// Packets since the interface was made, as the driver counts them (`IFLA_STATS_LINK_64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets received but dropped by the driver or before a protocol took them. Some drivers
    /// (`virtio_net`) count what an XDP program discards here. A veth without XDP counts here what a
    /// CPU's backlog had no room for; with XDP in its driver, what its ring had no room for is counted
    /// by its peer alone, as [`LinkStats::tx_dropped`].
    pub rx_dropped: u64,
    /// Packets for which the host had provided no buffer: most NICs count a full ring here.
    pub rx_missed_errors: u64,
    /// Overflows of the NIC's own receive queue; some drivers count a full ring here instead.
    pub rx_fifo_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped on the way out; on a veth, also those its peer's ring had no room for.
    pub tx_dropped: u64,
}

impl LinkStats {
    /// Packets lost because the NIC's receive ring was full. A veth has no such counters.
    pub fn ring_dropped(&self) -> u64 {
        self.rx_missed_errors.saturating_add(self.rx_fifo_errors)
    }
}

/// Where in the receive path an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver, before a socket buffer exists.
    Native,
    /// In the network core, on a socket buffer.
    Generic,
    /// On the NIC.
    Offload,
    /// Several programs at several places.
    Multi,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpAttached {
    /// The kernel's number of the program; with [`XdpMode::Multi`], of the one that sees packets
    /// first.
    pub prog_id: u32,
    /// Where it runs.
    pub mode: XdpMode,
}

const IF_OPER_UP: u8 = 6;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `IFLA_XDP_PROG_ID`, which the kernel leaves out with several programs (`rtnl_xdp_fill()`), and those of the NIC, the
/// driver and the stack: in a packet's order.
const IFLA_XDP_PROG_IDS: [u16; 4] = [4, 7, 5, 6];

/// What the kernel answers about an interface, its attributes as they came. `LinkMessage` would decode a hundred
/// counters and settings for these few, and refuse an alias or an alternative name that is not text in UTF-8. Nor need a
/// name be, and an interface whose name is not has none here.
pub(super) struct Answer {
    header: LinkHeader,
    attributes: Vec<u8>,
}

impl Parseable<[u8]> for Answer {
    fn parse(answer: &[u8]) -> std::result::Result<Self, DecodeError> {
        let header = LinkHeader::parse(answer)?;
        let attributes = answer[header.buffer_len()..].to_vec();
        if Attributes::of(&attributes).each().any(|each| each.is_none()) {
            return Err("a link's attribute is malformed".into());
        }
        Ok(Self { header, attributes })
    }
}

impl Answer {
    fn attributes(&self) -> Attributes<'_> {
        Attributes::of(&self.attributes)
    }

    pub(super) fn ifindex(&self) -> IfIndex {
        IfIndex(self.header.index)
    }

    pub(super) fn name(&self) -> Result<String> {
        let name =
            self.attributes().value(libc::IFLA_IFNAME).and_then(|name| name.strip_suffix(&[0]));
        let name = name.and_then(|name| str::from_utf8(name).ok());
        name.map(Into::into).ok_or_else(|| self.lacks("a name"))
    }

    pub(super) fn mac(&self) -> Option<MacAddr> {
        self.attributes().value(libc::IFLA_ADDRESS)?.try_into().ok().map(MacAddr)
    }

    pub(super) fn is_bare(&self) -> bool {
        use LinkLayerType::{None, Ppp, Rawip};
        matches!(self.header.link_layer_type, None | Ppp | Rawip)
    }

    pub(super) fn xdp(&self) -> Option<XdpAttached> {
        let parts = self.attributes().within(libc::IFLA_XDP);
        let mode = match parts.value(IFLA_XDP_ATTACHED)? {
            [1] => XdpMode::Native,
            [2] => XdpMode::Generic,
            [3] => XdpMode::Offload,
            [4] => XdpMode::Multi,
            _ => return None,
        };
        let prog_id = IFLA_XDP_PROG_IDS.into_iter().find_map(|kind| parts.number(kind))?;
        Some(XdpAttached { prog_id, mode })
    }

    pub(super) fn info(&self) -> Result<LinkInfo> {
        let (attributes, flags) = (self.attributes(), self.header.flags);
        let lower =
            attributes.number(libc::IFLA_LINK).filter(|_| !attributes.has(libc::IFLA_LINK_NETNSID));
        Ok(LinkInfo {
            ifindex: self.ifindex(),
            name: self.name()?,
            mac: self.mac(),
            bare: self.is_bare(),
            up: flags.contains(LinkFlags::Up),
            oper_up: attributes.value(libc::IFLA_OPERSTATE) == Some(&[IF_OPER_UP]),
            mtu: attributes.number(libc::IFLA_MTU).ok_or_else(|| self.lacks("an MTU"))?,
            kind: attributes.within(libc::IFLA_LINKINFO).text(libc::IFLA_INFO_KIND),
            loopback: flags.contains(LinkFlags::Loopback),
            master: attributes.number(libc::IFLA_MASTER).map(IfIndex),
            lower: lower.map(IfIndex),
        })
    }

    fn lacks(&self, what: &str) -> Error {
        Error::Netlink {
            operation: "look up",
            object: format!("interface number {}", self.header.index),
            message: format!("the kernel's answer lacks {what}"),
        }
    }
}

impl LinkInfo {
    /// Whether a gate understands its packets.
    pub fn takes_gate(&self) -> bool {
        self.mac.is_some() || self.bare
    }
}

pub(super) fn stats_of(message: &StatsMessage) -> Option<LinkStats> {
    message.attributes.iter().find_map(|attribute| match attribute {
        StatsAttribute::Link64(stats) => Some(LinkStats {
            rx_packets: stats.rx_packets,
            rx_dropped: stats.rx_dropped,
            rx_missed_errors: stats.rx_missed_errors,
            rx_fifo_errors: stats.rx_fifo_errors,
            tx_packets: stats.tx_packets,
            tx_dropped: stats.tx_dropped,
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{
        LinkAttribute, LinkMessage, LinkXdp, Stats64, XdpAttached as Attached,
    };

    use super::*;
    use crate::sys::netlink::emitted;

    fn xdp_of(parts: Vec<LinkXdp>) -> Option<XdpAttached> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Xdp(parts));
        Answer::parse(&emitted(&message)).unwrap().xdp()
    }

    #[test]
    fn a_full_ring_is_told_from_other_drops() {
        let mut counted = Stats64::default();
        counted.rx_packets = 1;
        counted.rx_dropped = 2;
        counted.rx_missed_errors = 30;
        counted.rx_fifo_errors = 400;
        counted.rx_over_errors = 5000;
        counted.tx_packets = 6;
        counted.tx_dropped = 7;
        let mut message = StatsMessage::default();
        message.attributes.push(StatsAttribute::Link64(counted));
        let expected = LinkStats {
            rx_packets: 1,
            rx_dropped: 2,
            rx_missed_errors: 30,
            rx_fifo_errors: 400,
            tx_packets: 6,
            tx_dropped: 7,
        };
        assert_eq!(stats_of(&message), Some(expected));
        assert_eq!(expected.ring_dropped(), 430);
        assert_eq!(stats_of(&StatsMessage::default()), None);
    }

    #[test]
    fn a_gate_takes_ethernet_and_bare_ip_alone() {
        let of = |layer: LinkLayerType, address: &[u8]| {
            let mut message = LinkMessage::default();
            message.header.link_layer_type = layer;
            message.attributes.extend([
                LinkAttribute::IfName("some0".into()),
                LinkAttribute::Mtu(1500),
                LinkAttribute::Address(address.to_vec()),
            ]);
            let info = Answer::parse(&emitted(&message)).unwrap().info().unwrap();
            (info.bare, info.takes_gate())
        };
        assert_eq!(of(LinkLayerType::Ether, &[2, 0, 0, 0, 0, 1]), (false, true));
        assert_eq!(of(LinkLayerType::None, &[]), (true, true));
        assert_eq!(of(LinkLayerType::Ppp, &[]), (true, true));
        for (layer, bytes) in [(LinkLayerType::Ipgre, 4), (LinkLayerType::Infiniband, 20)] {
            assert_eq!(of(layer, &vec![7; bytes]), (false, false));
        }
    }

    #[test]
    fn no_program_is_none() {
        assert_eq!(xdp_of(vec![]), None);
        assert_eq!(xdp_of(vec![LinkXdp::Attached(Attached::None)]), None);
    }

    #[test]
    fn one_program_has_its_mode() {
        let parts = vec![
            LinkXdp::Attached(Attached::SocketBuffer),
            LinkXdp::SkbProgId(7),
            LinkXdp::ProgId(7),
        ];
        let expected = XdpAttached { prog_id: 7, mode: XdpMode::Generic };
        assert_eq!(xdp_of(parts), Some(expected));
    }

    #[test]
    fn of_several_programs_the_first_in_the_path_is_named() {
        let parts = vec![
            LinkXdp::Attached(Attached::Multiple),
            LinkXdp::SkbProgId(8),
            LinkXdp::DrvProgId(9),
        ];
        let expected = XdpAttached { prog_id: 9, mode: XdpMode::Multi };
        assert_eq!(xdp_of(parts), Some(expected));
    }
}

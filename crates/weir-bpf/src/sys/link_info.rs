//! What rtnetlink tells about one interface.

use std::fmt;

use netlink_packet_core::{DecodeError, Parseable};
use netlink_packet_route::link::{
    self, LinkAttribute, LinkFlags, LinkLayerType, LinkMessage, LinkXdp, State,
    XdpAttached as Attached,
};
use netlink_packet_route::stats::{StatsAttribute, StatsMessage};
use serde::{Deserialize, Serialize};

use super::netlink::{Attributes, attribute};
use crate::error::{Error, Result};
use crate::units::{IfIndex, MacAddr};

/// An interface's name, address, state, MTU and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
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
}

/// Packets since the interface was made, as the driver counts them (`IFLA_STATS_LINK_64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Packets that did not fit into a buffer. Older drivers repeat
    /// [`LinkStats::rx_fifo_errors`] here, so the two are not to be added up.
    pub rx_over_errors: u64,
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
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offload => "offload",
            Self::Multi => "multi",
        })
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

/// `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
const IFLA_IFNAME: u16 = 3;
/// What is read below, besides the name: `IFLA_ADDRESS`, `IFLA_MTU`, `IFLA_MASTER`, `IFLA_OPERSTATE`, `IFLA_LINKINFO`
/// and `IFLA_XDP`.
const READ: [u16; 6] = [1, 4, 10, 16, 18, 43];

/// What the kernel answers about an interface. Only what is read here is decoded: an alias or an alternative name need
/// not be text in UTF-8. Nor need a name, and an interface whose name is not has none here.
pub(super) struct Answer(pub LinkMessage);

impl Parseable<[u8]> for Answer {
    fn parse(answer: &[u8]) -> std::result::Result<Self, DecodeError> {
        let (header, attributes) =
            answer.split_at_checked(HEADER_BYTES).ok_or("a link's header is cut off")?;
        let mut read = header.to_vec();
        for each in Attributes::of(attributes).each() {
            let (kind, value) = each.ok_or("a link's attribute is malformed")?;
            let is_name = kind == IFLA_IFNAME && std::str::from_utf8(value).is_ok();
            if is_name || READ.contains(&kind) {
                read.extend(attribute(kind, value));
            }
        }
        LinkMessage::parse(&read).map(Self)
    }
}

impl LinkInfo {
    /// Whether a gate understands its packets.
    pub fn takes_gate(&self) -> bool {
        self.mac.is_some() || self.bare
    }

    pub(super) fn of(message: &LinkMessage) -> Result<Self> {
        let mtu = message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        Ok(Self {
            name: name_of(message)?,
            mac: mac_of(message),
            bare: is_bare(message),
            up: message.header.flags.contains(LinkFlags::Up),
            oper_up: message.attributes.contains(&LinkAttribute::OperState(State::Up)),
            mtu: mtu.ok_or_else(|| incomplete(message, "an MTU"))?,
            kind: kind_of(message),
        })
    }
}

pub(super) fn name_of(message: &LinkMessage) -> Result<String> {
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    });
    name.ok_or_else(|| incomplete(message, "a name"))
}

pub(super) fn mac_of(message: &LinkMessage) -> Option<MacAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(bytes) => bytes.as_slice().try_into().ok().map(MacAddr),
        _ => None,
    })
}

pub(super) fn master_of(message: &LinkMessage) -> Option<IfIndex> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(ifindex) => Some(IfIndex(*ifindex)),
        _ => None,
    })
}

pub(super) fn is_bare(message: &LinkMessage) -> bool {
    use LinkLayerType::{None, Ppp, Rawip};
    matches!(message.header.link_layer_type, None | Ppp | Rawip)
}

pub(super) fn stats_of(message: &StatsMessage) -> Option<LinkStats> {
    message.attributes.iter().find_map(|attribute| match attribute {
        StatsAttribute::Link64(stats) => Some(LinkStats {
            rx_packets: stats.rx_packets,
            rx_dropped: stats.rx_dropped,
            rx_missed_errors: stats.rx_missed_errors,
            rx_fifo_errors: stats.rx_fifo_errors,
            rx_over_errors: stats.rx_over_errors,
            tx_packets: stats.tx_packets,
            tx_dropped: stats.tx_dropped,
        }),
        _ => None,
    })
}

pub(super) fn xdp_of(message: &LinkMessage) -> Option<XdpAttached> {
    let parts = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(parts) => Some(parts),
        _ => None,
    })?;
    let mode = parts.iter().find_map(|part| match part {
        LinkXdp::Attached(Attached::Driver) => Some(XdpMode::Native),
        LinkXdp::Attached(Attached::SocketBuffer) => Some(XdpMode::Generic),
        LinkXdp::Attached(Attached::Hardware) => Some(XdpMode::Offload),
        LinkXdp::Attached(Attached::Multiple) => Some(XdpMode::Multi),
        _ => None,
    })?;
    // With several programs the kernel (rtnl_xdp_fill) leaves out the plain program id.
    let in_path_order: [fn(&LinkXdp) -> Option<u32>; 4] = [
        |part| if let LinkXdp::ProgId(id) = part { Some(*id) } else { None },
        |part| if let LinkXdp::HwProgId(id) = part { Some(*id) } else { None },
        |part| if let LinkXdp::DrvProgId(id) = part { Some(*id) } else { None },
        |part| if let LinkXdp::SkbProgId(id) = part { Some(*id) } else { None },
    ];
    let prog_id = in_path_order.iter().find_map(|id_in| parts.iter().find_map(id_in))?;
    Some(XdpAttached { prog_id, mode })
}

fn kind_of(message: &LinkMessage) -> Option<String> {
    let info = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(info) => Some(info),
        _ => None,
    })?;
    info.iter().find_map(|part| match part {
        link::LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

fn incomplete(message: &LinkMessage, lacks: &str) -> Error {
    Error::Netlink {
        operation: "look up",
        object: format!("interface number {}", message.header.index),
        message: format!("the kernel's answer lacks {lacks}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: Vec<LinkXdp>) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Xdp(parts));
        message
    }

    #[test]
    fn a_full_ring_is_told_from_other_drops() {
        let mut counted = link::Stats64::default();
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
            rx_over_errors: 5000,
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
            let info = LinkInfo::of(&message).unwrap();
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
        assert_eq!(xdp_of(&LinkMessage::default()), None);
        assert_eq!(xdp_of(&message(vec![LinkXdp::Attached(Attached::None)])), None);
    }

    #[test]
    fn one_program_has_its_mode() {
        let parts = vec![
            LinkXdp::Attached(Attached::SocketBuffer),
            LinkXdp::SkbProgId(7),
            LinkXdp::ProgId(7),
        ];
        let expected = XdpAttached { prog_id: 7, mode: XdpMode::Generic };
        assert_eq!(xdp_of(&message(parts)), Some(expected));
    }

    #[test]
    fn of_several_programs_the_first_in_the_path_is_named() {
        let parts = vec![
            LinkXdp::Attached(Attached::Multiple),
            LinkXdp::SkbProgId(8),
            LinkXdp::DrvProgId(9),
        ];
        let expected = XdpAttached { prog_id: 9, mode: XdpMode::Multi };
        assert_eq!(xdp_of(&message(parts)), Some(expected));
    }
}

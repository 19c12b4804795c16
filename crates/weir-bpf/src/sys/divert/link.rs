//! The interface's master, and the interfaces on top of it.

use netlink_packet_core::{DecodeError, Emitable, NLM_F_ACK, NLM_F_DUMP, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkHeader, LinkMessage};
use rustix::io::Errno;

use super::device::Device;
use super::diversion::{Diversion, Sight};
use super::kind::DiversionKind;
use crate::sys::ethtool;
use crate::sys::link::numbered;
use crate::sys::netlink::{Attributes, ask_route};
use crate::units::IfIndex;

const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;

/// An interface, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) ifindex: IfIndex,
    pub(super) name: String,
    kind: String,
    master: Option<u32>,
    /// The interface below, in the same namespace.
    lower: Option<u32>,
}

impl Link {
    /// `NODEV` if there is none.
    pub(super) fn of(ifindex: IfIndex) -> rustix::io::Result<Self> {
        let answers = ask_route(&RouteNetlinkMessage::GetLink(numbered(ifindex)), NLM_F_ACK)?;
        answers.into_iter().next().ok_or(Errno::BADMSG)
    }

    fn all() -> rustix::io::Result<Vec<Self>> {
        ask_route(&RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)
    }

    fn describe(&self) -> String {
        format!("{} {}", self.kind, self.name).trim_start().to_owned()
    }

    /// What takes its packets, given what the kernel's own record says, and what the gate sees. Other interfaces are
    /// listed only if there is something to be named.
    pub(super) fn diversions(&self, device: Device, sight: Sight) -> Vec<Diversion> {
        let mut found = Vec::new();
        if let Some(master) = self.master {
            let (kind, name) = match Self::of(IfIndex(master)) {
                Ok(master) => (port_of(&master.kind), master.describe()),
                Err(_) => (DiversionKind::Enslaved, "one that cannot be looked up".into()),
            };
            found.push(Diversion::new(kind, format!("master: {name}")));
        }
        let taken_by_another = device.rx_handler != 0 && self.master.is_none();
        if !taken_by_another && device.vlan_devices == 0 {
            return found;
        }
        let (vlans, others) = match self.upper() {
            Ok(upper) => upper.into_iter().partition(|link| link.kind == "vlan"),
            Err(errno) => {
                found.push(Diversion::unknown("the interfaces on top cannot be listed", errno));
                (Vec::new(), Vec::new())
            }
        };
        if taken_by_another {
            let detail = listed(&others, "rx_handler");
            found.push(Diversion::new(DiversionKind::Upper, detail));
        }
        if device.vlan_devices > 0 {
            let is_seen = sight.vlan_tags
                || ethtool::removes_vlan_tags(&self.name).is_ok_and(|removes| !removes);
            let kind = if is_seen { DiversionKind::Vlan } else { DiversionKind::UntaggedVlan };
            let count = device.vlan_devices;
            let detail = format!("{count} VLAN interface(s): {}", listed(&vlans, "8021q"));
            found.push(Diversion::new(kind, detail));
        }
        found
    }

    fn upper(&self) -> rustix::io::Result<Vec<Self>> {
        let mut all = Self::all()?;
        all.retain(|link| link.lower == Some(self.ifindex.0) && link.kind != "veth");
        Ok(all)
    }
}

/// What a port is of a master of this kind.
fn port_of(master: &str) -> DiversionKind {
    match master {
        "vrf" => DiversionKind::VrfPort,
        "openvswitch" => DiversionKind::SwitchPort,
        _ => DiversionKind::Enslaved,
    }
}

fn listed(links: &[Link], by: &str) -> String {
    let names: Vec<String> = links.iter().map(Link::describe).collect();
    if names.is_empty() { format!("{by}, in another network namespace") } else { names.join(", ") }
}

/// `LinkMessage` would decode a hundred counters and settings for these five.
impl Parseable<[u8]> for Link {
    fn parse(message: &[u8]) -> Result<Self, DecodeError> {
        let header = LinkHeader::parse(message)?;
        let attributes = Attributes::of(&message[header.buffer_len()..]);
        let elsewhere = attributes.has(IFLA_LINK_NETNSID);
        let kind = attributes.within(IFLA_LINKINFO).text(IFLA_INFO_KIND);
        Ok(Self {
            ifindex: IfIndex(header.index),
            name: attributes.text(IFLA_IFNAME).ok_or("a link without a name")?,
            kind: kind.unwrap_or_default(),
            master: attributes.number(IFLA_MASTER),
            lower: attributes.number(IFLA_LINK).filter(|_| !elsewhere),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::link::Links;
    use crate::sys::test_support::Sandbox;

    /// The development kernel has no VLANs, so the kernel's record is made up. A veth takes tags off.
    #[test]
    fn a_vlan_on_top_is_told_from_other_packets_where_its_tag_is_seen() {
        Sandbox::new().run(|| {
            let links = Links::open().unwrap();
            links.create_veth("near", "far", None).unwrap();
            let near = Link::of(links.index("near").unwrap()).unwrap();
            let kinds = |vlan_tags| {
                let sight = Sight { vlan_tags, ..Sight::default() };
                let found = near.diversions(Device { rx_handler: 0, vlan_devices: 1 }, sight);
                found.iter().map(|one| one.kind).collect::<Vec<_>>()
            };
            assert_eq!(kinds(true), [DiversionKind::Vlan]);
            assert_eq!(kinds(false), [DiversionKind::UntaggedVlan]);
        });
    }
}

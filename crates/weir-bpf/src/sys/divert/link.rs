//! The interface's master, and the interfaces on top of it.

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use rustix::io::Errno;

use super::device::Device;
use super::diversion::{Diversion, Sight};
use super::kind::DiversionKind;
use crate::sys::ethtool;
use crate::sys::link::Links;
use crate::sys::link_info::{Answer, LinkInfo};
use crate::sys::netlink::ask_route;
use crate::units::IfIndex;

/// Whether a rule with this name is for another interface than this one. The kernel takes alternative names in rules,
/// and tells a rule with the name that it was given: one that nothing has may have been this interface's.
pub(super) fn is_another(name: &str, ifname: &str) -> bool {
    let ifindex = |name| Links::open()?.named(name).map(|answer| answer.ifindex());
    name != ifname && ifindex(name).is_ok_and(|other| ifindex(ifname).is_ok_and(|own| own != other))
}

/// What takes an interface's packets, given what the kernel's own record says, and what the gate sees. Other interfaces
/// are listed only if there is something to be named.
pub(super) fn diversions(link: &LinkInfo, device: Device, sight: Sight) -> Vec<Diversion> {
    let mut found = Vec::new();
    if let Some(master) = link.master {
        let (kind, name) = match Links::open().and_then(|links| links.info(master)) {
            Ok(master) => (port_of(&master), describe(&master)),
            Err(_) => (DiversionKind::Enslaved, "one that cannot be looked up".into()),
        };
        found.push(Diversion::new(kind, format!("master: {name}")));
    }
    let taken_by_another = device.rx_handler != 0 && link.master.is_none();
    let is_conduit = device.dsa_ptr != 0;
    if !taken_by_another && !is_conduit && device.vlan_devices == 0 {
        return found;
    }
    let upper = upper(link.ifindex).unwrap_or_else(|errno| {
        found.push(Diversion::unknown("the interfaces on top cannot be listed", errno));
        Vec::new()
    });
    let (vlans, others): (Vec<_>, Vec<_>) = upper.into_iter().partition(|one| is(one, "vlan"));
    let (ports, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| is(one, "dsa"));
    if is_conduit {
        let detail = listed(&ports, "dsa_ptr");
        found.push(Diversion::new(DiversionKind::SwitchConduit, detail));
    }
    if taken_by_another {
        let detail = listed(&others, "rx_handler");
        found.push(Diversion::new(DiversionKind::Upper, detail));
    }
    if device.vlan_devices > 0 {
        let is_seen =
            sight.vlan_tags || ethtool::removes_vlan_tags(&link.name).is_ok_and(|removes| !removes);
        let kind = if is_seen { DiversionKind::Vlan } else { DiversionKind::UntaggedVlan };
        let count = device.vlan_devices;
        let detail = format!("{count} VLAN interface(s): {}", listed(&vlans, "8021q"));
        found.push(Diversion::new(kind, detail));
    }
    found
}

fn upper(ifindex: IfIndex) -> rustix::io::Result<Vec<LinkInfo>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let all: Vec<Answer> = ask_route(&request, NLM_F_DUMP)?;
    // One that cannot be read may be on top.
    let all: Result<Vec<LinkInfo>, _> = all.iter().map(Answer::info).collect();
    let mut all = all.map_err(|_| Errno::BADMSG)?;
    all.retain(|one| one.lower == Some(ifindex) && !is(one, "veth"));
    Ok(all)
}

fn is(link: &LinkInfo, kind: &str) -> bool {
    link.kind.as_deref() == Some(kind)
}

fn describe(link: &LinkInfo) -> String {
    format!("{} {}", link.kind.as_deref().unwrap_or_default(), link.name).trim_start().to_owned()
}

/// What a port of this master is.
fn port_of(master: &LinkInfo) -> DiversionKind {
    match master.kind.as_deref() {
        Some("vrf") => DiversionKind::VrfPort,
        Some("openvswitch") => DiversionKind::SwitchPort,
        _ => DiversionKind::Enslaved,
    }
}

fn listed(links: &[LinkInfo], by: &str) -> String {
    let names: Vec<String> = links.iter().map(describe).collect();
    if names.is_empty() { format!("{by}, in another network namespace") } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_support::{sh, with_pair};

    #[test]
    fn a_name_is_anothers_only_if_another_has_it() {
        with_pair(|_, _, _| {
            sh(
                "ip link property add dev near altname near0; ip link property add dev far altname far0",
            );
            let is_another = |name| is_another(name, "near");
            assert_eq!(["near", "near0", "none"].map(is_another), [false; 3]);
            assert_eq!(["far", "far0", "lo"].map(is_another), [true; 3]);
        });
    }

    /// No switch at hand either.
    #[test]
    fn the_conduit_of_a_switch_is_no_interface_of_its_own() {
        with_pair(|links, near, _| {
            let near = links.info(near).unwrap();
            let found = |dsa_ptr| {
                let device = Device { dsa_ptr, ..Device::default() };
                diversions(&near, device, Sight::default())
            };
            assert_eq!(found(0), []);
            let found = found(0xffff_8880_0000_0000);
            assert_eq!(
                found.iter().map(|one| one.kind).collect::<Vec<_>>(),
                [DiversionKind::SwitchConduit]
            );
            assert!(found[0].kind.passes());
        });
    }

    /// The development kernel has no VLANs, so the kernel's record is made up. A veth takes tags off.
    #[test]
    fn a_vlan_on_top_is_told_from_other_packets_where_its_tag_is_seen() {
        with_pair(|links, near, _| {
            let near = links.info(near).unwrap();
            let kinds = |vlan_tags| {
                let sight = Sight { vlan_tags, ..Sight::default() };
                let found =
                    diversions(&near, Device { vlan_devices: 1, ..Device::default() }, sight);
                found.iter().map(|one| one.kind).collect::<Vec<_>>()
            };
            assert_eq!(kinds(true), [DiversionKind::Vlan]);
            assert_eq!(kinds(false), [DiversionKind::UntaggedVlan]);
        });
    }
}

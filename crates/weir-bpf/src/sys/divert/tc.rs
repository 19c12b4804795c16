//! Filters of traffic control at ingress.

use rtnetlink::packet_core::NlasIterator;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use super::kind::DiversionKind;
use super::{Diversion, ask, text};
use crate::sys::netlink::{find, number};
use crate::units::IfIndex;

const RTM_GETQDISC: u16 = 38;
const RTM_GETTFILTER: u16 = 46;
/// `struct tcmsg`.
const TCMSG_BYTES: usize = 20;
const IFINDEX_OFFSET: usize = 4;
const HANDLE_OFFSET: usize = 8;
const PARENT_OFFSET: usize = 12;
const INFO_OFFSET: usize = 16;
/// Of `clsact`; `ingress` answers to it too. Filters of a shared block are listed as well.
const TC_H_CLSACT_INGRESS: u32 = 0xffff_fff2;
/// Of both as queueing disciplines.
const TC_H_INGRESS: u32 = 0xffff_fff1;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_ACT_KIND: u16 = 1;
const TCA_BPF_ID: u16 = 11;
const TCA_BPF_NAME: u16 = 7;

/// Where each kind of filter has its actions.
const ACTIONS: [(&str, u16); 9] = [
    ("basic", 3),
    ("bpf", 1),
    ("cgroup", 1),
    ("flow", 9),
    ("flower", 3),
    ("fw", 4),
    ("matchall", 2),
    ("route", 6),
    ("u32", 7),
];

/// Actions that at most drop a packet, or mark it.
const HARMLESS: [&str; 9] =
    ["connmark", "csum", "ctinfo", "gact", "gate", "police", "simple", "simp", "skbedit"];

fn dump(ifindex: IfIndex) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
    let mut body = [0; TCMSG_BYTES];
    body[IFINDEX_OFFSET..][..4].copy_from_slice(&ifindex.0.to_ne_bytes());
    body[PARENT_OFFSET..][..4].copy_from_slice(&TC_H_CLSACT_INGRESS.to_ne_bytes());
    ask(None, RTM_GETTFILTER, true, &body)
}

/// Filters of an interface that may drop packets, a line if there are any. BPF programs that are not weir's count as
/// diversions.
pub(super) fn anything(interface: &str) -> Option<String> {
    let read = || {
        let asking =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        dump(IfIndex(netdevice::name_to_index(asking, interface)?))
    };
    let is_filter = |filter: &[u8]| {
        let attributes = filter.get(TCMSG_BYTES..).unwrap_or_default();
        find(attributes, TCA_KIND).is_none_or(|kind| text(&kind) != "bpf")
            && find(attributes, TCA_OPTIONS).is_some_and(|options| !options.is_empty())
    };
    match read() {
        Ok(filters) if filters.iter().any(|(_, filter)| is_filter(filter)) => Some(format!(
            "{interface} has tc filters at ingress (`tc filter show dev {interface} ingress`)"
        )),
        Ok(_) => None,
        Err(errno) => Some(format!("tc filters of {interface} cannot be read: {errno}")),
    }
}

/// A queueing discipline that somebody has set where an interface sends: one that the kernel set has no handle.
pub(super) fn egress_qdisc(ifindex: IfIndex, name: &str) -> Option<String> {
    // clsact has filters at both ends.
    set_qdisc(ifindex, name, |kind, parent| parent != TC_H_INGRESS || kind == "clsact")
}

/// One where it receives: filters hang from it.
pub(super) fn ingress_qdisc(ifindex: IfIndex, name: &str) -> Option<String> {
    set_qdisc(ifindex, name, |_, parent| parent == TC_H_INGRESS)
}

fn set_qdisc(ifindex: IfIndex, name: &str, concerns: fn(&str, u32) -> bool) -> Option<String> {
    let all = match ask(None, RTM_GETQDISC, true, &[0; TCMSG_BYTES]) {
        Ok(all) => all,
        Err(errno) => {
            return Some(format!("queueing disciplines of {name} cannot be read: {errno}"));
        }
    };
    all.iter().find_map(|(_, qdisc)| {
        let word = |at: usize| qdisc.get(at..).and_then(number).unwrap_or_default();
        let attributes = qdisc.get(TCMSG_BYTES..).unwrap_or_default();
        let kind = find(attributes, TCA_KIND).map(|kind| text(&kind)).unwrap_or_default();
        let is_set = word(IFINDEX_OFFSET) == ifindex.0
            && word(HANDLE_OFFSET) != 0
            && concerns(&kind, word(PARENT_OFFSET));
        is_set.then(|| {
            format!("{name} has the queueing discipline {kind} (`tc qdisc show dev {name}`)")
        })
    })
}

/// Filters that may take an interface's packets elsewhere, but for the caller's own BPF programs.
pub(super) fn filters(ifindex: IfIndex, own_programs: &[u32]) -> Vec<Diversion> {
    match dump(ifindex) {
        Ok(filters) => {
            let mut found: Vec<Diversion> =
                filters.iter().flat_map(|(_, filter)| judge(filter, own_programs)).collect();
            found.sort();
            found.dedup();
            found
        }
        Err(errno) => vec![Diversion::unknown("tc filters cannot be read", errno)],
    }
}

fn judge(filter: &[u8], own_programs: &[u32]) -> Vec<Diversion> {
    let attributes = filter.get(TCMSG_BYTES..).unwrap_or_default();
    let kind = find(attributes, TCA_KIND).map(|kind| text(&kind)).unwrap_or_default();
    let options = find(attributes, TCA_OPTIONS).unwrap_or_default();
    let preference = filter.get(INFO_OFFSET..).and_then(number).unwrap_or_default() >> 16;
    let place = format!("tc filter {kind} with preference {preference} at ingress");
    let Some((_, actions)) = ACTIONS.iter().find(|(name, _)| *name == kind) else {
        return vec![Diversion::unknown(&place, "weir does not know this kind of filter")];
    };
    let mut found = Vec::new();
    let program = find(&options, TCA_BPF_ID).as_deref().and_then(number);
    // Filters are listed once without their parts, as the head of their chain.
    if kind == "bpf" && !options.is_empty() && !program.is_some_and(|id| own_programs.contains(&id))
    {
        let name = find(&options, TCA_BPF_NAME).map(|name| text(&name)).unwrap_or_default();
        let detail = format!("{place}: program {} {name}", program.unwrap_or_default());
        found.push(Diversion::new(DiversionKind::TcBpf, detail.trim_end()));
    }
    let list = find(&options, *actions).unwrap_or_default();
    for action in NlasIterator::new(&list[..]) {
        let name = action.ok().and_then(|action| find(action.value(), TCA_ACT_KIND));
        let Some(name) = name.map(|name| text(&name)) else {
            found.push(Diversion::unknown(&place, "an action without a name"));
            break;
        };
        let kind = match name.as_str() {
            name if HARMLESS.contains(&name) => continue,
            "mirred" => DiversionKind::TcRedirect,
            "bpf" => DiversionKind::TcBpf,
            "sample" => DiversionKind::PacketLog,
            _ => DiversionKind::TcAction,
        };
        found.push(Diversion::new(kind, format!("{place}: action {name}")));
    }
    found
}

//! Filters of traffic control at ingress.

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::tc::TcHandle;

use super::diversion::Diversion;
use super::forward::Interface;
use super::kind::DiversionKind;
use crate::sys::netlink::{Attributes, ask_route};
use crate::sys::tc::{Hook, Listed, filters_at, queueing_disciplines};
use crate::units::IfIndex;

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

fn dump(ifindex: IfIndex) -> rustix::io::Result<Vec<Listed>> {
    ask_route(&filters_at(ifindex, Hook::Ingress), NLM_F_DUMP)
}

/// Listed once without options, as the head of its chain.
fn is_filter(filter: &Listed) -> bool {
    filter.kind() != "bpf" && !filter.attributes().within(libc::TCA_OPTIONS).is_empty()
}

/// Filters of an interface that may drop packets, a line if there are any. BPF programs that are not weir's count as
/// diversions.
pub(super) fn anything((ifindex, interface): &Interface) -> Option<String> {
    match dump(*ifindex) {
        Ok(filters) if filters.iter().any(is_filter) => Some(format!(
            "{interface} has tc filters at ingress (`tc filter show dev {interface} ingress`)"
        )),
        Ok(_) => None,
        Err(errno) => Some(format!("tc filters of {interface} cannot be read: {errno}")),
    }
}

/// A queueing discipline that somebody has set where an interface sends: one that the kernel set has no handle.
pub(super) fn egress_qdisc(ifindex: IfIndex, name: &str) -> Option<String> {
    // clsact has filters at both ends.
    set_qdisc(ifindex, name, |kind, parent| parent != TcHandle::INGRESS || kind == "clsact")
}

/// One where it receives: filters hang from it.
pub(super) fn ingress_qdisc(ifindex: IfIndex, name: &str) -> Option<String> {
    set_qdisc(ifindex, name, |_, parent| parent == TcHandle::INGRESS)
}

fn set_qdisc(ifindex: IfIndex, name: &str, concerns: fn(&str, TcHandle) -> bool) -> Option<String> {
    let all: Vec<Listed> = match ask_route(&queueing_disciplines(), NLM_F_DUMP) {
        Ok(all) => all,
        Err(errno) => {
            return Some(format!("queueing disciplines of {name} cannot be read: {errno}"));
        }
    };
    all.iter().find_map(|qdisc| {
        let kind = qdisc.kind();
        let is_set = qdisc.header.index.cast_unsigned() == ifindex.0
            && qdisc.header.handle != TcHandle::UNSPEC
            && concerns(&kind, qdisc.header.parent);
        is_set.then(|| {
            format!("{name} has the queueing discipline {kind} (`tc qdisc show dev {name}`)")
        })
    })
}

/// The name of `weir screen`'s filter, before its program's number. It judges what is forwarded; what is for this host it
/// leaves alone.
const WALL: &str = "weir_wall_tc:";

/// Filters that may take an interface's packets elsewhere, but for weir's own BPF programs; and whether there are any but
/// BPF programs.
pub(super) fn filters(ifindex: IfIndex, own_programs: &[u32]) -> (Vec<Diversion>, bool) {
    match dump(ifindex) {
        Ok(filters) => {
            let mut found: Vec<Diversion> =
                filters.iter().flat_map(|filter| judge(filter, own_programs)).collect();
            found.sort();
            found.dedup();
            (found, filters.iter().any(is_filter))
        }
        Err(errno) => (vec![Diversion::unknown("tc filters cannot be read", errno)], true),
    }
}

fn judge(filter: &Listed, own_programs: &[u32]) -> Vec<Diversion> {
    let kind = filter.kind();
    let options = filter.attributes().within(libc::TCA_OPTIONS);
    let preference = filter.header.info >> 16;
    let place = format!("tc filter {kind} with preference {preference} at ingress");
    let Some((_, actions)) = ACTIONS.iter().find(|(name, _)| *name == kind) else {
        return vec![Diversion::unknown(&place, "weir does not know this kind of filter")];
    };
    let mut found = Vec::new();
    let program = options.number(TCA_BPF_ID);
    // Filters are listed once without their parts, as the head of their chain.
    let name = options.text(TCA_BPF_NAME).unwrap_or_default();
    let is_own = name.starts_with(WALL) || program.is_some_and(|id| own_programs.contains(&id));
    if kind == "bpf" && !options.is_empty() && !is_own {
        let detail = format!("{place}: program {} {name}", program.unwrap_or_default());
        found.push(Diversion::new(DiversionKind::TcBpf, detail.trim_end()));
    }
    for action in options.within(*actions).each() {
        let name = action.and_then(|(_, action)| Attributes::of(action).text(TCA_ACT_KIND));
        let Some(name) = name else {
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

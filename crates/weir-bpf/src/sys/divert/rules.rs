//! Policy routing: rules that come before the table of local addresses.

use std::ops::RangeInclusive;

use rtnetlink::packet_core::NlasIterator;
use rustix::io::Errno;

use super::kind::DiversionKind;
use super::{Diversion, ask, text};
use crate::sys::netlink::{find, number};

const RTM_GETRULE: u16 = 34;
/// `struct fib_rule_hdr`.
const HEADER_BYTES: usize = 12;
const TABLE_OFFSET: usize = 4;
const ACTION_OFFSET: usize = 7;
const FIB_RULE_INVERT: u32 = 2;
const FR_ACT_TO_TBL: u8 = 1;
const RT_TABLE_LOCAL: u32 = 255;
/// default, main, local.
const OWN_TABLES: RangeInclusive<u32> = 253..=RT_TABLE_LOCAL;
const FRA_IFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Rules that this interface's packets for local addresses may meet before the local table.
pub(super) fn policy_routing(ifname: &str) -> Vec<Diversion> {
    [(AF_INET, "IPv4"), (AF_INET6, "IPv6")]
        .into_iter()
        .filter_map(|(family, name)| before_local(family, name, ifname))
        .collect()
}

/// Rules beside those that every namespace has, a line if there are any: what they go by, a fast path may not know.
pub(super) fn beyond_default() -> Option<String> {
    let mut header = [0; HEADER_BYTES];
    for family in [AF_INET, AF_INET6] {
        header[0] = family;
        let rules = match ask(None, RTM_GETRULE, true, &header) {
            Ok(rules) => rules,
            Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => continue,
            Err(errno) => return Some(format!("routing rules cannot be read: {errno}")),
        };
        for (_, rule) in rules.iter().filter(|(_, rule)| rule.first() == Some(&family)) {
            if let Some(priority) = is_special(rule) {
                return Some(format!("a routing rule with priority {priority} (`ip rule`)"));
            }
        }
    }
    None
}

/// The priority of a rule that does anything but lead all to one of the kernel's own tables.
fn is_special(rule: &[u8]) -> Option<u32> {
    let attributes = rule.get(HEADER_BYTES..).unwrap_or_default();
    let find_number = |kind| find(attributes, kind).as_deref().and_then(number);
    let inverted = rule.get(8..).and_then(number).unwrap_or_default() & FIB_RULE_INVERT != 0;
    let table = rule.get(TABLE_OFFSET).copied().map(u32::from);
    let own = find_number(FRA_TABLE).or(table).is_some_and(|table| OWN_TABLES.contains(&table));
    let to_table = rule.get(ACTION_OFFSET) == Some(&FR_ACT_TO_TBL);
    let any_header = rule.get(1..TABLE_OFFSET) == Some(&[0, 0, 0]);
    let usual = own && to_table && any_header && !inverted && has_no_condition(attributes);
    (!usual).then(|| find_number(FRA_PRIORITY).unwrap_or_default())
}

fn before_local(family: u8, name: &str, ifname: &str) -> Option<Diversion> {
    let mut header = [0; HEADER_BYTES];
    header[0] = family;
    let rules = match ask(None, RTM_GETRULE, true, &header) {
        Ok(rules) => rules,
        // Neither has rules: a kernel without them, or without this family.
        Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => return None,
        Err(errno) => {
            return Some(Diversion::unknown(&format!("{name} rules cannot be read"), errno));
        }
    };
    // In the order in which they are tried. Without this family, the kernel lists all others.
    for (_, rule) in rules.iter().filter(|(_, rule)| rule.first() == Some(&family)) {
        match judge(rule, ifname) {
            Rule::Local => return None,
            Rule::Irrelevant => {}
            Rule::Diverts(priority) => {
                let detail = format!("{name} rule with priority {priority}");
                return Some(Diversion::new(DiversionKind::PolicyRouting, detail));
            }
        }
    }
    None
}

#[derive(Debug, PartialEq, Eq)]
enum Rule {
    /// Takes every packet for a local address to the local table.
    Local,
    /// Is not for this interface's packets.
    Irrelevant,
    Diverts(u32),
}

fn judge(rule: &[u8], ifname: &str) -> Rule {
    let attributes = rule.get(HEADER_BYTES..).unwrap_or_default();
    let find_number = |kind| find(attributes, kind).as_deref().and_then(number);
    let priority = find_number(FRA_PRIORITY).unwrap_or_default();
    let flags = rule.get(8..).and_then(number).unwrap_or_default();
    let inverted = flags & FIB_RULE_INVERT != 0;
    let input = find(attributes, FRA_IFNAME).map(|name| text(&name));
    if !inverted && input.is_some_and(|name| name != ifname) {
        return Rule::Irrelevant;
    }
    // For ports of a VRF, and these are diverted by being ports.
    if find(attributes, FRA_L3MDEV).is_some_and(|flag| flag.first() != Some(&0)) {
        return Rule::Irrelevant;
    }
    let table = rule.get(TABLE_OFFSET).copied().map(u32::from);
    let local = find_number(FRA_TABLE).or(table) == Some(RT_TABLE_LOCAL);
    let to_table = rule.get(ACTION_OFFSET) == Some(&FR_ACT_TO_TBL);
    // Lengths of destination and source prefix, and the type of service.
    let any_header = rule.get(1..TABLE_OFFSET) == Some(&[0, 0, 0]);
    if local && to_table && any_header && !inverted && has_no_condition(attributes) {
        return Rule::Local;
    }
    Rule::Diverts(priority)
}

fn has_no_condition(attributes: &[u8]) -> bool {
    const UNCONDITIONAL: [u16; 6] = [
        FRA_PRIORITY,
        FRA_SUPPRESS_IFGROUP,
        FRA_SUPPRESS_PREFIXLEN,
        FRA_TABLE,
        FRA_PAD,
        FRA_PROTOCOL,
    ];
    let harmless = |kind, value: &[u8]| match kind {
        // 0xffffffff: nothing is suppressed.
        FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN => number(value) == Some(u32::MAX),
        FRA_L3MDEV => true,
        kind => UNCONDITIONAL.contains(&kind),
    };
    NlasIterator::new(attributes)
        .all(|one| one.is_ok_and(|attribute| harmless(attribute.kind(), attribute.value())))
}

//! Policy routing: rules that come before the table of local addresses.

use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_DUMP, Nla};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use super::diversion::Diversion;
use super::kind::DiversionKind;
use super::link::is_another;
use crate::sys::netlink::ask_route;

const RT_TABLE_MAIN: u32 = 254;
const RT_TABLE_LOCAL: u32 = 255;
/// default, main, local.
const OWN_TABLES: RangeInclusive<u32> = 253..=RT_TABLE_LOCAL;
const FRA_PAD: u16 = 18;

/// Rules that this interface's packets for local addresses may meet before the local table.
pub(super) fn policy_routing(ifname: &str) -> Vec<Diversion> {
    let families = [(AddressFamily::Inet, "IPv4"), (AddressFamily::Inet6, "IPv6")].into_iter();
    families.filter_map(|(family, name)| before_local(family, name, ifname)).collect()
}

/// Rules beside those that every namespace has, a line if there are any: what they go by, a fast path may not know.
pub(super) fn beyond_default() -> Option<String> {
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let rules = match of_family(family) {
            Ok(rules) => rules,
            Err(errno) => return Some(format!("routing rules cannot be read: {errno}")),
        };
        if let Some(rule) = rules.iter().find(|rule| !leads_all_to(rule, &OWN_TABLES)) {
            let priority = priority(rule);
            return Some(format!("a routing rule with priority {priority} (`ip rule`)"));
        }
    }
    None
}

/// Why an IPv4 address that no other table has a route to may not be looked up in the main table; none if each is.
pub(super) fn before_main() -> rustix::io::Result<Option<String>> {
    let rules = of_family(AddressFamily::Inet)?;
    let refuses = |rule: &&RuleMessage| rule.header.action != RuleAction::ToTable;
    if let Some(rule) = rules.iter().find(refuses) {
        let priority = priority(rule);
        return Ok(Some(format!("the rule with priority {priority} (`ip rule`) names no table")));
    }
    let asks_main = |rule| leads_all_to(rule, &(RT_TABLE_MAIN..=RT_TABLE_MAIN));
    // A kernel without rules asks it.
    let asked = rules.is_empty() || rules.iter().any(asks_main);
    Ok((!asked).then(|| "no rule (`ip rule`) sends every look-up to the main table".into()))
}

/// In the order in which they are tried; none where the kernel is without rules, or without this family.
fn of_family(family: AddressFamily) -> rustix::io::Result<Vec<RuleMessage>> {
    let mut asked = RuleMessage::default();
    asked.header.family = family;
    let rules: Vec<RuleMessage> = match ask_route(&RouteNetlinkMessage::GetRule(asked), NLM_F_DUMP)
    {
        Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT) => Vec::new(),
        rules => rules?,
    };
    // Without this family, the kernel lists all others.
    Ok(rules.into_iter().filter(|rule| rule.header.family == family).collect())
}

fn before_local(family: AddressFamily, name: &str, ifname: &str) -> Option<Diversion> {
    let rules = match of_family(family) {
        Ok(rules) => rules,
        Err(errno) => {
            return Some(Diversion::unknown(&format!("{name} rules cannot be read"), errno));
        }
    };
    for rule in &rules {
        match judge(rule, ifname) {
            Rule::Local => return None,
            Rule::Irrelevant => {}
            Rule::Diverts => {
                let detail = format!("{name} rule with priority {}", priority(rule));
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
    Diverts,
}

fn judge(rule: &RuleMessage, ifname: &str) -> Rule {
    let is_other = |attribute: &RuleAttribute| match attribute {
        RuleAttribute::Iifname(name) => {
            // Detached: for none, until one gets this name.
            let flags = rule.header.flags;
            let is_other = || flags.contains(RuleFlags::IifDetached) || is_another(name, ifname);
            !flags.contains(RuleFlags::Invert) && name != ifname && is_other()
        }
        // For ports of a VRF, and these are diverted by being ports.
        RuleAttribute::L3MDev(of_vrf) => *of_vrf,
        _ => false,
    };
    if rule.attributes.iter().any(is_other) {
        Rule::Irrelevant
    } else if leads_all_to(rule, &(RT_TABLE_LOCAL..=RT_TABLE_LOCAL)) {
        Rule::Local
    } else {
        Rule::Diverts
    }
}

fn priority(rule: &RuleMessage) -> u32 {
    let of = |attribute: &RuleAttribute| match attribute {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    };
    rule.attributes.iter().find_map(of).unwrap_or_default()
}

/// Whether a rule takes every packet to one of these tables.
fn leads_all_to(rule: &RuleMessage, tables: &RangeInclusive<u32>) -> bool {
    let header = &rule.header;
    let mut table = u32::from(header.table);
    let unconditional = rule.attributes.iter().all(|attribute| match attribute {
        RuleAttribute::Table(number) => {
            table = *number;
            true
        }
        // 0xffffffff: nothing is suppressed.
        RuleAttribute::SuppressIfGroup(limit) | RuleAttribute::SuppressPrefixLen(limit) => {
            *limit == u32::MAX
        }
        RuleAttribute::Priority(_) | RuleAttribute::Protocol(_) | RuleAttribute::L3MDev(_) => true,
        // What is not known is a condition.
        other => other.kind() == FRA_PAD,
    });
    unconditional
        && tables.contains(&table)
        && header.action == RuleAction::ToTable
        && (header.dst_len, header.src_len, header.tos) == (0, 0, 0)
        && !header.flags.contains(RuleFlags::Invert)
}

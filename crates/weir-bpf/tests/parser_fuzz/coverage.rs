//! What the cases of a run were: a generator that makes nothing but rubbish proves nothing.

use std::fmt;

use weir_bpf::parser::{Family, Fragment, Parse};

use crate::case::{Case, Outcome};

const PARSES: [(Parse, &str); 11] = [
    (Parse::WEIR_PARSE_UDP, "UDP"),
    (Parse::WEIR_PARSE_TCP, "TCP"),
    (Parse::WEIR_PARSE_ICMP, "ICMP"),
    (Parse::WEIR_PARSE_ICMPV6, "ICMPv6"),
    (Parse::WEIR_PARSE_IGMP, "IGMP"),
    (Parse::WEIR_PARSE_OTHER_PROTOCOL, "other protocol"),
    (Parse::WEIR_PARSE_LATER_FRAGMENT, "later fragment"),
    (Parse::WEIR_PARSE_IPV6_CHAIN, "IPv6 chain"),
    (Parse::WEIR_PARSE_ARP, "ARP"),
    (Parse::WEIR_PARSE_OTHER_ETHERTYPE, "other ethertype"),
    (Parse::WEIR_PARSE_MALFORMED, "malformed"),
];

/// Counts of what the reference made of the cases.
#[derive(Default)]
pub struct Coverage {
    rows: Vec<(String, u64)>,
}

/// Name of a parse, as in a corpus file.
pub fn name(parse: u32) -> &'static str {
    PARSES.iter().find(|(value, _)| value.0 == parse).map_or("(none)", |(_, name)| name)
}

impl Coverage {
    pub fn new() -> Self {
        let parses = PARSES.iter().map(|(_, name)| (*name).to_owned());
        let found = TRAITS.iter().map(|(name, _)| (*name).to_owned());
        Self { rows: parses.chain(found).map(|name| (name, 0)).collect() }
    }

    pub fn add(&mut self, case: &Case, outcome: &Outcome) {
        let (parses, traits) = self.rows.split_at_mut(PARSES.len());
        // The parses are numbered from 0 in this order.
        parses[outcome.reference.parse as usize].1 += 1;
        for ((_, is_so), (_, count)) in TRAITS.iter().zip(traits) {
            *count += u64::from(is_so(case, outcome));
        }
    }

    /// What came less than `at_least` times.
    pub fn lacking(&self, at_least: u64) -> Vec<&str> {
        let rare = self.rows.iter().filter(|(_, count)| *count < at_least);
        rare.map(|(name, _)| name.as_str()).collect()
    }
}

type Trait = (&'static str, fn(&Case, &Outcome) -> bool);

fn family(outcome: &Outcome, family: Family) -> bool {
    u32::from(outcome.reference.family) == family.0
}

fn fragment(outcome: &Outcome, fragment: Fragment) -> bool {
    u32::from(outcome.reference.fragment) == fragment.0
}

/// Of frames that are not malformed.
const TRAITS: [Trait; 14] = [
    ("usual", |_, o| o.is_usual),
    ("IPv4", |_, o| family(o, Family::WEIR_FAMILY_IPV4)),
    ("IPv6", |_, o| family(o, Family::WEIR_FAMILY_IPV6)),
    ("IPv4, first fragment", |_, o| {
        family(o, Family::WEIR_FAMILY_IPV4) && fragment(o, Fragment::WEIR_FRAGMENT_FIRST)
    }),
    ("IPv4, later fragment", |_, o| {
        family(o, Family::WEIR_FAMILY_IPV4) && fragment(o, Fragment::WEIR_FRAGMENT_LATER)
    }),
    ("IPv6, first fragment", |_, o| {
        family(o, Family::WEIR_FAMILY_IPV6) && fragment(o, Fragment::WEIR_FRAGMENT_FIRST)
    }),
    ("IPv6, later fragment", |_, o| {
        family(o, Family::WEIR_FAMILY_IPV6) && fragment(o, Fragment::WEIR_FRAGMENT_LATER)
    }),
    ("IPv4, source route", |_, o| family(o, Family::WEIR_FAMILY_IPV4) && o.reference.routed != 0),
    ("IPv6, segments left", |_, o| family(o, Family::WEIR_FAMILY_IPV6) && o.reference.routed != 0),
    ("no VLAN tag", |_, o| o.reference.ethertype != 0 && o.reference.vlan_tags == 0),
    ("one VLAN tag", |_, o| o.reference.vlan_tags == 1),
    ("two VLAN tags", |_, o| o.reference.vlan_tags == 2),
    ("several buffers, IP", |c, o| o.first_buffer < c.bytes.len() && o.reference.family != 0),
    ("first buffer full", |c, o| o.first_buffer < c.first_buffer && o.reference.family != 0),
];

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.rows {
            writeln!(f, "{name:>22} {count:>10}")?;
        }
        Ok(())
    }
}

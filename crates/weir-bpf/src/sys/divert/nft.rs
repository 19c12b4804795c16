//! Rules of nftables, and of iptables where it is built on nftables.
//!
//! Attributes are read one by one, with netlink-packet-core: netlink-packet-netfilter does not decode the
//! expressions that divert.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_core::NLM_F_ACK;
use rustix::io::Errno;
use rustix::net::netlink;

use super::diversion::Diversion;
use super::expression::{Element, HAVE_HELPERS, Leads, is_for_tcp};
use super::kind::DiversionKind;
use super::link::is_another;
use super::nfnetlink::{ALL, NFNL_SUBSYS_NFTABLES, body, dump};
use super::sets;
use super::translation::{Table, Translation};
use super::way::Way;
use crate::sys::netlink::{Attributes, ask, text};

const GETCHAIN: u16 = 4;
const GETRULE: u16 = 7;
const GETGEN: u16 = 16;
const GETOBJ: u16 = 19;
const NFTA_GEN_ID: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NF_ACCEPT: u32 = 1;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFTA_DEVICE_NAME: u16 = 1;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_OBJ_TABLE: u16 = 1;
const NFTA_OBJ_NAME: u16 = 2;
const NFTA_OBJ_TYPE: u16 = 3;
const NFT_OBJECT_CT_HELPER: u32 = 3;
const NFT_OBJECT_CT_EXPECT: u32 = 9;
const NFT_OBJECT_SYNPROXY: u32 = 10;
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_IPV6: u8 = 10;
const NF_INET_INGRESS: u32 = 5;

/// What was found in one generation of the rules.
#[derive(Debug, Default)]
pub(super) struct Rules {
    found: Vec<Diversion>,
    translation: Translation,
    at_ingress: bool,
}

impl Rules {
    /// Reads all rules of the calling thread's network namespace, for packets that go this way by this interface.
    pub(super) fn read(way: Way, ifname: &str) -> Self {
        match Self::try_read(way, ifname) {
            Ok(rules) => rules,
            Err(errno) => {
                let unknown = Diversion::unknown("the rules of nftables cannot be read", errno);
                Self { found: vec![unknown], ..Self::default() }
            }
        }
    }

    fn try_read(way: Way, ifname: &str) -> rustix::io::Result<Self> {
        let chains = chains(way, ifname)?;
        let objects = objects()?;
        let is_synproxy =
            |(_, kind): &(String, Option<u32>)| kind.is_none_or(|kind| kind == NFT_OBJECT_SYNPROXY);
        let synproxies = objects.iter().any(is_synproxy);
        let (counting, found) = (counting()?, BTreeMap::new());
        let mut findings = Findings { way, synproxies, counting, found };
        let mut translating = Translating::of(&chains)?;
        let mut at_ingress = false;
        for (table, kind) in &objects {
            if let Some(NFT_OBJECT_CT_HELPER | NFT_OBJECT_CT_EXPECT) = kind {
                translating.translation.hide(table, HAVE_HELPERS);
            }
        }
        for (_, message) in &dump(GETRULE, &ALL)? {
            let Some(rule) = Rule::of(message) else {
                let table = "a table without a name".into();
                findings.add(DiversionKind::Unknown, table, "", "rule".into());
                continue;
            };
            findings.add_rule(&chains, &rule);
            translating.add_rule(&rule);
            at_ingress |= chains.get(&rule.place).is_some_and(BaseChain::is_at_ingress);
        }
        let translation = translating.into_translation();
        Ok(Self { found: findings.into_diversions(), translation, at_ingress })
    }

    pub(super) fn translation(&self) -> &Translation {
        &self.translation
    }

    /// Whether there are any at the interface's ingress.
    pub(super) fn are_at_ingress(&self) -> bool {
        self.at_ingress
    }

    pub(super) fn diversions(&self) -> &[Diversion] {
        &self.found
    }
}

/// Number of the rules' generation, which each change increments; `None` on a kernel without
/// nftables.
pub(super) fn generation() -> rustix::io::Result<Option<u32>> {
    let kind = NFNL_SUBSYS_NFTABLES << 8 | GETGEN;
    match ask(Some(netlink::NETFILTER), kind, NLM_F_ACK, &ALL) {
        Ok(answers) => {
            let id = answers.first().and_then(|(_, answer)| body(answer).big_endian(NFTA_GEN_ID));
            id.map(Some).ok_or(Errno::BADMSG)
        }
        // No such subsystem (nfnetlink_rcv_msg()), no such netlink protocol.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::PROTONOSUPPORT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The objects' tables and types, where they have one.
fn objects() -> rustix::io::Result<Vec<(String, Option<u32>)>> {
    let object = |message: &[u8]| {
        let place = Place::of(message, NFTA_OBJ_TABLE, NFTA_OBJ_NAME);
        let table = place.map(|place| place.table_name()).unwrap_or_default();
        (table, body(message).big_endian(NFTA_OBJ_TYPE))
    };
    Ok(dump(GETOBJ, &ALL)?.iter().map(|(_, message)| object(message)).collect())
}

/// Sets and maps that count what matches them, each in a chain's place, with what asking it is.
fn counting() -> rustix::io::Result<BTreeMap<Place, DiversionKind>> {
    let counts = |message: &[u8]| {
        let kind = sets::counts(body(message))?;
        Some((Place::of(message, sets::NFTA_SET_TABLE, sets::NFTA_SET_NAME)?, kind))
    };
    Ok(dump(sets::GETSET, &ALL)?.iter().filter_map(|(_, message)| counts(message)).collect())
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    family: u8,
    table: String,
    chain: String,
}

impl Place {
    fn of(message: &[u8], table: u16, chain: u16) -> Option<Self> {
        let (family, names) = (*message.first()?, body(message));
        Some(Self { family, table: names.text(table)?, chain: names.text(chain)? })
    }

    fn table_name(&self) -> String {
        let family = match self.family {
            NFPROTO_INET => "inet",
            NFPROTO_IPV4 => "ip",
            NFPROTO_IPV6 => "ip6",
            NFPROTO_NETDEV => "netdev",
            _ => "other",
        };
        format!("table {family} {}", self.table)
    }

    fn name(&self) -> String {
        format!("{}, chain {}", self.table_name(), self.chain)
    }

    /// Whether it is for IP packets at all: not ARP's, and not a bridge's, which is a master.
    fn is_of_ip(&self) -> bool {
        [NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_NETDEV].contains(&self.family)
    }
}

/// A chain that the kernel calls by itself.
struct BaseChain {
    /// Whether packets pass it that go this way, by this interface.
    is_met: bool,
    /// Whether it is a device's.
    at_device: bool,
    nat: bool,
    /// Whether packets are dropped that no rule takes.
    drops: bool,
}

impl BaseChain {
    /// Of those on the way to a socket: before IP.
    fn is_at_ingress(&self) -> bool {
        self.is_met && self.at_device
    }
}

fn chains(way: Way, ifname: &str) -> rustix::io::Result<BTreeMap<Place, BaseChain>> {
    let mut chains = BTreeMap::new();
    for (_, message) in dump(GETCHAIN, &ALL)? {
        let place = Place::of(&message, NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME).ok_or(Errno::BADMSG)?;
        let chain = body(&message);
        if !chain.has(NFTA_CHAIN_HOOK) {
            continue;
        }
        let hook = chain.within(NFTA_CHAIN_HOOK);
        let is_ingress = hook.big_endian(NFTA_HOOK_HOOKNUM) == Some(NF_INET_INGRESS);
        let base = BaseChain {
            is_met: is_met(way, place.family, hook, ifname),
            at_device: place.family == NFPROTO_NETDEV || is_ingress,
            nat: chain.text(NFTA_CHAIN_TYPE).is_some_and(|kind| kind == "nat"),
            drops: chain.big_endian(NFTA_CHAIN_POLICY).is_some_and(|policy| policy != NF_ACCEPT),
        };
        chains.insert(place, base);
    }
    Ok(chains)
}

/// Whether this interface's packets pass a hook on this way; one without a number may be any.
fn is_met(way: Way, family: u8, hook: Attributes<'_>, ifname: &str) -> bool {
    let Some(number) = hook.big_endian(NFTA_HOOK_HOOKNUM) else { return true };
    match family {
        NFPROTO_NETDEV => way.has_at_device(number as usize) && names(hook, ifname),
        _ => way.has(number as usize) || number == NF_INET_INGRESS && names(hook, ifname),
    }
}

/// Whether a hook is on this interface; on none by name means on one that is not told.
fn names(hook: Attributes<'_>, ifname: &str) -> bool {
    let devices = hook.within(NFTA_HOOK_DEVS);
    // Another kind of attribute is a prefix (Linux 6.18), which is not looked into.
    let is_it =
        |(kind, name): (u16, &[u8])| kind != NFTA_DEVICE_NAME || !is_another(&text(name), ifname);
    match hook.text(NFTA_HOOK_DEV) {
        Some(device) if devices.is_empty() => !is_another(&device, ifname),
        _ => devices.is_empty() || devices.each().map_while(|one| one).any(is_it),
    }
}

/// A rule.
struct Rule<'a> {
    place: Place,
    /// Up to one that cannot be read.
    elements: Vec<Element<'a>>,
    /// Whether all can.
    is_whole: bool,
}

impl<'a> Rule<'a> {
    /// `None` if it does not say whose it is.
    fn of(message: &'a [u8]) -> Option<Self> {
        let place = Place::of(message, NFTA_RULE_TABLE, NFTA_RULE_CHAIN)?;
        let list = || body(message).within(NFTA_RULE_EXPRESSIONS).each();
        let elements = list().map_while(|one| one);
        let elements = elements.map(|(_, element)| Element::of(Attributes::of(element))).collect();
        Some(Self { place, elements, is_whole: list().all(|one| one.is_some()) })
    }

    /// The chains to which it may have a packet jump. Only those with rules matter.
    fn leads_to(&self, chains: &BTreeMap<Place, BaseChain>, rules: &[Self]) -> Vec<Place> {
        let mut leads: Vec<Leads> = self.elements.iter().filter_map(Element::leads).collect();
        if !self.is_whole {
            leads.push(Leads::ToAnyChain);
        }
        let any = || {
            let others = rules.iter().map(|rule| &rule.place);
            let of_table = |place: &&Place| {
                (place.family, &place.table) == (self.place.family, &self.place.table)
            };
            others.filter(of_table).filter(|place| !chains.contains_key(place)).cloned()
        };
        let places = |leads| match leads {
            Leads::ToChain(chain) => vec![Place { chain, ..self.place.clone() }],
            Leads::ToAnyChain => any().collect(),
            Leads::Elsewhere => Vec::new(),
        };
        leads.into_iter().flat_map(places).collect()
    }
}

/// Whatever rules, policies and translation packets meet that go this way by one of these interfaces, one line each. Of
/// the requests to listeners the gate knows by itself which are translated.
pub(super) fn met(way: Way, ifnames: &[String]) -> rustix::io::Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let rules = dump(GETRULE, &ALL)?;
    let rules = rules.iter().map(|(_, message)| Rule::of(message).ok_or(Errno::BADMSG));
    let rules = rules.collect::<rustix::io::Result<Vec<_>>>()?;
    for ifname in ifnames {
        let chains = chains(way, ifname)?;
        let reached = reached(way, &chains, &rules);
        for (place, chain) in &chains {
            if chain.drops && chain.is_met && place.is_of_ip() {
                found.insert(format!("{} has the policy drop", place.name()));
            }
            // Without rules, it still translates the connections that it knows.
            if chain.nat && way == Way::Through {
                found.insert(format!("{} translates (NAT)", place.name()));
            }
        }
        for Rule { place, elements, is_whole } in &rules {
            let asks = || !is_whole || elements.iter().any(Element::asks_conntrack);
            if !place.is_of_ip() {
                continue;
            }
            if reached.contains(place) {
                found.insert(format!("{} has rules", place.name()));
            } else if way == Way::In && asks() {
                found.insert(format!(
                    "{} asks for connections, which packets on a ring make none of",
                    place.name()
                ));
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// The chains that are met, and those that their rules lead to: of what cannot be read, any of the table.
fn reached(way: Way, chains: &BTreeMap<Place, BaseChain>, rules: &[Rule<'_>]) -> BTreeSet<Place> {
    let matters = |chain: &BaseChain| chain.is_met && !(chain.nat && way == Way::Answered);
    let met = chains.iter().filter(|(_, chain)| matters(chain));
    let mut reached: BTreeSet<Place> = met.map(|(place, _)| place.clone()).collect();
    // Each round follows one jump more.
    loop {
        let leading = rules.iter().filter(|rule| reached.contains(&rule.place));
        let further: Vec<Place> = leading.flat_map(|rule| rule.leads_to(chains, rules)).collect();
        let before = reached.len();
        reached.extend(further);
        if reached.len() == before {
            return reached;
        }
    }
}

/// Tables that translate, and what else matters to translation.
struct Translating {
    tables: BTreeMap<String, Table>,
    translation: Translation,
}

impl Translating {
    fn of(chains: &BTreeMap<Place, BaseChain>) -> rustix::io::Result<Self> {
        let mut tables: BTreeMap<String, Table> = BTreeMap::new();
        for (place, _) in chains.iter().filter(|(_, chain)| chain.nat) {
            if let Entry::Vacant(table) = tables.entry(place.table_name()) {
                table
                    .insert(Table::default())
                    .set_sets(sets::of_table(place.family, &place.table)?);
            }
        }
        for (place, chain) in chains {
            if let Some(table) = tables.get_mut(&place.table_name()) {
                table.add_base_chain(&place.chain, chain.is_met);
            }
        }
        Ok(Self { tables, translation: Translation::default() })
    }

    /// A rule that cannot be read is among the findings.
    fn add_rule(&mut self, Rule { place, elements, .. }: &Rule<'_>) {
        for why in elements.iter().filter_map(Element::hides_connections) {
            self.translation.hide(&place.table_name(), why);
        }
        if let Some(table) = self.tables.get_mut(&place.table_name()) {
            table.add_rule(&place.chain, elements, place.family == NFPROTO_IPV4);
        }
    }

    fn into_translation(self) -> Translation {
        let mut translation = self.translation;
        for (name, table) in &self.tables {
            let (ports, chains) = table.translated();
            translation.add_ports(place_of(name, &chains), &ports);
            translation.add_table(name);
        }
        translation
    }
}

/// A table, and the first of some of its chains.
fn place_of<C: AsRef<str> + Ord>(table: &str, chains: &BTreeSet<C>) -> String {
    let chain = chains.first().map(AsRef::as_ref).unwrap_or_default();
    match chains.len() {
        0 | 1 => format!("{table}, chain {chain}"),
        count => format!("{table}, chain {chain} and {} more", count - 1),
    }
}

/// Rules that divert, by what they do and by table: a host with a thousand chains gets one line.
struct Findings {
    way: Way,
    synproxies: bool,
    counting: BTreeMap<Place, DiversionKind>,
    found: BTreeMap<(DiversionKind, String), Finding>,
}

#[derive(Default)]
struct Finding {
    expressions: BTreeSet<String>,
    chains: BTreeSet<String>,
    rules: usize,
}

impl Findings {
    fn add_rule(&mut self, chains: &BTreeMap<Place, BaseChain>, rule: &Rule<'_>) {
        let Rule { place, elements, is_whole } = rule;
        // Translation works in all its chains, whichever hook they are at; so may a chain that
        // others jump to.
        let concerns = |chain: &BaseChain| chain.is_met || chain.nat;
        if !place.is_of_ip() || !chains.get(place).is_none_or(concerns) {
            return;
        }
        let malformed = || (DiversionKind::Unknown, "a malformed rule".into());
        let of_set = |chain| self.counting.get(&Place { chain, ..place.clone() }).copied();
        let found = elements.iter().filter_map(|one| one.classify(self.synproxies, of_set));
        let found: Vec<_> = found.chain((!is_whole).then(malformed)).collect();
        let mut kinds = BTreeSet::new();
        let for_tcp = self.way == Way::In && is_for_tcp(elements);
        for (kind, expression) in found {
            let kind = if for_tcp { kind.of_tcp() } else { kind };
            kinds.insert(kind);
            self.add(kind, place.table_name(), &place.chain, expression);
        }
        for kind in kinds {
            if let Some(finding) = self.found.get_mut(&(kind, place.table_name())) {
                finding.rules += 1;
            }
        }
    }

    fn add(&mut self, kind: DiversionKind, table: String, chain: &str, expression: String) {
        let finding = self.found.entry((kind, table)).or_default();
        finding.expressions.insert(expression);
        finding.chains.insert(chain.to_owned());
    }

    fn into_diversions(self) -> Vec<Diversion> {
        let diversion = |((kind, table), finding): ((DiversionKind, String), Finding)| {
            let place = place_of(&table, &finding.chains);
            let expressions: Vec<String> = finding.expressions.into_iter().collect();
            let rules = finding.rules;
            let detail = format!("{place}: {rules} rule(s) with {}", expressions.join(", "));
            Diversion::new(kind, detail)
        };
        self.found.into_iter().map(diversion).collect()
    }
}

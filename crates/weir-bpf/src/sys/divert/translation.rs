//! Which packets rules may translate, where the gate can ask conntrack for connections that are translated already:
//! those of new connections, by their destination ports.

use std::collections::{BTreeMap, BTreeSet};

use super::diversion::Diversion;
use super::expression::{Element, Leads};
use super::kind::DiversionKind;
use super::ports::{Conditions, PortSet};
use super::sets::Keys;

/// How many ranges of ports are named.
const NAMED_MAX: usize = 8;

/// What all rules together translate.
#[derive(Clone, Debug, Default)]
pub(super) struct Translation {
    /// Tables that translate, or have.
    tables: BTreeSet<String>,
    ports: BTreeMap<String, PortSet>,
    /// Why conntrack does not tell all.
    hidden: BTreeSet<String>,
}

impl Translation {
    /// A table that translates connections, or has.
    pub(super) fn add_table(&mut self, table: impl Into<String>) {
        self.tables.insert(table.into());
    }

    /// New connections to these ports may be translated by that place.
    pub(super) fn add_ports(&mut self, place: impl Into<String>, ports: &PortSet) {
        if !ports.as_slice().is_empty() {
            self.ports.entry(place.into()).or_default().add(ports);
        }
    }

    /// A table has this done to connections.
    pub(super) fn hide(&mut self, table: &str, why: &str) {
        self.hidden.insert(format!("{table}: {why}"));
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.tables.extend(other.tables.iter().cloned());
        self.hidden.extend(other.hidden.iter().cloned());
        for (place, ports) in &other.ports {
            self.add_ports(place, ports);
        }
    }

    /// Where conntrack is not asked: a table without rules translates the connections that it knows.
    pub(super) fn add_idle(self, found: &mut Vec<Diversion>) {
        let tables: Vec<String> = self.tables.into_iter().collect();
        if !tables.is_empty() && found.iter().all(|one| one.kind != DiversionKind::Nat) {
            let detail =
                format!("{}: no rules, but connections may still be translated", tables.join(", "));
            found.push(Diversion::new(DiversionKind::Nat, detail));
        }
    }

    /// Puts what is understood into the place of [`DiversionKind::Nat`], if all is.
    pub(super) fn narrow(self, found: &mut Vec<Diversion>) {
        if self.tables.is_empty() {
            return;
        }
        if let Some(why) = self.hidden.first() {
            found.push(Diversion::new(DiversionKind::Nat, why));
            return;
        }
        let mut all = PortSet::default();
        for ports in self.ports.values() {
            all.add(ports);
        }
        if all.is_all() {
            return;
        }
        found.retain(|one| one.kind != DiversionKind::Nat);
        let tables: Vec<String> = self.tables.into_iter().collect();
        found.push(Diversion::new(DiversionKind::TranslatedConnections, tables.join(", ")));
        found.extend(self.ports.into_iter().map(|(place, ports)| {
            let ports = ports.as_slice();
            let named: Vec<String> =
                ports.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let others = match ports.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            let detail = format!("{}{others}: {place}", named.join(", "));
            let kind = DiversionKind::TranslatedPorts;
            Diversion { ports: ports.to_vec(), ..Diversion::new(kind, detail) }
        }));
    }
}

/// One table's rules that lead elsewhere, in whatever order.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Chains that the kernel calls by itself: whether with incoming packets.
    base: BTreeMap<String, bool>,
    /// Sets of ports.
    sets: BTreeMap<String, Keys>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    chain: String,
    conditions: Conditions,
    leads: Leads,
}

impl Table {
    pub(super) fn add_base_chain(&mut self, name: &str, incoming: bool) {
        self.base.insert(name.to_owned(), incoming);
    }

    pub(super) fn set_sets(&mut self, sets: BTreeMap<String, Keys>) {
        self.sets = sets;
    }

    pub(super) fn add_rule(&mut self, chain: &str, elements: &[Element<'_>], ipv4: bool) {
        for (at, element) in elements.iter().enumerate() {
            if let Some(leads) = element.leads() {
                let conditions = Conditions::of(&elements[..at], &self.sets, ipv4);
                self.steps.push(Step { chain: chain.to_owned(), conditions, leads });
            }
        }
    }

    /// The ports to which new connections may be translated, and the chains that do that.
    pub(super) fn translated(&self) -> (PortSet, BTreeSet<&str>) {
        let mut reach = Reach::default();
        for (chain, _) in self.base.iter().filter(|(_, incoming)| **incoming) {
            reach.chains.insert(chain, PortSet::all());
        }
        // Each round follows one jump more, and the kernel allows no loops.
        let mut changed = true;
        while changed {
            changed = false;
            for step in &self.steps {
                changed |= self.follow(step, &mut reach);
            }
        }
        let (mut all, mut chains) = (PortSet::default(), BTreeSet::new());
        for step in self.steps.iter().filter(|step| step.leads == Leads::Elsewhere) {
            let ports = self.reaching(step, &reach);
            if !ports.as_slice().is_empty() {
                all.add(&ports);
                chains.insert(step.chain.as_str());
            }
        }
        (all, chains)
    }

    fn follow<'a>(&'a self, step: &'a Step, reach: &mut Reach<'a>) -> bool {
        let ports = self.reaching(step, reach);
        match &step.leads {
            Leads::ToChain(chain) => reach.chains.entry(chain).or_default().add(&ports),
            Leads::ToAnyChain => reach.any_chain.add(&ports),
            Leads::Elsewhere => false,
        }
    }

    /// The ports of packets that meet a rule, and its conditions.
    fn reaching(&self, step: &Step, reach: &Reach<'_>) -> PortSet {
        let mut ports = reach.chains.get(step.chain.as_str()).cloned().unwrap_or_default();
        if !self.base.contains_key(&step.chain) {
            ports.add(&reach.any_chain);
        }
        ports.meeting(&step.conditions)
    }
}

/// The ports of packets that come to a chain.
#[derive(Default)]
struct Reach<'a> {
    chains: BTreeMap<&'a str, PortSet>,
    /// ...and to any that is jumped to.
    any_chain: PortSet,
}

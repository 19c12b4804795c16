//! Ports of UDP and TCP: those that a rule is for, as far as its conditions are understood.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::expression::{
    Element, IPPROTO_TCP, NFT_CMP_EQ, NFTA_CMP_DATA, NFTA_CMP_OP, NFTA_DATA_VALUE,
    NFTA_EXTENSION_INFO, NFTA_LOOKUP_SET, half,
};
use super::sets::Keys;

const IPPROTO_UDP: u8 = 17;
const NFT_CMP_LT: u32 = 2;
const NFT_CMP_LTE: u32 = 3;
const NFT_CMP_GT: u32 = 4;
const NFT_CMP_GTE: u32 = 5;
/// The same place in `meta`, `payload`: the register that is loaded; in `cmp`, `range`: the one that is compared.
const NFTA_REGISTER: u16 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
/// Where UDP and TCP have their destination port, and its length.
const PORT_AT: u32 = 2;
const PORT_BYTES: u32 = 2;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_FLAGS: u16 = 5;
const NFTA_RANGE_OP: u16 = 2;
const NFTA_RANGE_FROM_DATA: u16 = 3;
const NFTA_RANGE_TO_DATA: u16 = 4;
const NFT_RANGE_EQ: u32 = 0;
/// Of `struct xt_tcp` and `struct xt_udp`: where the destination ports are, and where which conditions are inverted.
const XT_PORTS_AT: usize = 4;
const XT_TCP_INVERTED_AT: usize = 11;
const XT_UDP_INVERTED_AT: usize = 8;
const XT_INVERTED_PORTS: u8 = 2;
/// Of `struct xt_multiport_v1`: where the ports are, how many at most, and the kind of them that is a packet's
/// destination. After them a flag for each port, whether a range begins with it, and whether all is inverted.
const XT_MULTIPORT_AT: usize = 2;
const XT_MULTI_PORTS: usize = 15;
const XT_MULTIPORT_DESTINATION: u8 = 1;
const PORT_MAX: u16 = u16::MAX;

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl PortProtocol {
    const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    fn number(self) -> u8 {
        match self {
            Self::Tcp => IPPROTO_TCP,
            Self::Udp => IPPROTO_UDP,
        }
    }
}

/// Destination ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ports {
    /// Of which protocol.
    pub protocol: PortProtocol,
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            PortProtocol::Tcp => "tcp",
            PortProtocol::Udp => "udp",
        };
        match (self.first, self.last) {
            (0, PORT_MAX) => write!(f, "{protocol}, all ports"),
            (first, last) if first == last => write!(f, "{protocol} {first}"),
            (first, last) => write!(f, "{protocol} {first}-{last}"),
        }
    }
}

/// Sorted, without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortSet(Vec<Ports>);

impl PortSet {
    pub(super) fn all() -> Self {
        Self(PortProtocol::ALL.map(|protocol| Ports { protocol, first: 0, last: PORT_MAX }).into())
    }

    pub(super) fn is_all(&self) -> bool {
        *self == Self::all()
    }

    pub(super) fn as_slice(&self) -> &[Ports] {
        &self.0
    }

    /// Whether that made a difference.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let mut all: Vec<Ports> = self.0.iter().chain(&other.0).copied().collect();
        all.sort();
        let mut merged: Vec<Ports> = Vec::with_capacity(all.len());
        for next in all {
            match merged.last_mut() {
                Some(last)
                    if last.protocol == next.protocol
                        && next.first <= last.last.saturating_add(1) =>
                {
                    last.last = last.last.max(next.last);
                }
                _ => merged.push(next),
            }
        }
        let changed = merged != self.0;
        self.0 = merged;
        changed
    }

    /// Those of them that meet a rule's conditions.
    pub(super) fn meeting(&self, conditions: &Conditions) -> Self {
        let of_protocol = |ports: &&Ports| {
            conditions.protocol.is_none_or(|number| number == ports.protocol.number())
        };
        let narrowed = self.0.iter().filter(of_protocol).flat_map(|ports| {
            let both = common((ports.first, ports.last), &conditions.ports);
            both.map(|(first, last)| Ports { first, last, ..*ports })
        });
        let mut meeting = Self::default();
        meeting.add(&Self(narrowed.collect()));
        meeting
    }
}

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Protocol,
    Port,
}

/// What a rule asks of a packet's protocol and destination port before it does something. A condition that is not
/// understood is left out: then the rule is taken to be for more packets than it is.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    protocol: Option<u8>,
    /// Both ends included.
    ports: Vec<(u16, u16)>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { protocol: None, ports: vec![(0, PORT_MAX)] }
    }
}

impl Conditions {
    /// Each of `elements` is a condition, or does something else that matters to none.
    pub(super) fn of(elements: &[Element<'_>], sets: &BTreeMap<String, Keys>, ipv4: bool) -> Self {
        let mut conditions = Self::default();
        // What the last expression has loaded, and where to.
        let mut loaded = None;
        for element in elements {
            match element.name {
                "cmp" | "range" => conditions.compare(element, loaded),
                "lookup" => {
                    conditions.look_up(element, sets, loaded.take());
                }
                "match" => {
                    loaded = None;
                    let info = element.data.value(NFTA_EXTENSION_INFO).unwrap_or_default();
                    conditions.extension(&element.extension(), info);
                }
                _ => loaded = loads(element, ipv4),
            }
        }
        conditions
    }

    pub(super) fn protocol(&mut self, number: u8) {
        self.protocol = Some(number);
    }

    /// A match of iptables: its name, and its own structure.
    pub(super) fn extension(&mut self, name: &str, info: &[u8]) {
        let inverted_at = match name {
            "tcp" => XT_TCP_INVERTED_AT,
            "udp" => XT_UDP_INVERTED_AT,
            "multiport" => {
                if let Some(ports) = multiport(info) {
                    self.narrow(&ports);
                }
                return;
            }
            _ => return,
        };
        if let (Some(first), Some(last), Some(inverted)) =
            (half(info, XT_PORTS_AT), half(info, XT_PORTS_AT + 2), info.get(inverted_at))
            && inverted & XT_INVERTED_PORTS == 0
        {
            self.narrow(&[(first, last)]);
        }
    }

    /// A rule ends where its key is not in the set, or in the map.
    fn look_up(
        &mut self,
        element: &Element<'_>,
        sets: &BTreeMap<String, Keys>,
        loaded: Option<(Loaded, u32)>,
    ) {
        let Some((Loaded::Port, register)) = loaded else { return };
        let word = |kind| element.data.big_endian(kind);
        // A flag inverts it.
        if word(NFTA_LOOKUP_SREG) != Some(register) || word(NFTA_LOOKUP_FLAGS).unwrap_or(0) != 0 {
            return;
        }
        let name = element.data.text(NFTA_LOOKUP_SET);
        if let Some(keys) = name.and_then(|name| sets.get(&name)) {
            self.narrow(keys);
        }
    }

    fn compare(&mut self, element: &Element<'_>, loaded: Option<(Loaded, u32)>) {
        let word = |kind| element.data.big_endian(kind);
        let value = |kind| element.data.within(kind).value(NFTA_DATA_VALUE);
        let port = |kind| Some(u16::from_be_bytes(value(kind)?.try_into().ok()?));
        let Some((what, register)) = loaded else { return };
        if word(NFTA_REGISTER) != Some(register) {
            return;
        }
        match (element.name, what) {
            ("cmp", Loaded::Protocol) if word(NFTA_CMP_OP) == Some(NFT_CMP_EQ) => {
                if let Some([number]) = value(NFTA_CMP_DATA) {
                    self.protocol(*number);
                }
            }
            ("cmp", Loaded::Port) => {
                let Some(port) = port(NFTA_CMP_DATA) else { return };
                match word(NFTA_CMP_OP) {
                    Some(NFT_CMP_EQ) => self.narrow(&[(port, port)]),
                    Some(NFT_CMP_LT) => self.narrow(&[(0, port.saturating_sub(1))]),
                    Some(NFT_CMP_LTE) => self.narrow(&[(0, port)]),
                    Some(NFT_CMP_GT) => self.narrow(&[(port.saturating_add(1), PORT_MAX)]),
                    Some(NFT_CMP_GTE) => self.narrow(&[(port, PORT_MAX)]),
                    _ => {}
                }
            }
            ("range", Loaded::Port) if word(NFTA_RANGE_OP) == Some(NFT_RANGE_EQ) => {
                let ends = (port(NFTA_RANGE_FROM_DATA), port(NFTA_RANGE_TO_DATA));
                if let (Some(first), Some(last)) = ends {
                    self.narrow(&[(first, last)]);
                }
            }
            _ => {}
        }
    }

    fn narrow(&mut self, to: &[(u16, u16)]) {
        let both = self.ports.iter().flat_map(|ports| common(*ports, to));
        self.ports = both.collect();
    }
}

/// What a range has in common with each of some others.
fn common(range: (u16, u16), others: &[(u16, u16)]) -> impl Iterator<Item = (u16, u16)> {
    let both = others.iter().map(move |other| (range.0.max(other.0), range.1.min(other.1)));
    both.filter(|(first, last)| first <= last)
}

/// The destination ports of `struct xt_multiport_v1`: a port, or two that are the ends of a range. `None` if it is for
/// others too.
fn multiport(info: &[u8]) -> Option<Vec<(u16, u16)>> {
    let (&flags, &count) = (info.first()?, info.get(1)?);
    let ranges = XT_MULTIPORT_AT + 2 * XT_MULTI_PORTS;
    let inverted = *info.get(ranges + XT_MULTI_PORTS)? != 0;
    let count = usize::from(count);
    if flags != XT_MULTIPORT_DESTINATION || inverted || count > XT_MULTI_PORTS {
        return None;
    }
    let port = |at: usize| half(info, XT_MULTIPORT_AT + 2 * at);
    let mut ports = Vec::new();
    let mut at = 0;
    while at < count {
        let first = port(at)?;
        let is_range = *info.get(ranges + at)? != 0;
        at += usize::from(is_range);
        ports.push((first, if is_range { port(at).filter(|_| at < count)? } else { first }));
        at += 1;
    }
    Some(ports)
}

/// What an expression loads into which register, if that is looked at.
fn loads(element: &Element<'_>, ipv4: bool) -> Option<(Loaded, u32)> {
    // In a table of both families, IPv4's place may be another of IPv6's.
    let what = if element.loads_protocol() && (element.name == "meta" || ipv4) {
        Loaded::Protocol
    } else if element.loads_from(NFT_PAYLOAD_TRANSPORT_HEADER, PORT_AT, PORT_BYTES) {
        Loaded::Port
    } else {
        return None;
    };
    Some((what, element.data.big_endian(NFTA_REGISTER)?))
}

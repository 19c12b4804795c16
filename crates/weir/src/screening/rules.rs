//! A screen's rules: what they say of a packet.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::packet::Packet;

/// What becomes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It passes.
    Accept,
    /// It is dropped, and the sender is told.
    Reject,
    /// It is dropped.
    Drop,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Drop => "drop",
        })
    }
}

/// Addresses that have their first bits in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub len: u8,
}

impl Network {
    /// Whether an address is one of them.
    pub fn has(&self, address: IpAddr) -> bool {
        let differ = bits(self.address) ^ bits(address);
        self.address.is_ipv4() == address.is_ipv4()
            && differ.checked_shr(128 - u32::from(self.len)).unwrap_or(0) == 0
    }
}

/// An address, its first bit the highest.
pub fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(it.to_bits()) << 96,
        IpAddr::V6(it) => it.to_bits(),
    }
}

/// Where packets come from, or go. An empty list is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    pub networks: Vec<Network>,
    pub ports: Vec<RangeInclusive<u16>>,
}

impl Side {
    fn has_address(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.has(address))
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|range| range.contains(&port))
    }
}

/// TCP flags: these of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    pub set: u8,
    pub of: u8,
}

/// One line of a rules file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub action: Action,
    pub protocol: Option<u8>,
    pub from: Side,
    pub to: Side,
    pub flags: Option<Flags>,
    pub types: Vec<u8>,
    pub log: bool,
    /// Where it stands, from 1.
    pub line: usize,
    /// As it stands there.
    pub text: String,
}

impl Rule {
    fn has_details(&self) -> bool {
        !self.from.ports.is_empty()
            || !self.to.ports.is_empty()
            || self.flags.is_some()
            || !self.types.is_empty()
    }

    /// Whether the rule is about a packet. A fragment does not show ports, flags or a type: a rule about those accepts no
    /// fragment, and refuses every one that it may be about.
    pub fn matches(&self, packet: &Packet) -> bool {
        let outside = self.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && self.from.has_address(packet.source)
            && self.to.has_address(packet.destination);
        if !outside || (packet.fragment && self.has_details()) {
            return outside && self.action != Action::Accept;
        }
        self.from.has_port(packet.source_port)
            && self.to.has_port(packet.destination_port)
            && self.flags.is_none_or(|flags| packet.tcp_flags & flags.of == flags.set)
            && (self.types.is_empty() || self.types.contains(&packet.icmp_type))
    }
}

/// All of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// The first rule that is about a packet; the number behind the last one if none is, which means drop.
    pub fn decide(&self, packet: &Packet) -> (Action, usize) {
        let found = self.0.iter().position(|rule| rule.matches(packet));
        let number = found.unwrap_or(self.0.len());
        (self.0.get(number).map_or(Action::Drop, |rule| rule.action), number)
    }

    /// A rule's line as it stands in the file.
    pub fn name(&self, number: usize) -> String {
        match self.0.get(number) {
            Some(rule) => format!("line {}: {}", rule.line, rule.text),
            None => "default: drop".into(),
        }
    }
}

/// So many rules.
pub fn count(rules: usize) -> String {
    if rules == 1 { "1 rule".into() } else { format!("{rules} rules") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{ICMP, ICMPV6, TCP, UDP};
    use crate::screening::parse::parse;

    fn address(random: &mut fastrand::Rng) -> IpAddr {
        if random.bool() {
            IpAddr::from([198, 18, random.u8(..4), random.u8(..)])
        } else {
            IpAddr::from([0x2001, 2, 0, 0, 0, 0, random.u16(..2), random.u16(..)])
        }
    }

    fn packet(random: &mut fastrand::Rng) -> Packet {
        Packet {
            source: address(random),
            destination: address(random),
            protocol: *random.choice(&[ICMP, TCP, UDP, ICMPV6, 47]).unwrap(),
            source_port: random.u16(..8),
            destination_port: random.u16(..8),
            tcp_flags: random.u8(..),
            icmp_type: random.u8(..8),
            fragment: random.u8(..4) == 0,
        }
    }

    const RULES: &str = "\
        drop tcp to any port 3\n\
        accept tcp from 198.18.0.0/23 to any port 0-4 flags syn\n\
        reject udp from any port 1,2\n\
        accept udp\n\
        accept icmp type 0,7\n\
        drop from 2001:2::/112\n\
        accept proto 47\n";

    #[test]
    fn a_network_has_the_addresses_that_a_comparison_bit_by_bit_says() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let (own, other) = (address(&mut random), address(&mut random));
            let (bits, total) = match (own, other) {
                (IpAddr::V4(a), IpAddr::V4(b)) => ((a.to_bits() ^ b.to_bits()).leading_zeros(), 32),
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    ((a.to_bits() ^ b.to_bits()).leading_zeros(), 128)
                }
                _ => (0, 0),
            };
            let len = random.u8(..=if own.is_ipv4() { 32 } else { 128 });
            let expected = total > 0 && bits >= u32::from(len);
            assert_eq!(Network { address: own, len }.has(other), expected, "{own}/{len} {other}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_none_drops() {
        let rules = parse(RULES).unwrap();
        let mut random = fastrand::Rng::with_seed(2);
        let mut hit = vec![0; rules.0.len() + 1];
        for _ in 0..50_000 {
            let packet = packet(&mut random);
            let (action, number) = rules.decide(&packet);
            assert!(rules.0[..number].iter().all(|rule| !rule.matches(&packet)));
            match rules.0.get(number) {
                Some(rule) => assert!(rule.matches(&packet) && rule.action == action),
                None => assert_eq!(action, Action::Drop),
            }
            hit[number] += 1;
        }
        assert!(hit.iter().all(|count| *count > 0), "{hit:?}");
    }

    #[test]
    fn a_fragment_passes_only_where_each_whole_packet_that_it_may_be_of_would() {
        let rules = parse(RULES).unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        let mut accepted = 0;
        for _ in 0..50_000 {
            let mut whole = packet(&mut random);
            whole.fragment = false;
            let fragment = Packet { fragment: true, ..whole };
            if rules.decide(&fragment).0 == Action::Accept {
                accepted += 1;
                assert_eq!(rules.decide(&whole).0, Action::Accept, "{whole}");
            }
        }
        assert!(accepted > 0);
    }
}

//! What there is to decide of fair shares (`docs/shares.md`): who is protected, and who weighs what. It holds for
//! the host, as its interfaces share its CPUs.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use weir_bpf::channels::Channel;
use weir_bpf::verdict::{self, Kind};
use weir_policy::{Bound, Share, Shares};

use crate::owners::Process;

/// The weight of packets that nobody waits for, beside that of a receiver of nice 0, which is 1.
const UNAWAITED: f64 = 1.0 / 32.0;

/// Ports that a host is kept in reach by, SSH and BGP,...
const TCP_PROTECTED: [u16; 2] = [22, 179];
/// ...and those that keep it in its network: DHCP, DHCPv6, BFD (RFC 5881, 5883).
const UDP_PROTECTED: [u16; 7] = [67, 68, 546, 547, 3784, 3785, 4784];

/// What the user has decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareSettings {
    /// Whether channels are held to their share; else they are only metered.
    pub enforce: bool,
    /// What the protected class may take of a CPU, whatever others want.
    pub control: Share,
    /// Ports of the protected class besides those that always are: local ones of UDP, and TCP's, whichever end
    /// of a connection has it.
    pub protected: BTreeSet<u16>,
    /// The first that is a channel's counts.
    pub weights: Vec<WeightRule>,
}

/// What somebody's packets weigh.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightRule {
    /// Whose.
    pub whose: Selector,
    /// 1 is a receiver of nice 0.
    pub weight: f64,
}

impl WeightRule {
    /// What a weight may be.
    pub const RANGE: (f64, f64) = (0.001, 1000.0);
}

/// Whose packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// To this local port, of UDP or of a TCP listener.
    Port(u16),
    /// To a socket that a process of this name has open.
    Process(String),
    /// To one of this systemd unit's.
    Unit(String),
    /// To one of a control group's, or of those below it.
    Cgroup(String),
    /// Of this kind of channel.
    Kind(Kind),
}

impl Selector {
    /// What it is called in the file, and its value there.
    pub fn named(&self) -> (&'static str, String) {
        match self {
            Self::Port(port) => ("port", port.to_string()),
            Self::Process(name) => ("process", name.clone()),
            Self::Unit(unit) => ("unit", unit.clone()),
            Self::Cgroup(path) => ("cgroup", path.clone()),
            Self::Kind(kind) => ("kind", kind.name().into()),
        }
    }

    fn is_of(&self, channel: &Channel, owners: &[Arc<Process>]) -> bool {
        let path =
            |process: &Process| process.cgroup.as_ref().map_or("/", |group| &group.path).to_owned();
        let unit = |process: &Process| process.cgroup.as_ref().and_then(|group| group.unit.clone());
        match self {
            Self::Port(port) => channel.local_port() == Some(*port),
            Self::Process(name) => owners.iter().any(|each| each.comm == *name),
            Self::Unit(name) => owners.iter().any(|each| unit(each).as_ref() == Some(name)),
            Self::Cgroup(prefix) => owners.iter().any(|each| is_within(&path(each), prefix)),
            Self::Kind(kind) => channel.kind == *kind,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = self.named();
        write!(f, "{key} {value}")
    }
}

/// Whether a control group is this one or below it.
fn is_within(path: &str, above: &str) -> bool {
    let below = path.strip_prefix(above.trim_end_matches('/'));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

impl ShareSettings {
    /// Whether a channel belongs to the protected class. Connection requests past a listener's queue do not, nor
    /// what belongs to no connection: it is the connections that are to last.
    pub fn protects(&self, channel: &Channel) -> bool {
        let port = |always: &[u16]| {
            let local = channel.local_port();
            local.is_some_and(|port| always.contains(&port) || self.protected.contains(&port))
        };
        match channel.kind {
            Kind::Neighbour | Kind::Group => true,
            // The gate knows the ports.
            Kind::TcpPeer => true,
            Kind::Tcp => port(&TCP_PROTECTED),
            Kind::Udp | Kind::Multicast => port(&UDP_PROTECTED),
            _ => false,
        }
    }

    /// TCP ports of the protected class.
    pub fn protected_tcp_ports(&self) -> impl Iterator<Item = u16> {
        TCP_PROTECTED.into_iter().chain(self.protected.iter().copied())
    }

    /// What somebody has said that a channel weighs. `owners`: those who have its sockets open, as far as they
    /// are known.
    pub fn weight(&self, channel: &Channel, owners: &[Arc<Process>]) -> Option<f64> {
        let first = self.weights.iter().find(|rule| rule.whose.is_of(channel, owners));
        first.map(|rule| rule.weight)
    }
}

impl Default for ShareSettings {
    fn default() -> Self {
        let control = Share::percent(Shares::CONTROL_PERCENT);
        Self {
            enforce: true,
            control: control.unwrap_or_else(|| unreachable!("it is a share")),
            protected: BTreeSet::new(),
            weights: Vec::new(),
        }
    }
}

/// What bounds the channels of a kind, and what they weigh if nobody says; where somebody receives, his own weight
/// goes with it.
pub fn usual(kind: Kind) -> (Bound, f64) {
    match kind.bound() {
        verdict::Bound::Queue => (Bound::Queue, 1.0),
        verdict::Bound::Nothing => (Bound::Nothing, UNAWAITED),
        verdict::Bound::Control => (Bound::Nothing, 1.0),
        verdict::Bound::Unknown => (Bound::Unknown, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use weir_bpf::holders::{self, ProcessId, SchedClass, Started};
    use weir_bpf::units::{Nice, Uid};

    use super::*;
    use crate::owners::Group;

    fn at(kind: Kind, port: u16) -> Channel {
        Channel { local: Some(([198, 18, 0, 1].into(), port)), ..Channel::of_kind(kind) }
    }

    fn process(comm: &str, cgroup: &str) -> Arc<Process> {
        let found = holders::Process {
            id: ProcessId { started: Started(1), pid: 2 },
            comm: comm.into(),
            uid: Uid(0),
            policies: vec![SchedClass::Fair(Nice(0))],
            groups: None,
        };
        let group = Group::parse(format!("0::{cgroup}\n").as_bytes()).map(Arc::new);
        Arc::new(Process::new(&found, None, group, 1.0))
    }

    fn rules(rules: Vec<(Selector, f64)>) -> ShareSettings {
        let weights = rules.into_iter().map(|(whose, weight)| WeightRule { whose, weight });
        ShareSettings { weights: weights.collect(), ..ShareSettings::default() }
    }

    #[test]
    fn the_protected_class_is_known_by_kind_and_local_port() {
        let settings = ShareSettings { protected: [5000].into(), ..ShareSettings::default() };
        for (channel, protected) in [
            (Channel::of_kind(Kind::Neighbour), true),
            (Channel::of_kind(Kind::Group), true),
            (Channel::of_kind(Kind::Icmp), false),
            (at(Kind::Tcp, 22), true),
            (at(Kind::Tcp, 179), true),
            (at(Kind::TcpRequest, 22), false),
            (at(Kind::TcpStray, 22), false),
            // Which ports, the gate knows; where there was no account, all of the kind have one.
            (at(Kind::TcpPeer, 179), true),
            (Channel::of_kind(Kind::TcpPeer), true),
            (at(Kind::Udp, 22), false),
            (at(Kind::Udp, 3784), true),
            (at(Kind::Multicast, 68), true),
            (at(Kind::Tcp, 68), false),
            (at(Kind::Udp, 53), false),
            (at(Kind::Tcp, 5000), true),
            (at(Kind::Udp, 5000), true),
            (at(Kind::TcpRequest, 5000), false),
            // Without an address, those for which there was no account.
            (Channel::of_kind(Kind::Tcp), false),
            (Channel::of_kind(Kind::TcpClient), false),
        ] {
            assert_eq!(settings.protects(&channel), protected, "{channel:?}");
        }
    }

    #[test]
    fn the_first_weight_that_is_a_channels_counts() {
        let named = process("named", "/system.slice/named.service");
        let other = process("other", "/user.slice/user-1.slice/session-2.scope");
        let kernels = process("root", "/");
        for (whose, channel, owners, is) in [
            (Selector::Port(53), at(Kind::Udp, 53), vec![], true),
            (Selector::Port(53), at(Kind::Tcp, 53), vec![], true),
            (Selector::Port(53), at(Kind::Udp, 54), vec![], false),
            // It is the peer's.
            (Selector::Port(53), at(Kind::TcpPeer, 53), vec![], false),
            (Selector::Port(53), Channel::of_kind(Kind::Icmp), vec![], false),
            (Selector::Process("named".into()), at(Kind::Udp, 1), vec![&other, &named], true),
            (Selector::Process("named".into()), at(Kind::Udp, 1), vec![&other], false),
            (Selector::Process("named".into()), at(Kind::Udp, 1), vec![], false),
            (Selector::Unit("named.service".into()), at(Kind::Udp, 1), vec![&named], true),
            (Selector::Unit("named".into()), at(Kind::Udp, 1), vec![&named], false),
            (Selector::Unit("named.service".into()), at(Kind::Udp, 1), vec![&kernels], false),
            (Selector::Cgroup("/user.slice".into()), at(Kind::Udp, 1), vec![&other], true),
            (Selector::Cgroup("/user".into()), at(Kind::Udp, 1), vec![&other], false),
            (
                Selector::Cgroup("/user.slice/user-1.slice/session-2.scope".into()),
                at(Kind::Udp, 1),
                vec![&other],
                true,
            ),
            (Selector::Cgroup("/".into()), at(Kind::Udp, 1), vec![&other], true),
            (Selector::Cgroup("/".into()), at(Kind::Udp, 1), vec![&kernels], true),
            (Selector::Cgroup("/".into()), at(Kind::Udp, 1), vec![], false),
            (Selector::Kind(Kind::Icmp), Channel::of_kind(Kind::Icmp), vec![], true),
            (Selector::Kind(Kind::Tcp), at(Kind::TcpRequest, 1), vec![], false),
        ] {
            let owners: Vec<Arc<Process>> = owners.into_iter().cloned().collect();
            let text = whose.to_string();
            let found = rules(vec![(whose, 4.0)]).weight(&channel, &owners);
            assert_eq!(found, is.then_some(4.0), "{text}: {channel:?}");
        }
        let both = rules(vec![(Selector::Process("named".into()), 2.0), (Selector::Port(53), 4.0)]);
        assert_eq!(both.weight(&at(Kind::Udp, 53), &[named]), Some(2.0));
        assert_eq!(both.weight(&at(Kind::Udp, 53), &[]), Some(4.0));
    }
}

//! The kinds of diversion, and what each costs.

use serde::{Deserialize, Serialize};

/// What a diversion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiversionKind {
    /// Network address translation: rules, or connections that still are translated. Masquerading
    /// counts too: answers are translated back where they come in (`nf_nat_ipv4_pre_routing()`).
    Nat,
    /// Connections that are translated, and that the gate asks conntrack for before it discards.
    TranslatedConnections,
    /// Rules that translate new connections to some ports, whose packets pass.
    TranslatedPorts,
    /// Rules that write into packets' headers, such as stateless NAT.
    HeaderRewrite,
    /// A transparent proxy takes packets to other addresses and ports.
    Tproxy,
    /// A process sees packets before the socket does.
    NfQueue,
    /// Rules that forward or duplicate packets.
    Forward,
    /// SYNs are answered on behalf of listeners.
    Synproxy,
    /// Load balancing by IPVS.
    Ipvs,
    /// A tc filter redirects or mirrors packets.
    TcRedirect,
    /// A BPF program at tc ingress, which may do anything.
    TcBpf,
    /// A tc filter with another action that may change packets.
    TcAction,
    /// The interface is a port of a bridge, bond, team or the like.
    Enslaved,
    /// The interface is a port of a VRF, which takes packets in IP, after any gate.
    VrfPort,
    /// The interface is a port of an Open vSwitch, whose datapath's device receives nothing.
    SwitchPort,
    /// Another interface on top (macvlan, ipvlan, macsec) takes packets.
    Upper,
    /// Interfaces of VLANs whose tag the NIC may remove before the gate sees the frame.
    UntaggedVlan,
    /// Interfaces of VLANs whose tags the gate sees.
    Vlan,
    /// Multicast is forwarded from this interface.
    MulticastForwarding,
    /// Rules that come before the table of local addresses.
    PolicyRouting,
    /// Copies of packets go to a process (`log group`, NFLOG, tc's sample).
    PacketLog,
    /// Rules that remember who sends how much (sets filled by packets, `recent`, `hashlimit`), to hold some senders
    /// back or keep them out. Only of those that they see.
    SenderRules,
    /// Rules that count packets, bytes or connections together, or connection requests by sender.
    CountingRules,
    /// Packet sockets (`AF_PACKET`): captures, and servers that read below the sockets; raw ones of UDP or TCP.
    PacketSocket,
    /// BPF programs that choose sockets; the gate's own look-up runs them too.
    SkLookup,
    /// Has changed, and is not read yet: reading it took long, and must not take the CPU.
    Unread,
    /// Could not be read, or was not understood.
    Unknown,
}

const PASSES: &str =
    "the gate passes every packet of this interface, so nothing is discarded early";

impl DiversionKind {
    /// Whether the gate must pass every packet because of it.
    pub fn passes(self) -> bool {
        self.remedy().is_some()
    }

    /// Whether it may take some packets elsewhere, which the gate tells from others.
    pub fn translates(self) -> bool {
        matches!(self, Self::TranslatedConnections | Self::TranslatedPorts)
    }

    /// The same of a rule that is for TCP alone: what it misses is little enough to be told only.
    pub(super) fn of_tcp(self) -> Self {
        if self == Self::SenderRules { Self::CountingRules } else { self }
    }

    /// What it is, for a person.
    pub fn what(self) -> &'static str {
        match self {
            Self::Nat => "packets may be translated to another address or port",
            Self::TranslatedConnections => "connections may be translated (NAT)",
            Self::TranslatedPorts => "rules translate what comes to these ports",
            Self::HeaderRewrite => "rules write into packets' headers",
            Self::Tproxy => "a transparent proxy may take packets",
            Self::NfQueue => "a process screens packets before sockets get them",
            Self::Forward => "rules forward or duplicate packets",
            Self::Synproxy => "SYNs are answered on behalf of listeners",
            Self::Ipvs => "IPVS may send packets to other hosts",
            Self::TcRedirect => "a tc filter redirects or mirrors packets",
            Self::TcBpf => "a BPF program at tc ingress may take packets elsewhere",
            Self::TcAction => "a tc filter may change packets",
            Self::Enslaved => "the interface's packets go to its master",
            Self::VrfPort => "the interface's packets go to a VRF",
            Self::SwitchPort => "the interface's packets go to an Open vSwitch",
            Self::Upper => "an interface on top takes packets",
            Self::UntaggedVlan => "packets of a VLAN may look like this interface's own",
            Self::Vlan => "VLAN interfaces lie on top",
            Self::MulticastForwarding => "multicast packets are forwarded",
            Self::PolicyRouting => "routing rules come before the local addresses",
            Self::PacketLog => "copies of packets go to a process",
            Self::SenderRules => "rules hold senders to what they have sent",
            Self::CountingRules => "rules go by how much they have seen",
            Self::PacketSocket => "packet or raw sockets receive copies of packets",
            Self::SkLookup => "BPF programs choose the socket",
            Self::Unread => "what may divert packets has changed and is not read yet",
            Self::Unknown => "what may divert packets is not known in full",
        }
    }

    /// What it costs, and the remedy.
    pub fn cost(self) -> String {
        match self {
            Self::TranslatedConnections => "their packets pass: the gate asks conntrack before it \
                                            discards a packet, which makes discards dearer"
                .into(),
            Self::TranslatedPorts => "packets to these ports pass".into(),
            Self::Vlan => "costs nothing: packets with a VLAN tag pass, also of VLAN 0".into(),
            Self::SkLookup => "costs nothing: the gate's look-up asks them too".into(),
            Self::PacketLog => "the gate goes on discarding, and what it discards is not copied; \
                                use `--policy off` if every copy is needed"
                .into(),
            Self::CountingRules => "the gate goes on discarding, and what it discards is not \
                                    counted, so a limit is reached later; use `--policy off` if \
                                    the rules must see every packet"
                .into(),
            Self::PacketSocket => "the gate goes on discarding, and what it discards is not seen \
                                   there (at tc, packet sockets for all protocols see it); use \
                                   `--policy off` while capturing; `ss --packet --raw --processes` \
                                   says whose they are"
                .into(),
            _ => format!("{PASSES}; {}", self.remedy().unwrap_or_default()),
        }
    }

    /// What lets the gate judge packets again; `None`: it does so beside this.
    fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::Nat => {
                "NAT rules for given ports, and masquerading, leave the other packets to the gate \
                 where it can ask conntrack (Linux 5.18; if `nf_conntrack` is a module that \
                 cannot be loaded at the start, restart weir once it is); or run weir in the network namespace of the applications"
            }
            Self::HeaderRewrite | Self::Tproxy | Self::NfQueue | Self::Forward | Self::Synproxy => {
                "remove the rules if they are not needed, or run weir in the network namespace of \
                 the applications"
            }
            Self::SenderRules => {
                "restrict such rules to TCP (`meta l4proto tcp`, `-p tcp`) if that is what they \
                 are for, or remove them"
            }
            Self::Ipvs => "run weir on the real servers",
            Self::TcRedirect | Self::TcBpf | Self::TcAction => {
                "`tc filter show dev IF ingress` and `bpftool net` name it; remove it if it is not \
                 needed"
            }
            Self::Enslaved => "protect the master instead",
            Self::VrfPort => "there is no place for a gate behind a VRF: receive outside of it",
            Self::SwitchPort => "protect the internal port that has the address instead",
            Self::Upper => "protect the interface on top instead",
            Self::UntaggedVlan => {
                "at tc (`--attach tc`) the gate sees the tags; in the driver after `ethtool \
                 --offload IF rxvlan off` (on a veth, `txvlan off` on its peer as well)"
            }
            Self::MulticastForwarding => "stop multicast routing here if it is not needed",
            Self::PolicyRouting => "make `from all lookup local` the first rule (`ip rule`)",
            Self::Unread => {
                "it is read within a minute; a firewall that is loaded in one go (`nft -f`) is read \
                 once"
            }
            Self::Unknown => {
                "run weir as root with /proc mounted, or remove what it does not understand"
            }
            Self::TranslatedConnections
            | Self::TranslatedPorts
            | Self::Vlan
            | Self::PacketLog
            | Self::CountingRules
            | Self::PacketSocket
            | Self::SkLookup => return None,
        })
    }
}

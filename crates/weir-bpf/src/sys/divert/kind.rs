//! The kinds of diversion, and what each costs.

use serde::{Deserialize, Serialize};

use self::Effect::{Judges, Passes};

/// What the gate does where there is one.
enum Effect {
    /// It passes every packet. What lets it judge packets again.
    Passes(&'static str),
    /// It judges packets all the same. What that costs.
    Judges(&'static str),
}

const PASSES: &str = "the gate passes every packet of this interface, whatever queue is full (where softirqs poll, within their limit)";

const REMOVE_RULES: &str = "remove the rules if they are not needed, or run weir in the network namespace of the applications";
const REMOVE_FILTER: &str =
    "`tc filter show dev IF ingress` and `bpftool net` name it; remove it if it is not needed";

/// Each kind with what it is, for a person, and what the gate does then.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $what:literal, $effect:expr;)*) => {
        /// What a diversion is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum DiversionKind {
            $($(#[$doc])* $kind,)*
        }

        impl DiversionKind {
            /// What it is, for a person.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$kind => $what,)*
                }
            }

            fn effect(self) -> Effect {
                match self {
                    $(Self::$kind => $effect,)*
                }
            }
        }
    };
}

kinds! {
    /// Network address translation: rules, or a table that may still translate connections. Masquerading counts too:
    /// answers are translated back where they come in (`nf_nat_ipv4_pre_routing()`).
    Nat: "packets may be translated to another address or port", Passes(
        "delete tables that have no rules (of legacy iptables: `rmmod iptable_nat ip6table_nat`); NAT rules for given \
         ports, and masquerading, leave the other packets to the gate where it can ask conntrack (if `nf_conntrack` is a \
         module that could not be loaded at the start, restart weir once it is); or run weir in the network namespace of \
         the applications");
    /// Connections that are translated, and that the gate asks conntrack for before it discards.
    TranslatedConnections: "connections may be translated (NAT)", Judges(
        "their packets pass: the gate asks conntrack before it discards a packet, which makes discards dearer");
    /// Rules that translate new connections to some ports, whose packets pass.
    TranslatedPorts: "rules translate what comes to these ports", Judges("packets to these ports pass");
    /// Rules that write into packets' headers, such as stateless NAT.
    HeaderRewrite: "rules write into packets' headers", Passes(REMOVE_RULES);
    /// A transparent proxy takes packets to other addresses and ports.
    Tproxy: "a transparent proxy may take packets", Passes(REMOVE_RULES);
    /// A process sees packets before the socket does.
    NfQueue: "a process screens packets before sockets get them", Passes(REMOVE_RULES);
    /// Rules that forward or duplicate packets.
    Forward: "rules forward or duplicate packets", Passes(REMOVE_RULES);
    /// SYNs are answered on behalf of listeners.
    Synproxy: "SYNs are answered on behalf of listeners", Passes(REMOVE_RULES);
    /// Load balancing by IPVS.
    Ipvs: "IPVS may send packets to other hosts", Passes("run weir on the real servers");
    /// A tc filter redirects or mirrors packets.
    TcRedirect: "a tc filter redirects or mirrors packets", Passes(REMOVE_FILTER);
    /// A BPF program at tc ingress, which may do anything.
    TcBpf: "a BPF program at tc ingress may take packets elsewhere", Passes(REMOVE_FILTER);
    /// A tc filter with another action that may change packets.
    TcAction: "a tc filter may change packets", Passes(REMOVE_FILTER);
    /// The interface is a port of a bridge, bond, team or the like.
    Enslaved: "the interface's packets go to its master", Passes("protect the master instead");
    /// The interface is a port of a VRF, which takes packets in IP, after any gate.
    VrfPort: "the interface's packets go to a VRF", Passes(
        "there is no place for a gate behind a VRF: receive outside of it");
    /// The interface is a port of an Open vSwitch, whose datapath's device receives nothing.
    SwitchPort: "the interface's packets go to an Open vSwitch", Passes(
        "protect the internal port that has the address instead");
    /// The interface connects a switch, whose ports are interfaces of their own (DSA).
    SwitchConduit: "the interface's packets are those of a switch's ports", Passes(
        "protect the switch's ports instead");
    /// Another interface on top (macvlan, ipvlan, macsec) takes packets.
    Upper: "an interface on top takes packets", Passes(
        "protect the interface on top; what is for this interface's own address stays unprotected");
    /// Interfaces of VLANs whose tag the NIC may remove before the gate sees the frame.
    UntaggedVlan: "packets of a VLAN may look like this interface's own", Passes(
        "at tc (`--attach tc`) the gate sees the tags; in the driver after `ethtool --offload IF rxvlan off` (on a veth, \
         `txvlan off` on its peer as well)");
    /// Interfaces of VLANs whose tags the gate sees.
    Vlan: "VLAN interfaces lie on top", Judges(
        "costs nothing: packets with a VLAN tag pass, also of VLAN 0");
    /// Multicast is forwarded from this interface.
    MulticastForwarding: "multicast packets are forwarded", Judges(
        "packets to multicast groups pass, as a multicast router may send them on");
    /// Rules that come before the table of local addresses.
    PolicyRouting: "routing rules come before the local addresses", Passes(
        "make `from all lookup local` the first rule (`ip rule`)");
    /// Copies of packets go to a process (`log group`, NFLOG, tc's sample).
    PacketLog: "copies of packets go to a process", Judges(
        "the gate goes on discarding, and what it discards is not copied; use `--policy off` if every copy is needed");
    /// Rules that remember who sends how much (sets filled by packets, `recent`, `hashlimit`), to hold some senders
    /// back or keep them out. Only of those that they see.
    SenderRules: "rules hold senders to what they have sent", Passes(
        "restrict such rules to TCP (`meta l4proto tcp`, `-p tcp`) if that is what they are for, or remove them");
    /// Rules that count packets, bytes or connections together, or connection requests by sender.
    CountingRules: "rules go by how much they have seen", Judges(
        "the gate goes on discarding, and what it discards is not counted, so a limit is reached later; use `--policy \
         off` if the rules must see every packet");
    /// Packet sockets (`AF_PACKET`): captures, and servers that read below the sockets; raw ones of UDP or TCP.
    PacketSocket: "packet or raw sockets receive copies of packets", Judges(
        "the gate goes on discarding, and what it discards is not seen there (at tc, packet sockets for all protocols \
         see it); use `--policy off` while capturing; `ss --packet --raw --processes` says whose they are");
    /// BPF programs that choose sockets. The gate's look-up would run them too, and one that keeps count choose otherwise
    /// for the kernel.
    SkLookup: "BPF programs choose the socket (sk_lookup)", Passes(
        "detach them if they are not needed (`bpftool link`)");
    /// Has changed, and is not read yet: reading it took long, and must not take the CPU.
    Unread: "what may divert packets has changed and is not read yet", Passes(
        "it is read within a minute; a firewall that is loaded in one go (`nft -f`) is read once");
    /// Could not be read, or was not understood.
    Unknown: "what may divert packets is not known in full", Passes(
        "run weir as root with /proc mounted, or remove what it does not understand");
}

impl DiversionKind {
    /// Whether the gate must pass every packet because of it.
    pub fn passes(self) -> bool {
        matches!(self.effect(), Passes(_))
    }

    /// Whether it may take some packets elsewhere, which the gate tells from others.
    pub fn translates(self) -> bool {
        matches!(self, Self::TranslatedConnections | Self::TranslatedPorts)
    }

    /// The same of a rule that is for TCP alone: what it misses is little enough to be told only.
    pub(super) fn of_tcp(self) -> Self {
        if self == Self::SenderRules { Self::CountingRules } else { self }
    }

    /// What it costs, and the remedy.
    pub fn cost(self) -> String {
        match self.effect() {
            Passes(remedy) => format!("{PASSES}; {remedy}"),
            Judges(cost) => cost.into(),
        }
    }
}

//! What may take an interface's packets elsewhere before a socket sees them.
//!
//! The gate asks where a packet would go if nothing were in its way: by its destination address and
//! port, in its network namespace. Where something is in its way (NAT, TPROXY, a bridge, ...), the
//! packet may belong to somebody who has room for it, so the gate must not discard it. Whoever reads
//! nothing, or does not understand what is read, takes it for a diversion ([`DiversionKind::Unknown`]).
//!
//! | source | read from |
//! |---|---|
//! | nftables, and iptables over nftables | nfnetlink (`nft`, `expression`), translated connections (`conntrack`) |
//! | legacy iptables | its socket options (`legacy`) |
//! | IPVS, multicast forwarding | `/proc` (`proc`) |
//! | tc filters at ingress, tcx and `sk_lookup` programs | rtnetlink (`tc`), bpf(2) (`programs`) |
//! | masters, and interfaces on top, in any namespace | rtnetlink (`link`), the kernel's own record (`device`) |
//! | policy routing | rtnetlink (`rules`) |
//! | what else the kernel does to packets before a socket has them | `filter`, for lazy sockets alone |
//! | what the kernel does to packets that it forwards | `forward`, for the fast path alone |
//! | packet and raw sockets | `/proc` (`packet`) |
//!
//! What netlink announces is read again when it has ([`DiversionWatch`]), the rest at each look.

mod conntrack;
mod device;
mod expression;
mod filter;
mod forward;
mod kind;
mod legacy;
mod link;
mod nft;
mod ports;
mod proc;
pub(crate) mod programs;
mod rules;
mod sets;
mod tc;
#[cfg(test)]
mod tests;
mod translation;
mod watch;

use std::fmt;

use netlink_packet_core::Parseable;
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::Protocol;

pub use self::conntrack::load_conntrack;
pub use self::filter::{Filters, cgroup_programs};
pub(crate) use self::forward::CHECKSUMS_UNTOLD;
pub use self::forward::{ForwardFilters, Interface, at_egress, ports_choose_no_egress};
pub use self::kind::DiversionKind;
pub use self::ports::{PortProtocol, Ports};
pub(super) use self::proc::read as read_proc;
pub use self::watch::DiversionWatch;
use super::netlink::Socket;
use crate::error::Result;
use crate::features::asks_conntrack;
use crate::printable::printable;
use crate::units::IfIndex;

/// What a gate knows of a packet by itself, so that it need not pass every one where some are taken elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// Whether its connection is translated: [`asks_conntrack`].
    pub connections: bool,
    /// Its VLAN tag, wherever the kernel has put it.
    pub vlan_tags: bool,
}

impl Sight {
    /// Of a gate that is loaded now, for tc, where `weir run` puts it unless told otherwise.
    pub fn at_tc() -> Self {
        Self { connections: asks_conntrack(), vlan_tags: true }
    }
}

/// Something that may take packets elsewhere, or see them before a socket does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diversion {
    /// What it is.
    pub kind: DiversionKind,
    /// What was found, and where: the table, filter or device.
    pub detail: String,
    /// Of [`DiversionKind::TranslatedPorts`]: which.
    pub ports: Vec<Ports>,
}

impl Diversion {
    /// Names in the detail come from whoever made a table, a chain or an interface, and go to terminals.
    fn new(kind: DiversionKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: printable(detail.into().as_bytes()), ports: Vec::new() }
    }

    fn unknown(what: &str, why: impl fmt::Display) -> Self {
        Self::new(DiversionKind::Unknown, format!("{what}: {why}"))
    }

    /// Whether the gate must pass every packet because of it.
    pub fn passes(&self) -> bool {
        self.kind.passes()
    }

    /// What it costs, and what can be done about it.
    pub fn cost(&self) -> String {
        self.kind.cost()
    }
}

impl fmt::Display for Diversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.kind.what(), self.detail, self.kind.cost())
    }
}

/// What is translated, for [`crate::gate::Gate::set_translation`].
pub fn translation(found: &[Diversion]) -> Option<Vec<Ports>> {
    let translates = found.iter().any(|one| one.kind.translates());
    translates.then(|| found.iter().flat_map(|one| &one.ports).copied().collect())
}

/// What may divert an interface's packets, in the calling thread's network namespace, sorted.
///
/// Programs with these numbers (the kernel's) at tc ingress are the caller's own and do not count.
///
/// # Errors
///
/// [`crate::Error::System`] if there is no netlink socket to be had, [`crate::Error::Bpf`] without
/// the privilege. Whatever cannot be read later is told as [`DiversionKind::Unknown`].
pub fn diversions(ifindex: IfIndex, sight: Sight, own_programs: &[u32]) -> Result<Vec<Diversion>> {
    Ok(DiversionWatch::open(ifindex, sight)?.read(own_programs))
}

/// Asks one question over a socket of its own, so that an answer cut short harms no later one.
fn ask(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    body: &[u8],
) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
    Socket::open(protocol)?.ask(kind, flags, body)
}

/// The same of rtnetlink.
fn ask_route<T: Parseable<[u8]>>(
    request: &RouteNetlinkMessage,
    flags: u16,
) -> rustix::io::Result<Vec<T>> {
    Socket::open(None)?.route(request, flags)
}

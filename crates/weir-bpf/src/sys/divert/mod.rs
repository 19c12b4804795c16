//! What may take an interface's packets elsewhere before a socket sees them.
//!
//! The gate asks where a packet would go if nothing were in its way: by its destination address and
//! port, in its network namespace. Where something is in its way (NAT, TPROXY, a bridge, ...), the
//! packet may belong to somebody who has room for it, so the gate must not discard it. Whoever reads
//! nothing, or does not understand what is read, takes it for a diversion ([`DiversionKind::Unknown`]).
//!
//! | source | read from |
//! |---|---|
//! | nftables, and iptables over nftables | nfnetlink (`nft`, `expression`) |
//! | legacy iptables | its socket options (`legacy`) |
//! | IPVS, multicast forwarding | `/proc` (`proc`) |
//! | tc filters at ingress, tcx and `sk_lookup` programs | rtnetlink (`tc`), bpf(2) (`programs`) |
//! | masters, and interfaces on top, in any namespace | rtnetlink (`link`), the kernel's own record (`device`) |
//! | policy routing | rtnetlink (`rules`) |
//! | what else the kernel does to packets before a socket has them | `filter`, `on_the_way`: for lazy sockets alone |
//! | what the kernel does to packets that it forwards | `forward`, `on_the_way`: for the fast path alone |
//! | rules that need to see all that is forwarded | `needs`: for full egresses and screens alone |
//! | packet and raw sockets | `/proc` (`packet`) |
//!
//! What netlink announces is read again when it has ([`DiversionWatch`]), the rest at each look.

mod cookies;
mod device;
mod diversion;
mod expression;
mod filter;
mod forward;
mod kind;
mod legacy;
mod link;
mod needs;
mod nfnetlink;
mod nft;
mod on_the_way;
mod ports;
mod proc;
pub(crate) mod programs;
mod reverse_path;
mod rules;
mod sets;
mod tc;
#[cfg(test)]
mod tests;
mod translation;
mod watch;
mod way;

pub use self::cookies::CookieFilters;
pub use self::diversion::{Diversion, Sight};
pub use self::filter::{Filters, cgroup_programs};
pub(crate) use self::forward::CHECKSUMS_UNTOLD;
pub use self::forward::{
    ForwardFilters, Interface, at_egress, past_at_egress, ports_choose_no_egress,
};
pub use self::kind::DiversionKind;
pub use self::needs::ForwardRules;
pub use self::nfnetlink::load_conntrack;
pub use self::ports::{PortProtocol, Ports};
pub use self::watch::DiversionWatch;
use crate::error::Result;
use crate::units::IfIndex;

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
/// [`crate::Error::System`] if there is no netlink socket to be had, [`crate::Error::Bpf`] without
/// the privilege. Whatever cannot be read later is told as [`DiversionKind::Unknown`].
pub fn diversions(ifindex: IfIndex, sight: Sight, own_programs: &[u32]) -> Result<Vec<Diversion>> {
    Ok(DiversionWatch::open(ifindex, sight)?.read(own_programs))
}

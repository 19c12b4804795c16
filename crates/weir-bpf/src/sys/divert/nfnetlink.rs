//! Questions to netfilter.

use netlink_packet_core::NLM_F_DUMP;
use rustix::net::netlink;

use crate::sys::netlink::{Attributes, ask};

pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// `struct nfgenmsg`: family, version, resource.
pub(super) const NFGENMSG_BYTES: usize = 4;

/// Asked about every table.
pub(super) const ALL: [u8; NFGENMSG_BYTES] = [0; NFGENMSG_BYTES];

pub(super) fn dump(what: u16, request: &[u8]) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
    ask(Some(netlink::NETFILTER), NFNL_SUBSYS_NFTABLES << 8 | what, NLM_F_DUMP, request)
}

/// A message's attributes.
pub(super) fn body(message: &[u8]) -> Attributes<'_> {
    Attributes::of(message.get(NFGENMSG_BYTES..).unwrap_or_default())
}

//! Questions to netfilter.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use rustix::net::netlink;

use crate::sys::netlink::{Attributes, ask};

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET_STATS: u16 = 5;
pub(super) const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// `struct nfgenmsg`: family, version, resource.
pub(super) const NFGENMSG_BYTES: usize = 4;

/// Asked about everything.
pub(super) const ALL: [u8; NFGENMSG_BYTES] = [0; NFGENMSG_BYTES];

pub(super) fn dump(what: u16, request: &[u8]) -> rustix::io::Result<Vec<(u16, Vec<u8>)>> {
    ask(Some(netlink::NETFILTER), NFNL_SUBSYS_NFTABLES << 8 | what, NLM_F_DUMP, request)
}

/// A message's attributes.
pub(super) fn body(message: &[u8]) -> Attributes<'_> {
    Attributes::of(message.get(NFGENMSG_BYTES..).unwrap_or_default())
}

/// Has the kernel load conntrack, if that is a module, as whatever translates connections does too, but later than
/// weir at boot. It does so for whoever asks about connections with `CAP_NET_ADMIN`. No hook comes with it: no packet
/// costs more. Where it cannot, NAT makes everything pass, which is told then.
pub fn load_conntrack() {
    let _ = answers();
}

/// The least that can be asked of it: how many connections there are.
fn answers() -> rustix::io::Result<()> {
    let kind = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET_STATS;
    ask(Some(netlink::NETFILTER), kind, NLM_F_ACK, &ALL).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::asks_conntrack;
    use crate::sys::test_support::Sandbox;

    #[test]
    fn it_answers_and_then_gates_can_ask_it() {
        Sandbox::new().run(|| {
            assert_eq!(answers(), Ok(()));
            assert!(asks_conntrack());
        });
    }
}

//! What the kernel does to packets on their way, and does not do to those of a lazy socket or of the fast path: rules,
//! netfilter's programs, IPsec policies, own addresses.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use rustix::io::Errno;
use rustix::net::netlink;

use super::way::Way;
use super::{legacy, nft, programs};
use crate::sys::local_table;
use crate::sys::netlink::ask;

/// `XFRM_MSG_GETPOLICY`, and the bytes of its `struct xfrm_userpolicy_id`.
const XFRM_GETPOLICY: u16 = 0x15;
const XFRM_POLICY_ID_BYTES: usize = 64;
/// `XFRM_MSG_GETDEFAULT` (Linux 5.15), and in its `struct xfrm_userpolicy_default`, a byte for each direction, what
/// becomes of packets that no policy is for.
const XFRM_GETDEFAULT: u16 = 0x28;
const XFRM_DEFAULT_BYTES: usize = 3;
const XFRM_BLOCK: u8 = 1;

/// A generation of the rules, and a way by interfaces of these names.
type Asked = (u32, Way, Vec<String>);

/// Reads it, in one network namespace. The rules of nftables are read again only if they have changed.
#[derive(Debug, Default)]
pub(super) struct OnTheWay {
    /// What was found in them.
    nft: Option<(Asked, Vec<String>)>,
}

impl OnTheWay {
    /// One line for each rule and the like; what cannot be read counts.
    pub(super) fn read(&mut self, way: Way, interfaces: &[String]) -> Vec<String> {
        let unread = |errno| vec![format!("the rules of nftables cannot be read: {errno}")];
        let mut found = self.nft(way, interfaces).unwrap_or_else(unread);
        found.extend(legacy::met(way));
        found.extend(programs::at_netfilter(way));
        found.extend(ipsec());
        found
    }

    fn nft(&mut self, way: Way, interfaces: &[String]) -> rustix::io::Result<Vec<String>> {
        let Some(generation) = nft::generation()? else { return Ok(Vec::new()) };
        let asked = (generation, way, interfaces.to_vec());
        if let Some((known, found)) = &self.nft
            && *known == asked
        {
            return Ok(found.clone());
        }
        let found = nft::met(way, interfaces)?;
        self.nft = Some((asked, found.clone()));
        Ok(found)
    }
}

pub(super) fn ipsec() -> Option<String> {
    let unread = |errno| Some(format!("IPsec policies cannot be read: {errno}"));
    match ask(Some(netlink::XFRM), XFRM_GETPOLICY, NLM_F_DUMP, &[0; XFRM_POLICY_ID_BYTES]) {
        Ok(policies) if policies.is_empty() => {}
        Ok(policies) => {
            return Some(format!("{} IPsec policies (`ip xfrm policy`)", policies.len()));
        }
        // A kernel without IPsec.
        Err(Errno::PROTONOSUPPORT | Errno::INVAL) => return None,
        Err(errno) => return unread(errno),
    }
    let blocks = |(_, default): &(u16, Vec<u8>)| {
        default.iter().take(XFRM_DEFAULT_BYTES).any(|action| *action == XFRM_BLOCK)
    };
    match ask(Some(netlink::XFRM), XFRM_GETDEFAULT, NLM_F_ACK, &[0; XFRM_DEFAULT_BYTES]) {
        Ok(defaults) if defaults.iter().any(blocks) => {
            Some("IPsec's default policy blocks (`ip xfrm policy getdefault`)".into())
        }
        // One without defaults.
        Ok(_) | Err(Errno::INVAL) => None,
        Err(errno) => unread(errno),
    }
}

/// The kernel drops what claims to come from an own address; these the gate does not know.
pub(super) fn unlisted() -> Option<String> {
    match local_table::unlisted() {
        Ok(unlisted) => unlisted.map(|what| format!("{what} of this host's own")),
        Err(error) => Some(error.to_string()),
    }
}

//! Connections that are translated although no rule says so any more.

use rustix::io::Errno;
use rustix::net::netlink;

use super::expression::big_endian;
use super::kind::DiversionKind;
use super::nft::NFGENMSG_BYTES;
use super::{Diversion, ask};
use crate::sys::netlink::{attribute, find};

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const CTA_STATUS: u16 = 3;
const CTA_STATUS_MASK: u16 = 26;
const IPS_SRC_NAT: u32 = 1 << 4;
const IPS_DST_NAT: u32 = 1 << 5;

/// Whether connections that were translated when a rule was there still are, by the hooks of `chain`,
/// which has no rules.
pub(super) fn still_translated(chain: &str) -> Option<Diversion> {
    let mut count = 0;
    for status in [IPS_SRC_NAT, IPS_DST_NAT] {
        match with_status(status) {
            Ok(some) => count += some,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let detail = format!("{chain}: no rules, but connections cannot be listed");
                return Some(Diversion::new(DiversionKind::Nat, detail));
            }
            Err(errno) => return Some(Diversion::unknown("connections cannot be listed", errno)),
        }
    }
    let detail = format!("{chain}: no rules, but {count} connection(s) still are translated");
    (count > 0).then(|| Diversion::new(DiversionKind::Nat, detail))
}

fn with_status(status: u32) -> rustix::io::Result<usize> {
    // Of all families. Kernels before 5.19 ignore the filter, so each answer is looked at again.
    let mut body = vec![0; NFGENMSG_BYTES];
    body.extend(attribute(CTA_STATUS, &status.to_be_bytes()));
    body.extend(attribute(CTA_STATUS_MASK, &status.to_be_bytes()));
    let kind = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET;
    let answers = ask(Some(netlink::NETFILTER), kind, true, &body)?;
    let has_it = |answer: &[u8]| {
        let found = answer.get(NFGENMSG_BYTES..).and_then(|body| find(body, CTA_STATUS));
        found.as_deref().and_then(big_endian).is_none_or(|bits| bits & status != 0)
    };
    Ok(answers.iter().filter(|(_, answer)| has_it(answer)).count())
}

//! Connections that are translated although no rule says so any more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use rustix::io::Errno;
use rustix::net::netlink;

use super::diversion::Diversion;
use super::kind::DiversionKind;
use super::nfnetlink::NFGENMSG_BYTES;
use crate::sys::netlink::{ask, attribute};
use crate::sys::sched::own_cpu_time;

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_GET_STATS: u16 = 5;
const CTA_STATUS: u16 = 3;
const CTA_STATUS_MASK: u16 = 26;
const IPS_SRC_NAT: u32 = 1 << 4;
const IPS_DST_NAT: u32 = 1 << 5;

/// After a look at the connections, so many times the CPU time that it took passes before another: the kernel goes
/// through its whole table, 20 ms for one of 262,144 places even if all of them are empty.
const REST_PER_LOOK: u32 = 50;
/// The same where none was translated, if a rule cannot have come and gone unnoticed: without one, none will be.
const REST_PER_LOOK_IN_VAIN: u32 = 2000;
/// But the rest is never longer than this: a program may put in a connection by itself.
const REST_MAX: Duration = Duration::from_secs(60);

/// What was found out about chains without rules.
#[derive(Debug, Default)]
pub(super) struct Connections {
    known: HashMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    /// Of the rules; `None` where they have none.
    generation: Option<u32>,
    until: Instant,
    found: Option<Diversion>,
    /// Since [`Connections::forget`] was last called.
    asked: bool,
}

impl Connections {
    /// Whether connections that were translated when a rule was there still are, by the hooks of `chain`,
    /// which has no rules in this generation.
    pub(super) fn still_translated(
        &mut self,
        chain: &str,
        generation: Option<u32>,
    ) -> Option<Diversion> {
        self.ask(chain, generation, still_translated)
    }

    fn ask(
        &mut self,
        chain: &str,
        generation: Option<u32>,
        look: impl FnOnce(&str) -> Option<Diversion>,
    ) -> Option<Diversion> {
        if let Some(known) = self.known.get_mut(chain)
            && known.generation == generation
            && Instant::now() < known.until
        {
            known.asked = true;
            return known.found.clone();
        }
        let begun = own_cpu_time();
        let found = look(chain);
        let times = match (&found, generation) {
            (None, Some(_)) => REST_PER_LOOK_IN_VAIN,
            _ => REST_PER_LOOK,
        };
        let rest = own_cpu_time().saturating_sub(begun).saturating_mul(times);
        let until = Instant::now() + rest.min(REST_MAX);
        let known = Known { generation, until, found: found.clone(), asked: true };
        self.known.insert(chain.to_owned(), known);
        found
    }

    /// After a look at everything: what is known of chains that it did not ask about is void, as they had
    /// rules, or were not there.
    pub(super) fn forget(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.asked));
    }
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
    ask(Some(netlink::NETFILTER), kind, NLM_F_ACK, &[0; NFGENMSG_BYTES]).map(drop)
}

fn still_translated(chain: &str) -> Option<Diversion> {
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
    // Of all families.
    let mut filter = vec![0; NFGENMSG_BYTES];
    filter.extend(attribute(CTA_STATUS, &status.to_be_bytes()));
    filter.extend(attribute(CTA_STATUS_MASK, &status.to_be_bytes()));
    let kind = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET;
    Ok(ask(Some(netlink::NETFILTER), kind, NLM_F_DUMP, &filter)?.len())
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

    #[test]
    fn connections_are_looked_at_again_when_rules_have_been_there_and_not_each_time() {
        let mut connections = Connections::default();
        let mut looks = 0;
        let mut ask = |connections: &mut Connections, generation| {
            connections.ask("nat", generation, |_| {
                looks += 1;
                // It takes some time, as the kernel does.
                let begun = own_cpu_time();
                while own_cpu_time() < begun + Duration::from_millis(2) {}
                None
            });
            connections.forget();
            looks
        };
        assert_eq!([1, 1, 1].map(|generation| ask(&mut connections, Some(generation))), [1, 1, 1]);
        assert_eq!([2, 2].map(|generation| ask(&mut connections, Some(generation))), [2, 2]);
        // Not asked about: there was a rule.
        connections.forget();
        assert_eq!(ask(&mut connections, Some(2)), 3);
    }
}

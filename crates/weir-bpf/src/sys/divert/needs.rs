//! Rules that need to see every packet that is forwarded, also what an egress or a screen has no room for: those that
//! copy packets, and those that hold senders to what they have sent.

use std::time::Instant;

use super::diversion::Diversion;
use super::kind::DiversionKind;
use super::legacy;
use super::nft::{self, Rules};
use super::translation::Translation;
use super::watch::rest_since;
use super::way::Way;
use crate::sys::procfile::ProcFile;
use crate::sys::sched::own_cpu_time;

/// Rules of nftables as they were read: their generation, if the kernel has any, and the interfaces.
type Asked = (Option<u32>, Vec<String>);

/// Reads them, in one network namespace. The rules of nftables are read again only if they have changed.
#[derive(Debug)]
pub struct ForwardRules {
    legacy: [ProcFile; 2],
    asked: Option<Asked>,
    /// Whether rules of nftables need all, and whether any do.
    of_nft: bool,
    need_all: bool,
    rested_at: Instant,
}

impl Default for ForwardRules {
    fn default() -> Self {
        Self {
            legacy: legacy::tables(),
            asked: None,
            of_nft: true,
            need_all: true,
            rested_at: Instant::now(),
        }
    }
}

impl ForwardRules {
    /// Whether there are such for what comes in by one of these interfaces and leaves by any, in the calling thread's
    /// network namespace. What cannot be read, or has changed and is not read yet, counts.
    pub fn need_all(&mut self, interfaces: &[String]) -> bool {
        let Ok(generation) = nft::generation() else { return true };
        let asked = Some((generation, interfaces.to_vec()));
        let is_known = self.asked == asked;
        if Instant::now() < self.rested_at {
            return self.need_all || !is_known;
        }
        let begun = own_cpu_time();
        if !is_known {
            let need_all = |name: &String| need(Rules::read(Way::Through, name).diversions());
            self.of_nft = generation.is_some() && interfaces.iter().any(need_all);
            self.asked = asked;
        }
        let found = legacy::iptables(Way::Through, &mut self.legacy, &mut Translation::default());
        self.need_all = self.of_nft || need(&found);
        self.rested_at = Instant::now() + rest_since(begun);
        self.need_all
    }
}

fn need(found: &[Diversion]) -> bool {
    let needs = [DiversionKind::Forward, DiversionKind::SenderRules, DiversionKind::Unknown];
    found.iter().any(|one| needs.contains(&one.kind))
}

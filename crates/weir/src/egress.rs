//! Feedback from egress queues: hears what they refuse while an interface forwards whose packets the gate judges, and
//! there is one that it can read. docs/egress.md.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_bpf::egress::{Egresses, any_is_read};
use weir_bpf::gate::QueueProbe;
use weir_bpf::sync::lock;
use weir_bpf::sys::divert::{ForwardRules, ports_choose_no_egress};
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;

use crate::error::Result;
use crate::feedback::Watcher;
use crate::sysctl;

/// How often it is looked whether that is so.
const LOOK: Duration = Duration::from_secs(1);

struct EgressWatch {
    egresses: Egresses,
    links: Links,
    rules: ForwardRules,
    /// Where packets are judged that may be forwarded: by number, as names change.
    interfaces: Arc<Mutex<Vec<IfIndex>>>,
    looked: Option<Instant>,
}

/// Of the calling thread's network namespace, for what comes in by these interfaces.
pub fn watcher(
    probe: &QueueProbe,
    interfaces: Arc<Mutex<Vec<IfIndex>>>,
) -> Result<Box<dyn Watcher>> {
    let (egresses, links) = (Egresses::load(probe)?, Links::open()?);
    let rules = ForwardRules::default();
    Ok(Box::new(EgressWatch { egresses, links, rules, interfaces, looked: None }))
}

impl Watcher for EgressWatch {
    fn pause(&self) -> Duration {
        LOOK
    }

    fn look(&mut self) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            let interfaces = lock(&self.interfaces).clone();
            let names = interfaces.iter().filter_map(|each| self.links.name(*each).ok());
            let forwarding: Vec<String> = names.filter(|name| forwards(name)).collect();
            let hears = !forwarding.is_empty()
                && any_is_read(&self.links)
                && !self.rules.need_all(&forwarding);
            self.egresses.set_by_address(hears && ports_choose_no_egress());
            let _ = self.egresses.hear(hears);
        }
    }
}

fn forwards(interface: &str) -> bool {
    ["ipv4", "ipv6"].iter().any(|family| {
        let name = format!("net/{family}/conf/{interface}/forwarding");
        sysctl::read(&name).is_some_and(|value: i32| value != 0)
    })
}

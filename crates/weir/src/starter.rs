//! What it takes to protect an interface, at the start and when one that was lost is back.

use std::rc::Rc;

use crate::claim::Claim;
use crate::config::{Config, Effective};
use crate::console::Console;
use crate::error::Result;
use crate::host::Host;
use crate::interface::{Kernel, Protected, Settings};
use crate::key::Key;

/// Starts to protect interfaces.
pub struct Starter {
    /// Where they are.
    pub host: Rc<Host>,
    /// What all of them share.
    pub kernel: Kernel,
}

impl Starter {
    /// Protects a claimed interface; what holds on it, too.
    pub fn protect(
        &self,
        config: &Config,
        claim: Claim,
        console: &mut Console,
    ) -> Result<(Protected, (Key, Effective))> {
        let effective = config.of(&claim.interface());
        let settings = Settings {
            protected_ports: config.shares().settings().protected_tcp_ports().collect(),
            ..effective.settings()
        };
        let interface = Protected::start(&self.host, claim, &self.kernel, &settings, console)?;
        let running = (interface.key(), effective);
        Ok((interface, running))
    }
}

/// Lets the fast path send by all that forward.
///
/// # Errors
/// Names what it would bypass.
pub fn forward(interfaces: &mut [Protected]) -> Result<()> {
    let forwarding: Vec<_> =
        interfaces.iter().filter(|each| each.forwards()).map(Protected::ifindex).collect();
    // Each is told, also after one that refuses.
    interfaces.iter_mut().map(|each| each.forward_among(&forwarding)).fold(Ok(()), Result::and)
}

/// Says what was set up on an interface.
pub fn describe(interface: &Protected, console: &mut Console) {
    console.say(&interface.describe());
    for note in interface.notes() {
        console.say(&format!("{}: {note}", interface.interface()));
    }
}

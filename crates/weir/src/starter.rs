//! What it takes to protect an interface, at the start and when one that was lost is back.

use std::rc::Rc;

use crate::claim::Claim;
use crate::config::{Config, Effective};
use crate::console::Console;
use crate::error::Result;
use crate::host::Host;
use crate::interface::{Kernel, Protected};

/// Starts to protect interfaces.
pub struct Starter {
    /// Where they are.
    pub host: Rc<Host>,
    /// What all of them share.
    pub kernel: Kernel,
}

impl Starter {
    /// Protects a claimed interface, as this says.
    pub fn protect(
        &self,
        claim: Claim,
        (config, effective): (&Config, &Effective),
        console: &mut Console,
    ) -> Result<Protected> {
        let settings = effective.settings(&config.shares().settings());
        Protected::start(&self.host, claim, &self.kernel, settings, console)
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

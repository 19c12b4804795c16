//! `weir screen`, of this build, with one rule that accepts all that the host forwards.

use std::fs;

use rustix::process::Signal;

use super::running::{Place, Running, Server};
use crate::apps::{Job, OWN, Order};
use crate::error::{Result, cannot};
use crate::host::topology::SUT_INTERFACE;
use crate::host::wire::EGRESS;

impl Server {
    /// Starts a screen, and waits until its walls stand. When it ends it takes them away.
    pub fn screen(place: &Place<'_>) -> Result<Self> {
        let rules = place.directory.join("rules");
        fs::write(&rules, "accept\n").map_err(cannot("write", rules.display()))?;
        // One that fails closed would leave its walls.
        let arguments = format!(
            "screen {} --in {SUT_INTERFACE} --out {EGRESS} --attach native --fail open",
            rules.display()
        );
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        let job = Job::Program(OWN.into(), "weir".into(), arguments);
        let order = Order::new(place.netns, place.cpu, job);
        let log = place.directory.join("log");
        let mut running = Running::spawn(order, Signal::INT, "weir screen".to_owned(), log)?;
        running.wait("stand", |_, says| says.contains("Ctrl-C ends it").then_some(()))?;
        let pids = vec![running.pid()];
        Ok(Self { _running: running, pids, capture: None })
    }
}

//! A host that receives on one CPU, which is this test's alone.

use weir_bpf::traffic::FlowSpec;

use super::{Cpus, Daemon, Network};

/// All of it is in its turn: to make a network or to start weir beside another test is a load for that.
pub struct Host {
    pub network: Network,
    pub cpus: Cpus,
}

impl Host {
    pub fn new() -> Self {
        Self::of(Network::ipv4_only)
    }

    pub fn of(network: impl FnOnce() -> Network) -> Self {
        let cpus = Cpus::take();
        Self { network: network(), cpus }
    }

    pub fn start(&self, options: &[&str]) -> Daemon {
        self.start_sleepy(&[&["--awake"], options].concat())
    }

    pub fn start_sleepy(&self, options: &[&str]) -> Daemon {
        let cpu = self.cpus.cpu.to_string();
        Daemon::start_sleepy(&self.network, &[&["--cpus", &cpu], options].concat())
    }

    /// Sends these flows, from another CPU if there is one, while `body` runs.
    pub fn while_sent<T>(&self, flows: &[FlowSpec], body: impl FnOnce() -> T) -> T {
        self.network.while_sent(flows, Some(self.cpus.elsewhere), |_| body())
    }
}

//! A host that receives on one CPU, which is this test's alone.

use weir_bpf::traffic::FlowSpec;

use super::{Cpus, Daemon, Network};

/// Its turn comes last, and is over before its network is taken down: neither that nor to make one is a load.
pub struct Host {
    pub cpus: Cpus,
    pub network: Network,
}

impl Host {
    pub fn new() -> Self {
        Self::of(Network::ipv4_only())
    }

    pub fn of(network: Network) -> Self {
        Self { cpus: Cpus::take(), network }
    }

    /// The same, and a daemon that sleeps while nothing is wrong, which starts before the turn.
    pub fn with_daemon(options: &[&str]) -> (Self, Daemon) {
        let network = Network::ipv4_only();
        let cpu = Cpus::both().0.to_string();
        let daemon = Daemon::start_sleepy(&network, &[&["--cpus", &cpu], options].concat());
        (Self::of(network), daemon)
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

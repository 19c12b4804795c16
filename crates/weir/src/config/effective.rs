//! What holds on one interface, when everything that was said is laid over each other.

use weir_bpf::gate::Policy;

use super::settings::Effective;
use super::wanted::{Settings, ThreadSettings, ThreadWeight};
use crate::choice::{Attach, Forward, Napi};
use crate::shares::ShareSettings;

impl Effective {
    /// What the governor goes by.
    pub fn governor(&self) -> weir_policy::Settings {
        weir_policy::Settings {
            user_share: self.user_share.value,
            prefer: self.prefer.value,
            timeout: self.timeout.value,
            period: self.period.value,
            ..weir_policy::Settings::default()
        }
    }

    /// What to do on the interface, with this of fair shares.
    pub fn settings(&self, shares: &ShareSettings) -> Settings {
        let policy = self.policy.value;
        // In shadow nothing is turned but the gate's own place.
        let turns = policy != Policy::Shadow;
        let weight = match (policy, self.nice.value) {
            // With the policy off, what is measured is what merely being there costs.
            (Policy::Off | Policy::Shadow, _) => ThreadWeight::Untouched,
            (Policy::On, Some(nice)) => ThreadWeight::Fixed(nice),
            (Policy::On, None) => ThreadWeight::Governed,
        };
        Settings {
            attach: self.attach(),
            policy,
            rps_off: self.rps_off.value && turns,
            governor: self.governor(),
            selective: self.selective.value,
            syn_cookies: self.syn_cookies.value,
            protected_ports: shares.protected_tcp_ports().collect(),
            napi: self.napi(),
            forward: self.forwards(),
            threads: ThreadSettings { weight, cpus: self.cpus.value.clone().filter(|_| turns) },
        }
    }

    /// Who polls. Who says how threads are to run asks for them.
    fn napi(&self) -> Napi {
        let asked = || self.nice.value.is_some() || self.cpus.value.is_some();
        let usual = || if asked() { Napi::Threads } else { Napi::Auto };
        self.napi.value.unwrap_or_else(usual)
    }

    /// Where the gate goes.
    pub fn attach(&self) -> Attach {
        match self.attach.value {
            Attach::Auto if self.forwards() => Attach::Native,
            attach => attach,
        }
    }

    /// Whether packets are sent on from the driver: not in shadow, which turns nothing.
    pub fn forwards(&self) -> bool {
        self.forward.value == Forward::Xdp && self.policy.value != Policy::Shadow
    }
}

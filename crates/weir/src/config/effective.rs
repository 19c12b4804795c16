//! What holds on one interface, when everything that was said is laid over each other.

use serde_json::Value;
use weir_bpf::cpulist::CpuList;
use weir_bpf::gate::Policy;

use super::layer::{Origin, Sourced};
use super::settings::Effective;
use crate::cli::{Attach, Forward};
use crate::interface::Settings;
use crate::shares::ShareSettings;
use crate::threads::{ThreadSettings, ThreadWeight};

/// One setting, for a person or a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is called in the file.
    pub key: &'static str,
    /// Its value as the file has it; `null` for what only the absence of a value says.
    pub value: Value,
    /// What that absence says.
    pub unset: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it changes while weir runs.
    pub live: bool,
}

impl Row {
    /// The value, for a person.
    pub fn text(&self) -> String {
        match &self.value {
            Value::Null => self.unset.into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

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
        let policy = Policy::from(self.policy.value);
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
            protected_ports: shares.protected_tcp_ports().collect(),
            napi: self.napi.value,
            forward: self.forwards(),
            threads: ThreadSettings { weight, cpus: self.cpus.value.clone().filter(|_| turns) },
        }
    }

    /// Whether heavy sources are shed before light ones.
    pub fn selective(&self) -> bool {
        self.selective.value
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
        self.forward.value == Forward::Xdp && Policy::from(self.policy.value) != Policy::Shadow
    }

    /// Where NAPI threads may run.
    pub fn cpus(&self) -> &Sourced<Option<CpuList>> {
        &self.cpus
    }
}

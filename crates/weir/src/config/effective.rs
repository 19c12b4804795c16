//! What holds on one interface, when everything that was said is laid over each other.

use serde_json::{Value, json};
use weir_bpf::cpulist::CpuList;
use weir_bpf::gate::Policy;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Prefer, Share};

use super::layer::{Layer, Origin, Sourced};
use super::value::{PreferArg, choice_text, time_text};
use crate::cli::{Attach, Forward, Napi, PolicyArg};
use crate::interface::Settings;
use crate::threads::{ThreadSettings, ThreadWeight};

/// One interface's settings, each with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    user_share: Sourced<Share>,
    prefer: Sourced<Prefer>,
    timeout: Sourced<Nanos>,
    period: Sourced<Nanos>,
    selective: Sourced<bool>,
    nice: Sourced<Option<Nice>>,
    attach: Sourced<Attach>,
    napi: Sourced<Napi>,
    forward: Sourced<Forward>,
    cpus: Sourced<Option<CpuList>>,
    policy: Sourced<PolicyArg>,
    rps_off: Sourced<bool>,
}

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
    /// The first of the layers that says something decides.
    pub fn of(layers: &[&Layer]) -> Self {
        let default = weir_policy::Settings::default();
        Self {
            user_share: first(layers, |layer| &layer.user_share, default.user_share),
            prefer: first(layers, |layer| &layer.prefer, default.prefer),
            timeout: first(layers, |layer| &layer.timeout, default.timeout),
            period: first(layers, |layer| &layer.period, default.period),
            selective: first(layers, |layer| &layer.selective, false),
            nice: first_if_any(layers, |layer| &layer.nice),
            attach: first(layers, |layer| &layer.attach, Attach::Auto),
            napi: first(layers, |layer| &layer.napi, Napi::Threads),
            forward: first(layers, |layer| &layer.forward, Forward::Kernel),
            cpus: first_if_any(layers, |layer| &layer.cpus),
            policy: first(layers, |layer| &layer.policy, PolicyArg::On),
            rps_off: first(layers, |layer| &layer.rps_off, false),
        }
    }

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

    /// What to do on the interface.
    pub fn settings(&self) -> Settings {
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
            protected_ports: vec![],
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
    fn forwards(&self) -> bool {
        self.forward.value == Forward::Xdp && Policy::from(self.policy.value) != Policy::Shadow
    }

    /// Where NAPI threads may run.
    pub fn cpus(&self) -> &Sourced<Option<CpuList>> {
        &self.cpus
    }

    /// Takes over from `new` what changes while weir runs. The rest stays as the interface was set up.
    pub fn adopt(&mut self, new: &Self) {
        *self = Self {
            user_share: new.user_share.clone(),
            prefer: new.prefer.clone(),
            timeout: new.timeout.clone(),
            period: new.period.clone(),
            selective: new.selective.clone(),
            nice: self.nice.clone(),
            attach: self.attach.clone(),
            napi: self.napi.clone(),
            forward: self.forward.clone(),
            cpus: self.cpus.clone(),
            policy: self.policy.clone(),
            rps_off: self.rps_off.clone(),
        };
    }

    /// Every setting.
    pub fn rows(&self) -> [Row; 12] {
        let row = |key, value, origin, live| Row { key, value, unset: "", origin, live };
        let share = json!(self.user_share.value.to_string());
        let prefer = json!(choice_text(&PreferArg::from(self.prefer.value)));
        let nice = json!(self.nice.value.map(|Nice(nice)| nice));
        let cpus = json!(self.cpus.value.as_ref().map(CpuList::to_string));
        let time = |time: &Sourced<Nanos>| json!(time_text(time.value));
        [
            row("user_share", share, self.user_share.origin, true),
            row("prefer", prefer, self.prefer.origin, true),
            row("timeout", time(&self.timeout), self.timeout.origin, true),
            row("period", time(&self.period), self.period.origin, true),
            row("selective", json!(self.selective.value), self.selective.origin, true),
            Row { unset: "governed", ..row("nice", nice, self.nice.origin, false) },
            row("attach", json!(choice_text(&self.attach.value)), self.attach.origin, false),
            row("napi", json!(choice_text(&self.napi.value)), self.napi.origin, false),
            row("forward", json!(choice_text(&self.forward.value)), self.forward.origin, false),
            Row { unset: "left alone", ..row("cpus", cpus, self.cpus.origin, false) },
            row("policy", json!(choice_text(&self.policy.value)), self.policy.origin, false),
            row("rps_off", json!(self.rps_off.value), self.rps_off.origin, false),
        ]
    }
}

fn first<T: Clone>(
    layers: &[&Layer],
    of: impl Fn(&Layer) -> &Option<Sourced<T>>,
    default: T,
) -> Sourced<T> {
    let said = layers.iter().find_map(|layer| of(layer).clone());
    said.unwrap_or(Sourced { value: default, origin: Origin::Default })
}

fn first_if_any<T: Clone>(
    layers: &[&Layer],
    of: impl Fn(&Layer) -> &Option<Sourced<T>>,
) -> Sourced<Option<T>> {
    match layers.iter().find_map(|layer| of(layer).clone()) {
        Some(said) => Sourced { value: Some(said.value), origin: said.origin },
        None => Sourced { value: None, origin: Origin::Default },
    }
}

//! `[shares]`: what a file says of fair shares, and what holds.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_policy::Share;

use super::layer::{Origin, Row, Sourced};
use crate::preset::Preset;
use crate::shares::{ShareSettings, WeightRule};

/// What holds, with its origin: what the file says, else what weir has.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveShares {
    /// Whether channels are held to their share.
    pub(super) enforce: Sourced<bool>,
    /// What the protected class may take.
    pub(super) control: Sourced<Share>,
    /// Services whose ports are protected.
    pub(super) presets: Sourced<Vec<&'static Preset>>,
    /// Ports of the protected class.
    pub(super) protected: Sourced<BTreeSet<u16>>,
    /// Who weighs what.
    pub(super) weights: Vec<Sourced<WeightRule>>,
}

impl Default for EffectiveShares {
    fn default() -> Self {
        let ShareSettings { enforce, control, protected, .. } = ShareSettings::default();
        Self {
            enforce: usual(enforce),
            control: usual(control),
            presets: usual(Vec::new()),
            protected: usual(protected),
            weights: Vec::new(),
        }
    }
}

impl EffectiveShares {
    /// What the governor goes by.
    pub fn settings(&self) -> ShareSettings {
        ShareSettings {
            enforce: self.enforce.value,
            control: self.control.value,
            protected: self.protected_ports(),
            weights: self.weights.iter().map(|rule| rule.value.clone()).collect(),
        }
    }

    fn protected_ports(&self) -> BTreeSet<u16> {
        let preset = self.presets.value.iter().flat_map(|preset| preset.ports);
        preset.chain(&self.protected.value).copied().collect()
    }

    /// The presets, and what they are for.
    pub fn presets(&self) -> impl Iterator<Item = (&'static Preset, Origin)> {
        self.presets.value.iter().map(|preset| (*preset, self.presets.origin))
    }

    /// Every setting but the weights.
    pub fn rows(&self) -> [Row; 4] {
        let row = |key, value, origin| Row { key, value, unset: "", origin, live: true };
        let names: Vec<&str> = self.presets.value.iter().map(|preset| preset.name).collect();
        let presets = if names.is_empty() { Value::Null } else { json!(names.join(", ")) };
        let ports = &self.protected.value;
        // Some always are.
        let protected = if ports.is_empty() { Value::Null } else { json!(ports) };
        [
            row("enforce", json!(self.enforce.value), self.enforce.origin),
            row("control", json!(self.control.value.to_string()), self.control.origin),
            Row { unset: "none", ..row("presets", presets, self.presets.origin) },
            Row { unset: "usual", ..row("protected", protected, self.protected.origin) },
        ]
    }

    /// All weights together, as one setting.
    pub fn weights_row(&self) -> Row {
        let text = |Sourced { value: WeightRule { whose, weight }, .. }: &Sourced<WeightRule>| {
            format!("{weight} of {whose}")
        };
        let texts: Vec<String> = self.weights.iter().map(text).collect();
        let value = if texts.is_empty() { Value::Null } else { json!(texts.join(", ")) };
        let origin = self.weights.first().map_or(Origin::Default, |first| first.origin);
        Row { key: "weight", value, unset: "usual", origin, live: true }
    }
}

fn usual<T>(value: T) -> Sourced<T> {
    Sourced { value, origin: Origin::Default }
}

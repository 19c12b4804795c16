//! `[shares]`: what a file says of fair shares, and what holds.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_policy::Share;

use super::layer::{Origin, Row, Sourced};
use crate::preset::Preset;
use crate::shares::{ShareSettings, WeightRule};

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShareLayer {
    /// Whether channels are held to their share.
    pub enforce: Option<Sourced<bool>>,
    /// What the protected class may take.
    pub control: Option<Sourced<Share>>,
    /// Services whose ports are protected.
    pub presets: Option<Sourced<Vec<&'static Preset>>>,
    /// Ports of the protected class.
    pub protected: Option<Sourced<BTreeSet<u16>>>,
    /// Who weighs what.
    pub weights: Vec<Sourced<WeightRule>>,
}

/// What holds, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveShares {
    enforce: Sourced<bool>,
    control: Sourced<Share>,
    presets: Sourced<Vec<&'static Preset>>,
    protected: Sourced<BTreeSet<u16>>,
    weights: Vec<Sourced<WeightRule>>,
}

impl EffectiveShares {
    /// What the file leaves out is as weir has it.
    pub fn of(layer: &ShareLayer) -> Self {
        let ShareSettings { enforce, control, protected, .. } = ShareSettings::default();
        let layer = layer.clone();
        Self {
            enforce: layer.enforce.unwrap_or(usual(enforce)),
            control: layer.control.unwrap_or(usual(control)),
            presets: layer.presets.unwrap_or(usual(Vec::new())),
            protected: layer.protected.unwrap_or(usual(protected)),
            weights: layer.weights,
        }
    }

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

    /// The weights, in their order.
    pub fn weights(&self) -> &[Sourced<WeightRule>] {
        &self.weights
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

//! A result of any experiment, as a file holds one.

use serde::Serialize;

use super::gate_cost::GateCost;
use super::{Experiment, Goal};
use crate::{gate_cost, udp_overload};

/// What one experiment has yielded. In JSON the fields of the result itself: `experiment` tells
/// which shape they have.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// A sweep of offered rates: `udp-overload`.
    Sweep(Box<Experiment>),
    /// `gate-cost`.
    GateCost(Box<GateCost>),
}

impl Outcome {
    /// Reads a result of the experiment named `name`, which the JSON's `experiment` says.
    ///
    /// # Errors
    /// A name that no experiment has, or fields that are not that experiment's.
    pub fn parse(name: &str, json: &[u8]) -> serde_json::Result<Self> {
        match name {
            udp_overload::NAME => serde_json::from_slice(json).map(Self::Sweep),
            gate_cost::NAME => serde_json::from_slice(json).map(Self::GateCost),
            other => Err(serde::de::Error::custom(format_args!(
                "no experiment is named {other:?}; `weir lab list` lists them"
            ))),
        }
    }

    /// Whether JSON that was made of this reads back: a figure that is not finite does not.
    ///
    /// # Errors
    /// Where it does not.
    pub(crate) fn check_reads_back(&self, json: &str) -> serde_json::Result<()> {
        match self {
            Self::Sweep(_) => serde_json::from_str::<Experiment>(json).map(drop),
            Self::GateCost(_) => serde_json::from_str::<GateCost>(json).map(drop),
        }
    }

    /// The experiment's id.
    pub fn name(&self) -> &str {
        match self {
            Self::Sweep(sweep) => &sweep.experiment,
            Self::GateCost(cost) => &cost.experiment,
        }
    }

    /// Its goals.
    pub fn goals(&self) -> &[Goal] {
        match self {
            Self::Sweep(sweep) => &sweep.goals,
            Self::GateCost(cost) => &cost.goals,
        }
    }
}

impl From<Experiment> for Outcome {
    fn from(sweep: Experiment) -> Self {
        Self::Sweep(Box::new(sweep))
    }
}

impl From<GateCost> for Outcome {
    fn from(cost: GateCost) -> Self {
        Self::GateCost(Box::new(cost))
    }
}

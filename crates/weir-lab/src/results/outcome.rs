//! A result of any experiment, as a file holds one.

use serde::Serialize;

use super::accounting::AccountingRun;
use super::gate_cost::GateCost;
use super::http::HttpRun;
use super::kinds::KindsRun;
use super::latency::LatencyRun;
use super::neighbour::NeighbourRun;
use super::parity::ParityRun;
use super::receivers::ReceiversRun;
use super::rpc::RpcRun;
use super::separation::SeparationRun;
use super::user_share::UserShareRun;
use super::{Experiment, Goal};
use crate::{
    accounting, gate_cost, http_syn_flood, kinds, neighbour, parity, receivers, rpc_mix,
    separation, udp_latency, udp_overload, user_share,
};

/// What one experiment has yielded. In JSON the fields of the result itself: `experiment` tells
/// which shape they have.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// A sweep of offered rates: `udp-overload`.
    Sweep(Box<Experiment>),
    /// `gate-cost`.
    GateCost(Box<GateCost>),
    /// `udp-overload --neighbour`.
    Neighbour(Box<NeighbourRun>),
    /// `separation`.
    Separation(Box<SeparationRun>),
    /// `separation --kinds`.
    Kinds(Box<KindsRun>),
    /// `user-share`.
    UserShare(Box<UserShareRun>),
    /// `http-syn-flood`.
    Http(Box<HttpRun>),
    /// `udp-latency`.
    Latency(Box<LatencyRun>),
    /// `parity`.
    Parity(Box<ParityRun>),
    /// `rpc-mix`.
    Rpc(Box<RpcRun>),
    /// `receivers`.
    Receivers(Box<ReceiversRun>),
    /// `accounting`.
    Accounting(Box<AccountingRun>),
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
            neighbour::NAME => serde_json::from_slice(json).map(Self::Neighbour),
            separation::NAME => serde_json::from_slice(json).map(Self::Separation),
            kinds::NAME => serde_json::from_slice(json).map(Self::Kinds),
            user_share::NAME => serde_json::from_slice(json).map(Self::UserShare),
            http_syn_flood::NAME => serde_json::from_slice(json).map(Self::Http),
            udp_latency::NAME => serde_json::from_slice(json).map(Self::Latency),
            parity::NAME => serde_json::from_slice(json).map(Self::Parity),
            rpc_mix::NAME => serde_json::from_slice(json).map(Self::Rpc),
            receivers::NAME => serde_json::from_slice(json).map(Self::Receivers),
            accounting::NAME => serde_json::from_slice(json).map(Self::Accounting),
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
            Self::Neighbour(_) => serde_json::from_str::<NeighbourRun>(json).map(drop),
            Self::Separation(_) => serde_json::from_str::<SeparationRun>(json).map(drop),
            Self::Kinds(_) => serde_json::from_str::<KindsRun>(json).map(drop),
            Self::UserShare(_) => serde_json::from_str::<UserShareRun>(json).map(drop),
            Self::Http(_) => serde_json::from_str::<HttpRun>(json).map(drop),
            Self::Latency(_) => serde_json::from_str::<LatencyRun>(json).map(drop),
            Self::Parity(_) => serde_json::from_str::<ParityRun>(json).map(drop),
            Self::Rpc(_) => serde_json::from_str::<RpcRun>(json).map(drop),
            Self::Receivers(_) => serde_json::from_str::<ReceiversRun>(json).map(drop),
            Self::Accounting(_) => serde_json::from_str::<AccountingRun>(json).map(drop),
        }
    }

    /// The experiment's id.
    pub fn name(&self) -> &str {
        self.view().head().experiment
    }

    /// Its goals.
    pub fn goals(&self) -> &[Goal] {
        self.view().head().goals
    }
}

/// Each experiment's result is an outcome.
macro_rules! outcome_of {
    ($($result:ty => $variant:ident),+ $(,)?) => {
        $(impl From<$result> for Outcome {
            fn from(result: $result) -> Self {
                Self::$variant(Box::new(result))
            }
        })+
    };
}

outcome_of! {
    Experiment => Sweep,
    GateCost => GateCost,
    NeighbourRun => Neighbour,
    SeparationRun => Separation,
    KindsRun => Kinds,
    UserShareRun => UserShare,
    HttpRun => Http,
    LatencyRun => Latency,
    ParityRun => Parity,
    RpcRun => Rpc,
    ReceiversRun => Receivers,
    AccountingRun => Accounting,
}

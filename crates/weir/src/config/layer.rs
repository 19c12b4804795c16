//! What one place says of the settings: the command line, a file, an interface's section of it.

use weir_bpf::cpulist::CpuList;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Prefer, Share};

use crate::cli::{Attach, Forward, Napi, PolicyArg};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody has said anything.
    Default,
    /// The file, for every interface.
    File(Line),
    /// The file, for this interface.
    Interface(Line),
    /// The command line.
    Flag,
}

/// The number of a line in the file, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(pub usize);

impl Line {
    /// The line in which a byte is.
    pub fn of(text: &[u8], offset: usize) -> Self {
        let before = &text[..offset.min(text.len())];
        Self(1 + before.iter().filter(|byte| **byte == b'\n').count())
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

/// The settings that one place gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// What processes get of a CPU that they want, at least.
    pub user_share: Option<Sourced<Share>>,
    /// What input's share is for.
    pub prefer: Option<Sourced<Prefer>>,
    /// How long input may be kept waiting.
    pub timeout: Option<Sourced<Nanos>>,
    /// Over how long shares are averaged.
    pub period: Option<Sourced<Nanos>>,
    /// Whether heavy sources are shed before light ones.
    pub selective: Option<Sourced<bool>>,
    /// A fixed weight in place of the governor's.
    pub nice: Option<Sourced<Nice>>,
    /// Where the gate goes.
    pub attach: Option<Sourced<Attach>>,
    /// Who polls NAPI.
    pub napi: Option<Sourced<Napi>>,
    /// Who forwards packets.
    pub forward: Option<Sourced<Forward>>,
    /// Where NAPI threads may run.
    pub cpus: Option<Sourced<CpuList>>,
    /// What becomes of what the gate decides.
    pub policy: Option<Sourced<PolicyArg>>,
    /// Whether receive packet steering is switched off.
    pub rps_off: Option<Sourced<bool>>,
    /// Of an interface: whether it is protected where the command line names none.
    pub protect: Option<Sourced<bool>>,
}

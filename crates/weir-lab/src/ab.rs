//! Stub: see the helper's.

use std::path::PathBuf;

use crate::arm::Arm;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::lab::{Plan, Wish};
use crate::view::View;

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Side {
    /// `A` or `B`.
    pub label: &'static str,
    /// The executable; `None`: this one.
    pub binary: Option<PathBuf>,
    /// Options of its `weir run`.
    pub options: Vec<String>,
}

impl Side {
    /// Reads `EXECUTABLE [OPTIONS]`.
    ///
    /// # Errors
    /// An executable that is not there.
    pub fn parse(label: &'static str, text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let binary = words.next().filter(|word| *word != "weir").map(PathBuf::from);
        Ok(Self { label, binary, options: words.map(str::to_owned).collect() })
    }
}

/// What was found.
pub struct Compared {}

/// Both sides as arms of an experiment.
///
/// # Errors
/// Never yet.
pub fn arms(_experiment: &Experiment, _sides: &[Side]) -> Result<Vec<Arm>> {
    Ok(vec![])
}

/// A plan in random order.
///
/// # Errors
/// As [`Plan::new`].
pub fn plan<'a>(experiment: &'a Experiment, wish: &Wish, seed: Option<u64>) -> Result<Plan<'a>> {
    let mut plan = Plan::new(experiment, wish)?;
    plan.random = seed;
    Ok(plan)
}

/// Compares.
pub fn compare(_view: &View<'_>) -> Compared {
    Compared {}
}

/// All.
pub fn together(_all: Vec<Compared>) -> Compared {
    Compared {}
}

/// For a person.
pub fn text(_compared: &Compared) -> String {
    String::new()
}

/// For programs.
///
/// # Errors
/// Never.
pub fn json(_compared: &Compared) -> Result<String> {
    Ok(String::new())
}

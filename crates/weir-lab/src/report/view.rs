//! What the reports ask of a result, whichever experiment's it is.

use super::ReportError;
use super::content::Grid;
use crate::results::{Goal, Machine, Outcome};

/// What every experiment's result has.
pub struct Head<'a> {
    /// Its id, such as `udp-overload`.
    pub experiment: &'a str,
    /// weir's version.
    pub weir_version: &'a str,
    /// When it began, UTC, RFC 3339.
    pub started_at: &'a str,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Whether `--quick` was given.
    pub quick: bool,
    /// What it ran on.
    pub machine: &'a Machine,
    /// Its goals.
    pub goals: &'a [Goal],
    /// What to know before trusting a figure.
    pub warnings: &'a [String],
}

/// A drawing with what it shows, for those who cannot see it.
pub struct Figure {
    /// The drawing, one `<svg>` element.
    pub svg: String,
    /// What it shows.
    pub label: &'static str,
}

/// A result as the reports see it. An experiment with a shape of its own implements this.
pub trait View {
    /// What every result has.
    fn head(&self) -> Head<'_>;
    /// One line on what was measured.
    fn workload(&self) -> String;
    /// Its tables, in reading order, the goals last.
    fn grids(&self) -> Vec<Grid>;
    /// Whether every packet is in some counter.
    fn accounting(&self) -> String;
    /// What was seen, made from the figures alone.
    fn sentence(&self) -> String;
    /// Its drawing, if it has one.
    ///
    /// # Errors
    /// [`ReportError::Plot`] if it cannot be made.
    fn figure(&self) -> Result<Option<Figure>, ReportError>;
    /// What the words of its tables mean: sound HTML paragraphs.
    fn how_to_read(&self) -> &'static str;
    /// What ran on which CPU; a table of the page only.
    fn places(&self) -> Option<Grid>;
    /// Names and facts of the workload, of the page only.
    fn facts(&self) -> Vec<(&str, String)>;
}

impl Outcome {
    /// The result as the reports see it.
    pub fn view(&self) -> &dyn View {
        match self {
            Self::Sweep(sweep) => sweep.as_ref(),
            Self::GateCost(cost) => cost.as_ref(),
            Self::Neighbour(run) => run.as_ref(),
            Self::Separation(run) => run.as_ref(),
            Self::Kinds(run) => run.as_ref(),
            Self::UserShare(run) => run.as_ref(),
            Self::Http(run) => run.as_ref(),
            Self::Latency(run) => run.as_ref(),
            Self::Parity(run) => run.as_ref(),
            Self::Rpc(run) => run.as_ref(),
            Self::Receivers(run) => run.as_ref(),
            Self::Accounting(run) => run.as_ref(),
        }
    }
}

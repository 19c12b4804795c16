//! What the reports ask of a result, whichever experiment's it is.

use super::ReportError;
use super::content::{Grid, goals_grid};
use crate::results::{Outcome, Whole};

/// A drawing with what it shows, for those who cannot see it.
pub struct Figure {
    /// The drawing, one `<svg>` element.
    pub svg: String,
    /// What it shows.
    pub label: &'static str,
}

/// A result as the reports see it. An experiment with a shape of its own implements this.
pub trait View: Whole {
    /// One line on what was measured.
    fn workload(&self) -> String;
    /// Its tables, in reading order, but for the goals.
    fn tables(&self) -> Vec<Grid>;
    /// The tables that it has something for, in reading order, the goals last.
    fn grids(&self) -> Vec<Grid> {
        let mut grids = self.tables();
        grids.push(goals_grid(self.head().goals));
        grids.retain(|grid| !grid.rows.is_empty());
        grids
    }
    /// Whether every packet is in some counter.
    fn accounting(&self) -> String;
    /// What was seen, made from the figures alone.
    fn sentence(&self) -> String;
    /// Its drawing, if it has one.
    ///
    /// # Errors
    /// [`ReportError::Plot`] if it cannot be made.
    fn figure(&self) -> Result<Option<Figure>, ReportError> {
        Ok(None)
    }
    /// What the words of its tables mean: sound HTML paragraphs.
    fn how_to_read(&self) -> &'static str;
    /// What ran on which CPU; a table of the page only.
    fn places(&self) -> Option<Grid> {
        None
    }
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

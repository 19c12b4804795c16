//! What a reader gets of a run: text, JSON, a figure, a page, Markdown. Nothing here measures, and nothing
//! knows an experiment: everything follows from its declaration and the kept trials.

pub mod content;
mod figure;
mod html;
mod json;
#[cfg(test)]
pub mod made_up;
pub mod markdown;
pub mod table;
#[cfg(test)]
mod tests;
pub mod text;
pub mod units;
mod words;

use std::path::{Path, PathBuf};

pub use json::json;
pub use text::text;

use crate::error::{Error, Result};
use crate::experiments;
use crate::run::Run;
use crate::store::write_whole;
use crate::view::View;

/// A kept run with its experiment's declaration.
pub fn view(run: &Run) -> Result<View<'_>> {
    let name = &run.head.experiment;
    let experiment = experiments::by_name(name).ok_or_else(|| {
        Error::refused(
            format!("this lab has no experiment {name:?}"),
            "report the result with the build that made it, or move it elsewhere",
        )
    })?;
    Ok(View::new(experiment, run))
}

/// Writes `DIR/report.html` of these runs, and beside each run the figure of its experiment, if that was measured. Returns
/// the page's path.
pub fn write(runs: &[(PathBuf, Run)], dir: &Path) -> Result<PathBuf> {
    let views = runs.iter().map(|(_, run)| view(run)).collect::<Result<Vec<_>>>()?;
    for ((path, _), view) in runs.iter().zip(&views) {
        if let Some(svg) = figure::svg(view)? {
            write_whole(&path.with_extension("svg"), &svg)?;
        }
    }
    let path = dir.join("report.html");
    write_whole(&path, &html::page(&views)?)?;
    Ok(path)
}

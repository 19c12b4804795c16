//! Stub.

pub mod markdown;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::run::Run;
use crate::view::View;

/// For a terminal.
pub fn text(view: &View<'_>) -> String {
    let mut text = String::new();
    for point in &view.points {
        text += &format!("{} {} {}", point.arm, point.case, point.load);
        for (id, spread) in &point.figures {
            text += &format!(" {id}={:.6}", spread.median);
        }
        text += "\n";
    }
    for goal in crate::goals::judge(view) {
        text += &format!("{goal:?}\n");
    }
    text
}

/// For programs.
///
/// # Errors
/// Never.
pub fn json(view: &View<'_>) -> Result<String> {
    view.run.to_json()
}

/// The plot.
///
/// # Errors
/// Where it cannot be written.
pub fn write_figure(_view: &View<'_>, _dir: &Path) -> Result<()> {
    Ok(())
}

/// The page.
///
/// # Errors
/// Where it cannot be written.
pub fn write_page(_runs: &[Run], dir: &Path) -> Result<PathBuf> {
    Ok(dir.to_owned())
}

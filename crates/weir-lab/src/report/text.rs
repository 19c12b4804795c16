//! The report for a terminal: plain text, no colour.

use crate::report::content::{self, Grid};
use crate::report::table::{For, table};
use crate::report::units::clean;
use crate::report::words;
use crate::view::View;

/// Name, sentence, tables, goals, warnings, and what ran where.
pub fn text(view: &View<'_>) -> String {
    let (name, paper, sentence) =
        (view.experiment.name, view.experiment.paper, words::sentence(view));
    let mut text = format!("{name}: {paper}\n{}\n", clean(&sentence));
    for grid in content::whole(view).into_iter().filter(|grid| !grid.rows.is_empty()) {
        let has_figures = grid.labels < grid.head.len();
        let rows = if has_figures { table(&grid, For::Terminal) } else { list(&grid) };
        text += &format!("\n{}\n{rows}", grid.title);
    }
    text
}

/// A table of text: of each row its first column, and the others after it as words.
fn list(grid: &Grid) -> String {
    let width = grid.rows.iter().map(|row| row[0].text.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &grid.rows {
        let mut line = format!("  {:<width$}  {}", row[0].text, row[1].text);
        for (name, cell) in grid.head.iter().zip(row).skip(2) {
            line += &format!("; {} {}", name.text, cell.text);
        }
        text += &(clean(&line) + "\n");
    }
    text
}

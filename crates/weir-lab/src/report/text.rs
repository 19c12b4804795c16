//! The report for a terminal of 100 columns: plain text, no colour.

use crate::report::content::{self, Cell, FOOTNOTE, Grid, Pick};
use crate::report::units::clean;
use crate::report::words;
use crate::view::View;

/// Lines are broken here.
const COLUMNS: usize = 100;

/// Name, sentence, tables, goals, warnings, and what ran where.
pub fn text(view: &View<'_>) -> String {
    let mut text = format!("{}: {}\n", view.experiment.name, view.experiment.paper);
    wrap(&mut text, "", &words::sentence(view));
    for grid in content::grids(view, &Pick::default()) {
        text.push('\n');
        draw(&mut text, &grid);
    }
    list(&mut text, &content::goals(view));
    let warnings = words::warnings(view);
    if !warnings.is_empty() {
        text.push_str("\nWarnings\n");
    }
    for warning in warnings {
        wrap(&mut text, "  - ", &warning);
    }
    list(&mut text, &content::setup(view));
    text.push('\n');
    for (name, value) in words::facts(&view.run.head) {
        wrap(&mut text, &format!("{name:<13}"), &value);
    }
    text
}

/// A table: text to the left, figures to the right, two spaces between; in several blocks where the
/// columns do not fit one.
fn draw(text: &mut String, grid: &Grid) {
    let width = |at: usize| {
        let cells = grid.rows.iter().map(|row| &row[at].text).chain([&grid.head[at]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..grid.head.len()).map(width).collect();
    let labels: usize = widths[..grid.labels].iter().map(|width| width + 2).sum();
    text.push_str(&format!("{}\n", grid.title));
    let head: Vec<Cell> = grid.head.iter().cloned().map(Cell::from).collect();
    let mut from = grid.labels;
    while from < widths.len() {
        let (mut to, mut used) = (from, labels);
        while to < widths.len() && (to == from || used + widths[to] + 2 <= COLUMNS) {
            used += widths[to] + 2;
            to += 1;
        }
        if from > grid.labels {
            text.push('\n');
        }
        for row in std::iter::once(&head).chain(&grid.rows) {
            let mut line = String::new();
            for at in (0..grid.labels).chain(from..to) {
                let (cell, width) = (clean(&row[at].text), widths[at]);
                line += &match at < grid.labels && grid.head[at] != "load" {
                    true => format!("  {cell:<width$}"),
                    false => format!("  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        from = to;
    }
    if grid.is_marked() {
        text.push_str(&format!("  {FOOTNOTE}\n"));
    }
}

/// A table of text: its first column, and the others after it as words.
fn list(text: &mut String, grid: &Grid) {
    if grid.rows.is_empty() {
        return;
    }
    text.push_str(&format!("\n{}\n", grid.title));
    let width = grid.rows.iter().map(|row| row[0].text.chars().count()).max().unwrap_or(0);
    for row in &grid.rows {
        let others: Vec<String> =
            (2..row.len()).map(|at| format!("{} {}", grid.head[at], row[at].text)).collect();
        let others =
            if others.is_empty() { String::new() } else { format!(": {}", others.join(", ")) };
        let lead = format!("  {:<width$}  ", clean(&row[0].text));
        wrap(text, &lead, &format!("{}{others}", row[1].text));
    }
}

/// Breaks prose between words; its first line begins with `lead`, the others stand in as far.
fn wrap(text: &mut String, lead: &str, prose: &str) {
    let indent = lead.chars().count();
    let mut line = lead.to_owned();
    for word in clean(prose).split_whitespace() {
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > COLUMNS {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(indent);
        } else if used > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

//! A table as Markdown, for documents and for a terminal.

use crate::report::content::{Cell, FOOTNOTE, Grid};
use crate::report::units::clean;

/// Who reads a table: a program that draws it, or a person, as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    Document,
    Terminal,
}

/// A table: text to the left, figures to the right, for a terminal under one another.
pub fn table(grid: &Grid, reader: For) -> String {
    let shown = if reader == For::Document { escape } else { clean };
    let lines = || std::iter::once(&grid.head).chain(&grid.rows);
    let width = |at: usize| match reader {
        For::Document => 0,
        For::Terminal => lines().map(|row| row[at].text.chars().count()).fold(4, usize::max),
    };
    let widths: Vec<usize> = (0..grid.head.len()).map(width).collect();
    let line = |cell: &dyn Fn((usize, &usize)) -> String| {
        format!("| {} |\n", widths.iter().enumerate().map(cell).collect::<Vec<_>>().join(" | "))
    };
    let cells = |row: &Vec<Cell>| {
        line(&|(at, width)| match shown(&row[at].text) {
            text if grid.is_text(at) => format!("{text:<width$}"),
            text => format!("{text:>width$}"),
        })
    };
    let rule = line(&|(at, width)| match grid.is_text(at) {
        true => format!("{:-<width$}", "---"),
        false => format!("{:->width$}", "---:"),
    });
    let rows: String = grid.rows.iter().map(cells).collect();
    let note = if grid.is_marked() { format!("\n{}\n", shown(FOOTNOTE)) } else { String::new() };
    cells(&grid.head) + &rule + &rows + &note
}

pub fn escape(text: &str) -> String {
    let escaped = clean(text).replace('\\', "\\\\").replace('|', "\\|").replace('*', "\\*");
    escaped.replace('&', "&amp;").replace('<', "&lt;")
}

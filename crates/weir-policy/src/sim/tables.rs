//! Results as tables of text, for snapshots and docs.

use std::fmt::Write as _;

use super::packets::PacketsPerSec;

/// A table whose first column is a load.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a heading for each column.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            rows: vec![columns.iter().map(|&column| column.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// As text, columns aligned to the right.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = format!("{}\n", self.title);
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a string cannot fail.
                let _ = write!(line, "  {cell:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A rate in three figures.
pub fn rate(rate: PacketsPerSec) -> String {
    let figures = |value: f64| {
        let decimals = if value >= 99.95 { 0 } else { usize::from(value >= 9.995) };
        let decimals = if value < 9.995 { 2 } else { decimals };
        format!("{value:.decimals$}")
    };
    match rate.0 {
        pps if pps >= 999_500.0 => format!("{} M", figures(pps / 1e6)),
        pps if pps >= 999.5 => format!("{} k", figures(pps / 1e3)),
        pps => format!("{pps:.0}"),
    }
}

/// A part of one as a percentage.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

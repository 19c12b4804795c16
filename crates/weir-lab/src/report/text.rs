//! The report for a terminal of 100 columns: plain text, no colour.

use crate::report::content::{self, FOOTNOTE, Grid};
use crate::report::units::clean;
use crate::report::words;
use crate::view::View;

/// Lines are broken here.
const COLUMNS: usize = 100;

/// Name, sentence, tables, goals, warnings, and what ran where.
pub fn text(view: &View<'_>) -> String {
    let mut text = format!("{}: {}\n", view.experiment.name, view.experiment.paper);
    wrap(&mut text, "", &words::sentence(view));
    for grid in content::whole(view) {
        if grid.labels < grid.head.len() {
            draw(&mut text, &grid, COLUMNS)
        } else {
            list(&mut text, &grid)
        }
    }
    text
}

/// A table: text to the left, figures to the right, two spaces between; in several blocks where the
/// columns do not fit one.
pub fn draw(text: &mut String, grid: &Grid, columns: usize) {
    let lines = || std::iter::once(&grid.head).chain(&grid.rows);
    let width = |at: usize| lines().map(|row| row[at].text.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..grid.head.len()).map(width).collect();
    let labels: usize = widths[..grid.labels].iter().map(|width| width + 2).sum();
    *text += &format!("\n{}\n", grid.title);
    let mut from = grid.labels;
    while from < widths.len() {
        let (mut to, mut used) = (from, labels);
        while to < widths.len() && (to == from || used + widths[to] + 2 <= columns) {
            used += widths[to] + 2;
            to += 1;
        }
        *text += if from > grid.labels { "\n" } else { "" };
        for row in lines() {
            let cell = |at: usize| match (clean(&row[at].text), widths[at]) {
                (cell, width) if grid.is_text(at) => format!("  {cell:<width$}"),
                (cell, width) => format!("  {cell:>width$}"),
            };
            let line: String = (0..grid.labels).chain(from..to).map(cell).collect();
            *text += &format!("{}\n", line.trim_end());
        }
        from = to;
    }
    *text += &if grid.is_marked() { format!("  {FOOTNOTE}\n") } else { String::new() };
}

/// A table of text: its first column, and the others after it as words.
fn list(text: &mut String, grid: &Grid) {
    let width = grid.rows.iter().map(|row| row[0].text.chars().count()).max().unwrap_or(0);
    for (at, row) in grid.rows.iter().enumerate() {
        *text += &if at == 0 { format!("\n{}\n", grid.title) } else { String::new() };
        let mut words = row[1].text.clone();
        for (name, cell) in grid.head.iter().zip(row).skip(2) {
            words += &format!("; {} {}", name.text, cell.text);
        }
        wrap(text, &format!("  {:<width$}  ", clean(&row[0].text)), &words);
    }
}

/// Breaks prose between words, a number not from its unit; the first line begins with `lead`, the others
/// stand in as far.
fn wrap(text: &mut String, lead: &str, prose: &str) {
    let is_unit = |word: &str| {
        matches!(word.trim_end_matches(['.', ',', ';', ')']), "k" | "M" | "%" | "ms" | "us" | "s")
    };
    let mut words: Vec<String> = vec![];
    for word in clean(prose).split_whitespace() {
        match words.last_mut().filter(|_| is_unit(word)) {
            Some(number) => *number += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
    }
    let (mut line, indent) = (lead.to_owned(), lead.chars().count());
    for word in words {
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > COLUMNS {
            *text += &format!("{}\n", line.trim_end());
            line = " ".repeat(indent);
        } else if used > indent {
            line.push(' ');
        }
        line += &word;
    }
    *text += &format!("{}\n", line.trim_end());
}

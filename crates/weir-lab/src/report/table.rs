//! The report for a terminal of 100 columns: plain text, no colour.

use super::content::{Grid, Row};
use super::units::{clean, plural};
use super::view::View;
use crate::results::Head;

/// Prose is broken here; tables of every mode stay within it too.
const COLUMNS: usize = 100;

/// The experiment as text: its tables, the goals, warnings and, last, one sentence.
pub fn table(experiment: &dyn View) -> String {
    let mut text = String::new();
    let head = experiment.head();
    for line in heading(&head, experiment.workload()) {
        wrap(&mut text, "", &line);
    }
    for grid in experiment.grids() {
        text.push('\n');
        draw(&mut text, &grid);
    }
    text.push('\n');
    wrap(&mut text, "", &experiment.accounting());
    if !head.warnings.is_empty() {
        text.push_str("\nWarnings\n");
        for warning in head.warnings {
            wrap(&mut text, "  - ", &clean(warning));
        }
    }
    text.push('\n');
    wrap(&mut text, "", &experiment.sentence());
    text
}

/// What ran, and on what: three lines.
fn heading(head: &Head<'_>, workload: String) -> [String; 3] {
    let machine = head.machine;
    let quick = if head.quick { ", quick" } else { "" };
    let kind = if machine.virtual_machine { ", virtual machine" } else { "" };
    let hz = machine.hz.map_or_else(String::new, |hz| format!(", {hz} Hz"));
    [
        format!(
            "{}: weir {}, {}, {:.0} s{quick}",
            head.experiment, head.weir_version, head.started_at, head.duration_s
        ),
        format!(
            "Linux {}, {}, {}{kind}, preemption {}{hz}; tested on CPU {}, generator on CPU {}",
            machine.kernel,
            machine.cpu_model,
            plural(machine.cpus as usize, "CPU"),
            machine.preemption,
            machine.sut_cpu,
            machine.generator_cpu
        ),
        workload,
    ]
    .map(|line| clean(&line))
}

/// One table: text to the left, figures to the right, two spaces between.
fn draw(text: &mut String, grid: &Grid) {
    text.push_str(grid.title);
    text.push('\n');
    if !grid.note.is_empty() {
        wrap(text, "  ", grid.note);
    }
    let mut widths: Vec<usize> = grid.head.iter().map(|cell| cell.chars().count()).collect();
    for row in &grid.rows {
        let Row::Cells(cells) = row else { continue };
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    line(text, grid, &widths, &grid.head);
    for row in &grid.rows {
        match row {
            Row::Group(name) => {
                text.push_str(&format!("  {name}\n"));
            }
            Row::Cells(cells) => line(text, grid, &widths, cells),
        }
    }
    for note in &grid.footnotes {
        wrap(text, "  ", note);
    }
}

fn line(text: &mut String, grid: &Grid, widths: &[usize], cells: &[String]) {
    // Rows under a group's heading stand in from it.
    let grouped = grid.rows.iter().any(|row| matches!(row, Row::Group(_)));
    let mut line = String::from(if grouped { "  " } else { "" });
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        line.push_str("  ");
        if column < grid.text_columns {
            line.push_str(&format!("{cell:<width$}"));
        } else {
            line.push_str(&format!("{cell:>width$}"));
        }
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Breaks `prose` between words; its first line begins with `lead`, the others stand in as far.
fn wrap(text: &mut String, lead: &str, prose: &str) {
    let indent = " ".repeat(lead.chars().count());
    let mut width = 0;
    for word in prose.split_whitespace() {
        let length = word.chars().count();
        if width == 0 {
            text.push_str(lead);
            width = indent.len() + length;
        } else if width + 1 + length > COLUMNS {
            text.push('\n');
            text.push_str(&indent);
            width = indent.len() + length;
        } else {
            text.push(' ');
            width += 1 + length;
        }
        text.push_str(word);
    }
    text.push('\n');
}

//! The report for a terminal of 100 columns: plain text, no colour.

use super::content::{Grid, Row, accounting, grids};
use super::sentence::sentence;
use super::units::{clean, plural};
use crate::results::Experiment;

/// Prose is broken here; tables of every mode stay within it too.
const COLUMNS: usize = 100;

/// The experiment as text: delivered by offered rate, where every other packet ended, the
/// bystander, the summary, the goals, warnings and, last, one sentence.
pub fn table(experiment: &Experiment) -> String {
    let mut text = String::new();
    for line in heading(experiment) {
        wrap(&mut text, "", &line);
    }
    for grid in grids(experiment) {
        text.push('\n');
        draw(&mut text, &grid);
    }
    text.push('\n');
    wrap(&mut text, "", &accounting(experiment));
    if !experiment.warnings.is_empty() {
        text.push_str("\nWarnings\n");
        for warning in &experiment.warnings {
            wrap(&mut text, "  - ", &clean(warning));
        }
    }
    text.push('\n');
    wrap(&mut text, "", &sentence(experiment));
    text
}

/// What ran, and on what: three lines.
fn heading(experiment: &Experiment) -> [String; 3] {
    let (machine, workload) = (&experiment.machine, &experiment.workload);
    let quick = if experiment.quick { ", quick" } else { "" };
    let kind = if machine.virtual_machine { ", virtual machine" } else { "" };
    let hz = machine.hz.map_or_else(String::new, |hz| format!(", {hz} Hz"));
    [
        format!(
            "{}: weir {}, {}, {:.0} s{quick}",
            experiment.experiment,
            experiment.weir_version,
            experiment.started_at,
            experiment.duration_s
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
        format!(
            "{} of {}, {}-byte payload; receive buffer {} bytes, {} here",
            workload.application,
            workload.packets,
            workload.payload_bytes,
            workload.rcvbuf_bytes,
            plural(workload.queue_depth_packets as usize, "packet")
        ),
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

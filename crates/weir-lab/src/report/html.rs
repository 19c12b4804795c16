//! The report as one page that needs nothing else.

use super::ReportError;
use super::content::{Grid, Row};
use super::units::clean;
use super::view::View;
use crate::results::{Head, Outcome};

const STYLE: &str = include_str!("style.css");

/// One experiment as a self-contained page: inline style and drawing, no outside reference, for
/// light and dark screens. Every string of the experiment is escaped.
///
/// # Errors
///
/// [`ReportError::Plot`] if the drawing cannot be made.
pub fn html(experiment: &dyn View) -> Result<String, ReportError> {
    page(&[experiment], &[])
}

/// Several experiments as one page, in the order given, as [`html`] does one.
///
/// # Errors
///
/// [`ReportError::Plot`] if a drawing cannot be made.
pub fn html_all(experiments: &[Outcome]) -> Result<String, ReportError> {
    page(&views(experiments), &[])
}

/// Several results as the reports see them.
pub(super) fn views(experiments: &[Outcome]) -> Vec<&dyn View> {
    experiments.iter().map(Outcome::view).collect()
}

/// The page, with a list of files that were left out and why.
pub(super) fn page(
    experiments: &[&dyn View],
    left_out: &[ReportError],
) -> Result<String, ReportError> {
    let names: Vec<String> = experiments.iter().map(|e| escape(e.head().experiment)).collect();
    let mut body = String::new();
    if experiments.len() > 1 {
        body.push_str("<nav aria-label=\"Experiments\"><ul>");
        for (position, name) in names.iter().enumerate() {
            body.push_str(&format!("<li><a href=\"#experiment-{position}\">{name}</a></li>"));
        }
        body.push_str("</ul></nav>\n");
    }
    for error in left_out {
        body.push_str(&format!(
            "<p class=\"warning\">Left out: {}</p>\n",
            escape(&error.to_string())
        ));
    }
    for (position, experiment) in experiments.iter().enumerate() {
        body.push_str(&article(position, *experiment)?);
    }
    body.push_str("<section id=\"how-to-read\"><h2>How to read it</h2>");
    let mut explained = Vec::new();
    for text in experiments.iter().map(|experiment| experiment.how_to_read()) {
        if !explained.contains(&text) {
            body.push_str(text);
            explained.push(text);
        }
    }
    body.push_str("</section>");
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>weir lab: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {body}\n</main>\n</body>\n</html>\n",
        names.join(", ")
    ))
}

fn article(position: usize, experiment: &dyn View) -> Result<String, ReportError> {
    let head = experiment.head();
    let name = escape(head.experiment);
    // A figure stays with its percent sign.
    let sentence = escape(&experiment.sentence()).replace(" %", "&nbsp;%");
    let quick = if head.quick { ", quick run: few repeats" } else { "" };
    let mut text = format!(
        "<article id=\"experiment-{position}\">\n<header><p class=\"kicker\">weir lab</p>\
         <h1>{name}</h1>\n<p class=\"lead\">{sentence}</p>\n<p class=\"meta\">{}, {:.0} s{quick}, \
         weir {}</p></header>\n",
        escape(head.started_at),
        head.duration_s,
        escape(head.weir_version),
    );
    for warning in head.warnings {
        text.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(warning)));
    }
    if let Some(figure) = experiment.figure()? {
        text.push_str(&format!(
            "<figure role=\"img\" aria-label=\"{} {sentence}\">\n{}</figure>\n",
            escape(figure.label),
            figure.svg
        ));
    }
    for grid in experiment.grids() {
        text.push_str(&table(&grid));
    }
    text.push_str(&format!("<p class=\"accounting\">{}</p>\n", escape(&experiment.accounting())));
    if let Some(places) = experiment.places() {
        text.push_str(&table(&places));
    }
    text.push_str(&machine(&head, experiment.facts()));
    text.push_str(&format!(
        "<p class=\"meta\">Raw data: <code>{name}.json</code>, beside this page.</p>\n</article>\n",
    ));
    Ok(text)
}

/// A table that scrolls by itself on a narrow screen.
fn table(grid: &Grid) -> String {
    let class = |column: usize| if column < grid.text_columns { " class=\"text\"" } else { "" };
    let mut text = format!("<section><h2>{}</h2>", escape(grid.title));
    if !grid.note.is_empty() {
        text.push_str(&format!("<p>{}</p>", escape(grid.note)));
    }
    text.push_str("\n<div class=\"scroll\"><table>\n<thead><tr>");
    for (column, cell) in grid.head.iter().enumerate() {
        text.push_str(&format!("<th scope=\"col\"{}>{}</th>", class(column), escape(cell.trim())));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in &grid.rows {
        match row {
            Row::Group(name) => text.push_str(&format!(
                "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>\n",
                grid.head.len(),
                escape(name)
            )),
            Row::Cells(cells) => {
                text.push_str("<tr>");
                for (column, cell) in cells.iter().enumerate() {
                    let cell = escape(cell.trim());
                    text.push_str(&format!("<td{}>{cell}</td>", class(column)));
                }
                text.push_str("</tr>\n");
            }
        }
    }
    text.push_str("</tbody></table></div>\n");
    for note in &grid.footnotes {
        text.push_str(&format!("<p class=\"footnote\">{}</p>\n", escape(note)));
    }
    text.push_str("</section>\n");
    text
}

/// The machine, its settings, the application and its packets.
fn machine(head: &Head<'_>, workload: Vec<(&str, String)>) -> String {
    let machine = head.machine;
    let unknown = || "unknown".to_owned();
    let mitigations: Vec<String> =
        machine.mitigations.iter().map(|(name, state)| format!("{name}: {state}")).collect();
    let kind = if machine.virtual_machine { ", virtual machine" } else { "" };
    let facts = [
        ("Kernel", machine.kernel.clone()),
        ("CPU", format!("{}, {} online{kind}", machine.cpu_model, machine.cpus)),
        ("Memory", format!("{} MiB", machine.memory_mib)),
        (
            "Scheduling",
            format!(
                "preemption {}, timer {}, base slice {}",
                machine.preemption,
                machine.hz.map_or_else(unknown, |hz| format!("{hz} Hz")),
                machine.scheduler_slice_ns.map_or_else(unknown, |ns| format!("{ns} ns")),
            ),
        ),
        (
            "Mitigations",
            if mitigations.is_empty() {
                "none in force".to_owned()
            } else {
                mitigations.join("; ")
            },
        ),
        (
            "CPUs used",
            format!(
                "system under test {}, generator {}{}",
                machine.sut_cpu,
                machine.generator_cpu,
                if machine.shared_core { ", threads of one core" } else { "" }
            ),
        ),
    ];
    let mut text = String::from("<section><h2>Machine and workload</h2>\n<dl>\n");
    for (name, fact) in facts.into_iter().chain(workload) {
        text.push_str(&format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(&fact)));
    }
    text.push_str("</dl></section>\n");
    text
}

/// Text that a browser shows as it is written, in an element or in a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

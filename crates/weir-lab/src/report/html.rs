//! The report as one page that needs nothing else.

use super::content::{Grid, Row, accounting, grids};
use super::plot::plot_svg;
use super::sentence::sentence;
use super::units::{clean, plural};
use super::{ReportError, json_name};
use crate::results::Experiment;

const STYLE: &str = include_str!("style.css");

/// What the words of the tables mean.
const HOW_TO_READ: &str = "\
<section id=\"how-to-read\"><h2>How to read it</h2>\
<p>Every packet that is offered ends in exactly one place. A <dfn>NIC drop</dfn> is lost at the \
full receive ring and costs the tested CPU nothing; a <dfn>discarded</dfn> packet is dropped at \
weir&#39;s gate, before the kernel builds anything for it; a <dfn>late drop</dfn> is lost in the \
backlog or at the full socket, after the CPU has done most of its work for nothing; the others \
are <dfn>delivered</dfn>.</p>\
<p>The <dfn>MLFRR</dfn> (maximum loss-free receive rate) is the highest offered rate with at \
most 0.5&nbsp;% loss (PDR); <dfn>NDR</dfn> is the highest without any. <dfn>Retained</dfn> is \
what is delivered at the highest offered rate as a share of the mode&#39;s own peak: near 0 it \
is receive livelock, 100&nbsp;% is ideal. <dfn>Age</dfn> is the time from a packet&#39;s sending \
to its delivery. Compare modes within one run; absolute figures belong to this machine.</p>\
</section>";

/// One experiment as a self-contained page: inline style and drawing, no outside reference, for
/// light and dark screens. Every string of the experiment is escaped.
///
/// # Errors
///
/// [`ReportError::Plot`] if the drawing cannot be made.
pub fn html(experiment: &Experiment) -> Result<String, ReportError> {
    html_all(std::slice::from_ref(experiment))
}

/// Several experiments as one page, in the order given, as [`html`] does one.
///
/// # Errors
///
/// [`ReportError::Plot`] if a drawing cannot be made.
pub fn html_all(experiments: &[Experiment]) -> Result<String, ReportError> {
    page(experiments, &[])
}

/// The page, with a list of files that were left out and why.
pub(super) fn page(
    experiments: &[Experiment],
    left_out: &[ReportError],
) -> Result<String, ReportError> {
    let names: Vec<String> = experiments.iter().map(|e| escape(&e.experiment)).collect();
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
        body.push_str(&article(position, experiment)?);
    }
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>weir lab: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {body}{HOW_TO_READ}\n</main>\n</body>\n</html>\n",
        names.join(", ")
    ))
}

fn article(position: usize, experiment: &Experiment) -> Result<String, ReportError> {
    let name = escape(&experiment.experiment);
    // A figure stays with its percent sign.
    let sentence = escape(&sentence(experiment)).replace(" %", "&nbsp;%");
    let quick = if experiment.quick { ", quick run: few repeats" } else { "" };
    let mut text = format!(
        "<article id=\"experiment-{position}\">\n<header><p class=\"kicker\">weir lab</p>\
         <h1>{name}</h1>\n<p class=\"lead\">{sentence}</p>\n<p class=\"meta\">{}, {:.0} s{quick}, \
         weir {}</p></header>\n",
        escape(&experiment.started_at),
        experiment.duration_s,
        escape(&experiment.weir_version),
    );
    for warning in &experiment.warnings {
        text.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(warning)));
    }
    text.push_str(&format!(
        "<figure role=\"img\" aria-label=\"Delivered by offered rate. {sentence}\">\n{}</figure>\n",
        plot_svg(experiment)?
    ));
    for grid in grids(experiment) {
        text.push_str(&table(&grid));
    }
    text.push_str(&format!("<p class=\"accounting\">{}</p>\n", escape(&accounting(experiment))));
    text.push_str(&setup(experiment));
    text.push_str(&machine(experiment));
    text.push_str(&format!(
        "<p class=\"meta\">Raw data: <code>{}</code>, beside this page.</p>\n</article>\n",
        escape(&json_name(experiment))
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

/// What ran on which CPU, per mode.
fn setup(experiment: &Experiment) -> String {
    let rows: Vec<Row> = experiment
        .setup
        .iter()
        .map(|(mode, setup)| {
            Row::Cells(vec![
                mode.to_string(),
                clean(&setup.driver_poll),
                clean(&setup.protocol),
                clean(&setup.gate),
                clean(&setup.application),
                clean(&setup.attach),
                if setup.gro { "on" } else { "off" }.to_owned(),
                clean(&setup.rps_cpus),
            ])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["mode", "driver poll", "IP and UDP", "gate", "application", "XDP", "GRO", "RPS"]
        .map(str::to_owned)
        .into();
    table(&Grid {
        title: "What ran where",
        note: "The CPU and context of each part, and the receiving interface's settings.",
        head,
        rows,
        text_columns: 8,
        footnotes: Vec::new(),
    })
}

/// The machine, its settings, the application and its packets.
fn machine(experiment: &Experiment) -> String {
    let (machine, workload) = (&experiment.machine, &experiment.workload);
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
        (
            "Application",
            format!(
                "{}, {}, {}-byte payload",
                workload.application, workload.packets, workload.payload_bytes
            ),
        ),
        (
            "Receive buffer",
            format!(
                "{} bytes, which hold {} on this path",
                workload.rcvbuf_bytes,
                plural(workload.queue_depth_packets as usize, "packet")
            ),
        ),
        (
            "Generator's top",
            workload.generator_top_pps.map_or("not tried".to_owned(), |top| {
                format!("{} packets/s", super::units::rate(top))
            }),
        ),
    ];
    let mut text = String::from("<section><h2>Machine and workload</h2>\n<dl>\n");
    for (name, fact) in facts {
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

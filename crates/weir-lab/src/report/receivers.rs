//! `receivers`, as the reports see it.

use super::content::{Grid, Row, strings};
use super::drawing::Line;
use super::load::{Described, Picture, by_mode, head, lines, marks, some};
use super::sentence::kernel;
use super::units::{percent, rate};
use crate::results::receivers::{ReceiversPoint, ReceiversRun};

impl Described for ReceiversRun {
    const WORDS: &'static str = "\
<p>Two servers on one CPU, the <dfn>heavier</dfn> at nice 0 and the <dfn>lighter</dfn> at nice 10, are each \
sent the same flood, and compute for each packet. While both can take all of it, they receive as much; where \
both are <dfn>overloaded</dfn> (each receives less than 95&nbsp;% of what it is sent), the scheduler is to \
divide the CPU by their weights, 1024 to 110, and so what they receive. Receive work that is done at anybody&#39;s \
expense, or a queue that is found empty, spoils that. They run in one session: with autogroup the kernel \
weighs sessions against each other, and nice values only within one. <dfn>Sleeps</dfn>: how often a second the \
heavier found its queue empty.</p>";
    const PICTURE: Picture = Picture {
        title: "packets of the heavier receiver to one of the lighter, by the rate of either flood",
        label: "Packets that the receiver at nice 0 has for one of that at nice 10, by the flood to each.",
        across: "flood to each",
        upwards: "heavier to lighter",
        unit: 1.0,
    };

    fn tables(&self) -> Vec<Grid> {
        vec![received(self), ended(self), summary(self)]
    }

    fn seen(&self) -> String {
        receivers_sentence(self)
    }

    fn lines(&self) -> Vec<Line> {
        let known = self.series.iter().map(|(mode, points)| {
            (mode, points.iter().filter(|point: &&ReceiversPoint| point.ratio.is_some()))
        });
        lines(known, |point| (point.ratio.unwrap_or_default(), point.ratio_range))
    }

    fn beside(&self) -> String {
        let reference = &self.reference;
        format!(
            "two receivers of one session, nice {} and {}, of which each computes {} passes of the calibrated loop for a packet; \
             quotient of their weights {:.2}",
            reference.heavier_nice,
            reference.lighter_nice,
            reference.passes,
            reference.weights_ratio
        )
    }
}

/// What was seen, in one plain sentence: of each mode the ratio at the highest flood.
pub fn receivers_sentence(run: &ReceiversRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let clauses: Vec<String> = run
        .summary
        .iter()
        .map(|(mode, summary)| {
            let ratio = some(summary.overload_ratio, |ratio| format!("{ratio:.2}"));
            format!("{mode} {ratio} ({} in all)", rate(summary.overload_pps))
        })
        .collect();
    if clauses.is_empty() {
        return format!("{kernel}, nothing was measured, so nothing is said of weights.");
    }
    format!(
        "{kernel}, of two receivers flooded at the highest rate that at nice 0 had so many packets for one of \
         that at nice 10, by their weights {:.2}: {}.",
        run.reference.weights_ratio,
        clauses.join("; ")
    )
}

fn received(run: &ReceiversRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        let range = point.ratio_range;
        vec![
            rate(point.heavier_pps),
            rate(point.lighter_pps),
            some(point.ratio, |ratio| format!("{ratio:.2}")),
            format!("{:.2}-{:.2}", range.min, range.max),
            if point.overloaded { "both" } else { "-" }.to_owned(),
            percent(point.heavier_cpu),
            percent(point.lighter_cpu),
            rate(point.heavier_sleeps_per_s),
        ]
    });
    Grid {
        title: "Received by either, packets/s",
        note: "Target, sent: to each. Ratio: heavier to lighter. CPU: as the kernel charges it.",
        head: head(
            "sent ",
            ["nice 0", "nice 10", "ratio", "min-max", "overload", "CPU 0", "CPU 10", "sleeps"],
        ),
        rows,
        text_columns: 1,
        footnotes: marks(&run.series),
    }
}

fn ended(run: &ReceiversRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        vec![
            percent(point.ring_loss),
            rate(point.nic_drop_pps),
            rate(point.discarded_pps),
            rate(point.late_drop_pps),
            rate(point.heavier_pps + point.lighter_pps),
            some(point.input_cpu, percent),
        ]
    });
    Grid {
        title: "Where every packet ended, packets/s",
        note: "Of both flows. Each column is its own median, so a row need not add up; each trial's \
               ledger does.",
        head: head(
            "sent ",
            ["ring loss", "NIC drop", "discarded", "late drop", "delivered", "input CPU"],
        ),
        rows,
        text_columns: 1,
        footnotes: vec![],
    }
}

fn summary(run: &ReceiversRun) -> Grid {
    let rows = run.summary.iter().map(|(mode, summary)| {
        Row::Cells(vec![
            mode.to_string(),
            rate(summary.peak_pps),
            rate(summary.overload_pps),
            percent(summary.retained),
            some(summary.overload_ratio, |ratio| format!("{ratio:.2}")),
        ])
    });
    Grid {
        title: "Summary, both receivers together, packets/s",
        note: "Overload: at the highest flood.",
        head: strings(["mode", "peak", "overload", "retained", "ratio in overload"]),
        rows: rows.collect(),
        text_columns: 1,
        footnotes: vec![],
    }
}

//! `udp-overload --neighbour`, as the reports see it.

use super::content::{Grid, Row, strings};
use super::drawing::Line;
use super::load::{Described, Picture, by_mode, head, lines, marks, some};
use super::sentence::kernel;
use super::units::{age, percent, rate};
use crate::results::Mode;
use crate::results::neighbour::NeighbourRun;

impl Described for NeighbourRun {
    const WORDS: &'static str = "\
<p>The <dfn>neighbour</dfn> is a compute-bound process on the tested CPU. Its <dfn>work</dfn> is \
what it got done, against what it does with the CPU to itself; time that the kernel charges to it \
and spends on packets is no work. The <dfn>fair division</dfn>: input needs rate x c_input of the \
CPU and the application rate x c_app. While input fits into the rest of the user share and the \
application into half of the user share, all is delivered and the neighbour has what remains; past \
that, application and neighbour have half of the user share each.</p>";
    const PICTURE: Picture = Picture {
        title: "delivered beside a compute-bound process",
        label: "Delivered beside a compute-bound process, by offered rate.",
        across: "offered",
        upwards: "delivered to the application (k packets/s)",
        unit: 1e3,
    };

    fn tables(&self) -> Vec<Grid> {
        vec![delivered(self), ended(self), summary(self)]
    }

    fn seen(&self) -> String {
        neighbour_sentence(self)
    }

    fn lines(&self) -> Vec<Line> {
        lines(&self.series, |point| (point.delivered_pps, point.delivered))
    }

    fn beside(&self) -> String {
        let reference = &self.reference;
        let costs = match (reference.costs_of, reference.c_input_ns, reference.c_app_ns) {
            (Some(mode), Some(input), Some(app)) => {
                format!("c_input {input:.0} ns, c_app {app:.0} ns (in {mode})")
            }
            _ => "c_input and c_app not measured: no rate was low enough".to_owned(),
        };
        format!("a compute-bound process; {costs}; user share {}", percent(reference.user_share))
    }
}

/// What was seen, in one plain sentence: both at the highest rate.
pub fn neighbour_sentence(run: &NeighbourRun) -> String {
    let clauses: Vec<String> = run
        .series
        .iter()
        .filter_map(|(mode, points)| {
            let top = points.iter().max_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps))?;
            Some(format!(
                "{mode} delivers {} and the neighbour does {} of its work",
                rate(top.delivered_pps),
                percent(top.work)
            ))
        })
        .collect();
    let kernel = kernel(&run.machine.kernel);
    if clauses.is_empty() {
        return format!("{kernel}, no rates were swept, so nothing is said of the neighbour.");
    }
    format!(
        "{kernel}, beside a compute-bound process at the highest rate, in packets/s: {}.",
        clauses.join("; ")
    )
}

fn delivered(run: &NeighbourRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        let fits = point.fits.map(|fits| if fits { "yes" } else { "no" });
        vec![
            rate(point.alone_pps),
            rate(point.delivered_pps),
            some(point.fair_pps, rate),
            percent(point.work),
            format!("{}-{}", percent(point.work_range.min), percent(point.work_range.max)),
            some(point.fair_work, percent),
            fits.unwrap_or("-").to_owned(),
            age(point.age_p50_us),
            age(point.age_p99_us),
        ]
    });
    Grid {
        title: "Beside a compute-bound process: packets/s delivered, and the neighbour's work",
        note: "Alone: without the neighbour; fair: what the fair division gives; work: against the \
               neighbour's unloaded rate; fits: both needs fit, so nobody is to lose anything.",
        head: head(
            "offered ",
            ["alone", "beside", "fair", "work", "min-max", "fair", "fits", "age p50", "age p99"],
        ),
        rows,
        text_columns: 1,
        footnotes: marks(&run.series),
    }
}

fn ended(run: &NeighbourRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        vec![
            rate(point.nic_drop_pps),
            rate(point.discarded_pps),
            rate(point.late_drop_pps),
            rate(point.delivered_pps),
            some(point.input_cpu, percent),
            percent(point.neighbour_cpu),
        ]
    });
    Grid {
        title: "Where every packet ended beside the neighbour, packets/s, and who had the CPU",
        note: "Each column is its own median. Input: the NAPI thread's CPU time.",
        head: head(
            "offered ",
            ["NIC drop", "discarded", "late drop", "delivered", "input CPU", "neighbour CPU"],
        ),
        rows,
        text_columns: 1,
        footnotes: vec![],
    }
}

fn summary(run: &NeighbourRun) -> Grid {
    let rows = run.summary.iter().map(|(mode, summary): (&Mode, _)| {
        Row::Cells(vec![
            mode.to_string(),
            rate(summary.peak_pps),
            rate(summary.overload_pps),
            percent(summary.retained),
            percent(summary.overload_work),
        ])
    });
    Grid {
        title: "Summary, beside the neighbour, packets/s",
        note: "Overload: at the highest offered rate.",
        head: strings(["mode", "peak", "overload", "retained", "neighbour's work in overload"]),
        rows: rows.collect(),
        text_columns: 1,
        footnotes: vec![],
    }
}

//! `separation`, as the reports see it.

use super::content::{Grid, Row, strings};
use super::drawing::Line;
use super::load::{Described, Picture, by_mode, head, lines, marks, some};
use super::sentence::kernel;
use super::units::{age, percent, rate};
use crate::results::separation::SeparationRun;

impl Described for SeparationRun {
    const WORDS: &'static str = "\
<p>The <dfn>victim</dfn> is a second application on the host that is sent a light flow while \
another is flooded. <dfn>R_ring</dfn> is the highest flood at which it keeps 95&nbsp;% of what it \
receives without one; past it the receive ring overflows and drops everybody&#39;s packets alike: \
the victim then loses the ring&#39;s share. <dfn>c_gate</dfn> is the CPU time of input per packet \
where nearly all are discarded (the flooded application is stopped for it). At flood R the flooded \
application can have at most peak x (1 - R x c_gate) while nobody else loses anything, peak being \
the most that it received in any mode; it is to keep 0.8 of that.</p>";
    const PICTURE: Picture = Picture {
        title: "what the victim receives by the rate of the flood",
        label: "What the victim receives, by the rate of the flood to another socket.",
        across: "flood to another socket",
        upwards: "received by the victim (k packets/s)",
        unit: 1e3,
    };

    fn tables(&self) -> Vec<Grid> {
        vec![victim(self), ended(self), summary(self)]
    }

    fn seen(&self) -> String {
        separation_sentence(self)
    }

    fn lines(&self) -> Vec<Line> {
        lines(&self.series, |point| (point.victim_pps, point.victim))
    }

    fn beside(&self) -> String {
        let reference = &self.reference;
        format!(
            "victim sent {} packets/s; bare XDP_DROP {:.1} ns a packet, {} packets/s",
            rate(reference.victim_pps),
            reference.bare_drop_ns.median,
            rate(reference.bare_drop_pps)
        )
    }
}

/// What was seen, in one plain sentence: the victim at the highest flood, and R_ring.
pub fn separation_sentence(run: &SeparationRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let clauses: Vec<String> = run
        .summary
        .iter()
        .map(|(mode, summary)| {
            let r_ring = summary.r_ring_pps.map_or_else(
                || "at no rate that was tried kept 95 %".to_owned(),
                |r_ring| format!("kept 95 % up to {}", rate(r_ring)),
            );
            format!("{mode} {r_ring} and {} at the top", percent(summary.retained))
        })
        .collect();
    if clauses.is_empty() {
        return format!("{kernel}, nothing was measured, so nothing is said of separation.");
    }
    format!(
        "{kernel}, of a light flow beside a flood to another socket, in packets/s: {}.",
        clauses.join("; ")
    )
}

fn victim(run: &SeparationRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        vec![
            rate(point.victim_offered_pps),
            rate(point.victim_pps),
            percent(point.of_unflooded),
            percent(point.ring_loss),
            age(point.victim_age_p50_us),
            age(point.victim_age_p99_us),
            rate(point.flooded_pps),
            some(point.flooded_wanted_pps, rate),
        ]
    });
    Grid {
        title: "The victim beside the flood, packets/s",
        note: "Kept: goodput against the same mode's without a flood; ring loss: of all packets; \
               wanted: of the flooded application, up to R_ring.",
        head: head(
            "flood ",
            ["sent", "received", "kept", "ring loss", "age p50", "age p99", "flooded", "wanted"],
        ),
        rows,
        text_columns: 1,
        footnotes: marks(&run.series),
    }
}

fn ended(run: &SeparationRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        vec![
            rate(point.nic_drop_pps),
            rate(point.discarded_pps),
            rate(point.late_drop_pps),
            rate(point.flooded_pps + point.victim_pps),
            some(point.input_cpu, percent),
        ]
    });
    Grid {
        title: "Where every packet ended, packets/s",
        note: "Of both flows. Each column is its own median, so a row need not add up; each trial's \
               ledger does.",
        head: head("flood ", ["NIC drop", "discarded", "late drop", "delivered", "input CPU"]),
        rows,
        text_columns: 1,
        footnotes: vec![],
    }
}

fn summary(run: &SeparationRun) -> Grid {
    let rows = run.summary.iter().map(|(mode, summary)| {
        Row::Cells(vec![
            mode.to_string(),
            some(summary.r_ring_pps, rate),
            some(summary.r_ring_pps.filter(|_| run.reference.bare_drop_pps > 0.0), |r_ring| {
                format!("{:.3}", r_ring / run.reference.bare_drop_pps)
            }),
            some(summary.c_gate_ns, |ns| format!("{ns:.0} ns")),
            rate(summary.unloaded),
            rate(summary.overload),
            percent(summary.retained),
            rate(summary.peak_pps),
        ])
    });
    Grid {
        title: "Summary, packets/s",
        note: "R_ring: highest flood that left the victim 95 %; of bare: against a bare XDP_DROP's \
               rate; unflooded, overload: the victim's; peak: the flooded application's.",
        head: strings([
            "mode",
            "R_ring",
            "of bare",
            "c_gate",
            "unflooded",
            "overload",
            "retained",
            "peak",
        ]),
        rows: rows.collect(),
        text_columns: 1,
        footnotes: vec![],
    }
}

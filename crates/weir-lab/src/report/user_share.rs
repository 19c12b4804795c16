//! `user-share`, as the reports see it.

use super::content::{Grid, Row, strings};
use super::drawing::Line;
use super::load::{Described, Picture, by_mode, head, lines, marks, some};
use super::sentence::kernel;
use super::units::{percent, rate};
use crate::results::user_share::UserShareRun;

impl Described for UserShareRun {
    const WORDS: &'static str = "\
<p>What <dfn>user</dfn> processes get of the tested CPU is measured by work done: passes of a \
compute-bound process&#39;s loop against its unloaded rate, and packets that a second application \
receives, at what one costs it without a flood. The flooded application is stopped, so that every \
packet of the flood is discarded. Input <dfn>needs</dfn> its CPU time per packet taken, times the \
rate offered; where that is more than the setting leaves it, user processes are to have their \
setting, less three points, and elsewhere 95&nbsp;% of what input does not need. \
<dfn>Deviation</dfn> is the user&#39;s share less the setting where input wants more. In \
<code>softirq</code> modes softirqs poll and the gate limits them, which is weir&#39;s fallback; nobody&#39;s \
CPU time says there what input needs, so the setting less three points is all that is wanted.</p>";
    const PICTURE: Picture = Picture {
        title: "user processes' share by the rate of the flood",
        label: "User processes' share of the CPU, by work done and the rate of the flood.",
        across: "flood",
        upwards: "work of user processes (% of the CPU)",
        unit: 0.01,
    };

    fn tables(&self) -> Vec<Grid> {
        vec![shares(self), ended(self), summary(self)]
    }

    fn seen(&self) -> String {
        user_share_sentence(self)
    }

    fn lines(&self) -> Vec<Line> {
        lines(&self.series, |point| (point.user, point.user_range))
    }

    fn beside(&self) -> String {
        let cost = some(self.reference.c_app_ns, |ns| format!("{ns:.0} ns"));
        format!(
            "a compute-bound process; the flooded application stopped; a second sent {} packets/s, \
             {cost} each",
            rate(self.reference.second_pps)
        )
    }
}

/// What was seen, in one plain sentence: the lowest share, and how far it is from its setting.
pub fn user_share_sentence(run: &UserShareRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let clauses: Vec<String> = run
        .summary
        .iter()
        .map(|(key, summary)| {
            let off = summary.lowest_deviation_points.zip(summary.highest_deviation_points);
            let off = off.map_or_else(String::new, |(low, high)| {
                format!(" ({low:+.1} to {high:+.1} points off its setting)")
            });
            format!("{} in {key}{off}", percent(summary.lowest))
        })
        .collect();
    if clauses.is_empty() {
        return format!("{kernel}, nothing was measured, so nothing is said of the user's share.");
    }
    format!(
        "{kernel}, user processes did at least so much of the flooded CPU's work: {}.",
        clauses.join("; ")
    )
}

fn shares(run: &UserShareRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        vec![
            percent(point.user),
            format!("{}-{}", percent(point.user_range.min), percent(point.user_range.max)),
            some(point.wanted, percent),
            some(point.deviation_points, |off| format!("{off:+.1}")),
            percent(point.neighbour),
            percent(point.second),
            percent(point.second_goodput),
            some(point.input_cpu, percent),
            some(point.input_need, percent),
        ]
    });
    Grid {
        title: "Shares of the CPU",
        note: "User: by work done, the neighbour's and the second application's together; off: in \
               points from the setting; goodput: of the second application; input: CPU time.",
        head: head(
            "flood ",
            ["user", "min-max", "wanted", "off", "neighb.", "second", "goodput", "input", "needs"],
        ),
        rows,
        text_columns: 1,
        footnotes: marks(&run.series),
    }
}

fn ended(run: &UserShareRun) -> Grid {
    let rows = by_mode(&run.series, |point| {
        vec![rate(point.nic_drop_pps), rate(point.discarded_pps), rate(point.late_drop_pps)]
    });
    Grid {
        title: "Where packets were lost, packets/s",
        note: "Of both flows; each column is its own median.",
        head: head("flood ", ["NIC drop", "discarded", "late drop"]),
        rows,
        text_columns: 1,
        footnotes: vec![],
    }
}

fn summary(run: &UserShareRun) -> Grid {
    let off = |points: Option<f64>| some(points, |points| format!("{points:+.1}"));
    let rows = run.summary.iter().map(|(key, summary)| {
        Row::Cells(vec![
            key.to_string(),
            some(summary.setting, percent),
            percent(summary.unloaded),
            percent(summary.overload),
            percent(summary.retained),
            percent(summary.lowest),
            off(summary.lowest_deviation_points),
            off(summary.highest_deviation_points),
        ])
    });
    Grid {
        title: "Summary: the user's share",
        note: "Deviation in percentage points, where input wants more than its share.",
        head: strings([
            "mode",
            "setting",
            "unflooded",
            "overload",
            "retained",
            "lowest",
            "lowest off",
            "highest off",
        ]),
        rows: rows.collect(),
        text_columns: 1,
        footnotes: vec![],
    }
}

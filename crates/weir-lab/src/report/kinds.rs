//! `separation --kinds`, as the reports see it.

use super::content::{Grid, Row, strings};
use super::drawing::Line;
use super::load::{Described, Picture, lines, marks, row_of, some};
use super::sentence::kernel;
use super::units::{age, percent, rate};
use crate::results::Mode;
use crate::results::kinds::{Kind, KindPoint, KindsRun};

impl Described for KindsRun {
    const WORDS: &'static str = "\
<p>Two services that are not overloaded run beside floods of one <dfn>kind</dfn> after the other to \
something else on the same host: one is sent UDP, the other has requests over TCP connections that stay \
open. What each <dfn>keeps</dfn> is its goodput against the same mode&#39;s without a flood: of UDP the \
share received of what was sent, of TCP the requests answered per second. <dfn>R_ring</dfn> is here the \
highest rate that was tried up to which the receive ring refused at most 0.5&nbsp;% of all packets; past \
it everybody loses alike.</p>";
    const PICTURE: Picture = Picture {
        title: "what the worse-off service keeps beside the worst kind of flood",
        label: "What the worse-off of two services keeps beside the worst kind of flood, by its rate.",
        across: "flood of one kind",
        upwards: "kept by the worse-off service (%)",
        unit: 0.01,
    };

    fn tables(&self) -> Vec<Grid> {
        vec![services(self), ended(self), summary(self)]
    }

    fn seen(&self) -> String {
        kinds_sentence(self)
    }

    fn lines(&self) -> Vec<Line> {
        let worst = self.series.iter().map(|(mode, points)| (mode, worst(points)));
        let worse = |point: &KindPoint| {
            if point.udp_kept < point.tcp_kept { point.udp_range } else { point.tcp_range }
        };
        lines(worst, |point| (worse(point).median, worse(point)))
    }

    fn beside(&self) -> String {
        let reference = &self.reference;
        format!(
            "services: UDP sent {} packets/s, TCP asked {} times a second",
            rate(reference.udp_pps),
            rate(reference.tcp_per_s)
        )
    }
}

/// Of each rate that was asked for, the worst kind.
fn worst(points: &[KindPoint]) -> Vec<&KindPoint> {
    let mut worst: Vec<&KindPoint> = vec![];
    for point in points {
        match worst.iter_mut().find(|other| other.target_pps == point.target_pps) {
            Some(other) if point.kept() < other.kept() => *other = point,
            Some(_) => {}
            None => worst.push(point),
        }
    }
    worst.sort_by(|a, b| a.flood_pps.total_cmp(&b.flood_pps));
    worst
}

/// What was seen, in one plain sentence: the worst of each mode.
pub fn kinds_sentence(run: &KindsRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let clauses: Vec<String> = run
        .series
        .iter()
        .filter_map(|(mode, points)| {
            let flooded = points.iter().filter_map(|point| Some((point.kind?, point)));
            let (kind, worst) = flooded.min_by(|a, b| a.1.kept().total_cmp(&b.1.kept()))?;
            let kept = percent(worst.kept());
            Some(format!("{mode} {kept} beside {} {kind}", rate(worst.flood_pps)))
        })
        .collect();
    if clauses.is_empty() {
        return format!("{kernel}, nothing was measured, so nothing is said of separation.");
    }
    format!(
        "{kernel}, the worse-off of a UDP and a TCP service kept at worst, in packets/s: {}.",
        clauses.join("; ")
    )
}

/// The kinds of this run, none first.
fn kinds(run: &KindsRun) -> Vec<Option<Kind>> {
    let mut kinds: Vec<_> = run.series.values().flatten().map(|point| point.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// A heading for each kind, then a row for each mode and rate.
fn by_kind(run: &KindsRun, cells: impl Fn(&KindPoint) -> Vec<String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in kinds(run) {
        rows.push(Row::Group(kind.map_or_else(|| "no flood".to_owned(), |kind| kind.to_string())));
        for (mode, points) in &run.series {
            for point in points.iter().filter(|point| point.kind == kind) {
                let mut all = vec![mode.to_string()];
                all.extend(row_of(point, cells(point)));
                rows.push(Row::Cells(all));
            }
        }
    }
    rows
}

fn head<const N: usize>(columns: [&str; N]) -> Vec<String> {
    let mut head = strings(["mode", "target", "flood "]);
    head.extend(strings(columns));
    head
}

fn services(run: &KindsRun) -> Grid {
    let rows = by_kind(run, |point| {
        vec![
            percent(point.udp_kept),
            percent(point.tcp_kept),
            age(point.udp_age_p50_us),
            age(point.udp_age_p99_us),
            age(point.tcp_time_p50_us),
            age(point.tcp_time_p99_us),
            percent(point.ring_loss),
        ]
    });
    Grid {
        title: "The two services beside each kind of flood",
        note: "Kept: goodput against the same mode's without a flood; UDP: age at delivery; TCP: time of \
               a request.",
        head: head([
            "UDP kept",
            "TCP kept",
            "UDP p50",
            "UDP p99",
            "TCP p50",
            "TCP p99",
            "ring loss",
        ]),
        rows,
        text_columns: 2,
        footnotes: marks(&run.series),
    }
}

fn ended(run: &KindsRun) -> Grid {
    let rows = by_kind(run, |point| {
        vec![
            rate(point.nic_drop_pps),
            rate(point.discarded_pps),
            rate(point.late_drop_pps),
            rate(point.flooded_pps),
            some(point.input_cpu, percent),
        ]
    });
    Grid {
        title: "Where the packets ended, packets/s",
        note: "Late: UDP's drops; flooded: of the flood, received by UDP sockets. The kernel took the others \
               for something else.",
        head: head(["NIC drop", "discarded", "late drop", "flooded", "input CPU"]),
        rows,
        text_columns: 2,
        footnotes: vec![],
    }
}

fn summary(run: &KindsRun) -> Grid {
    let weir = run.summary.get(&Mode::Weir);
    let rows =
        kinds(run).into_iter().flatten().map(|kind| {
            let mut cells = vec![kind.to_string()];
            cells.extend(run.summary.values().map(|summary| {
                some(summary.kinds.get(&kind).and_then(|kind| kind.r_ring_pps), rate)
            }));
            let kept = weir.and_then(|summary| summary.kinds.get(&kind));
            cells.push(some(kept.and_then(|kept| kept.udp_kept), percent));
            cells.push(some(kept.and_then(|kept| kept.tcp_kept), percent));
            Row::Cells(cells)
        });
    let mut head = vec!["R_ring".to_owned()];
    head.extend(run.summary.keys().map(ToString::to_string));
    head.extend(strings(["weir: UDP", "weir: TCP"]));
    Grid {
        title: "R_ring by kind, packets/s",
        note: "Highest rate tried without the ring's overflow; and what weir's services kept up to there.",
        head,
        rows: rows.collect(),
        text_columns: 1,
        footnotes: vec![],
    }
}

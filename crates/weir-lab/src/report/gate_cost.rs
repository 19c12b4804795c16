//! `gate-cost`, as the reports see it.

use super::content::{Grid, Row, packets_accounted, strings};
use super::sentence::kernel;
use super::units::{ABSENT, clean, percent, plural, rate};
use super::view::View;
use crate::results::Spread;
use crate::results::gate_cost::{CostMode, CostRow, GateCost, HotPoint, Kind};

const NOT_DISCARDED: &str = "not discarded";
const HOW_TO_READ: &str = "\
<p><dfn>c_gate</dfn> is the cost of demultiplexing and discarding one packet, from the driver&#39;s \
ring to its end: it decides how much traffic can be kept apart. Packets that pass end where the \
stack begins, so that what the gate <dfn>adds</dfn> is not lost in what the stack costs. Times of \
the real path are of NAPI polls that took a whole budget one after another; the NAPI thread&#39;s \
CPU time over its packets is their cross-check. <dfn>One packet, hot</dfn>: the kernel runs the \
program on one and the same packet over and over, with everything in the caches and no driver, \
and gives whole nanoseconds.</p>";

impl View for GateCost {
    fn workload(&self) -> String {
        let setup = &self.setup;
        format!(
            "{}, {} XDP, driver and program on {}; {}-byte UDP payload; passed packets are {}",
            setup.driver, setup.attach, setup.driver_poll, setup.payload_bytes, setup.passed_end
        )
    }

    fn tables(&self) -> Vec<Grid> {
        vec![
            discarding(self),
            passing(self),
            measured(self),
            hot(self),
            lookups(self),
            summary(self),
        ]
    }

    fn accounting(&self) -> String {
        let ledgers = self.trials.iter().map(|trial| &trial.ledger);
        packets_accounted(ledgers.map(|ledger| (ledger.offered, ledger.unaccounted)))
    }

    fn sentence(&self) -> String {
        gate_cost_sentence(self)
    }

    fn how_to_read(&self) -> &'static str {
        HOW_TO_READ
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let setup = &self.setup;
        vec![
            ("Interface", format!("{}, {} XDP", setup.driver, setup.attach)),
            ("Driver and program", setup.driver_poll.clone()),
            ("GRO", if setup.gro { "on" } else { "off" }.to_owned()),
            ("UDP payload", format!("{} bytes", setup.payload_bytes)),
            ("Passed packets", setup.passed_end.clone()),
        ]
    }
}

/// What was seen, in one plain sentence: UDP over IPv4 first, what it costs and what of it is the
/// gate's; then what was not discarded at all.
pub fn gate_cost_sentence(cost: &GateCost) -> String {
    let mut clauses = Vec::new();
    for (kind, summary) in &cost.summary {
        let added = summary
            .pass_added_ns
            .map(|added| format!("the gate adds {} ns to one that passes", nanos(added)));
        let discard = summary.c_gate_ns.zip(summary.discard_ratio).map(|(c_gate, ratio)| {
            format!(
                "discarding a {kind} packet costs {} ns with the driver (c_gate; a bare XDP_DROP {} \
                 ns), {} of the bare rate",
                nanos(c_gate),
                nanos(summary.bare_drop_ns),
                percent(ratio)
            )
        });
        match (kind, discard, added) {
            (Kind::Udp4 | Kind::TcpSyn4, Some(discard), added) => {
                clauses.push(discard);
                clauses.extend(added);
            }
            (Kind::Udp4 | Kind::TcpSyn4, None, added) => {
                clauses.push(format!("{kind} packets are not discarded"));
                clauses.extend(added);
            }
            _ => {}
        }
    }
    if clauses.is_empty() {
        clauses.push("nothing was measured".to_owned());
    }
    format!("{}, {}.", kernel(&cost.machine.kernel), clauses.join("; "))
}

/// Nanoseconds: `9.3`, `95.1`, `412`.
fn nanos(ns: f64) -> String {
    if ns.abs() < 99.95 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

fn range(spread: Spread) -> String {
    format!("{}-{}", nanos(spread.min), nanos(spread.max))
}

/// A heading for each kind, then its rows.
fn by_kind(cost: &GateCost, cells: impl Fn(&CostRow) -> Vec<String>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut kind = None;
    for row in &cost.rows {
        if kind.replace(row.kind) != Some(row.kind) {
            rows.push(Row::Group(row.kind.to_string()));
        }
        let mut all = vec![row.flows.to_string(), row.sockets.to_string()];
        all.extend(cells(row));
        rows.push(Row::Cells(all));
    }
    rows
}

/// Median, a mark if the CPU's speed was odd, and the range.
fn time(row: &CostRow, mode: CostMode) -> [String; 2] {
    row.modes.get(&mode).map_or([ABSENT; 2].map(str::to_owned), |point| {
        let mark = if point.marked { "*" } else { " " };
        [format!("{}{mark}", nanos(point.ns_per_packet.median)), range(point.ns_per_packet)]
    })
}

fn footnotes(cost: &GateCost) -> Vec<String> {
    let marked = cost.rows.iter().flat_map(|row| row.modes.values()).any(|point| point.marked);
    let note = "* the tested CPU's speed differed by more than 5 % from this run's median";
    if marked { vec![note.to_owned()] } else { vec![] }
}

fn discarding(cost: &GateCost) -> Grid {
    let rows = by_kind(cost, |row| {
        let ratio = row.discard_ratio.map_or_else(
            || [NOT_DISCARDED.to_owned(), ABSENT.to_owned()],
            |ratio| {
                let range = format!("{:.2}-{:.2}", ratio.min, ratio.max);
                [format!("{:.3}", ratio.median), range]
            },
        );
        let touch = row.modes.get(&CostMode::TouchDrop);
        let touch = touch.map_or_else(|| ABSENT.to_owned(), |p| nanos(p.ns_per_packet.median));
        let mut cells = Vec::from(time(row, CostMode::BareDrop));
        cells.push(touch);
        cells.extend(time(row, CostMode::GateDiscard));
        cells.extend(ratio);
        cells
    });
    Grid {
        title: "Discarding: the real path, ns per packet",
        note: "A bare XDP_DROP against the gate on full sockets; ratio: the gate's rate to the bare \
               one's, pair by pair; touch: XDP_DROP after reading the headers.",
        head: strings([
            "flows",
            "sockets",
            "bare-drop ",
            "min-max",
            "touch",
            "gate ",
            "min-max",
            "ratio",
            "min-max",
        ]),
        rows,
        text_columns: 0,
        footnotes: footnotes(cost),
    }
}

fn passing(cost: &GateCost) -> Grid {
    let rows = by_kind(cost, |row| {
        let added = row.pass_added_ns.map_or_else(
            || [ABSENT; 2].map(str::to_owned),
            |added| [nanos(added.median), range(added)],
        );
        [time(row, CostMode::BarePass), time(row, CostMode::GatePass), added].concat()
    });
    Grid {
        title: "Passing: the real path, ns per packet",
        note: "A bare XDP_PASS against the gate on sockets with room; both with the skb, GRO and a \
               drop at ingress; added: pair by pair.",
        head: strings([
            "flows",
            "sockets",
            "bare-pass ",
            "min-max",
            "gate-pass ",
            "min-max",
            "added",
            "min-max",
        ]),
        rows,
        text_columns: 0,
        footnotes: footnotes(cost),
    }
}

fn measured(cost: &GateCost) -> Grid {
    let mut rows = Vec::new();
    for row in &cost.rows {
        rows.push(Row::Group(format!(
            "{}, {}, {}",
            row.kind,
            plural(row.flows as usize, "flow"),
            plural(row.sockets as usize, "socket")
        )));
        for (mode, point) in &row.modes {
            rows.push(Row::Cells(vec![
                mode.to_string(),
                rate(point.capacity_pps.median),
                rate(point.handled_pps),
                percent(point.busy),
                percent(point.in_full_polls),
                nanos(point.cpu_ns_per_packet),
                point.discarded.map_or_else(|| ABSENT.to_owned(), percent),
            ]));
        }
    }
    Grid {
        title: "The same as rates, and how they were measured",
        note: "Packets/s of a CPU that does nothing else; really handled, with so much of the CPU \
               (less than all: the generator was slower); packets in full polls, which the times are \
               of; the NAPI thread's CPU time per packet, for comparison.",
        head: strings([
            "mode",
            "packets/s",
            "handled/s",
            "busy",
            "full polls",
            "CPU ns/packet",
            "discarded",
        ]),
        rows,
        text_columns: 1,
        footnotes: Vec::new(),
    }
}

fn hot(cost: &GateCost) -> Grid {
    let row = |point: &HotPoint| {
        Row::Cells(vec![
            clean(&point.packet),
            clean(&point.reason),
            nanos(point.gate_ns.median),
            range(point.gate_ns),
            nanos(point.bare_ns.median),
            nanos(point.added_ns),
        ])
    };
    Grid {
        title: "One packet, hot: BPF_PROG_TEST_RUN, ns",
        note: "One packet over and over: hot caches, no driver. Added: to the bare program with the \
               same verdict.",
        head: strings(["packet", "counted as", "gate", "min-max", "bare", "added"]),
        rows: cost.hot.iter().map(row).collect(),
        text_columns: 2,
        footnotes: Vec::new(),
    }
}

fn lookups(cost: &GateCost) -> Grid {
    let rows = cost.lookups.iter().map(|point| {
        Row::Cells(vec![
            clean(&point.helper),
            clean(&point.family),
            clean(&point.target),
            if point.found { "found" } else { "not found" }.to_owned(),
            nanos(point.ns.median),
            range(point.ns),
        ])
    });
    Grid {
        title: "Socket lookups from XDP (c_lookup): BPF_PROG_TEST_RUN, ns",
        note: "One lookup with the release of what was found, in a loop against the same loop \
               without: hot caches.",
        head: strings(["helper", "family", "target", "", "lookup", "min-max"]),
        rows: rows.collect(),
        text_columns: 4,
        footnotes: Vec::new(),
    }
}

fn summary(cost: &GateCost) -> Grid {
    let optional = |ns: Option<f64>| ns.map_or_else(|| ABSENT.to_owned(), nanos);
    let rows = cost.summary.iter().map(|(kind, summary)| {
        Row::Cells(vec![
            kind.to_string(),
            summary.c_gate_ns.map_or_else(|| NOT_DISCARDED.to_owned(), nanos),
            nanos(summary.bare_drop_ns),
            summary.discard_ratio.map_or_else(|| ABSENT.to_owned(), |ratio| format!("{ratio:.3}")),
            optional(summary.pass_added_ns),
        ])
    });
    Grid {
        title: "Summary, ns per packet",
        note: "Each of the kind's worst row; c_gate: demultiplexing and discarding, with the driver.",
        head: strings(["packets", "c_gate", "bare-drop", "rate of bare", "added by passing"]),
        rows: rows.collect(),
        text_columns: 1,
        footnotes: Vec::new(),
    }
}

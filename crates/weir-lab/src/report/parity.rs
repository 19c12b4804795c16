//! `parity`, as the reports see it.

use super::content::{Grid, Row, packets_accounted, strings};
use super::merit::{facts_line, named_facts};
use super::sentence::kernel;
use super::units::{ABSENT, clean, plural};
use super::view::View;
use crate::compare::{Compared, Verdict};
use crate::results::parity::{Arm, ArmPoint, Measure, ParityRow, ParityRun};

const HOW_TO_READ: &str = "\
<p>Nothing is overloaded here: the question is what weir costs where it has nothing to do. A \
<dfn>round trip</dfn> is one byte there and back, one under way at any time; a <dfn>sliding window</dfn> \
sends full datagrams and never has more under way than the buffers hold. Each trial is compared with \
the other&#39;s of the same repeat; 1 is as good, more is better, and the <dfn>interval</dfn> is where \
the median of these ratios lies with 95&nbsp;% probability, or, of fewer than ten pairs, their range. A \
comparison whose interval lies on both sides of 0.97 is <dfn>undecided</dfn>, and not met.</p>\
<p><dfn>veth-</dfn> lines are a veth as it is made, whose own host&#39;s packets go past NAPI; the \
others have no TSO, so that packets come as from a NIC. Compare within one kind of wire.</p>";

/// What each measure is called.
const fn title(measure: Measure) -> &'static str {
    match measure {
        Measure::UdpRoundTrip => "UDP round trip of 1 byte, us",
        Measure::UdpWindow => "UDP sliding window, Mbit/s",
        Measure::TcpRoundTrip => "TCP round trip of 1 byte, us",
        Measure::TcpStream => "TCP stream, Mbit/s",
    }
}

impl View for ParityRun {
    fn workload(&self) -> String {
        facts_line(&self.workload)
    }

    fn tables(&self) -> Vec<Grid> {
        vec![figures(self), lost(self)]
    }

    fn accounting(&self) -> String {
        let udp = self.trials.iter().filter_map(|t| Some((t.lost.offered?, t.lost.unaccounted)));
        packets_accounted(udp)
    }

    fn sentence(&self) -> String {
        parity_sentence(self)
    }

    fn how_to_read(&self) -> &'static str {
        HOW_TO_READ
    }

    fn places(&self) -> Option<Grid> {
        let on = |on: bool| if on { "on" } else { "off" }.to_owned();
        let rows = self.setup.iter().map(|(arm, setup)| {
            Row::Cells(vec![
                arm.to_string(),
                clean(&setup.attach),
                clean(&setup.driver_poll),
                on(setup.tso),
                on(setup.gro),
                clean(&setup.rps_cpus),
            ])
        });
        Some(Grid {
            title: "What ran where",
            note: "TSO of the sending end; the receiving interface's settings.",
            head: strings(["", "gate", "driver poll", "TSO", "GRO", "RPS"]),
            rows: rows.collect(),
            text_columns: 6,
            footnotes: vec![],
        })
    }

    fn facts(&self) -> Vec<(&str, String)> {
        named_facts(&self.workload)
    }
}

fn group(row: &ParityRow) -> Row {
    Row::Group(format!("{}, {}", title(row.measure), plural(row.flows as usize, "flow")))
}

/// The better of its stocks, and how it compares.
fn against_stock(arm: Arm, point: &ArmPoint) -> Option<(Arm, Compared)> {
    let stocks = arm.stocks().iter().filter_map(|stock| Some((*stock, *point.against.get(stock)?)));
    stocks.min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))
}

fn figures(run: &ParityRun) -> Grid {
    let mut rows = vec![];
    for row in &run.rows {
        rows.push(group(row));
        for (arm, point) in &row.arms {
            let figure = point.figure;
            let mark = if point.conditions.marked { "*" } else { " " };
            let mut cells = vec![
                arm.to_string(),
                format!("{:.1}{mark}", figure.median),
                format!("{:.1}-{:.1}", figure.min, figure.max),
            ];
            let stock = against_stock(*arm, point);
            let others = [stock, against(point, Arm::Threaded)];
            cells.extend(others.map(|found| {
                found.map_or_else(
                    || ABSENT.to_owned(),
                    |(_, c)| format!("{:.3} ({:.2}-{:.2})", c.ratio, c.low, c.high),
                )
            }));
            let verdict = stock.filter(|_| arm.attach().is_some());
            cells.push(verdict.map_or("", |(_, compared)| compared.verdict.name()).to_owned());
            rows.push(Row::Cells(cells));
        }
    }
    Grid {
        title: "Figures, and how good they are against others of the same wire",
        note: "Median of the trials; ratio of pairs with its interval, more than 1 is better; the \
               stock that is the better one.",
        head: strings(["", "median ", "min-max", "to stock", "to threaded", "3 %"]),
        rows,
        text_columns: 1,
        footnotes: marks(run),
    }
}

fn against(point: &ArmPoint, other: Arm) -> Option<(Arm, Compared)> {
    point.against.get(&other).map(|compared| (other, *compared))
}

fn marks(run: &ParityRun) -> Vec<String> {
    let marked = run.rows.iter().flat_map(|row| row.arms.values()).any(|p| p.conditions.marked);
    let note = "* the tested CPU's speed differed by more than 5 % from this run's median";
    marked.then(|| note.to_owned()).into_iter().collect()
}

/// What was lost in all trials of a row, where anything was.
fn lost(run: &ParityRun) -> Grid {
    let mut rows = vec![];
    for row in &run.rows {
        let mut own = vec![];
        for arm in row.arms.keys() {
            let trials = run.trials.iter().filter(|trial| {
                (trial.measure, trial.flows, trial.arm) == (row.measure, row.flows, *arm)
            });
            let sums = trials.fold([0; 3], |[ring, discarded, late], trial| {
                let lost = trial.lost;
                [ring + lost.ring, discarded + lost.discarded, late + lost.late]
            });
            if sums != [0; 3] {
                let cells = sums.map(|sum: u64| sum.to_string());
                own.push(Row::Cells([vec![arm.to_string()], cells.into()].concat()));
            }
        }
        if !own.is_empty() {
            rows.push(group(row));
            rows.extend(own);
        }
    }
    Grid {
        title: "Lost, packets in all trials",
        note: "Where any were; of a TCP stream this is how it finds its rate.",
        head: strings(["", "ring, backlog", "gate", "late"]),
        rows,
        text_columns: 1,
        footnotes: vec![],
    }
}

/// What was seen, in one plain sentence.
pub fn parity_sentence(run: &ParityRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let gates = run.rows.iter().flat_map(|row| {
        let gates = row.arms.iter().filter(|(arm, _)| arm.attach().is_some());
        gates.filter_map(move |(arm, point)| Some((row, *arm, against_stock(*arm, point)?.1)))
    });
    let gates: Vec<(&ParityRow, Arm, Compared)> = gates.collect();
    let count = |verdict| gates.iter().filter(|(_, _, c)| c.verdict == verdict).count();
    let Some((row, arm, worst)) = gates.iter().min_by(|a, b| a.2.ratio.total_cmp(&b.2.ratio))
    else {
        return format!("{kernel}, nothing was compared.");
    };
    format!(
        "{kernel}, of {} figures without overload weir is within 3 % of stock or better in {}, below in \
         {}, and in {} the noise does not tell; the worst is {:.3} of stock ({arm}, {}, {}).",
        gates.len(),
        count(Verdict::Met),
        count(Verdict::Unmet),
        count(Verdict::Undecided),
        worst.ratio,
        row.measure.name(),
        plural(row.flows as usize, "flow")
    )
}

//! Experiments that ask what a service keeps of one figure of merit, as the reports see them: what they
//! have in common.

use std::collections::BTreeMap;

use super::ReportError;
use super::content::{Grid, Row, packets_accounted, strings};
use super::drawing::{Drawing, stacked};
use super::load::{by_mode, head, lines, marks, some};
use super::sweep::places;
use super::units::{percent, rate};
use super::view::{Figure, View};
use crate::results::Mode;
use crate::results::merit::{Fact, MeritPoint, MeritRun};

/// What one of these experiments says for itself.
pub(super) trait Shown: Clone + 'static {
    /// What the drawings show.
    const LABEL: &'static str;
    /// What the load is called.
    const LOAD: &'static str;
    /// The axis upwards, with its unit.
    const UPWARDS: &'static str;
    /// Whether the axis upwards may be logarithmic.
    const LOGARITHMIC: bool = false;
    /// How many of the figure make that unit.
    const UNIT: f64;
    /// Under the tables of the figure of merit.
    const NOTE: &'static str;
    /// Under the tables of where packets ended.
    const ENDED_NOTE: &'static str;
    /// Names of its own columns beside the figure of merit.
    const COLUMNS: &'static [&'static str];
    /// Names of its own columns beside where packets ended.
    const ENDED_COLUMNS: &'static [&'static str];
    /// What the quotient of overload and unloaded is called.
    const RETAINED: &'static str = "retained";
    /// What the words of its tables mean: sound HTML paragraphs.
    const WORDS: &'static str;

    /// Titles of a variant's drawing and tables.
    fn titles(variant: &str) -> Titles;
    /// The figure of merit, for a person.
    fn figure(merit: f64) -> String {
        rate(merit)
    }
    /// What it is against another one.
    fn against(ratio: f64) -> String {
        percent(ratio)
    }
    /// Its cells beside the figure of merit.
    fn cells(&self) -> Vec<String>;
    /// Its cells beside where packets ended.
    fn ended_cells(&self) -> Vec<String>;
    /// What was seen, in one sentence.
    fn seen(run: &MeritRun<Self>) -> String;
}

/// Titles of one variant.
pub(super) struct Titles {
    /// Of its drawing.
    pub drawing: &'static str,
    /// Of the table of the figure of merit.
    pub merit: &'static str,
    /// Of the table of where packets ended.
    pub ended: &'static str,
}

impl<D: Shown> View for MeritRun<D> {
    fn workload(&self) -> String {
        facts_line(&self.workload)
    }

    fn tables(&self) -> Vec<Grid> {
        let mut grids = vec![];
        for variant in &self.variants {
            let points = of_variant(self, variant);
            grids.push(merit(&points, D::titles(variant).merit));
            grids.push(ended(&points, D::titles(variant).ended));
        }
        grids.push(summary(self));
        grids
    }

    fn accounting(&self) -> String {
        let ledgers = self.trials.iter().map(|trial| &trial.load.ledger);
        packets_accounted(ledgers.map(|ledger| (ledger.offered, ledger.unaccounted)))
    }

    fn sentence(&self) -> String {
        D::seen(self)
    }

    fn figure(&self) -> Result<Option<Figure>, ReportError> {
        let svgs = self.variants.iter().map(|variant| {
            let drawing = Drawing {
                experiment: &self.experiment,
                title: D::titles(variant).drawing,
                machine: &self.machine,
                across: D::LOAD,
                upwards: D::UPWARDS,
                logarithmic: D::LOGARITHMIC,
                unit: D::UNIT,
                all_delivered: false,
                lines: lines(&of_variant(self, variant), |point| (point.merit, point.merit_range)),
            };
            drawing.svg()
        });
        let svgs = svgs.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Figure { svg: stacked(&svgs), label: D::LABEL }))
    }

    fn how_to_read(&self) -> &'static str {
        D::WORDS
    }

    fn places(&self) -> Option<Grid> {
        places(self.setup.iter().map(|(mode, setup)| (mode.to_string(), setup)))
    }

    fn facts(&self) -> Vec<(&str, String)> {
        named_facts(&self.workload)
    }
}

/// Facts of the workload, in one line.
pub(super) fn facts_line(workload: &[Fact]) -> String {
    let facts = workload.iter();
    let facts = facts.map(|fact| format!("{}: {}", fact.name.to_lowercase(), fact.value));
    facts.collect::<Vec<_>>().join("; ")
}

/// Facts of the workload, each with its name.
pub(super) fn named_facts(workload: &[Fact]) -> Vec<(&str, String)> {
    workload.iter().map(|fact| (fact.name.as_str(), fact.value.clone())).collect()
}

/// The points of one variant.
fn of_variant<D: Clone>(run: &MeritRun<D>, variant: &str) -> BTreeMap<Mode, Vec<MeritPoint<D>>> {
    let own = |points: &Vec<MeritPoint<D>>| {
        points.iter().filter(|point| point.variant == variant).cloned().collect()
    };
    run.series.iter().map(|(mode, points)| (*mode, own(points))).collect()
}

fn merit<D: Shown>(points: &BTreeMap<Mode, Vec<MeritPoint<D>>>, title: &'static str) -> Grid {
    let rows = by_mode(points, |point| {
        let range = point.merit_range;
        let mut cells = vec![
            D::figure(point.merit),
            format!("{}-{}", D::figure(range.min), D::figure(range.max)),
            some(point.of_unloaded, D::against),
        ];
        cells.extend(point.detail.cells());
        cells
    });
    let mut head = head("sent ", ["median", "min-max", "of unloaded"]);
    head.extend(D::COLUMNS.iter().map(|name| (*name).to_owned()));
    Grid { title, note: D::NOTE, head, rows, text_columns: 1, footnotes: marks(points) }
}

fn ended<D: Shown>(points: &BTreeMap<Mode, Vec<MeritPoint<D>>>, title: &'static str) -> Grid {
    let rows = by_mode(points, |point| {
        let mut cells = vec![
            percent(point.ring_loss),
            rate(point.nic_drop_pps),
            rate(point.discarded_pps),
            rate(point.delivered_pps),
            some(point.input_cpu, percent),
        ];
        cells.extend(point.detail.ended_cells());
        cells
    });
    let columns = ["ring loss", "NIC drop", "discarded", "taken", "input"];
    let mut head = head("sent ", columns);
    head.extend(D::ENDED_COLUMNS.iter().map(|name| (*name).to_owned()));
    Grid { title, note: D::ENDED_NOTE, head, rows, text_columns: 1, footnotes: vec![] }
}

fn summary<D: Shown>(run: &MeritRun<D>) -> Grid {
    let rows = run.summary.iter().flat_map(|(mode, summary)| {
        // In the order of the variants, not of the alphabet.
        let kept = run.variants.iter().filter_map(|v| Some((v, summary.variants.get(v)?)));
        kept.map(|(variant, kept)| {
            Row::Cells(vec![
                mode.to_string(),
                variant.clone(),
                D::figure(kept.unloaded),
                D::figure(kept.overload),
                D::against(kept.retained),
            ])
        })
    });
    Grid {
        title: "Summary",
        note: "Overload: at the highest flood.",
        head: strings(["mode", "variant", "unloaded", "overload", D::RETAINED]),
        rows: rows.collect(),
        text_columns: 2,
        footnotes: vec![],
    }
}

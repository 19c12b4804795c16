//! Experiments in which several things want the SUT's CPU, as the reports see them: what they have in
//! common.

use std::fmt::Display;

use super::ReportError;
use super::content::{Grid, Row, packets_accounted, short, strings};
use super::drawing::{Dot, Drawing, Line};
use super::marker::{self, Look};
use super::sweep::{places, workload_facts, workload_line};
use super::units::{ABSENT, rate};
use super::view::{Figure, View};
use crate::results::load::{LoadKey, LoadPoint, LoadRun};
use crate::results::user_share::ShareMode;
use crate::results::{Mode, Spread};

/// What one of these experiments says for itself.
pub(super) trait Described {
    /// What the words of its tables mean: sound HTML paragraphs.
    const WORDS: &'static str;
    /// Its drawing.
    const PICTURE: Picture;

    /// Its tables, but for the goals.
    fn tables(&self) -> Vec<Grid>;
    /// What was seen, in one sentence.
    fn seen(&self) -> String;
    /// What its drawing shows: one line per mode.
    fn lines(&self) -> Vec<Line>;
    /// What is said of the workload after the packets.
    fn beside(&self) -> String;
}

/// A drawing, but for its lines.
pub(super) struct Picture {
    /// What is drawn by what.
    pub title: &'static str,
    /// The same, as a sentence.
    pub label: &'static str,
    /// What the axis to the right is of.
    pub across: &'static str,
    /// The axis upwards, with its unit.
    pub upwards: &'static str,
    /// How many of the figure make a unit.
    pub unit: f64,
}

impl<K: LoadKey, P: LoadPoint, S, R> View for LoadRun<K, P, S, R>
where
    Self: Described,
{
    fn workload(&self) -> String {
        format!("{}; {}", workload_line(&self.workload), self.beside())
    }

    fn tables(&self) -> Vec<Grid> {
        Described::tables(self)
    }

    fn accounting(&self) -> String {
        let ledgers = self.trials.iter().map(|trial| &trial.load.ledger);
        packets_accounted(ledgers.map(|ledger| (ledger.offered, ledger.unaccounted)))
    }

    fn sentence(&self) -> String {
        self.seen()
    }

    fn figure(&self) -> Result<Option<Figure>, ReportError> {
        let Picture { title, label, across, upwards, unit } = Self::PICTURE;
        let drawing = Drawing {
            experiment: &self.experiment,
            title,
            machine: &self.machine,
            across,
            upwards,
            logarithmic: false,
            unit,
            all_delivered: false,
            lines: self.lines(),
        };
        Ok(Some(Figure { svg: drawing.svg()?, label }))
    }

    fn how_to_read(&self) -> &'static str {
        Self::WORDS
    }

    fn places(&self) -> Option<Grid> {
        places(self.setup.iter().map(|(key, setup)| (key.to_string(), setup)))
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = workload_facts(&self.workload);
        facts.push(("Beside it", self.beside()));
        facts
    }
}

/// What has a line of its own in a drawing.
pub(super) trait Drawn {
    /// In the legend.
    fn name(&self) -> &'static str;
    /// How its line looks.
    fn look(&self) -> Look;
}

impl Drawn for Mode {
    fn name(&self) -> &'static str {
        Self::name(*self)
    }

    fn look(&self) -> Look {
        marker::look(*self)
    }
}

impl Drawn for ShareMode {
    fn name(&self) -> &'static str {
        Self::name(*self)
    }

    fn look(&self) -> Look {
        marker::look_of_share(*self)
    }
}

/// One line per mode, of a figure of each point and its range over the trials.
pub(super) fn lines<'a, K, Points, P>(
    series: impl IntoIterator<Item = (&'a K, Points)>,
    figure: impl Fn(&P) -> (f64, Spread),
) -> Vec<Line>
where
    K: Drawn + 'a,
    Points: IntoIterator<Item = &'a P>,
    P: LoadPoint + 'a,
{
    let dot = |point: &P| {
        let (figure, range) = figure(point);
        let marked = point.conditions().marked;
        Dot { pps: point.flood_pps(), figure: [figure, range.min, range.max], marked }
    };
    let line = |(key, points): (&K, Points)| Line {
        name: key.name(),
        look: key.look(),
        dots: points.into_iter().map(dot).collect(),
    };
    series.into_iter().map(line).collect()
}

/// A heading for each mode, then a row for each of its points: the rate asked for, that really sent,
/// and the cells.
pub(super) fn by_mode<K: Display, P: LoadPoint>(
    series: &std::collections::BTreeMap<K, Vec<P>>,
    cells: impl Fn(&P) -> Vec<String>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, points) in series.iter().filter(|(_, points)| !points.is_empty()) {
        rows.push(Row::Group(key.to_string()));
        rows.extend(points.iter().map(|point| Row::Cells(row_of(point, cells(point)))));
    }
    rows
}

/// The rate asked for, that really sent, and the cells.
pub(super) fn row_of<P: LoadPoint>(point: &P, cells: Vec<String>) -> Vec<String> {
    let (target, sent) = (point.target_pps(), point.flood_pps());
    let marks = match (point.conditions().marked, short(target, sent)) {
        (false, false) => "",
        (true, false) => "*",
        (false, true) => "!",
        (true, true) => "*!",
    };
    let mut all =
        vec![target.map_or_else(|| "top".to_owned(), rate), format!("{}{marks:<1}", rate(sent))];
    all.extend(cells);
    all
}

/// What `*` and `!` mean, where they occur.
pub(super) fn marks<K, P: LoadPoint>(
    series: &std::collections::BTreeMap<K, Vec<P>>,
) -> Vec<String> {
    let points = || series.values().flatten();
    let mut notes = Vec::new();
    if points().any(|point| point.conditions().marked) {
        notes.push(
            "* the tested CPU's speed differed by more than 5 % from this run's median; compare \
             with care"
                .to_owned(),
        );
    }
    if points().any(|point| short(point.target_pps(), point.flood_pps())) {
        notes.push("! the generator sent over 5 % less than the target".to_owned());
    }
    notes
}

/// A figure that may not be there.
pub(super) fn some(figure: Option<f64>, show: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| ABSENT.to_owned(), show)
}

/// Names of columns after the first two.
pub(super) fn head<const N: usize>(sent: &str, columns: [&str; N]) -> Vec<String> {
    let mut head = strings(["target", sent]);
    head.extend(strings(columns));
    head
}

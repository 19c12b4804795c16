//! The tables of a report, as text cells: what a terminal, a page and Markdown all draw.

use crate::experiment::Table;
use crate::goals;
use crate::metric::Unit;
use crate::report::units::{self, ABSENT};
use crate::run::{Load, Setup};
use crate::stats::Spread;
use crate::view::View;

/// Explains the mark of a cell.
pub const FOOTNOTE: &str = "* the tested CPU was more than 5 % faster or slower than usual";

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// The range of its figures over the repeats; may be empty.
    pub range: String,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, range: String::new() }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What it shows.
    pub title: String,
    /// Names of its columns.
    pub head: Vec<String>,
    /// So many columns, from the left, are text; the others are figures.
    pub labels: usize,
    /// Its rows, as long as the head.
    pub rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// Whether a cell has a mark, and the table needs [`FOOTNOTE`].
    pub fn is_marked(&self) -> bool {
        self.rows.iter().any(|row| row[self.labels..].iter().any(|cell| cell.text.ends_with('*')))
    }

    fn of_text(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        let rows = rows.into_iter().map(|row| row.into_iter().map(Cell::from).collect()).collect();
        let head = head.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.to_owned(), head, labels: usize::MAX, rows }.bounded()
    }

    fn bounded(mut self) -> Self {
        self.labels = self.labels.min(self.head.len());
        self
    }

    /// Without columns that have no figure.
    fn without_empty_columns(mut self) -> Self {
        for at in (self.labels..self.head.len()).rev() {
            if self.rows.iter().all(|row| row[at].text == ABSENT) {
                self.head.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        self
    }
}

/// What of a table is wanted; `None`: everything.
#[derive(Clone, Debug, Default)]
pub struct Pick {
    /// These cases.
    pub cases: Option<Vec<String>>,
    /// These arms, in this order.
    pub arms: Option<Vec<String>>,
    /// These loads.
    pub loads: Option<Vec<Load>>,
}

impl Pick {
    fn arms<'a>(&'a self, view: &'a View<'_>) -> Vec<&'a str> {
        match &self.arms {
            Some(arms) => arms.iter().map(String::as_str).collect(),
            None => view.arms(),
        }
    }

    fn has_case(&self, case: &str) -> bool {
        self.cases.as_ref().is_none_or(|cases| cases.iter().any(|one| one == case))
    }

    fn has_load(&self, load: Load) -> bool {
        self.loads.as_ref().is_none_or(|loads| loads.contains(&load))
    }
}

/// Every table of figures that has a row, and what the searches found.
pub fn grids(view: &View<'_>, pick: &Pick) -> Vec<Grid> {
    let tables = view.experiment.tables.iter().map(|table| grid(view, table, pick));
    tables.chain([searches(view, pick)]).filter(|grid| !grid.rows.is_empty()).collect()
}

fn grid(view: &View<'_>, table: &Table, pick: &Pick) -> Grid {
    let arms = pick.arms(view);
    let mut rows: Vec<(String, Load, Vec<Cell>)> = vec![];
    for case in view.cases().into_iter().map(|case| case.name) {
        if !table.cases.has(&case) || !pick.has_case(&case) {
            continue;
        }
        for load in view.loads(&case).into_iter().filter(|load| pick.has_load(*load)) {
            let cells: Vec<Cell> =
                arms.iter().map(|arm| cell(view, table, arm, &case, load)).collect();
            if cells.iter().any(|cell| cell.text != ABSENT) {
                rows.push((case.clone(), load, cells));
            }
        }
    }
    let several = rows.iter().any(|row| row.0 != rows[0].0);
    let loaded = rows.iter().any(|row| row.1 != Load::Off);
    let (with_case, with_load) = (several || !loaded, loaded);
    let label = |case: String, load: String| -> Vec<String> {
        [(with_case, case), (with_load, load)].into_iter().filter(|l| l.0).map(|l| l.1).collect()
    };
    let mut head = label("case".into(), "load".into());
    let labels = head.len();
    head.extend(arms.iter().map(|arm| (*arm).to_owned()));
    let row = |(case, load, cells): (String, Load, Vec<Cell>)| {
        label(case, load.to_string()).into_iter().map(Cell::from).chain(cells).collect()
    };
    let rows = rows.into_iter().map(row).collect();
    Grid { title: table.title.to_owned(), head, labels, rows }.without_empty_columns()
}

fn cell(view: &View<'_>, table: &Table, arm: &str, case: &str, load: Load) -> Cell {
    let Some(point) = view.point(arm, case, load) else { return ABSENT.to_owned().into() };
    let figure = |metric| {
        let spread = point.spread(metric)?;
        if !table.of_unloaded {
            return Some((metric.unit, spread));
        }
        let whole = view.get(arm, case, Load::Off, metric).filter(|whole| *whole > 0.0)?;
        let Spread { median, min, max } = spread;
        let of = Spread { median: median / whole, min: min / whole, max: max / whole };
        Some((Unit::Share, of))
    };
    let figures: Vec<Option<(Unit, Spread)>> = table.figures.iter().copied().map(figure).collect();
    if figures.iter().all(Option::is_none) {
        return ABSENT.to_owned().into();
    }
    let each = |draw: &dyn Fn(Unit, Spread) -> String| -> String {
        let absent = || ABSENT.to_owned();
        let drawn = figures.iter().map(|f| f.map_or_else(absent, |(unit, s)| draw(unit, s)));
        drawn.collect::<Vec<_>>().join(" / ")
    };
    let mark = if point.marked { "*" } else { "" };
    let text = each(&|unit, spread| units::figure(unit, spread.median)) + mark;
    Cell { text, range: format!("{}; {} trials", each(&units::range), point.repeats) }
}

/// The highest rates that passed the searches.
fn searches(view: &View<'_>, pick: &Pick) -> Grid {
    let arms = pick.arms(view);
    let found = |rate: Option<f64>| match rate {
        Some(rate) => units::figure(Unit::Pps, rate),
        None => ABSENT.to_owned(),
    };
    let searched = |case: &str| view.trials.iter().any(|trial| trial.case == case);
    let all = view.experiment.searches.iter().filter(|s| searched(s.case) && pick.has_case(s.case));
    let row = |search| {
        let rates = arms.iter().map(|arm| Cell::from(found(view.found(search, arm))));
        std::iter::once(Cell::from(search.case.to_owned())).chain(rates).collect()
    };
    let title = "Highest rate that passed the search, packets/s".to_owned();
    let head = std::iter::once("search").chain(arms.iter().copied()).map(str::to_owned).collect();
    Grid { title, head, labels: 1, rows: all.map(row).collect() }.without_empty_columns()
}

/// What was wanted, and whether the run shows it.
pub fn goals(view: &View<'_>) -> Grid {
    let row =
        |goal: goals::Outcome| vec![goal.verdict.name().to_owned(), goal.name, goal.want, goal.got];
    let rows = goals::judge(view).into_iter().map(row).collect();
    Grid::of_text("Goals", &["verdict", "goal", "wanted", "got"], rows)
}

/// What ran where, per arm.
pub fn setup(view: &View<'_>) -> Grid {
    let setup = &view.run.head.setup;
    let known = view.arms().into_iter().filter_map(|arm| Some((arm, setup.get(arm)?)));
    let rows = known.map(|(arm, setup)| vec![arm.to_owned(), in_words(setup)]).collect();
    Grid::of_text("What ran where", &["arm", "set-up"], rows)
}

fn in_words(setup: &Setup) -> String {
    let on = |on| if on { "on" } else { "off" };
    let Setup { driver_poll, gate, application, attach, gro, tso, rps_cpus, daemon, .. } = setup;
    let gate = if attach == "none" { gate.clone() } else { format!("{gate}, attached {attach}") };
    let mut text = format!(
        "driver's poll: {driver_poll}; gate: {gate}; application: {application}; daemon: {daemon}; GRO {}, \
         TSO {}, RPS mask {rps_cpus}",
        on(*gro),
        on(*tso)
    );
    if let Some((packets, bytes)) = setup.queue_depth_packets.zip(setup.rcvbuf_bytes) {
        text += &format!("; a socket holds {packets} packets in {bytes} bytes");
    }
    text
}

//! The tables of a report, as text cells: what a terminal, a page and Markdown all draw.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::experiment::Table;
use crate::goals;
use crate::metric::{Metric, Unit};
use crate::report::units::{self, ABSENT};
use crate::report::words;
use crate::run::Load;
use crate::stats::{Bracket, Spread};
use crate::view::View;

/// Explains the mark of a cell.
pub const FOOTNOTE: &str = "* the tested CPU was more than 5 % faster or slower than usual";

#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    /// The range of its figures over the repeats; may be empty.
    pub range: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), range: String::new() }
    }
}

#[derive(Clone, Debug)]
pub struct Grid {
    pub title: String,
    pub head: Vec<Cell>,
    /// So many columns, from the left, name the row; the others are figures.
    pub labels: usize,
    pub rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// Whether a column is text, which begins at its left.
    pub fn is_text(&self, column: usize) -> bool {
        column < self.labels && self.head[column].text != "load"
    }

    /// Whether a cell has a mark, and the table needs [`FOOTNOTE`].
    pub fn is_marked(&self) -> bool {
        self.rows.iter().any(|row| row[self.labels..].iter().any(|cell| cell.text.ends_with('*')))
    }

    fn remove(&mut self, column: usize) {
        self.head.remove(column);
        self.labels -= usize::from(column < self.labels);
        self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }

    pub fn of_text(title: &str, head: &[&str], rows: Vec<Vec<Cell>>) -> Self {
        let head: Vec<Cell> = head.iter().map(|name| (*name).into()).collect();
        Self { title: title.to_owned(), labels: head.len(), head, rows }
    }

    /// A column for each arm, without rows and columns that have no figure.
    fn of_arms(title: &str, labels: &[&str], arms: &[&str], rows: Vec<Vec<Cell>>) -> Self {
        let mut grid = Self::of_text(title, &[labels, arms].concat(), rows);
        grid.labels = labels.len();
        let is_absent = |cell: &Cell| cell.text == ABSENT;
        grid.rows.retain(|row| !row[labels.len()..].iter().all(is_absent));
        for column in (grid.labels..grid.head.len()).rev() {
            if grid.rows.iter().all(|row| is_absent(&row[column])) {
                grid.remove(column);
            }
        }
        grid
    }
}

/// What of a table is wanted: `cases`, `arms` and `loads` by name; all where there is none.
pub type Pick = BTreeMap<String, Vec<String>>;

fn has(pick: &Pick, what: &str, name: &str) -> bool {
    pick.get(what).is_none_or(|names| names.iter().any(|one| one == name))
}

/// Every table of figures that has a row, and what the searches found.
pub fn grids(view: &View<'_>, pick: &Pick) -> Vec<Grid> {
    let arms: Vec<&str> = match pick.get("arms") {
        Some(arms) => arms.iter().map(String::as_str).collect(),
        None => view.arms(),
    };
    let tables = view.experiment.tables.iter().map(|table| grid(view, table, &arms, pick));
    tables.chain([searches(view, &arms, pick)]).filter(|grid| !grid.rows.is_empty()).collect()
}

fn grid(view: &View<'_>, table: &Table, arms: &[&str], pick: &Pick) -> Grid {
    let mut rows: Vec<Vec<Cell>> = vec![];
    for case in view.cases().into_iter().map(|case| case.name) {
        for load in view.loads(&case) {
            let name = load.to_string();
            if table.cases.has(&case) && has(pick, "cases", &case) && has(pick, "loads", &name) {
                let cells = arms.iter().map(|arm| cell(view, table, arm, &case, load));
                rows.push([case.as_str().into(), name.into()].into_iter().chain(cells).collect());
            }
        }
    }
    let mut grid = Grid::of_arms(table.title, &["case", "load"], arms, rows);
    if grid.rows.iter().all(|row| row[1].text == "0") {
        grid.remove(1);
    } else if grid.rows.iter().all(|row| row[0].text == grid.rows[0][0].text) {
        grid.remove(0);
    }
    grid
}

fn cell(view: &View<'_>, table: &Table, arm: &str, case: &str, load: Load) -> Cell {
    let Some(point) = view.point(arm, case, load) else { return ABSENT.into() };
    if table.figures.iter().all(|metric| point.get(metric).is_none()) {
        return ABSENT.into();
    }
    let drawn = |metric: &&Metric| -> (String, String) {
        let figure = |value| units::figure(metric.unit, value);
        let range = |Spread { median, min, max }| {
            (figure(median), format!("{} to {}", figure(min), figure(max)))
        };
        point.spread(metric).map_or((ABSENT.into(), ABSENT.into()), range)
    };
    let (texts, ranges): (Vec<_>, Vec<_>) = table.figures.iter().map(drawn).unzip();
    let text = texts.join(" / ") + if point.marked { "*" } else { "" };
    Cell { text, range: format!("{}; {} trials", ranges.join(" / "), point.repeats) }
}

/// Between what the searches have the highest rate that passes.
fn searches(view: &View<'_>, arms: &[&str], pick: &Pick) -> Grid {
    let text = |found: Bracket| found.text(|rate| units::figure(Unit::Pps, rate));
    let all = view.experiment.searches.iter().filter(|search| has(pick, "cases", search.case));
    let row = |search| {
        let rates =
            arms.iter().map(|arm| view.found(search, arm).map_or(ABSENT.into(), text).into());
        std::iter::once(search.case.into()).chain(rates).collect()
    };
    let title = "Highest rate that passes the search, packets/s";
    Grid::of_arms(title, &["search"], arms, all.map(row).collect())
}

pub fn goals(view: &View<'_>) -> Grid {
    let row = |goal: goals::Outcome| {
        vec![goal.verdict.name().into(), goal.name.into(), goal.want.into(), goal.got.into()]
    };
    let rows = goals::judge(view).into_iter().map(row).collect();
    Grid::of_text("Goals", &["verdict", "goal", "wanted", "got"], rows)
}

/// Everything that a whole report shows, in its order: figures, then what is made of text alone.
pub fn whole(view: &View<'_>) -> Vec<Grid> {
    let setup = |arm| Some(vec![Cell::from(arm), flat(view.run.head.setup.get(arm)?).into()]);
    let pairs = |(name, value): (String, String)| vec![name.into(), value.into()];
    let (experiment, head) = (view.experiment, &view.run.head);
    let warnings =
        words::warnings(view).into_iter().map(|text| pairs(("-".to_owned(), text))).collect();
    let about = [
        ("question", experiment.question),
        ("found", experiment.found),
        ("notes", experiment.notes),
    ];
    let made_by = fields(head).into_iter().filter(|(name, _)| name != "setup");
    let mut all = grids(view, &Pick::new());
    let setup = view.arms().into_iter().filter_map(setup).collect();
    let about = about.map(|(name, value)| pairs((name.to_owned(), value.to_owned()))).into();
    all.extend([
        goals(view),
        Grid::of_text("Warnings", &["", "warning"], warnings),
        Grid::of_text("How to read it", &["", experiment.paper], about),
        Grid::of_text("What ran where", &["arm", "set-up"], setup),
        Grid::of_text("What made it", &["", ""], made_by.map(pairs).collect()),
    ]);
    all
}

/// A record's fields, by their names in JSON.
fn fields(record: &impl Serialize) -> Vec<(String, String)> {
    let text = |value: Value| match value {
        Value::Object(_) => format!("({})", flat(&value)),
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let Ok(Value::Object(fields)) = serde_json::to_value(record) else { return vec![] };
    fields.into_iter().map(|(name, value)| (name.replace('_', " "), text(value))).collect()
}

fn flat(record: &impl Serialize) -> String {
    let fields = fields(record).into_iter().map(|(name, value)| format!("{name}: {value}"));
    fields.collect::<Vec<_>>().join("; ")
}

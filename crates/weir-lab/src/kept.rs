//! A run as JSON: its head, then a table of its trials, which names every figure once.
//!
//! A trial is a line of the table, so that a change of one trial is a change of one line. A figure that a
//! trial does not have is null: with a table for each case there would be fewer nulls, and they are 6 %.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Map, Value};

use crate::error::{Error, Result, cannot};
use crate::run::{Head, Run, SCHEMA, Trial};

/// Which trial it is: the columns that every table begins with.
const WHICH: [&str; 4] = ["arm", "case", "load", "repeat"];
/// What the ledger's columns begin with.
const LEDGER: &str = "ledger.";

type Cells = Map<String, Value>;
type Outcome<T> = std::result::Result<T, serde_json::Error>;

/// What is in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    head: Head,
    columns: Vec<String>,
    trials: Vec<Vec<Value>>,
}

impl Run {
    /// As kept: the head, the columns' names, then a trial a line.
    pub fn to_json(&self) -> Result<String> {
        let failed = cannot("write", &self.head.experiment);
        let head = serde_json::to_string_pretty(&self.head).map_err(&failed)?;
        let cells = self.trials.iter().map(cells).collect::<Outcome<Vec<_>>>();
        let cells = cells.map_err(&failed)?;
        let names: BTreeSet<&str> = cells.iter().flat_map(Map::keys).map(String::as_str).collect();
        let others = names.into_iter().filter(|name| !WHICH.contains(name));
        let (ends, metrics): (Vec<_>, Vec<_>) = others.partition(|name| name.starts_with(LEDGER));
        let columns = [&WHICH[..], &metrics, &ends].concat();
        let row = |cells: &Cells| {
            let row: Vec<_> = columns.iter().map(|name| cells.get(*name)).collect();
            serde_json::to_string(&row)
        };
        let rows = cells.iter().map(row).collect::<Outcome<Vec<_>>>();
        let rows = rows.map_err(&failed)?.join(",\n");
        let columns = serde_json::to_string(&columns).map_err(failed)?;
        Ok(format!("{{\"head\": {head},\n\"columns\": {columns},\n\"trials\": [\n{rows}\n]}}\n"))
    }

    /// Reads one that was kept.
    pub fn read(path: &Path) -> Result<Self> {
        let object = path.display().to_string();
        let text = fs::read_to_string(path).map_err(cannot("read", &object))?;
        Self::parse(&text).map_err(|source| {
            let remedy = "name a file that `weir lab run --out` wrote";
            Error::refused(format!("cannot understand {object}: {source}"), remedy)
        })
    }

    /// Reads what [`Self::to_json`] wrote.
    pub fn parse(text: &str) -> Outcome<Self> {
        // First: what a file of another schema has beside is not known.
        let any: Value = serde_json::from_str(text)?;
        let found = any["head"]["schema"].as_u64();
        if let Some(found) = found.filter(|found| *found != u64::from(SCHEMA)) {
            let text = format!("it is of schema {found}, this lab reads {SCHEMA}");
            return Err(serde_json::Error::custom(text));
        }
        let Kept { head, columns, trials } = serde_json::from_str(text)?;
        let trials = trials.into_iter().enumerate().map(|(at, row)| {
            trial(&columns, row)
                .map_err(|wrong| serde_json::Error::custom(format!("trial {at}: {wrong}")))
        });
        Ok(Self { head, trials: trials.collect::<Outcome<_>>()? })
    }
}

/// A trial by its columns.
fn cells(trial: &Trial) -> Outcome<Cells> {
    let mut cells: Cells = serde_json::from_value(serde_json::to_value(trial)?)?;
    if let Some(Value::Object(ends)) = cells.remove("ledger") {
        cells.extend(ends.into_iter().map(|(end, packets)| (format!("{LEDGER}{end}"), packets)));
    }
    Ok(cells)
}

/// What [`cells`] were made of. A metric may be one that only an earlier lab declares.
fn trial(columns: &[String], row: Vec<Value>) -> Outcome<Trial> {
    if row.len() != columns.len() {
        let wrong = format!("{} values for {} columns", row.len(), columns.len());
        return Err(serde_json::Error::custom(wrong));
    }
    let (mut cells, mut ledger) = (Cells::new(), Cells::new());
    for (column, value) in columns.iter().zip(row).filter(|(_, value)| !value.is_null()) {
        match column.strip_prefix(LEDGER) {
            Some(end) => ledger.insert(end.to_owned(), value),
            None => cells.insert(column.clone(), value),
        };
    }
    if !ledger.is_empty() {
        cells.insert("ledger".to_owned(), ledger.into());
    }
    serde_json::from_value(cells.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::m;
    use crate::report::made_up;
    use crate::run::Ledger;

    /// With trials that count packets and trials that do not, and figures that only some have.
    fn made_up() -> Run {
        let mut run = made_up::overload(&["stock", "weir-native"]);
        let ledger = Ledger { offered: 10, nic_drop: 3, delivered: 5, ..Ledger::default() };
        run.trials[1].ledger = Some(ledger.closed());
        run.trials[2].values.clear();
        run.trials[3].set(&m::loss, Some(0.1 + 0.2));
        run
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let run = made_up();
        let text = run.to_json().unwrap();
        assert_eq!(Run::parse(&text).unwrap(), run);
        assert_eq!(text.lines().filter(|line| line.starts_with("[\"")).count(), run.trials.len());
        let none = Run { trials: vec![], ..run };
        assert_eq!(Run::parse(&none.to_json().unwrap()).unwrap(), none);
    }

    #[test]
    fn committed_results_are_as_they_would_be_written() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let dirs = fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().path());
        for dir in dirs.filter(|path| path.is_dir()).chain([results]) {
            for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                if path.extension().is_some_and(|end| end == "json") {
                    let again = Run::read(&path).unwrap().to_json().unwrap();
                    assert!(again == fs::read_to_string(&path).unwrap(), "{}", path.display());
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_table_is_said() {
        let good = made_up().to_json().unwrap();
        for (old, new, wrong) in [
            ("\"schema\": 3", "\"schema\": 2", "it is of schema 2, this lab reads 3"),
            ("\"repeat\",", "\"repeats\",", "trial 0: missing field `repeat`"),
            (".nic_drop\"", ".nic\"", "trial 1: unknown field `nic`"),
            ("0,3,10,2", "0,3,10,\"2\"", "trial 1: invalid type: string \"2\""),
            ("0,3,10,2", "0,3,10", "trial 1: 21 values for 22 columns"),
            ("99000.0", "\"99k\"", "trial 0: invalid type: string \"99k\""),
            ("\"columns\"", "\"column\"", "unknown field `column`"),
        ] {
            assert!(good.contains(old), "{old} in {good}");
            let error = Run::parse(&good.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}

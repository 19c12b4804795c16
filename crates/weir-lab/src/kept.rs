//! A run as JSON: its head, then a table of its trials, which names every figure once.
//!
//! A trial is a line of the table, so that a change of one trial is a change of one line. A figure that a
//! trial does not have is null: with a table for each case there would be fewer nulls, and they are 6 %.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result, cannot};
use crate::run::{Head, Load, Run, SCHEMA, Trial};

/// Which trial it is: the columns that every table begins with.
const WHICH: [&str; 4] = ["arm", "case", "load", "repeat"];
/// What the ledger's columns begin with.
const LEDGER: &str = "ledger.";

type Outcome<T, E = String> = std::result::Result<T, E>;

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
        let cells = self.trials.iter().map(cells).collect::<Outcome<Vec<_>, _>>();
        let cells = cells.map_err(&failed)?;
        let names: BTreeSet<&String> = cells.iter().flat_map(Map::keys).collect();
        let (ends, metrics): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| name.starts_with(LEDGER));
        let others = || metrics.iter().chain(&ends).copied();
        let row = |(trial, cells): (&Trial, &Map<String, Value>)| {
            let Trial { arm, case, load, repeat, .. } = trial;
            let mut row = vec![json!(arm), json!(case), json!(load), json!(repeat)];
            row.extend(others().map(|name| json!(cells.get(name))));
            serde_json::to_string(&row)
        };
        let columns: Vec<&str> = WHICH.into_iter().chain(others().map(String::as_str)).collect();
        let columns = serde_json::to_string(&columns).map_err(&failed)?;
        let rows = self.trials.iter().zip(&cells).map(row).collect::<Outcome<Vec<_>, _>>();
        let rows = rows.map_err(failed)?.join(",\n");
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
    pub fn parse(text: &str) -> Outcome<Self, serde_json::Error> {
        // First: what a file of another schema has beside is not known.
        let any: Value = serde_json::from_str(text)?;
        let found = any["head"]["schema"].as_u64();
        if let Some(found) = found.filter(|found| *found != u64::from(SCHEMA)) {
            let text = format!("it is of schema {found}, this lab reads {SCHEMA}");
            return Err(serde_json::Error::custom(text));
        }
        let Kept { head, columns, trials } = serde_json::from_str(text)?;
        check(&columns).map_err(serde_json::Error::custom)?;
        let trials = trials.into_iter().enumerate().map(|(at, row)| {
            trial(&columns, row)
                .map_err(|wrong| serde_json::Error::custom(format!("trial {at}: {wrong}")))
        });
        Ok(Self { head, trials: trials.collect::<Outcome<_, _>>()? })
    }
}

/// A trial's figures and its ledger by their columns.
fn cells(trial: &Trial) -> Outcome<Map<String, Value>, serde_json::Error> {
    let figures = trial.values.iter().map(|(id, value)| (id.clone(), json!(value)));
    let mut cells: Map<_, _> = figures.collect();
    if let Value::Object(ends) = serde_json::to_value(trial.ledger)? {
        cells.extend(ends.into_iter().map(|(end, packets)| (format!("{LEDGER}{end}"), packets)));
    }
    Ok(cells)
}

/// Whether a table can have these columns. A metric may be one that only an earlier lab declares.
fn check(columns: &[String]) -> Outcome<()> {
    if let Some(missing) = WHICH.iter().find(|which| !columns.iter().any(|name| name == *which)) {
        return Err(format!("there is no column {missing}"));
    }
    let mut seen = BTreeSet::new();
    match columns.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("there are two columns {twice}")),
        None => Ok(()),
    }
}

fn trial(columns: &[String], row: Vec<Value>) -> Outcome<Trial> {
    if row.len() != columns.len() {
        return Err(format!("{} values for {} columns", row.len(), columns.len()));
    }
    let mut trial = Trial::of("", "", Load::Off);
    let mut ledger = Map::new();
    for (column, value) in columns.iter().zip(row) {
        match column.as_str() {
            "arm" => trial.arm = read(column, value)?,
            "case" => trial.case = read(column, value)?,
            "load" => trial.load = read(column, value)?,
            "repeat" => trial.repeat = read(column, value)?,
            _ if value.is_null() => {}
            _ => {
                if let Some(end) = column.strip_prefix(LEDGER) {
                    ledger.insert(end.to_owned(), value);
                } else {
                    trial.values.insert(column.clone(), read(column, value)?);
                }
            }
        }
    }
    if !ledger.is_empty() {
        trial.ledger = Some(read("ledger", ledger.into())?);
    }
    Ok(trial)
}

fn read<T: DeserializeOwned>(column: &str, value: Value) -> Outcome<T> {
    serde_json::from_value(value).map_err(|wrong| format!("{column}: {wrong}"))
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
            ("\"repeat\",", "\"repeats\",", "there is no column repeat"),
            ("\"loss\"", "\"steal\"", "there are two columns steal"),
            (".nic_drop\"", ".nic\"", "trial 1: ledger: unknown field `nic`"),
            ("0,3,10,2", "0,null,10,2", "trial 1: ledger: missing field `nic_drop`"),
            ("0,3,10,2", "0,3,10,\"2\"", "trial 1: ledger: invalid type: string \"2\""),
            ("0,3,10,2", "0,3,10", "trial 1: 21 values for 22 columns"),
            ("0,3,10,2", "0,3,10,2,0", "trial 1: 23 values for 22 columns"),
            ("[\"stock\",\"recv\",1", "[null,\"recv\",1", "trial 0: arm: invalid type: null"),
            ("99000.0", "\"99k\"", "trial 0: delivered_pps: invalid type: string \"99k\""),
            ("\"columns\"", "\"column\"", "unknown field `column`"),
        ] {
            assert!(good.contains(old), "{old} in {good}");
            let error = Run::parse(&good.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}

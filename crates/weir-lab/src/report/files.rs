//! The files of a results directory: `<experiment>.json`, `<experiment>.svg`, `report.html`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ReportError;
use super::html::{page, views};
use crate::results::{Outcome, SCHEMA};

/// The page of a results directory.
const PAGE: &str = "report.html";
const REMEDY_WRITE: &str = "give `--out` a directory that you may write to, with room in it";
const REMEDY_READ: &str = "give a results directory that you may read, as `--out` made it";

/// Writes `<experiment>.json`, `<experiment>.svg` (of an experiment that has a drawing) and `report.html` into `dir`, which is made if
/// need be, and returns their paths. Each file appears whole or not at all.
///
/// The page covers every result in `dir`, this one first, so that several experiments may share a
/// directory. Another's file that cannot be read does not fail this one: the page names it.
///
/// # Errors
///
/// [`ReportError::Name`] or [`ReportError::Figures`] if the experiment cannot be kept, before
/// anything is written; [`ReportError::File`] if the file system refuses.
pub fn write(experiment: &Outcome, dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    check_name(experiment.name())?;
    let text = json(experiment)?;
    let figure = experiment.view().figure()?;
    let (kept, page_path) = (dir.join(json_name(experiment)), dir.join(PAGE));
    let mut paths = vec![kept.clone()];
    fs::create_dir_all(dir).map_err(file_error("create the directory", dir, REMEDY_WRITE))?;
    replace(&kept, &text)?;
    if let Some(figure) = figure {
        let path = dir.join(format!("{}.svg", experiment.name()));
        replace(&path, &figure.svg)?;
        paths.push(path);
    }
    let (mut experiments, mut left_out) = (vec![experiment.clone()], Vec::new());
    for path in results(dir)?.iter().filter(|path| **path != kept) {
        match read_file(path) {
            Ok(other) => experiments.push(other),
            Err(error) => left_out.push(error),
        }
    }
    replace(&page_path, &page(&views(&experiments), &left_out)?)?;
    paths.push(page_path);
    Ok(paths)
}

/// Writes `report.html` of these experiments into `dir` and returns its path.
///
/// # Errors
///
/// [`ReportError::File`] if the file system refuses, [`ReportError::Plot`] if a drawing cannot be
/// made.
pub fn write_page(experiments: &[Outcome], dir: &Path) -> Result<PathBuf, ReportError> {
    let path = dir.join(PAGE);
    replace(&path, &page(&views(experiments), &[])?)?;
    Ok(path)
}

/// Reads every `*.json` of a results directory, in order of the files' names.
///
/// # Errors
///
/// [`ReportError::Empty`] where there is none, [`ReportError::Malformed`] or
/// [`ReportError::Schema`] for a file that is not a result of this weir, [`ReportError::File`] if
/// the file system refuses.
pub fn read(dir: &Path) -> Result<Vec<Outcome>, ReportError> {
    let paths = results(dir)?;
    if paths.is_empty() {
        return Err(ReportError::Empty { dir: dir.to_owned() });
    }
    paths.iter().map(|path| read_file(path)).collect()
}

/// The file that keeps this experiment.
fn json_name(experiment: &Outcome) -> String {
    format!("{}.json", experiment.name())
}

/// Only plain names: one read from a foreign file must not lead out of the directory.
fn check_name(name: &str) -> Result<(), ReportError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(plain) {
        Ok(())
    } else {
        Err(ReportError::Name { name: name.to_owned() })
    }
}

/// The JSON, read back to be sure of it: a figure that is not finite is written as `null`, which
/// would be found out only when the file is next read.
pub fn json(experiment: &Outcome) -> Result<String, ReportError> {
    let failed = |cause: serde_json::Error| ReportError::Figures {
        experiment: experiment.name().to_owned(),
        problem: cause.to_string(),
    };
    let mut json = serde_json::to_string_pretty(experiment).map_err(failed)?;
    experiment.check_reads_back(&json).map_err(failed)?;
    json.push('\n');
    Ok(json)
}

/// The paths of `*.json`, sorted.
fn results(dir: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let entries = fs::read_dir(dir).map_err(file_error("list", dir, REMEDY_READ))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(file_error("list", dir, REMEDY_READ))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_file(path: &Path) -> Result<Outcome, ReportError> {
    /// What every schema has, whatever else it holds.
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    /// What every result of this schema has.
    #[derive(Deserialize)]
    struct Named {
        experiment: String,
    }

    let json = fs::read(path).map_err(file_error("read", path, REMEDY_READ))?;
    let malformed = |cause: serde_json::Error| {
        let (line, column) = (cause.line(), cause.column());
        let problem = cause.to_string();
        let place = format!(" at line {line} column {column}");
        let problem = problem.strip_suffix(&place).unwrap_or(&problem).to_owned();
        ReportError::Malformed { path: path.to_owned(), line, column, problem }
    };
    // The version first: an unknown field is not what is wrong with a newer file.
    let Versioned { schema } = serde_json::from_slice(&json).map_err(malformed)?;
    if schema != SCHEMA {
        return Err(ReportError::Schema { path: path.to_owned(), found: schema });
    }
    let Named { experiment } = serde_json::from_slice(&json).map_err(malformed)?;
    Outcome::parse(&experiment, &json).map_err(malformed)
}

/// Puts `text` at `path` in one step: a reader sees the old file or the new one.
fn replace(path: &Path, text: &str) -> Result<(), ReportError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Not `*.json`, so that one left behind by a crash is not taken for a result.
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = write_through(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|cause| {
        // It may never have been made; the first error is the one to tell.
        let _ = fs::remove_file(&temporary);
        file_error("write", path, REMEDY_WRITE)(cause)
    })
}

fn write_through(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    // Before the rename: it must not outlive its contents in a crash.
    file.sync_all()
}

fn file_error(
    operation: &'static str,
    path: &Path,
    remedy: &'static str,
) -> impl Fn(io::Error) -> ReportError {
    let path = path.to_owned();
    move |cause| ReportError::File { operation, path: path.clone(), cause, remedy }
}

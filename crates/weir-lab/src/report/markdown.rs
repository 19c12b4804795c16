//! Tables as Markdown: of a directory of runs, and between the markers of documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, cannot};
use crate::report::content::{self, Pick};
use crate::report::table::{For, escape, table};
use crate::report::{view, words};
use crate::run::{Head, Load, Run};
use crate::store;
use crate::view::{Point, View};

const BEGIN: &str = "<!-- weir-lab:";
const END: &str = "<!-- weir-lab end -->";

/// What a marker asks for, or why it cannot be followed.
type Followed<T> = std::result::Result<T, String>;

/// Every table of these runs, a heading for each experiment.
pub fn all(runs: &[(PathBuf, Run)]) -> Result<String> {
    let section = |(_, run): &(PathBuf, Run)| Ok(section(&view(run)?));
    Ok(runs.iter().map(section).collect::<Result<Vec<_>>>()?.join("\n"))
}

/// One experiment: sentence, tables, goals, and what made it.
pub fn section(view: &View<'_>) -> String {
    let (name, sentence) = (&view.run.head.experiment, words::sentence(view));
    let mut text = format!("## {}\n\n{}\n", escape(name), escape(&sentence));
    let goals = Some(content::goals(view)).filter(|goals| !goals.rows.is_empty());
    for grid in content::grids(view, &Pick::new()).iter().chain(&goals) {
        text += &format!("\n### {}\n\n{}", escape(&grid.title), table(grid, For::Document));
    }
    text + "\n" + &versions(view)
}

/// What made a run, in one line.
fn versions(view: &View<'_>) -> String {
    let Head { machine, command, programs, weir_version, commit, started_at, .. } = &view.run.head;
    let (kernel, cpu, command) = (&machine.kernel, &machine.cpu_model, command.join(" "));
    let changed = if view.run.head.uncommitted { " and uncommitted changes" } else { "" };
    let programs: String = programs.iter().map(|(name, v)| format!("; {name} {v}")).collect();
    escape(&format!(
        "weir {weir_version}, commit {commit}{changed}; {command}; {started_at}; Linux {kernel}, {cpu}, {} \
         CPUs{programs}\n",
        machine.cpus
    ))
}

/// Puts generated tables between the markers of these files. Returns those that changed.
pub fn refresh(files: &[PathBuf], results_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut changed = vec![];
    for path in files {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(cannot("read", &name))?;
        let new = filled(&text, results_dir).map_err(|wrong| {
            Error::refused(format!("{name}, {wrong}"), "docs/lab-json.md describes markers")
        })?;
        if new != text {
            store::write_whole(path, &new)?;
            changed.push(path.clone());
        }
    }
    Ok(changed)
}

/// A document with what its markers ask for, from the results of a directory: see `docs/lab-json.md`.
/// Markers in fenced code are left alone.
pub fn filled(text: &str, results_dir: &Path) -> Followed<String> {
    let wrong = |at: usize, wrong: String| Err(format!("line {}: {wrong}", at + 1));
    let (mut new, mut is_fenced, mut open) = (String::new(), false, None);
    for (at, line) in text.split_inclusive('\n').enumerate() {
        is_fenced ^= open.is_none() && line.trim_start().starts_with("```");
        let begins = line.starts_with(BEGIN) && !is_fenced;
        match (open, line.trim_end() == END && !is_fenced) {
            (Some(_), false) if !begins => continue,
            (Some(from), false) => return wrong(from, format!("no `{END}` before the next")),
            (None, true) => return wrong(at, "this end has no beginning".into()),
            _ => open = begins.then_some(at),
        }
        new += line;
        if begins {
            new += &block(line, results_dir).or_else(|problem| wrong(at, problem))?;
        }
    }
    match open {
        Some(from) => wrong(from, format!("no `{END}` after this marker")),
        None => Ok(new),
    }
}

fn block(marker: &str, results_dir: &Path) -> Followed<String> {
    let inner = marker.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->"));
    let words = shlex::split(inner.ok_or("the marker does not end in `-->` on its line")?);
    let words = words.ok_or("a quote is not closed")?;
    let (file, asked) = words.split_first().ok_or("the marker names no result")?;
    let run = Run::read(&results_dir.join(file)).map_err(|error| error.to_string())?;
    let view = view(&run).map_err(|error| error.to_string())?;
    let (mut pick, mut title, mut parts) = (Pick::new(), None, vec![]);
    for word in asked {
        match word.split_once('=').unwrap_or((word, "")) {
            ("table", name) => title = Some(name),
            ("loads", all) => {
                let load = |name| Load::parse(name).map(|load| load.to_string());
                pick.insert("loads".to_owned(), all.split(',').map(load).collect::<Followed<_>>()?);
            }
            (what @ ("cases" | "arms"), all) => {
                pick.insert(what.to_owned(), all.split(',').map(str::to_owned).collect());
            }
            ("goals", "") => parts.push(table(&content::goals(&view), For::Document)),
            ("sentence", "") => parts.push(escape(&words::sentence(&view)) + "\n"),
            ("versions", "") => parts.push(versions(&view)),
            _ => {
                let known = "table=, cases=, arms=, loads=, goals, sentence, versions";
                return Err(format!("{word:?} is none of {known}"));
            }
        }
    }
    check(&view, &pick)?;
    if title.is_some() || parts.is_empty() {
        let grids = content::grids(&view, &pick);
        let found = grids.iter().find(|grid| title.is_none_or(|title| grid.title == title));
        let titles: Vec<&str> = grids.iter().map(|grid| grid.title.as_str()).collect();
        let none = || format!("no such table has a row; these have: {}", titles.join("; "));
        parts.insert(0, table(found.ok_or_else(none)?, For::Document));
    }
    Ok(format!("\n{}\n", parts.join("\n")))
}

/// That everything picked was measured.
fn check(view: &View<'_>, pick: &Pick) -> Followed<()> {
    for (what, names) in pick {
        let name = |point: &Point| match what.as_str() {
            "loads" => point.load.to_string(),
            "arms" => point.arm.clone(),
            _ => point.case.clone(),
        };
        let there: BTreeSet<String> = view.points.iter().map(name).collect();
        if let Some(name) = names.iter().find(|name| !there.contains(*name)) {
            let there = there.into_iter().collect::<Vec<_>>().join(", ");
            return Err(format!("{name} is none of this result's {what}: {there}"));
        }
    }
    Ok(())
}

//! Tables as Markdown: of a directory of runs, and between the markers of documents.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::report::content::{self, Cell, FOOTNOTE, Grid, Pick};
use crate::report::units::clean;
use crate::report::{view, words};
use crate::run::{Load, Run};
use crate::store;
use crate::view::View;

const BEGIN: &str = "<!-- weir-lab:";
const END: &str = "<!-- weir-lab end -->";

/// Every table of these runs, a heading for each experiment.
///
/// # Errors
/// A run of an experiment that this lab does not have.
pub fn all(runs: &[Run]) -> Result<String> {
    let mut text = String::new();
    for run in runs {
        let part = section(&view(run)?);
        text += if text.is_empty() { "" } else { "\n" };
        text += &part;
    }
    Ok(text)
}

/// One experiment: sentence, tables, goals, and what made it.
pub fn section(view: &View<'_>) -> String {
    let mut text =
        format!("## {}\n\n{}\n", view.run.head.experiment, escape(&words::sentence(view)));
    for grid in content::grids(view, &Pick::default()).iter().chain([&content::goals(view)]) {
        text += &format!("\n### {}\n\n{}", escape(&grid.title), table(grid));
    }
    text + "\n" + &versions(view)
}

/// What made a run, in one line.
fn versions(view: &View<'_>) -> String {
    let facts = words::facts(&view.run.head);
    let told = ["Build", "Command", "Run", "Machine", "Programs"];
    let told =
        facts.iter().filter(|(name, _)| told.contains(name)).map(|(name, value)| match *name {
            "Command" => format!("`{}`", value.replace('`', "'")),
            _ => escape(value),
        });
    told.collect::<Vec<_>>().join("; ") + "\n"
}

fn table(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |at: usize| match at < grid.labels && grid.head[at] != "load" {
        true => "---".to_owned(),
        false => "---:".to_owned(),
    };
    let mut text = line(grid.head.iter().map(|name| escape(name)).collect());
    text += &line((0..grid.head.len()).map(rule).collect());
    for row in &grid.rows {
        text += &line(row.iter().map(|Cell { text, .. }| escape(text)).collect());
    }
    if grid.is_marked() {
        text += &format!("\n{}\n", escape(FOOTNOTE));
    }
    text
}

fn escape(text: &str) -> String {
    let escaped = clean(text).replace('\\', "\\\\").replace('|', "\\|").replace('*', "\\*");
    escaped.replace('&', "&amp;").replace('<', "&lt;")
}

/// Puts generated tables between the markers of these files. Returns those that changed.
///
/// # Errors
/// A file that cannot be read or written, or a marker that is wrong: file, line and what is wrong with it.
pub fn refresh(files: &[PathBuf], results_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut changed = vec![];
    for path in files {
        let object = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| Error::io("read", &object, source))?;
        let new = rendered(&text, results_dir).map_err(|error| match error {
            Error::Refused { problem, remedy } => {
                Error::refused(format!("{object}, {problem}"), remedy)
            }
            other => other,
        })?;
        if new != text {
            changed.push((path.clone(), new));
        }
    }
    // All of them are sound before one is written.
    for (path, text) in &changed {
        store::write_whole(path, text)?;
    }
    Ok(changed.into_iter().map(|(path, _)| path).collect())
}

/// A document with what its markers ask for, from the results of a directory. Between
/// `<!-- weir-lab: FILE.json table="TITLE" cases=a,b arms=x,y loads=100k,top -->` and
/// `<!-- weir-lab end -->` stands that table, or without `table` the first; the words `goals`, `sentence`
/// and `versions` ask for these instead. Markers in fenced code are left alone.
///
/// # Errors
/// The line of a marker and what is wrong with it.
pub fn rendered(text: &str, results_dir: &Path) -> Result<String> {
    let refused = |at: usize, problem: String| {
        let remedy = "see `weir lab report --help` and docs/lab-json.md for markers";
        Error::refused(format!("line {}: {problem}", at + 1), remedy)
    };
    let (mut new, mut fenced, mut open) = (String::new(), false, None);
    for (at, line) in text.split_inclusive('\n').enumerate() {
        fenced ^= open.is_none() && line.trim_start().starts_with("```");
        let begins = line.starts_with(BEGIN) && !fenced;
        match (open, line.trim_end() == END && !fenced) {
            (Some(from), _) if begins => {
                return Err(refused(from, format!("no `{END}` before the next marker")));
            }
            (Some(_), true) => open = None,
            (Some(_), false) => continue,
            (None, true) => return Err(refused(at, "this end has no beginning".into())),
            (None, false) => {}
        }
        new += line;
        if begins {
            new += &block(line, results_dir).map_err(|problem| refused(at, problem))?;
            open = Some(at);
        }
    }
    match open {
        Some(from) => Err(refused(from, format!("no `{END}` after this marker"))),
        None => Ok(new),
    }
}

/// What stands after a marker.
fn block(marker: &str, results_dir: &Path) -> std::result::Result<String, String> {
    let inner = marker.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->"));
    let words = split(inner.ok_or("the marker does not end in `-->` on its line")?)?;
    let (file, asked) = words.split_first().ok_or("the marker names no result")?;
    let run = Run::read(&results_dir.join(file)).map_err(|error| error.to_string())?;
    let view = view(&run).map_err(|error| error.to_string())?;
    let (mut pick, mut title, mut parts) = (Pick::default(), None, vec![]);
    for word in asked {
        let list = |all: &str| Some(all.split(',').map(str::to_owned).collect::<Vec<_>>());
        match word.split_once('=') {
            Some(("table", name)) => title = Some(name),
            Some(("cases", names)) => pick.cases = list(names),
            Some(("arms", names)) => pick.arms = list(names),
            Some(("loads", names)) => {
                let loads: std::result::Result<_, _> = names.split(',').map(Load::parse).collect();
                pick.loads = Some(loads?);
            }
            None if word == "goals" => parts.push(table(&content::goals(&view))),
            None if word == "sentence" => parts.push(escape(&words::sentence(&view)) + "\n"),
            None if word == "versions" => parts.push(versions(&view)),
            _ => {
                return Err(format!(
                    "{word:?} is none of table=, cases=, arms=, loads=, goals, sentence, versions"
                ));
            }
        }
    }
    check(&view, &pick)?;
    if title.is_some() || parts.is_empty() {
        parts.insert(0, table(&chosen(&view, &pick, title)?));
    }
    Ok(format!("\n{}\n", parts.join("\n")))
}

fn chosen(view: &View<'_>, pick: &Pick, title: Option<&str>) -> std::result::Result<Grid, String> {
    let grids = content::grids(view, pick);
    let titles: Vec<String> = grids.iter().map(|grid| format!("{:?}", grid.title)).collect();
    let found = grids.into_iter().find(|grid| title.is_none_or(|title| grid.title == title));
    found.ok_or_else(|| {
        format!("no table {:?} with a row; there are {}", title.unwrap_or(""), titles.join(", "))
    })
}

/// That everything picked was measured.
fn check(view: &View<'_>, pick: &Pick) -> std::result::Result<(), String> {
    let loads = pick.loads.iter().flatten().map(|load| ("load", load.to_string()));
    let arms = pick.arms.iter().flatten().map(|arm| ("arm", arm.clone()));
    let cases = pick.cases.iter().flatten().map(|case| ("case", case.clone()));
    for (what, name) in loads.chain(arms).chain(cases) {
        let mut all: Vec<String> = vec![];
        for point in &view.points {
            let one = match what {
                "load" => point.load.to_string(),
                "arm" => point.arm.clone(),
                _ => point.case.clone(),
            };
            if !all.contains(&one) {
                all.push(one);
            }
        }
        if !all.contains(&name) {
            return Err(format!("no {what} {name} in this result; there are {}", all.join(", ")));
        }
    }
    Ok(())
}

/// Words; quotes hold spaces together.
fn split(text: &str) -> std::result::Result<Vec<String>, String> {
    let (mut words, mut word, mut quoted) = (vec![], String::new(), false);
    for c in text.chars().chain([' ']) {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty()))
            }
            c => word.push(c),
        }
    }
    if quoted { Err("a quote is not closed".into()) } else { Ok(words) }
}

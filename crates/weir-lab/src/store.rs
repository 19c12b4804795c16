//! Where a run is kept while it lasts, so that one that was stopped goes on: a line for each trial.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, cannot};
use crate::run::{Run, Trial};

/// The file that a run's trials are appended to, and the result that it becomes.
pub struct Store {
    /// Both, without their extension; `None`: nothing is kept.
    path: Option<PathBuf>,
    partial: Option<File>,
}

impl Store {
    pub fn new(dir: Option<&Path>, name: &str) -> Self {
        Self { path: dir.map(|dir| dir.join(name)), partial: None }
    }

    /// Begins, or goes on where a run of the same identity was stopped: returns its trials, and when it was started
    /// first. Trials of another run are not lost by this one.
    pub fn begin(&mut self, identity: &str, started_at: &str) -> Result<(Vec<Trial>, String)> {
        let Some(path) = self.path.as_ref().map(|path| path.with_extension("partial")) else {
            return Ok((vec![], started_at.to_owned()));
        };
        let object = path.display().to_string();
        let dir = path.parent().unwrap_or(&path);
        fs::create_dir_all(dir).map_err(cannot("create", dir.display()))?;
        let kept = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => vec![],
            kept => kept.map_err(cannot("read", &object))?,
        };
        // The last line may be cut short.
        let end = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&kept[..end]);
        let (first, lines) = text.split_once('\n').unwrap_or_default();
        let refused = |problem: String| {
            let remedy = "name another directory, or move the file away";
            Err(Error::refused(format!("{object} {problem}"), remedy))
        };
        let started_at = match first.split_once(' ') {
            Some((started_at, known)) if known == identity => started_at,
            _ if lines.is_empty() => started_at,
            _ => return refused("keeps trials of another plan, build, kernel or program".into()),
        }
        .to_owned();
        let mut trials = vec![];
        for (at, line) in lines.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(trial) => trials.push(trial),
                Err(wrong) => return refused(format!("is damaged in line {}: {wrong}", at + 2)),
            }
        }
        write_whole(&path, &format!("{started_at} {identity}\n{lines}"))?;
        let file = File::options().append(true).open(&path).map_err(cannot("open", &object))?;
        self.partial = Some(file);
        Ok((trials, started_at))
    }

    pub fn keep(&mut self, trial: &Trial) -> Result<()> {
        let Some(file) = &mut self.partial else { return Ok(()) };
        let line = serde_json::to_string(trial).map_err(cannot("write", "a trial"))?;
        writeln!(file, "{line}").map_err(cannot("keep", "a trial"))
    }

    /// Writes the whole result, and forgets its parts. Returns its path, if it is kept.
    pub fn finish(&mut self, run: &Run) -> Result<Option<PathBuf>> {
        let Some(path) = &self.path else { return Ok(None) };
        let whole = path.with_extension("json");
        write_whole(&whole, &run.to_json()?)?;
        let _ = fs::remove_file(path.with_extension("partial"));
        self.partial = None;
        Ok(Some(whole))
    }
}

/// Writes a file whole or not at all.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let failed = cannot("write", path.display());
    let beside = path.with_extension(format!("tmp{}", std::process::id()));
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(|source| {
        let _ = fs::remove_file(&beside);
        failed(source)
    })
}

/// Every result in a directory and its path, by name.
pub fn read_all(dir: &Path) -> Result<Vec<(PathBuf, Run)>> {
    let entries = fs::read_dir(dir).map_err(cannot("list", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    paths.sort();
    paths.into_iter().map(|path| Run::read(&path).map(|run| (path, run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Load;

    fn trial(repeat: u32) -> Trial {
        let values = [("loss".to_owned(), 0.5)].into();
        Trial { repeat, values, ..Trial::of("weir", "recv", Load::Top) }
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_only_as_it_began() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let begin = |plan| {
            let mut store = Store::new(Some(dir), "made-up");
            store.begin(plan, "now").map(|(trials, started_at)| (store, trials, started_at))
        };
        let (_, trials, started_at) = begin("another plan").unwrap();
        assert_eq!((trials, started_at.as_str()), (vec![], "now"));
        let mut store = Store::new(Some(dir), "made-up");
        assert!(store.begin("one plan", "then").unwrap().0.is_empty());
        store.keep(&trial(0)).unwrap();
        store.keep(&trial(1)).unwrap();
        drop(store);
        // Killed while it wrote.
        let path = dir.join("made-up.partial");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"arm\": \"we");
        fs::write(&path, text).unwrap();
        let (mut store, trials, started_at) = begin("one plan").unwrap();
        assert_eq!((trials, started_at.as_str()), (vec![trial(0), trial(1)], "then"));
        store.keep(&trial(2)).unwrap();
        drop(store);
        let refused = |plan| begin(plan).err().unwrap().to_string();
        assert!(refused("another plan").contains("made-up.partial keeps trials of another plan"));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 4);
        fs::write(&path, [text.replace("\"repeat\":1", "\"rep").as_bytes(), b"\xff\n"].concat())
            .unwrap();
        assert!(refused("one plan").contains("is damaged in line 3: "));
    }
}

//! Where a run is kept while it lasts, so that one that was stopped goes on: a line for each trial.

use std::fs::{self, File};
use std::io::Write;
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

    /// Begins, or goes on where a run of the same plan was stopped: returns its trials.
    pub fn begin(&mut self, identity: &str) -> Result<Vec<Trial>> {
        let Some(path) = self.path.as_ref().map(|path| path.with_extension("partial")) else {
            return Ok(vec![]);
        };
        let dir = path.parent().unwrap_or(&path);
        fs::create_dir_all(dir).map_err(cannot("create", dir.display()))?;
        let failed = cannot("write", path.display());
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text.lines();
        let trials = match lines.next() {
            // The last line may be cut short.
            Some(first) if first == identity => {
                lines.map_while(|l| serde_json::from_str(l).ok()).collect()
            }
            _ => vec![],
        };
        let mut file = File::create(&path).map_err(&failed)?;
        writeln!(file, "{identity}").map_err(&failed)?;
        self.partial = Some(file);
        for trial in &trials {
            self.keep(trial)?;
        }
        Ok(trials)
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
    fs::write(&beside, text).map_err(&failed)?;
    fs::rename(&beside, path).map_err(|source| {
        let _ = fs::remove_file(&beside);
        failed(source)
    })
}

/// Every result in a directory and its path, by name.
pub fn read_all(dir: &Path) -> Result<Vec<(PathBuf, Run)>> {
    let object = dir.display().to_string();
    let entries = fs::read_dir(dir).map_err(cannot("list", &object))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(Error::refused(
            format!("there is no result in {object}"),
            "name a directory that `weir lab run --out` wrote",
        ));
    }
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
        let mut store = Store::new(Some(dir), "made-up");
        assert!(store.begin("one plan").unwrap().is_empty());
        store.keep(&trial(0)).unwrap();
        store.keep(&trial(1)).unwrap();
        drop(store);
        // Killed while it wrote.
        let path = dir.join("made-up.partial");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"arm\": \"we");
        fs::write(&path, text).unwrap();
        let mut store = Store::new(Some(dir), "made-up");
        assert_eq!(store.begin("one plan").unwrap(), [trial(0), trial(1)]);
        drop(store);
        let mut store = Store::new(Some(dir), "made-up");
        assert!(store.begin("another plan").unwrap().is_empty());
    }
}

//! Where a run is kept while it lasts, so that one that was stopped goes on: a line for each trial.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result, cannot};
use crate::run::Run;

/// Before the seed with which an identity ends, if it has one.
pub const SEED: &str = " --seed ";

/// The file that a run's trials are appended to, and the result that it becomes.
///
/// When the result is written, the file keeps its first line until the command has ended: a command
/// that is stopped at a later experiment finds by it that this one has been measured.
pub struct Store {
    /// Both, without their extension; `None`: nothing is kept.
    path: Option<PathBuf>,
    /// With the length of its first line.
    partial: Option<(File, u64)>,
}

impl Store {
    pub fn new(dir: Option<&Path>, name: &str) -> Self {
        Self { path: dir.map(|dir| dir.join(name)), partial: None }
    }

    /// Begins, or goes on where a run of the same identity was stopped: `run` gets its trials and
    /// setups, and when it was started first. Returns whether that run is whole: then `run` is its
    /// result. Trials of another run are not lost by this one.
    pub fn begin(&mut self, identity: &str, run: &mut Run) -> Result<bool> {
        let Some(path) = self.path.as_ref().map(|path| path.with_extension("partial")) else {
            return Ok(false);
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
        let elsewhere = "name another directory, or move its *.partial files away";
        let refused = |problem: &str, remedy: &str| {
            Err(Error::refused(format!("{object} {problem}"), remedy))
        };
        let (started_at, known) = first.split_once(' ').unwrap_or_default();
        let whole = Run::read(&path.with_extension("json")).ok();
        let whole = whole.filter(|run| lines.is_empty() && run.head.started_at == started_at);
        match whole {
            _ if known != identity && (whole.is_some() || !lines.is_empty()) => {
                return match (known.rsplit_once(SEED), identity.rsplit_once(SEED)) {
                    (Some((plan, seed)), Some((same, _))) if plan == same => refused(
                        "is of a run that was stopped, with another seed",
                        &format!("give --seed {seed} to go on with it; else {elsewhere}"),
                    ),
                    _ => refused(
                        "is of a run that was stopped, of another plan, build, kernel or program",
                        elsewhere,
                    ),
                };
            }
            Some(whole) => {
                *run = whole;
                return Ok(true);
            }
            None if known == identity => started_at.clone_into(&mut run.head.started_at),
            None => {}
        }
        for (at, line) in lines.lines().enumerate() {
            let read = if line.starts_with('[') {
                serde_json::from_str(line)
                    .map(|(arm, setup)| drop(run.head.setup.insert(arm, setup)))
            } else {
                serde_json::from_str(line).map(|trial| run.trials.push(trial))
            };
            if let Err(wrong) = read {
                let problem = format!("is damaged in line {}: {wrong}", at + 2);
                return refused(&problem, elsewhere);
            }
        }
        let first = format!("{} {identity}\n", run.head.started_at);
        write_whole(&path, &(first.clone() + lines))?;
        let file = File::options().append(true).open(&path).map_err(cannot("open", &object))?;
        self.partial = Some((file, first.len() as u64));
        Ok(false)
    }

    /// Whether it has begun, and is not whole.
    pub fn is_unfinished(&self) -> bool {
        self.partial.is_some()
    }

    /// Keeps a trial; or an arm and what ran where in it, as an array, which no trial is.
    pub fn keep(&mut self, kept: &impl Serialize) -> Result<()> {
        let Some((path, (file, _))) = self.path.as_ref().zip(self.partial.as_mut()) else {
            return Ok(());
        };
        let line = serde_json::to_string(kept).map_err(cannot("write", "a trial"))?;
        writeln!(file, "{line}").map_err(cannot("write", path.with_extension("partial").display()))
    }

    /// Writes the whole result. Returns its path, if it was not there.
    pub fn finish(&mut self, run: &Run) -> Result<Option<PathBuf>> {
        let Some((path, (file, first))) = self.path.as_ref().zip(self.partial.as_ref()) else {
            return Ok(None);
        };
        let whole = path.with_extension("json");
        write_whole(&whole, &run.to_json()?)?;
        file.set_len(*first)
            .map_err(cannot("shorten", path.with_extension("partial").display()))?;
        self.partial = None;
        Ok(Some(whole))
    }

    /// The command has ended: given again, it is to measure anew.
    pub fn forget(&self) {
        let partial = self.path.iter().map(|path| path.with_extension("partial"));
        partial.for_each(|path| fs::remove_file(path).unwrap_or_default());
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
    use crate::report::made_up;
    use crate::run::{Load, Setup, Trial};

    fn trial(repeat: u32) -> Trial {
        let values = [("loss".to_owned(), 0.5)].into();
        Trial { repeat, values, ..Trial::of("weir", "recv", Load::Top) }
    }

    fn begin(dir: &Path, plan: &str, now: &str) -> Result<(Store, Run, bool)> {
        let mut run = Run { head: made_up::head("made-up", &[]), trials: vec![] };
        now.clone_into(&mut run.head.started_at);
        let mut store = Store::new(Some(dir), "made-up");
        store.begin(plan, &mut run).map(|is_whole| (store, run, is_whole))
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_only_as_it_began() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (_, run, _) = begin(dir, "another plan", "now").unwrap();
        assert_eq!((run.trials, run.head.started_at.as_str()), (vec![], "now"));
        let (mut store, run, _) = begin(dir, "one plan", "then").unwrap();
        assert!(run.trials.is_empty());
        let setup = Setup { gate: "CPU 1".into(), ..Setup::default() };
        store.keep(&trial(0)).unwrap();
        store.keep(&("weir", &setup)).unwrap();
        store.keep(&trial(1)).unwrap();
        drop(store);
        // Killed while it wrote.
        let path = dir.join("made-up.partial");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"arm\": \"we");
        fs::write(&path, text).unwrap();
        let (mut store, run, is_whole) = begin(dir, "one plan", "now").unwrap();
        assert_eq!(run.head.setup, [("weir".to_owned(), setup)].into());
        let found = (run.trials, run.head.started_at.as_str(), is_whole);
        assert_eq!(found, (vec![trial(0), trial(1)], "then", false));
        store.keep(&trial(2)).unwrap();
        drop(store);
        let refused = |plan| begin(dir, plan, "now").err().unwrap().to_string();
        assert!(refused("another plan").contains("made-up.partial is of a run that was stopped"));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 5);
        fs::write(&path, [text.replace("\"repeat\":1", "\"rep").as_bytes(), b"\xff\n"].concat())
            .unwrap();
        assert!(refused("one plan").contains("is damaged in line 4: "));
    }

    #[test]
    fn a_run_that_is_whole_is_known_until_its_command_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let (mut store, mut run, _) = begin(dir, "one plan", "then").unwrap();
        run.trials.push(trial(0));
        store.keep(&trial(0)).unwrap();
        assert_eq!(store.finish(&run).unwrap(), Some(dir.join("made-up.json")));
        let (mut store, again, is_whole) = begin(dir, "one plan", "now").unwrap();
        assert_eq!((&again, is_whole), (&run, true));
        assert_eq!(store.finish(&again).unwrap(), None);
        assert!(begin(dir, "another plan", "now").is_err());
        store.forget();
        begin(dir, "pairs --seed 7", "then").unwrap().0.keep(&trial(0)).unwrap();
        let refused = begin(dir, "pairs --seed 8", "now").err().unwrap().to_string();
        assert!(refused.contains("give --seed 7 to go on with it"), "{refused}");
        let refused = begin(dir, "others --seed 8", "now").err().unwrap().to_string();
        assert!(!refused.contains("--seed"), "{refused}");
        store.partial = Some((File::create("/dev/full").unwrap(), 0));
        let full = store.keep(&trial(0)).unwrap_err().to_string();
        assert!(
            full.contains(&format!("{}: No space", dir.join("made-up.partial").display())),
            "{full}"
        );
        store.forget();
        let (_, anew, is_whole) = begin(dir, "one plan", "now").unwrap();
        assert_eq!((anew.trials, is_whole), (vec![], false));
        // It has begun, and what is there is another's.
        assert!(!begin(dir, "one plan", "later").unwrap().2);
    }
}

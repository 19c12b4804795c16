//! A `weir screen` between the networks of a [`Path`].

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::path::Path;
use super::{ConfigFile, Owned, WEIR};

/// A screen with these rules between new networks.
pub fn screened(rules: &str, options: &[&str]) -> (Path, ConfigFile, Screen) {
    let (path, rules) = (Path::new(), ConfigFile::new("screen", rules));
    let screen = Screen::start(&path, &rules, options);
    (path, rules, screen)
}

/// A running `weir screen`.
pub struct Screen {
    pub child: Owned,
    lines: BufReader<ChildStdout>,
}

impl Screen {
    pub fn start(path: &Path, rules: &ConfigFile, options: &[&str]) -> Self {
        Self::start_and_tell(path, rules, options).0
    }

    /// The same, and its first line.
    pub fn start_and_tell(path: &Path, rules: &ConfigFile, options: &[&str]) -> (Self, Value) {
        let mut command = Command::new(WEIR);
        command.args(["screen", rules.path(), "--in", "in", "--out", "out", "--json"]);
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = path.router.run(|| Owned::start(&mut command)).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut screen = Self { child, lines };
        let line = screen.line();
        if line.is_null() {
            panic!("it ended: {}", screen.child.last_words());
        }
        assert_eq!(line["event"], "ready");
        (screen, line)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    pub fn event(&mut self, event: &str) -> Value {
        loop {
            let line = self.line();
            assert!(!line.is_null(), "it ended");
            if line["event"] == event {
                return line;
            }
        }
    }

    pub fn stats(&mut self) -> Value {
        self.signal(Signal::USR1);
        self.event("stats")
    }

    /// Ctrl-C, and its last words.
    pub fn interrupt(&mut self) -> String {
        self.signal(Signal::INT);
        let said = self.child.last_words();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

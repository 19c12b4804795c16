//! The file: TOML, read as a whole, with the line of each value.
//!
//! The tables are walked here rather than by serde: serde stops at the first mistake, and a user is to
//! see all of them, in the file's own words.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;
use weir_bpf::sys::link::{MAX_NAME_BYTES, check_name};

use super::error::{ConfigError, Problem};
use super::layer::{Line, Origin, Sourced};
use super::settings::{KEYS, Layer};
use super::shares::EffectiveShares;
use super::text::{Put, Text, Value};
use super::value;
use crate::named_file;

/// What a configuration may have, in bytes. Each weight is compared with those before it, so the time grows with the
/// square of their number, and a daemon reads the file again in its main loop.
pub(super) const SIZE_MAX: u64 = 1 << 16;

#[path = "file_shares.rs"]
mod shares;

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

/// A valid configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says of every interface.
    pub everywhere: Layer,
    /// What it says of single ones.
    pub interfaces: BTreeMap<String, Layer>,
    /// What holds of fair shares by it.
    pub shares: EffectiveShares,
    /// Where metrics are served.
    pub metrics: Option<Sourced<SocketAddr>>,
}

impl ConfigFile {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.into(), source };
        Self::parse(path, &named_file::read(path, SIZE_MAX).map_err(unreadable)?)
    }

    /// Checks a file's contents.
    ///
    /// # Errors
    /// If anything is wrong: everything that is, by line.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ConfigError> {
        let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let newlines: Vec<usize> = newlines.map(|(at, _)| at).collect();
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = Line::of(&newlines, error.valid_up_to());
            let what = "this is not UTF-8 text, as TOML must be".into();
            ConfigError::Wrong(vec![Problem { path: path.into(), line, what }])
        })?;
        let mut walk = Walk { path, text, newlines, problems: Vec::new() };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            // What follows a syntax error may be misread: nothing else is said of the file.
            walk.syntax(&error);
        }
        if !walk.problems.is_empty() {
            return Err(walk.wrong());
        }
        let file = walk.file(table.get_ref());
        if !walk.problems.is_empty() {
            return Err(walk.wrong());
        }
        Ok(file)
    }
}

/// A walk over a file's tables, and the problems met on it.
struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    newlines: Vec<usize>,
    problems: Vec<Problem>,
}

impl<'a> Walk<'a> {
    fn file(&mut self, table: &DeTable<'_>) -> ConfigFile {
        let mut file = ConfigFile {
            path: self.path.into(),
            everywhere: Layer::default(),
            interfaces: BTreeMap::new(),
            shares: EffectiveShares::default(),
            metrics: None,
        };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "interface" => file.interfaces = self.interfaces(key, value),
                "shares" => file.shares = self.shares(key, value),
                "metrics" => {
                    let read = self.text_of(value).quoted(value::metrics);
                    let read = read.put(&mut file.metrics, Origin::File(self.line(key)));
                    self.read(key, value, read);
                }
                _ => self.setting(&mut file.everywhere, key, value, Origin::File),
            }
        }
        file
    }

    fn interfaces(&mut self, key: &Key<'_>, value: &Value<'_>) -> BTreeMap<String, Layer> {
        let Some(sections) = value.get_ref().as_table() else {
            self.problem(key, "write a section, such as [interface.eth0]".into());
            return BTreeMap::new();
        };
        let mut interfaces = BTreeMap::new();
        for (name, section) in sections {
            if check_name(name.get_ref()).is_err() {
                let what = format!(
                    "{:?} cannot be an interface's name; write one of at most {MAX_NAME_BYTES} bytes, \
                     such as [interface.eth0]",
                    name.get_ref()
                );
                self.problem(name, what);
            } else if let Some(settings) = section.get_ref().as_table() {
                let layer = self.section(name, settings);
                interfaces.insert(name.get_ref().to_string(), layer);
            } else {
                let what = "settings belong under an interface's section, such as [interface.eth0], those of every \
                            interface above the first section";
                self.problem(name, what.into());
            }
        }
        interfaces
    }

    fn section(&mut self, name: &Key<'_>, settings: &DeTable<'_>) -> Layer {
        let mut layer = Layer::default();
        for (key, value) in settings {
            if value.get_ref().is_table() {
                // What TOML makes of a VLAN's name.
                let what = format!(
                    "an interface's section contains no sections; if the interface's name has a \
                     dot, write it in quotes: [interface.\"{}.{}\"]",
                    name.get_ref(),
                    key.get_ref()
                );
                self.problem(key, what);
            } else {
                self.setting(&mut layer, key, value, Origin::Interface);
            }
        }
        layer
    }

    fn setting(
        &mut self,
        layer: &mut Layer,
        key: &Key<'_>,
        value: &Value<'_>,
        origin: fn(Line) -> Origin,
    ) {
        let origin = origin(self.line(key));
        let text = self.text_of(value);
        let read = match key.get_ref().as_ref() {
            "protect" if !matches!(origin, Origin::Interface(_)) => {
                let what = "protect belongs in an interface's section, such as [interface.eth0]";
                return self.problem(key, what.into());
            }
            "metrics" => {
                let what = "metrics belongs above the first section, because it is the host's";
                return self.problem(key, what.into());
            }
            name => match layer.read(name, &text, origin) {
                Some(read) => read,
                None => {
                    let keys = KEYS.join(", ");
                    let what = format!(
                        "there is no setting {name:?}; the settings are {keys} of an interface, and metrics of \
                         the host; the sections are [interface.NAME] and [shares]"
                    );
                    return self.problem(key, what);
                }
            },
        };
        self.read(key, value, read);
    }

    /// Says what is wrong with a value, if anything is.
    fn read(&mut self, key: &Key<'_>, value: &Value<'_>, read: Result<(), String>) {
        if let Err(why) = read {
            let what = format!("{}: {why}", self.text_of(value).shown(key.get_ref()));
            self.problem(key, what);
        }
    }

    fn syntax(&mut self, error: &toml::de::Error) {
        let offset = error.span().map_or(0, |span| span.start);
        let line = Line::of(&self.newlines, offset);
        let mut what = error.message().replace('\n', ", ");
        if self.is_bare_value(offset) {
            what.push_str("; a percentage, a time or a word is a string, such as \"50%\"");
        }
        self.problems.push(Problem { path: self.path.into(), line, what });
    }

    /// Whether this is in a value without quotes: `user_share = 50%`, the likeliest mistake of all.
    fn is_bare_value(&self, offset: usize) -> bool {
        let Some((before, after)) = self.text.split_at_checked(offset) else { return false };
        let before = before.rsplit('\n').next().unwrap_or_default();
        let line = format!("{before}{}", after.lines().next().unwrap_or_default());
        let value = line.split_once('=').map_or("", |(_, value)| value.trim_start());
        before.contains('=') && value.starts_with(|first: char| first.is_alphanumeric())
    }

    fn text_of<'b>(&self, value: &'b Value<'b>) -> Text<'b>
    where
        'a: 'b,
    {
        Text::new(value, self.raw(value))
    }

    /// A value as it is written.
    fn raw(&self, value: &Value<'_>) -> &'a str {
        self.text.get(value.span()).unwrap_or_default()
    }

    fn line(&self, key: &Key<'_>) -> Line {
        Line::of(&self.newlines, key.span().start)
    }

    fn problem(&mut self, key: &Key<'_>, what: String) {
        self.problem_at(self.line(key), what);
    }

    fn problem_at(&mut self, line: Line, what: String) {
        self.problems.push(Problem { path: self.path.into(), line, what });
    }

    fn wrong(mut self) -> ConfigError {
        self.problems.sort_by_key(|problem| problem.line);
        // One mistake may make the parser stumble several times.
        self.problems.dedup();
        ConfigError::Wrong(self.problems)
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;

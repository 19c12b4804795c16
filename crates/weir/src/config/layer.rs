//! Values of settings, and where each comes from.

use serde_json::Value;

/// The file that is read if no other is named and it exists.
pub const DEFAULT_FILE: &str = "/etc/weir/weir.toml";

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody has said anything.
    Default,
    /// The file, for every interface.
    File(Line),
    /// The file, for this interface.
    Interface(Line),
    /// The command line.
    Flag,
}

/// The number of a line in the file, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(pub usize);

impl Line {
    /// The line in which a byte is, of a text with newlines at these offsets.
    pub fn of(newlines: &[usize], offset: usize) -> Self {
        Self(1 + newlines.partition_point(|at| *at < offset))
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

/// One setting, for a person or a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is called in the file.
    pub key: &'static str,
    /// Its value as the file has it; `null` for what only the absence of a value says.
    pub value: Value,
    /// What that absence says.
    pub unset: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it changes while weir runs.
    pub live: bool,
}

impl Row {
    /// The value, for a person.
    pub fn text(&self) -> String {
        match &self.value {
            Value::Null => self.unset.into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

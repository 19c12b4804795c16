//! What is wrong with a configuration.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::layer::Line;

/// Why a configuration cannot be used. Nothing of it is.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {}: {source}; with --config, name a file that can be read, or \
         /dev/null for none",
        .path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file was there when the daemon started, and is no more.
    #[error(
        "the configuration {} is gone; put it back, or restart weir to do without it",
        .0.display()
    )]
    Gone(PathBuf),
    /// A pipe or a device was read once, and cannot be read again.
    #[error(
        "the configuration {} is not a regular file, and is read only once; restart weir to change \
         settings",
        .0.display()
    )]
    NotAgain(PathBuf),
    /// Its contents are wrong, in these places.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
}

/// What is wrong in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub line: Line,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line.0, self.what)
    }
}

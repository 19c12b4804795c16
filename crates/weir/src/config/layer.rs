//! Values of settings, and where each comes from.

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

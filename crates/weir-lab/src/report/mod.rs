//! What a reader gets of an [`Outcome`](crate::results::Outcome): a table for the terminal, a plot, a
//! page, one sentence, and the files of a results directory.
//!
//! Nothing here measures. All of it is a function of the recorded figures, so `weir lab report`
//! gives the same from a file as `weir lab run` gave.

mod accounting;
mod axis;
mod content;
mod drawing;
mod files;
mod receivers;

#[cfg(test)]
mod fixture;
#[cfg(test)]
pub(crate) mod fixture_accounting;
#[cfg(test)]
mod fixture_gate_cost;
#[cfg(test)]
pub(crate) mod fixture_http;
#[cfg(test)]
pub(crate) mod fixture_latency;
#[cfg(test)]
mod fixture_load;
#[cfg(test)]
pub(crate) mod fixture_parity;
#[cfg(test)]
pub(crate) mod fixture_rpc;
mod gate_cost;
mod html;
mod http;
mod kinds;
mod latency;
mod load;
mod marker;
mod merit;
mod neighbour;
mod parity;
mod plot;
mod rpc;
mod sentence;
mod separation;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_accounting;
#[cfg(test)]
mod tests_http;
#[cfg(test)]
mod tests_latency;
#[cfg(test)]
mod tests_load;
#[cfg(test)]
mod tests_parity;
#[cfg(test)]
mod tests_rpc;
mod units;
mod user_share;
mod view;

use std::path::PathBuf;

pub use accounting::accounting_sentence;
pub use files::{json, read, write, write_page};
pub use gate_cost::gate_cost_sentence;
pub use html::{html, html_all};
pub use http::http_sentence;
pub use kinds::kinds_sentence;
pub use latency::latency_sentence;
pub use neighbour::neighbour_sentence;
pub use parity::parity_sentence;
pub use plot::plot_svg;
pub use receivers::receivers_sentence;
pub use rpc::rpc_sentence;
pub use sentence::sentence;
pub use separation::separation_sentence;
pub use table::table;
pub use user_share::user_share_sentence;
pub use view::{Figure, View};

use crate::results::SCHEMA;

/// Why a report could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system refused.
    #[error("cannot {operation} {}: {cause}; {remedy}", path.display())]
    File {
        /// What was tried, such as `write`.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A directory without a result in it.
    #[error(
        "no results in {}: it holds no *.json; make one with \
         `weir lab run udp-overload --out {}`", dir.display(), dir.display()
    )]
    Empty {
        /// The directory.
        dir: PathBuf,
    },
    /// A file that is not JSON, or not a result.
    #[error(
        "cannot read {} as a result, line {line}, column {column}: {problem}; restore the file \
         from the run that made it, or move it out of the directory", path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where it breaks, from 1; 0 where the whole file is meant.
        line: usize,
        /// Where in the line, from 1.
        column: usize,
        /// What is wrong there.
        problem: String,
    },
    /// A result of another version of weir.
    #[error(
        "cannot read {}: it has schema {found} and this weir reads schema {SCHEMA}; report it \
         with the version of weir that made it, or run the experiment again", path.display()
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// The file's schema.
        found: u32,
    },
    /// An experiment whose name cannot be a file's.
    #[error(
        "cannot name files after the experiment {name:?}: use letters, digits, `-` and `_`, as in \
         udp-overload"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Figures that JSON cannot hold.
    #[error(
        "cannot write the result of {experiment} as JSON: {problem}; a figure is not a finite \
         number, which is a bug of the experiment: report it"
    )]
    Figures {
        /// The experiment.
        experiment: String,
        /// What the serializer said.
        problem: String,
    },
    /// The drawing library refused.
    #[error("cannot plot {experiment}: {problem}; this is a bug of weir: report it with the JSON")]
    Plot {
        /// The experiment.
        experiment: String,
        /// What it said.
        problem: String,
    },
}

//! What can go wrong in the lab.

use std::io;

/// Why a lab run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel boundary.
    #[error(transparent)]
    Kernel(#[from] weir_bpf::Error),
    /// Reading or writing a file, or starting a process.
    #[error("cannot {operation} {object}: {source}")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The request or the machine is not fit for the experiment.
    #[error("{problem}; {remedy}")]
    Refused {
        /// What is in the way.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; everything that the lab made has been removed")]
    Interrupted,
}

impl Error {
    pub(crate) fn refused(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), remedy: remedy.into() }
    }
}

/// What makes an error of the system's answer: what was tried, as a verb, and on what.
pub(crate) fn cannot<S: Into<io::Error>>(
    operation: &'static str,
    object: impl ToString,
) -> impl Fn(S) -> Error {
    let object = object.to_string();
    move |source| Error::Io { operation, object: object.clone(), source: source.into() }
}

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, Error>;

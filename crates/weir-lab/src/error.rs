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
    /// A file of results that is none.
    #[error("cannot {operation} {object}: {source}; name a file that `weir lab run --out` wrote")]
    Json {
        /// What was tried, as a verb.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; everything that the lab made has been removed")]
    Interrupted,
}

impl Error {
    pub(crate) fn io(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { operation, object: object.into(), source: source.into() }
    }

    pub(crate) fn json(
        operation: &'static str,
        object: impl Into<String>,
        source: serde_json::Error,
    ) -> Self {
        Self::Json { operation, object: object.into(), source }
    }

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
    move |source| Error::io(operation, object.clone(), source)
}

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, Error>;

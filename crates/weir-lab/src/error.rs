//! What can go wrong in the lab.

use std::io;

/// Why a lab run ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system's answer, or a request or a machine that is not fit for the experiment.
    #[error(transparent)]
    Kernel(#[from] weir_bpf::Error),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; everything that the lab made has been removed")]
    Interrupted,
    /// The same, of a run whose trials are kept: which command goes on.
    #[error("interrupted; everything that the lab made has been removed; {0}")]
    Stopped(String),
    /// Something else, of a run whose trials are kept.
    #[error("{0}; once that is mended, {1}")]
    Unfinished(Box<Self>, String),
}

impl Error {
    pub(crate) fn refused(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        weir_bpf::Error::refused(problem, remedy).into()
    }
}

/// What makes an error of the system's answer: what was tried, as a verb, and on what.
pub(crate) fn cannot<S: Into<io::Error>>(
    operation: &'static str,
    object: impl ToString,
) -> impl Fn(S) -> Error {
    let object = object.to_string();
    move |source| weir_bpf::Error::system(operation, object.clone(), source).into()
}

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, Error>;

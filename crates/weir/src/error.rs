//! Errors name the operation, the object and the remedy.

use std::io;
use std::path::PathBuf;

use weir_bpf::error::or_files;
use weir_bpf::sys::stat::Stat;

use crate::config::error::ConfigError;
use crate::explain::error::CaptureError;

/// What went wrong in the daemon or the command line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel boundary's answer, or something about the machine or the request that has a remedy.
    #[error(transparent)]
    Kernel(#[from] weir_bpf::Error),
    /// A file could not be used.
    #[error("cannot {operation} {}: {source}{}", .path.display(), or_files(.source))]
    File {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file's contents are not what weir writes.
    #[error("{} is not a file that this version of weir wrote ({problem}); {remedy}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A packet capture cannot be read, or not further.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Another daemon protects the interface.
    #[error("weir already protects {interface}{}", or_where_it_is(.pid))]
    Running {
        /// The interface.
        interface: String,
        /// The other daemon; `None` if it is not seen from this PID namespace.
        pid: Option<i32>,
    },
    /// Some knobs could not be put back.
    #[error("{}; weir keeps a record of them: `weir reset` tries again", .0.join("; "))]
    NotRestored(Vec<String>),
    /// A system call outside weir-bpf failed.
    #[error("cannot {operation}: {source}{}", or_files(.source))]
    System {
        /// What was tried, as a verb and its object.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn or_where_it_is(pid: &Option<i32>) -> String {
    pid.map_or_else(
        || " in a PID namespace that is not seen from here; stop it there".into(),
        |pid| {
            let stopped = Stat::of(pid).is_some_and(|stat| stat.is_stopped());
            let first = if stopped {
                format!(" after `kill -CONT {pid}`, as it is suspended")
            } else {
                String::new()
            };
            format!(
                " (pid {pid}); look at it with `weir status`, or stop it with `kill {pid}`{first}"
            )
        },
    )
}

impl Error {
    /// A system call's failure.
    pub fn system(operation: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { operation, source: source.into() }
    }

    /// A request that cannot be met, and what to do instead.
    pub fn refused(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        weir_bpf::Error::refused(problem, remedy).into()
    }

    /// A thread or process that could not be started.
    pub fn unstarted(operation: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::WouldBlock {
            return Self::refused(
                format!("cannot {operation}: {source}"),
                "weir may have too few threads: raise pids.max of its control group (TasksMax= of a service)",
            );
        }
        Self::system(operation, source)
    }

    /// A file that could not be used; `operation` is a verb.
    pub fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::File { operation, path: path.into(), source: source.into() }
    }
}

/// Result of a daemon's or the command line's operation.
pub type Result<T> = std::result::Result<T, Error>;

//! Errors name the operation, the object and, where there is one, the remedy.

use std::io;
use std::path::Path;

use rustix::io::Errno;

/// What to do when the kernel refuses a program.
const LOAD_REMEDY: &str = "weir needs root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN) and a \
     kernel with BTF, 6.1 or later (/sys/kernel/btf/vmlinux)";

/// The same where the process has the capabilities: a container runtime's filter may not know them.
const SECCOMP_REMEDY: &str = "a seccomp filter is in force for weir and may deny it bpf(): run it \
     without (docker, podman: --security-opt seccomp=unconfined; Kubernetes: seccompProfile)";

/// The same where memory is missing.
const MEMORY_REMEDY: &str = "free some, or let weir have more (MemoryMax= of a service)";

/// The same where descriptors are missing.
pub const FILES_REMEDY: &str = "weir may have too few open files: raise the hard limit (`ulimit -Hn`, \
     LimitNOFILE= of a service)";

/// The same where there is no sysfs.
const SYSFS_REMEDY: &str = "/sys is not mounted: `mount -t sysfs sysfs /sys`";

/// What went wrong at the kernel boundary.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {object}: {source}{}", or_files(.source))]
    System {
        /// What was tried, as a verb.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A netlink request failed.
    #[error("cannot {operation} {object}: {message}")]
    Netlink {
        /// What was tried, as a verb.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// The kernel's or the library's answer.
        message: String,
    },
    /// libbpf refused.
    #[error("cannot {operation} {object}: {source}{}", or_nothing(.remedy))]
    Bpf {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The program, map or interface.
        object: String,
        /// libbpf's answer.
        source: libbpf_rs::Error,
        /// What to do about it.
        remedy: Option<String>,
    },
    /// No such interface in this network namespace.
    #[error("no interface named {:?} in this network namespace; {}", .0, what_it_could_be(.0))]
    NoInterface(String),
    /// Something about the machine or the request that has a remedy.
    #[error("{problem}; {remedy}")]
    Refused {
        /// What is in the way.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
}

fn or_nothing(remedy: &Option<String>) -> String {
    remedy.as_ref().map(|text| format!("; {text}")).unwrap_or_default()
}

/// What follows an error for want of descriptors; nothing after another.
pub fn or_files(source: &io::Error) -> String {
    let lacks = Errno::from_io_error(source) == Some(Errno::MFILE);
    or_nothing(&lacks.then(|| FILES_REMEDY.into()))
}

/// `ip link` shows `NAME@LOWER`.
fn what_it_could_be(name: &str) -> &'static str {
    match name.contains('@') {
        true => "leave out @ and what follows, which names another interface",
        false => "`ip link` lists them",
    }
}

impl Error {
    /// An operation's failure with the kernel's error number.
    pub fn system(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::System { operation, object: object.into(), source: source.into() }
    }

    /// What has a remedy.
    pub fn refused(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), remedy: remedy.into() }
    }

    /// The number of the kernel's refusal, if that is what it is.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }

    /// What libbpf's answer to an operation on what weir loads becomes.
    pub(crate) fn bpf(
        operation: &'static str,
        object: &'static str,
    ) -> impl Fn(libbpf_rs::Error) -> Self {
        Self::bpf_remedied(operation, object, LOAD_REMEDY)
    }

    /// The same, with another remedy.
    pub(crate) fn bpf_remedied(
        operation: &'static str,
        object: impl AsRef<str>,
        remedy: &'static str,
    ) -> impl Fn(libbpf_rs::Error) -> Self {
        move |source| {
            use libbpf_rs::ErrorKind::{OutOfMemory, PermissionDenied};
            // Its text alone tells the number.
            let full = format!("{source:#}").ends_with(&io::Error::from(Errno::MFILE).to_string());
            let remedy = match source.kind() {
                OutOfMemory => MEMORY_REMEDY,
                PermissionDenied if is_filtered() => SECCOMP_REMEDY,
                _ if full => FILES_REMEDY,
                _ if !Path::new("/sys/kernel").exists() => SYSFS_REMEDY,
                _ => remedy,
            };
            let (object, remedy) = (object.as_ref().into(), Some(remedy.into()));
            Self::Bpf { operation, object, source, remedy }
        }
    }

    /// The same, where there is no remedy.
    pub(crate) fn libbpf(
        operation: &'static str,
        object: impl AsRef<str>,
    ) -> impl Fn(libbpf_rs::Error) -> Self {
        move |source| Self::Bpf { operation, object: object.as_ref().into(), source, remedy: None }
    }
}

/// Whether this thread's system calls are filtered (`SECCOMP_MODE_FILTER`).
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// Result of an operation at the kernel boundary.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_for_what_is_missing() {
        for (errno, remedy) in [
            (Errno::NOMEM, MEMORY_REMEDY),
            (Errno::MFILE, FILES_REMEDY),
            (Errno::INVAL, LOAD_REMEDY),
        ] {
            let source = libbpf_rs::Error::from_raw_os_error(errno.raw_os_error());
            let said = Error::bpf("load", "the gate")(source).to_string();
            assert!(said.ends_with(remedy), "{said}");
        }
    }
}

//! Who a process number belongs to: numbers are reused, so a number alone names nobody.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use weir_bpf::sys::stat::Stat;

use crate::error::{Error, Result};
use crate::ready;

/// A process or kernel thread that cannot be mistaken for a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its number.
    pub pid: i32,
    /// Its name, at most 15 bytes (proc(5), `comm`).
    pub comm: String,
    /// When it started, in clock ticks since boot (proc(5), `starttime`).
    pub start_ticks: u64,
}

impl Task {
    /// The task that has this number now.
    pub fn with_pid(pid: i32) -> Option<Self> {
        Self::of(pid, &Stat::of(pid)?)
    }

    /// The NAPI thread that has this number now; `None` if it is another kind of task.
    pub fn napi_thread(pid: i32) -> Option<Self> {
        Self::of(pid, &Stat::of(pid).filter(is_napi_thread)?)
    }

    /// Whether it, a NAPI thread, lives.
    ///
    /// # Errors
    /// If that cannot be told.
    pub fn lives(&self) -> Result<bool> {
        let present = look(self.pid)?.filter(is_napi_thread);
        Ok(present.and_then(|stat| Self::of(self.pid, &stat)).as_ref() == Some(self))
    }

    /// This process.
    pub fn current() -> Option<Self> {
        Self::with_pid(i32::try_from(std::process::id()).ok()?)
    }

    fn of(pid: i32, stat: &Stat) -> Option<Self> {
        let comm = String::from_utf8_lossy(&stat.comm).into_owned();
        Some(Self { pid, comm, start_ticks: stat.start_ticks()? })
    }
}

/// A task by a descriptor: so that whether it lives is one cheap question, and nobody who has its number later is taken
/// for it.
#[derive(Debug)]
pub struct Held {
    /// Its number.
    pub pid: Pid,
    pidfd: OwnedFd,
}

impl Held {
    /// `None` if it has ended.
    pub fn of(task: &Task) -> Option<Self> {
        let pid = Pid::from_raw(task.pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (Task::with_pid(task.pid).as_ref() == Some(task)).then_some(Self { pid, pidfd })
    }

    /// Its number, while it lives.
    pub fn living(&self) -> Option<Pid> {
        let ended = ready::wait([self.pidfd.as_fd()], Some(Duration::ZERO));
        ended.is_ok_and(|ended| !ended[0]).then_some(self.pid)
    }
}

/// Whether this is the host's PID namespace, which kernel threads are in.
///
/// # Errors
/// If that cannot be told.
pub fn sees_kernel_threads() -> Result<bool> {
    // kthreadd, whose children they are.
    Ok(look(2)?.is_some_and(|stat| stat.is_kernel_thread()))
}

fn look(pid: i32) -> Result<Option<Stat>> {
    Stat::look(pid).map_err(|source| Error::file("read", format!("/proc/{pid}/stat"), source))
}

/// Why nothing can be done about NAPI threads from another PID namespace.
pub fn unseen() -> Error {
    Error::refused(
        "NAPI threads cannot be seen from this PID namespace",
        "run weir in the host's (`docker run --pid=host`)",
    )
}

/// The kernel names NAPI threads `napi/<interface>-<id>`. Any process can give itself such a name,
/// but not make itself a kernel thread.
fn is_napi_thread(stat: &Stat) -> bool {
    stat.is_kernel_thread() && stat.comm.starts_with(b"napi/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_calls_itself_a_napi_thread_is_none() {
        let renamed = || {
            rustix::thread::set_name(c"napi/eth0-1").unwrap();
            let own = rustix::thread::gettid().as_raw_nonzero().get();
            (Task::with_pid(own).unwrap().comm, Task::napi_thread(own))
        };
        let (comm, napi_thread) = std::thread::spawn(renamed).join().unwrap();
        assert_eq!((comm.as_str(), napi_thread), ("napi/eth0-1", None));
    }

    #[test]
    fn a_task_is_told_from_a_later_one_with_its_number() {
        let me = Task::current().unwrap();
        assert_eq!(Task::with_pid(me.pid), Some(me.clone()));
        assert_eq!(Task::napi_thread(me.pid), None);
        assert_ne!(Task::with_pid(1), Some(Task { pid: 1, ..me }));
        assert_eq!(Task::with_pid(-1), None);
    }
}

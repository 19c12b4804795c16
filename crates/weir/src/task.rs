//! Who a process number belongs to: numbers are reused, so a number alone names nobody.

use std::fs;

use serde::{Deserialize, Serialize};

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
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&stat)
    }

    /// This process.
    pub fn current() -> Option<Self> {
        Self::with_pid(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether it is a NAPI thread: the kernel names them `napi/<interface>-<id>`.
    pub fn is_napi_thread(&self) -> bool {
        self.comm.starts_with("napi/")
    }

    /// From `/proc/PID/stat`. The name is in parentheses and may itself contain any character.
    fn parse(stat: &str) -> Option<Self> {
        // Field 22; the fields after the name begin with the third.
        const START_AFTER_NAME: usize = 22 - 3;
        let (pid, rest) = stat.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let start_ticks = rest.split_ascii_whitespace().nth(START_AFTER_NAME)?.parse().ok()?;
        Some(Self { pid: pid.parse().ok()?, comm: comm.into(), start_ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_are_parsed() {
        let stat = "42 (napi/a) (b-1) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1234 0 0";
        let task = Task::parse(stat).unwrap();
        assert_eq!(task, Task { pid: 42, comm: "napi/a) (b-1".into(), start_ticks: 1234 });
        assert!(task.is_napi_thread());
    }

    #[test]
    fn a_task_is_told_from_a_later_one_with_its_number() {
        let me = Task::current().unwrap();
        assert_eq!(Task::with_pid(me.pid), Some(me.clone()));
        assert!(!me.is_napi_thread());
        assert_ne!(Task::with_pid(1), Some(Task { pid: 1, ..me }));
        assert_eq!(Task::with_pid(-1), None);
    }
}

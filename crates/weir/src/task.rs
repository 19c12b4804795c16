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
        Some(Stat::read(pid)?.task)
    }

    /// The NAPI thread that has this number now; `None` if it is another kind of task.
    pub fn napi_thread(pid: i32) -> Option<Self> {
        Stat::read(pid).filter(Stat::is_napi_thread).map(|stat| stat.task)
    }

    /// This process.
    pub fn current() -> Option<Self> {
        Self::with_pid(i32::try_from(std::process::id()).ok()?)
    }
}

/// What `/proc/PID/stat` tells about a task.
#[derive(Debug)]
struct Stat {
    task: Task,
    /// The kernel's `PF_*`.
    flags: u32,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&stat)
    }

    /// The name is in parentheses and may itself contain any character.
    fn parse(stat: &str) -> Option<Self> {
        // Fields 9 and 22; those after the name begin with the third, and none has parentheses.
        const FLAGS_AFTER_NAME: usize = 9 - 3;
        const START_AFTER_NAME: usize = 22 - 3;
        let (pid, rest) = stat.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let flags = fields.get(FLAGS_AFTER_NAME)?.parse().ok()?;
        let start_ticks = fields.get(START_AFTER_NAME)?.parse().ok()?;
        Some(Self { task: Task { pid: pid.parse().ok()?, comm: comm.into(), start_ticks }, flags })
    }

    /// The kernel names NAPI threads `napi/<interface>-<id>`. Any process can give itself such a
    /// name, but not make itself a kernel thread.
    fn is_napi_thread(&self) -> bool {
        /// linux/sched.h
        const PF_KTHREAD: u32 = 0x0020_0000;
        self.flags & PF_KTHREAD != 0 && self.task.comm.starts_with("napi/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_are_parsed() {
        let stat = "42 (napi/a) (b-1) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1234 0 0";
        let parsed = Stat::parse(stat).unwrap();
        let task = Task { pid: 42, comm: "napi/a) (b-1".into(), start_ticks: 1234 };
        assert_eq!((&parsed.task, parsed.flags), (&task, 2_129_984));
        assert!(parsed.is_napi_thread());
    }

    #[test]
    fn a_process_that_calls_itself_a_napi_thread_is_none() {
        // The fields that a kernel thread would have, in the name.
        let stat = "42 (napi/) S 2 0 0 ) R 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1234 0 0";
        let parsed = Stat::parse(stat).unwrap();
        assert_eq!((parsed.flags, parsed.task.start_ticks), (4_194_304, 1234));
        assert!(!parsed.is_napi_thread());
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

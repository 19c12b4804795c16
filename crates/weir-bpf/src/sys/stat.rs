//! What proc(5) says of `/proc/PID/stat`, and which processes and threads there are.

use std::str::FromStr;
use std::sync::LazyLock;
use std::{fs, io};

use rustix::io::Errno;

use crate::timens;

/// The processes of this PID namespace.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn processes() -> io::Result<Vec<i32>> {
    numbers("/proc")
}

/// The threads of a process.
///
/// # Errors
/// If it has ended.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    numbers(&format!("/proc/{pid}/task"))
}

fn numbers(directory: &str) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(found)
}

/// The line of one process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its name, at most 15 bytes, which may be any.
    pub comm: Vec<u8>,
    rest: Vec<String>,
}

impl Stat {
    /// Of the process or thread with this number; `None` if it has ended.
    pub fn of(pid: i32) -> Option<Self> {
        Self::look(pid).ok().flatten()
    }

    /// The same, where it must be known to have ended.
    ///
    /// # Errors
    /// If it cannot be looked at, as for want of descriptors.
    pub fn look(pid: i32) -> io::Result<Option<Self>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(line) => Ok(Self::parse(&line)),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::SRCH) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// The file at a path.
    pub fn read(path: &str) -> Option<Self> {
        Self::parse(&fs::read(path).ok()?)
    }

    /// The name is in parentheses and may itself hold any byte, so its end is the last of them.
    fn parse(line: &[u8]) -> Option<Self> {
        let begin = line.iter().position(|byte| *byte == b'(')?;
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(line.get(end + 1..)?).ok()?;
        Some(Self {
            comm: line.get(begin + 1..end)?.to_vec(),
            rest: rest.split_ascii_whitespace().map(Into::into).collect(),
        })
    }

    /// A field by proc(5)'s number, from 3 (the state) on.
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        self.rest.get(number.checked_sub(3)?)?.parse().ok()
    }

    /// Its parent's number.
    pub fn parent(&self) -> Option<i32> {
        self.field(4)
    }

    /// The session it is in; 0 where that was begun outside this PID namespace.
    pub fn session(&self) -> Option<i32> {
        self.field(6)
    }

    /// The kernel's `PF_*`.
    pub fn flags(&self) -> Option<u32> {
        self.field(9)
    }

    /// Whether it is one of the kernel's own threads, which no process can make itself.
    pub fn is_kernel_thread(&self) -> bool {
        /// linux/sched.h
        const PF_KTHREAD: u32 = 0x0020_0000;
        self.flags().is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    /// Whether a signal or a debugger has stopped it: it takes no other signal but SIGKILL.
    pub fn is_stopped(&self) -> bool {
        self.field(3).is_some_and(|state: char| matches!(state, 'T' | 't'))
    }

    /// Whether a debugger holds it: SIGCONT does not continue it.
    pub fn is_held(&self) -> bool {
        self.field(3) == Some('t')
    }

    /// Whether it has begun to end: the kernel takes away what it has, which may take a while.
    pub fn is_ending(&self) -> bool {
        /// linux/sched.h
        const PF_EXITING: u32 = 0x4;
        self.flags().is_some_and(|flags| flags & PF_EXITING != 0)
    }

    /// CPU time that it has used (`utime` + `stime`; a process: with all its threads), in clock ticks.
    pub fn cpu_ticks(&self) -> Option<u64> {
        Some(self.field::<u64>(14)? + self.field::<u64>(15)?)
    }

    /// When it started, in clock ticks since boot: the same for readers in any time namespace.
    pub fn start_ticks(&self) -> Option<u64> {
        static AHEAD: LazyLock<i64> = LazyLock::new(|| {
            let ticks_per_sec = rustix::param::clock_ticks_per_second().cast_signed();
            timens::ahead("boottime") / (1_000_000_000 / ticks_per_sec)
        });
        self.field::<u64>(22)?.checked_add_signed(-*AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_parsed() {
        let rest: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let line = |name: &[u8]| [b"7 (", name, b") ", rest.join(" ").as_bytes()].concat();
        for name in [&b"a) R 1 (b"[..], b"\xff\x1b[2J", b"", b"\n", b"napi/a) (b-1"] {
            let stat = Stat::parse(&line(name)).unwrap();
            assert_eq!((stat.comm.as_slice(), stat.start_ticks()), (name, Some(22)));
            assert_eq!((stat.parent(), stat.session(), stat.flags()), (Some(4), Some(6), Some(9)));
            assert_eq!(stat.cpu_ticks(), Some(14 + 15));
            assert_eq!((stat.field::<i32>(2), stat.field::<i32>(53)), (None, None));
        }
        assert!(Stat::parse(b"7 (").is_none() && Stat::parse(b")(").is_none());
    }

    #[test]
    fn nothing_is_told_of_nobody() {
        assert_eq!(Stat::of(-1), None);
        let own = Stat::of(std::process::id().cast_signed()).unwrap();
        assert_eq!(own.parent(), Some(std::os::unix::process::parent_id().cast_signed()));
        assert!(!own.is_kernel_thread());
    }
}

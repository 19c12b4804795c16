//! By `/proc`: a system call for every open file of every process.

use std::collections::HashSet;
use std::fs;

use super::process::{Found, Holdings, Process, ProcessId, SchedClass, Started};
use crate::error::{Error, Result};
use crate::sys::stat::{self, Stat};
use crate::units::{Nice, SocketInode, Uid};

pub(super) fn look(sockets: &HashSet<SocketInode>, goes_on: impl Fn() -> bool) -> Result<Found> {
    let mut holdings = Holdings::default();
    let mut told = Vec::new();
    let processes = stat::processes();
    for pid in processes.map_err(|source| Error::system("list", "/proc", source))? {
        if !goes_on() {
            break;
        }
        let held = held_by(pid, sockets);
        if held.is_empty() {
            continue;
        }
        // Looked at after its files, it may be another process by now only if its number has come round.
        if let Some(process) = process(pid) {
            let new = held.into_iter().filter(|inode| holdings.add(*inode, process.id));
            if new.count() > 0 {
                told.push(process);
            }
        }
    }
    Ok(Found { holders: holdings.pairs().collect(), processes: told })
}

/// Nothing of a process that has ended.
fn held_by(pid: i32, sockets: &HashSet<SocketInode>) -> HashSet<SocketInode> {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
    let inode = |file: fs::DirEntry| {
        let target = fs::read_link(file.path()).ok()?;
        let number = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        number.parse().ok().map(SocketInode)
    };
    files.flatten().filter_map(inode).filter(|inode| sockets.contains(inode)).collect()
}

fn process(pid: i32) -> Option<Process> {
    let stat = Stat::of(pid)?;
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let mut policies = vec![policy(&stat)?];
    for thread in stat::threads(pid).ok()? {
        let stat = Stat::read(&format!("/proc/{pid}/task/{thread}/stat"));
        if let Some(thread) = stat.as_ref().and_then(policy)
            && !policies.contains(&thread)
        {
            policies.push(thread);
        }
    }
    Some(Process {
        id: ProcessId { started: Started(stat.start_ticks()?), pid },
        comm: stat.comm,
        uid: effective_uid(&status)?,
        policies,
        groups: None,
    })
}

fn policy(stat: &Stat) -> Option<SchedClass> {
    Some(SchedClass::of(stat.field(41)?, Nice(stat.field(19)?)))
}

/// `Uid:` has the real one, the effective one and two more.
fn effective_uid(status: &[u8]) -> Option<Uid> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let effective = str::from_utf8(line).ok()?.split_ascii_whitespace().nth(1)?;
    effective.parse().ok().map(Uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_told() {
        assert_eq!(effective_uid(b"Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(Uid(2)));
        assert_eq!(effective_uid(b"Name:\tx\n"), None);
    }
}

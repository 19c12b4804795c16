//! By `/proc`: a system call for every open file of every process.

use std::collections::HashSet;
use std::fs;

use super::process::{Found, Process, ProcessId, SchedClass, Started};
use crate::error::{Error, Result};
use crate::sys::stat::{self, Stat};
use crate::units::{Nice, SocketInode, Uid};

pub(super) fn look(sockets: &HashSet<SocketInode>) -> Result<Found> {
    let mut found = Found::default();
    let processes = stat::processes();
    for pid in processes.map_err(|source| Error::system("list", "/proc", source))? {
        let held = held_by(pid, sockets);
        if held.is_empty() {
            continue;
        }
        // Looked at after its files, it may be another process by now only if its number has come round.
        if let Some(process) = process(pid) {
            found.holders.extend(held.into_iter().map(|inode| (inode, process.id)));
            found.processes.push(process);
        }
    }
    Ok(found)
}

/// Nothing of a process that has ended.
fn held_by(pid: i32, sockets: &HashSet<SocketInode>) -> Vec<SocketInode> {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
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

//! By `/proc`: a system call for every open file of every process.

use std::collections::HashSet;
use std::fs;

use super::{Found, Policy, Process, ProcessId, Started};
use crate::error::{Error, Result};
use crate::units::{Nice, SocketInode, Uid};

pub(super) fn look(sockets: &HashSet<SocketInode>) -> Result<Found> {
    let mut found = Found::default();
    let entries = fs::read_dir("/proc").map_err(|source| Error::system("list", "/proc", source))?;
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
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
    let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let mut policies = vec![stat.policy];
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let path = thread.path().join("stat");
        if let Some(thread) = path.to_str().and_then(Stat::read)
            && !policies.contains(&thread.policy)
        {
            policies.push(thread.policy);
        }
    }
    Some(Process {
        id: ProcessId { started: stat.started, pid },
        comm: stat.comm,
        uid: effective_uid(&status)?,
        policies,
        groups: None,
    })
}

/// What proc(5) says of `/proc/PID/stat`.
struct Stat {
    comm: Vec<u8>,
    policy: Policy,
    started: Started,
}

impl Stat {
    fn read(path: &str) -> Option<Self> {
        Self::parse(&fs::read(path).ok()?)
    }

    /// The name is in parentheses and may itself hold any byte, so its end is the last of them.
    fn parse(stat: &[u8]) -> Option<Self> {
        let begin = stat.iter().position(|byte| *byte == b'(')?;
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(stat.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Those after the name begin with the third.
        let field = |number: usize| fields.get(number - 3);
        let (nice, policy) = (field(19)?.parse().ok()?, field(41)?.parse().ok()?);
        Some(Self {
            comm: stat.get(begin + 1..end)?.to_vec(),
            policy: Policy::of(policy, Nice(nice)),
            started: Started(field(22)?.parse().ok()?),
        })
    }
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
    fn hostile_names_are_parsed() {
        let rest = (3..=52).map(|n| if n == 19 { "-5".into() } else { n.to_string() });
        let rest: Vec<String> = rest.collect();
        let stat = |name: &[u8]| [b"7 (", name, b") ", rest.join(" ").as_bytes()].concat();
        for name in [&b"a) R 1 (b"[..], b"\xff\x1b[2J", b"", b"\n"] {
            let parsed = Stat::parse(&stat(name)).unwrap();
            assert_eq!((parsed.comm.as_slice(), parsed.started), (name, Started(22)));
            // Field 41 is 41 here: no policy that is known.
            assert_eq!(parsed.policy, Policy::RealTime);
        }
        assert!(Stat::parse(b"7 (").is_none() && Stat::parse(b")(").is_none());
    }

    #[test]
    fn the_effective_user_is_told() {
        assert_eq!(effective_uid(b"Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(Uid(2)));
        assert_eq!(effective_uid(b"Name:\tx\n"), None);
    }
}

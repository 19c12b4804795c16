//! By BPF iterators: every open file and every thread in two reads, with nothing copied of files that are
//! no such socket.

use std::collections::{HashMap, HashSet};

use libbpf_rs::Link;

use super::process::{Found, GroupMark, Holdings, Process, ProcessId, SchedClass, Started};
use crate::error::{Error, Result};
use crate::object::load;
use crate::record::each_while;
use crate::skeleton::holders::{HoldersSkelBuilder, types};
use crate::units::{Nice, SocketInode, Uid};

const FILES: &str = "the iterators of open files";

/// The two iterators.
pub(super) struct Iterators {
    holders: Link,
    processes: Link,
}

impl Iterators {
    /// Fails without the privilege, or where the kernel lacks them.
    pub(super) fn load() -> Result<Self> {
        let skel = load::<HoldersSkelBuilder>(FILES, |_| Ok(()))?;
        // The links hold the programs.
        Ok(Self {
            holders: skel.progs.weir_holders.attach().map_err(Error::bpf("attach", FILES))?,
            processes: skel.progs.weir_processes.attach().map_err(Error::bpf("attach", FILES))?,
        })
    }

    pub(super) fn look(
        &self,
        sockets: &HashSet<SocketInode>,
        goes_on: impl Fn() -> bool,
    ) -> Result<Found> {
        let mut holdings = Holdings::default();
        each_while(&self.holders, FILES, &goes_on, |holder: types::weir_holder| {
            // As sock_diag tells it: 32 bits.
            let inode = SocketInode(holder.inode as u32);
            if sockets.contains(&inode) {
                holdings.add(inode, id(&holder.process));
            }
        })?;
        let ids: HashSet<ProcessId> = holdings.pairs().map(|(_, id)| id).collect();
        let mut processes: HashMap<ProcessId, Process> = HashMap::with_capacity(ids.len());
        // After the files: the number of a process that has ended may be another's by now.
        each_while(&self.processes, FILES, &goes_on, |seen: types::weir_process| {
            let id = id(&seen.process);
            if ids.contains(&id) {
                let policy = SchedClass::of(seen.policy, Nice(seen.nice));
                let process = processes.entry(id).or_insert_with(|| process(id, &seen));
                if !process.policies.contains(&policy) {
                    process.policies.push(policy);
                }
            }
        })?;
        let holders = holdings.pairs().filter(|(_, id)| processes.contains_key(id)).collect();
        Ok(Found { holders, processes: processes.into_values().collect() })
    }
}

fn process(id: ProcessId, seen: &types::weir_process) -> Process {
    let comm = seen.comm.map(i8::cast_unsigned);
    Process {
        id,
        comm: comm.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
        uid: Uid(seen.uid),
        policies: Vec::new(),
        groups: (seen.cgroups != 0)
            .then_some(GroupMark { set: seen.cgroups, group: seen.cgroup_id }),
    }
}

fn id(id: &types::weir_process_id) -> ProcessId {
    ProcessId { started: Started(id.started), pid: id.pid.cast_signed() }
}

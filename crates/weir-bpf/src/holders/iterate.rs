//! By BPF iterators: every open file and every thread in two reads, with nothing copied of files that are
//! no such socket.

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link};

use super::{Found, GroupMark, Policy, Process, ProcessId, Started};
use crate::error::{Error, LOAD_REMEDY, Result};
use crate::record::record;
use crate::skeleton::holders::{HoldersSkelBuilder, types};
use crate::units::{Nice, SocketInode, Uid};

/// What the kernel hands over at once: its own buffer's size (`bpf_seq_read()`).
const BUFFER_BYTES: usize = 8 * 4096;

/// The two iterators.
pub(super) struct Iterators {
    holders: Link,
    processes: Link,
}

impl Iterators {
    /// Fails without the privilege, or where the kernel lacks them.
    pub(super) fn load() -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let open = HoldersSkelBuilder::default().open(&mut storage).map_err(failed("open"))?;
        let skel = open.load().map_err(failed("load"))?;
        // The links hold the programs.
        Ok(Self {
            holders: skel.progs.weir_holders.attach().map_err(failed("attach"))?,
            processes: skel.progs.weir_processes.attach().map_err(failed("attach"))?,
        })
    }

    pub(super) fn look(&self, sockets: &HashSet<SocketInode>) -> Result<Found> {
        let mut holders = Vec::new();
        each(&self.holders, |holder: types::weir_holder| {
            // As sock_diag tells it: 32 bits.
            let inode = SocketInode(holder.inode as u32);
            if sockets.contains(&inode) {
                holders.push((inode, id(&holder.process)));
            }
        })?;
        let ids: HashSet<ProcessId> = holders.iter().map(|(_, id)| *id).collect();
        let mut processes: HashMap<ProcessId, Process> = HashMap::with_capacity(ids.len());
        // After the files: the number of a process that has ended may be another's by now.
        each(&self.processes, |seen: types::weir_process| {
            let id = id(&seen.process);
            if ids.contains(&id) {
                let policy = Policy::of(seen.policy, Nice(seen.nice));
                let process = processes.entry(id).or_insert_with(|| process(id, &seen));
                if !process.policies.contains(&policy) {
                    process.policies.push(policy);
                }
            }
        })?;
        holders.retain(|(_, id)| processes.contains_key(id));
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

/// Runs an iterator to its end, in this thread's network and pid namespaces.
fn each<T: Copy>(link: &Link, mut with: impl FnMut(T)) -> Result<()> {
    let mut iterator = Iter::new(link).map_err(failed("run"))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match iterator.read(&mut buffer) {
            Ok(0) => return Ok(()),
            // Whole records: the kernel never cuts what one call has written, unless the buffer is
            // smaller than its own.
            Ok(bytes) => {
                let records = buffer[..bytes].chunks_exact(size_of::<T>());
                records.filter_map(record::<T>).for_each(&mut with);
            }
            // A million files without a socket among them: the next read goes on.
            Err(source)
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(source) => return Err(Error::system("read", "the iterator of open files", source)),
        }
    }
}

fn failed(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    Error::bpf(operation, "the iterators of open files", LOAD_REMEDY)
}

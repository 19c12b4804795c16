//! Who receives a channel's packets: the sockets, and the processes that have them open.
//!
//! Nothing is remembered from look to look but what cannot have changed, so sockets that come, go, are
//! inherited or passed on are right at every look.

mod group;
mod group_weight;
mod ownership;
mod process;
#[cfg(test)]
mod tests;
mod users;
mod weight;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use weir_bpf::Result;
use weir_bpf::holders::{self, GroupMark, Holders, ProcessId};
use weir_bpf::sys::sock_diag::SocketDiag;
use weir_bpf::units::SocketInode;

pub use self::group::{Group, is_unit};
use self::group_weight::GroupWeights;
pub use self::ownership::{OwnedSocket, Owner, Ownership};
pub use self::process::Process;
use self::users::Users;
pub use self::weight::Weight;
pub use weir_bpf::printable::cut;

/// Looks for owners, as often as wanted.
pub struct Owners {
    sockets: SocketDiag,
    holders: Holders,
    users: Users,
    groups: HashMap<ProcessId, (GroupMark, Option<Arc<Group>>)>,
    weights: GroupWeights,
}

impl Owners {
    /// For the calling thread's network namespace, which must also be that of those that look.
    pub fn open() -> Result<Self> {
        Self::open_with(Holders::open())
    }

    /// The same, by one way of finding who has a socket open.
    pub fn open_with(holders: Holders) -> Result<Self> {
        Ok(Self {
            sockets: SocketDiag::open()?,
            holders,
            users: Users::default(),
            groups: HashMap::new(),
            weights: GroupWeights::default(),
        })
    }

    /// See [`SocketDiag::connected_ports`].
    pub fn connected_ports(&mut self) -> Result<BTreeSet<u16>> {
        self.sockets.connected_ports()
    }

    /// Who owns what now. Processes outside this pid namespace are not seen.
    pub fn look(&mut self) -> Result<Ownership> {
        self.look_while(|| true)
    }

    /// The same, or what has been found until `goes_on` says no.
    pub fn look_while(&mut self, goes_on: impl Fn() -> bool) -> Result<Ownership> {
        let at = Instant::now();
        let sockets = self.sockets.sockets()?;
        let inodes: HashSet<SocketInode> = sockets.iter().filter_map(|each| each.inode).collect();
        let found = self.holders.look_while(&inodes, goes_on)?;
        self.users.refresh();
        self.weights.refresh();
        let process = |it: &holders::Process| (it.id, Arc::new(self.process(it)));
        let processes: HashMap<_, _> = found.processes.iter().map(process).collect();
        self.groups.retain(|id, _| processes.contains_key(id));
        Ok(Ownership::new(at, sockets, &found.holders, &processes))
    }

    fn process(&mut self, found: &holders::Process) -> Process {
        let group = self.group(found);
        let cpu = group.as_ref().and_then(|group| group.cpu.as_ref());
        let weight = cpu.map_or(1.0, |cpu| self.weights.weight(cpu));
        Process::new(found, self.users.name(found.uid), group, weight)
    }

    /// A process's group; read again only if it has been moved.
    fn group(&mut self, process: &holders::Process) -> Option<Arc<Group>> {
        let read = || {
            // One that has ended has none.
            let text = fs::read(format!("/proc/{}/cgroup", process.id.pid)).ok()?;
            Group::parse(&text).map(Arc::new)
        };
        let Some(mark) = process.groups else { return read() };
        match self.groups.get(&process.id) {
            Some((known, group)) if *known == mark => group.clone(),
            _ => {
                let group = read();
                self.groups.insert(process.id, (mark, group.clone()));
                group
            }
        }
    }
}

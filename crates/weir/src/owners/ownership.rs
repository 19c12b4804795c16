//! Sockets and their owners at one moment, and which of them a channel's packets are for.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use weir_bpf::channels::Channel;
use weir_bpf::holders::ProcessId;
use weir_bpf::sys::sock_diag::{LocalSocket, SocketKind};
use weir_bpf::sys::stat::Stat;
use weir_bpf::units::{IfIndex, SocketInode};
use weir_bpf::verdict::Kind;

use super::process::Process;
use super::weight::Weight;

/// The first process of a pid namespace. systemd holds the sockets that it starts services for.
const INIT: i32 = 1;

/// A socket and those that have it open.
#[derive(Clone, Debug)]
pub struct OwnedSocket {
    /// The socket.
    pub socket: LocalSocket,
    /// Each process once, heaviest first. None has a socket that is the kernel's own, or on its way from
    /// one process to another.
    pub holders: Vec<Arc<Process>>,
}

impl OwnedSocket {
    /// Of a shared socket, that of its highest-priority holder (LRP, footnotes 5 and 8).
    pub fn weight(&self) -> Option<Weight> {
        self.holders.iter().map(|process| process.weight).max()
    }
}

/// Who owned what when a look was taken.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// When.
    pub at: Instant,
    by_port: HashMap<(SocketKind, u16), Vec<OwnedSocket>>,
    losses: HashMap<SocketInode, Losses>,
}

impl Ownership {
    /// Joins sockets and holders. Holders that are no process are left out: they have ended.
    pub fn new(
        at: Instant,
        sockets: Vec<LocalSocket>,
        holders: &[(SocketInode, ProcessId)],
        processes: &HashMap<ProcessId, Arc<Process>>,
    ) -> Self {
        let mut by_socket: HashMap<SocketInode, Vec<Arc<Process>>> = HashMap::new();
        for (inode, id) in holders {
            by_socket.entry(*inode).or_default().extend(processes.get(id).cloned());
        }
        let named = |each: &LocalSocket| Some((each.inode?, Losses::of(each)));
        let losses = sockets.iter().filter_map(named).collect();
        let mut by_port: HashMap<_, Vec<_>> = HashMap::new();
        for socket in sockets {
            let holders = socket.inode.and_then(|inode| by_socket.remove(&inode));
            let holders = heaviest_first(holders.unwrap_or_default());
            let key = (socket.kind, socket.port);
            by_port.entry(key).or_default().push(OwnedSocket { socket, holders });
        }
        Self { at, by_port, losses }
    }

    /// The sockets that a channel's packets are for, on an interface. `None`: a kind of channel that has
    /// none.
    pub fn of(&self, channel: &Channel, interface: IfIndex) -> Option<Owner<'_>> {
        let kind = match channel.kind {
            Kind::Udp | Kind::Multicast => SocketKind::Udp,
            Kind::Tcp => SocketKind::TcpListener,
            _ => return None,
        };
        let (address, port) = channel.local?;
        let of_port = self.by_port.get(&(kind, port)).map_or(&[][..], Vec::as_slice);
        let rank = |each: &OwnedSocket| rank(&each.socket, address, interface);
        let ranked = || of_port.iter().filter_map(|each| Some((rank(each)?, each)));
        let sockets = if channel.kind == Kind::Multicast {
            ranked().map(|(_, each)| each).collect()
        } else {
            // A connected socket comes before all others, for its peer's packets alone.
            let best =
                ranked().filter(|(_, each)| !each.socket.connected).map(|(rank, _)| rank).max();
            let receives =
                |(rank, each): &(Rank, &OwnedSocket)| each.socket.connected || Some(*rank) == best;
            ranked().filter(receives).map(|(_, each)| each).collect()
        };
        Some(Owner { sockets })
    }

    /// Every socket.
    pub fn each(&self) -> impl Iterator<Item = &OwnedSocket> {
        self.by_port.values().flatten()
    }

    /// What the kernel had dropped at a socket, and what had waited there.
    pub fn losses(&self, socket: &LocalSocket) -> Option<Losses> {
        if let Some(inode) = socket.inode {
            return self.losses.get(&inode).copied();
        }
        // Of the kernel's own there are few.
        let of_port = self.by_port.get(&(socket.kind, socket.port))?;
        let same = of_port.iter().find(|each| each.socket.inode.is_none())?;
        Some(Losses::of(&same.socket))
    }
}

/// A socket's queue at a look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    pub drops: u32,
    pub queued: u32,
}

impl Losses {
    fn of(socket: &LocalSocket) -> Self {
        Self { drops: socket.drops, queued: socket.queued }
    }
}

/// How well a socket fits a packet; the greater, the better: its own address, bound to the interface, the
/// packet's own family.
type Rank = (bool, bool, bool);

/// By the kernel's rules (`compute_score()`, `udp4_lib_lookup2()`, `__inet_lookup_listener()`): sockets
/// that are bound to the address are looked up before those that are bound to any.
fn rank(socket: &LocalSocket, address: IpAddr, interface: IfIndex) -> Option<Rank> {
    let exact = socket.address == address;
    let same_family = socket.address.is_ipv4() == address.is_ipv4();
    let any = socket.address.is_unspecified() && (same_family || socket.dual_stack);
    let fits = (exact || any) && socket.interface.is_none_or(|bound| bound == interface);
    fits.then_some((exact, socket.interface.is_some(), same_family))
}

/// Those who own a channel.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The sockets: one, the members of an `SO_REUSEPORT` group, or those connected from the port.
    pub sockets: Vec<&'a OwnedSocket>,
}

impl<'a> Owner<'a> {
    /// Each process once, heaviest first; of several alike, the one that has used most CPU time: a server's parent that
    /// has bound what its workers read has used little.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        let all = self.sockets.iter().flat_map(|each| each.holders.iter().cloned());
        let mut processes = heaviest_first(all.collect());
        let used = |each: &Process| Stat::of(each.pid).and_then(|stat| stat.cpu_ticks());
        processes.sort_by_cached_key(|each| {
            (Reverse(each.weight), each.pid == INIT, Reverse(used(each)))
        });
        processes
    }

    /// That of the heaviest holder of any of the sockets.
    pub fn weight(&self) -> Option<Weight> {
        self.sockets.iter().filter_map(|each| each.weight()).max()
    }

    /// The sockets themselves.
    pub fn local(&self) -> impl Iterator<Item = &'a LocalSocket> {
        self.sockets.iter().map(|each| &each.socket)
    }
}

/// Of several alike, the one that started first, and systemd last.
fn heaviest_first(mut processes: Vec<Arc<Process>>) -> Vec<Arc<Process>> {
    processes.sort_by_key(|each| (Reverse(each.weight), each.pid == INIT, each.id));
    processes.dedup_by_key(|each| each.id);
    processes
}

#[cfg(test)]
mod tests {
    use weir_bpf::holders::{self, SchedClass, Started};
    use weir_bpf::units::{Nice, Uid};

    use super::*;

    const NEAR: IfIndex = IfIndex(7);

    fn socket(address: &str, inode: u32) -> LocalSocket {
        LocalSocket {
            kind: SocketKind::Udp,
            address: address.parse().unwrap(),
            port: 53,
            dual_stack: false,
            connected: false,
            interface: None,
            inode: Some(SocketInode(inode)),
            queued: 0,
            limit: 1,
            drops: 0,
        }
    }

    fn id(pid: i32) -> ProcessId {
        ProcessId { started: Started(100 + u64::from(pid.unsigned_abs())), pid }
    }

    fn process(pid: i32, nice: i32) -> (ProcessId, Arc<Process>) {
        let found = holders::Process {
            id: id(pid),
            comm: b"x".to_vec(),
            uid: Uid(0),
            policies: vec![SchedClass::Fair(Nice(nice))],
            groups: None,
        };
        (found.id, Arc::new(Process::new(&found, None, None, 1.0)))
    }

    fn ownership(sockets: &[LocalSocket]) -> Ownership {
        Ownership::new(Instant::now(), sockets.to_vec(), &[], &HashMap::new())
    }

    fn channel(kind: Kind, address: &str) -> Channel {
        Channel { local: Some((address.parse().unwrap(), 53)), ..Channel::of_kind(kind) }
    }

    fn inodes(ownership: &Ownership, kind: Kind, address: &str) -> Vec<u32> {
        let owner = ownership.of(&channel(kind, address), NEAR).unwrap();
        owner.local().map(|each| each.inode.unwrap().0).collect()
    }

    #[test]
    fn sockets_are_found_by_the_kernels_rules() {
        let dual = LocalSocket { dual_stack: true, ..socket("::", 1) };
        let v6_only = socket("::", 2);
        let any = socket("0.0.0.0", 3);
        let own = socket("198.18.0.1", 4);
        let connected = LocalSocket { connected: true, ..socket("198.18.0.1", 5) };
        let here = LocalSocket { interface: Some(NEAR), ..socket("0.0.0.0", 6) };
        let elsewhere = LocalSocket { interface: Some(IfIndex(8)), ..socket("198.18.0.1", 7) };
        let group = socket("224.0.0.9", 8);
        let tcp = LocalSocket { kind: SocketKind::TcpListener, ..socket("198.18.0.1", 9) };
        let other_port = LocalSocket { port: 54, ..socket("198.18.0.1", 10) };
        let (v4, v6) = ("198.18.0.1", "2001:2::1");
        for (sockets, kind, address, expected) in [
            (vec![&dual], Kind::Udp, v4, vec![1]),
            (vec![&dual], Kind::Udp, v6, vec![1]),
            (vec![&v6_only], Kind::Udp, v4, vec![]),
            (vec![&v6_only], Kind::Udp, v6, vec![2]),
            (vec![&dual, &any], Kind::Udp, v4, vec![3]),
            (vec![&dual, &any], Kind::Udp, v6, vec![1]),
            (vec![&any, &own], Kind::Udp, v4, vec![4]),
            (vec![&any, &own], Kind::Udp, "198.18.0.9", vec![3]),
            (vec![&any, &connected], Kind::Udp, v4, vec![3, 5]),
            (vec![&own, &connected, &any], Kind::Udp, v4, vec![4, 5]),
            (vec![&own, &own], Kind::Udp, v4, vec![4, 4]),
            (vec![&any, &here], Kind::Udp, v4, vec![6]),
            (vec![&here, &own], Kind::Udp, v4, vec![4]),
            (vec![&any, &elsewhere], Kind::Udp, v4, vec![3]),
            (vec![&own, &other_port, &tcp], Kind::Udp, v4, vec![4]),
            (vec![&own, &tcp], Kind::Tcp, v4, vec![9]),
            (vec![&any, &group, &own, &dual], Kind::Multicast, "224.0.0.9", vec![3, 8, 1]),
            (vec![], Kind::Udp, v4, vec![]),
        ] {
            let sockets: Vec<LocalSocket> = sockets.into_iter().cloned().collect();
            let found = inodes(&ownership(&sockets), kind, address);
            assert_eq!(found, expected, "{kind:?} {address} {sockets:?}");
        }
        assert!(ownership(&[own]).of(&Channel::of_kind(Kind::Icmp), NEAR).is_none());
    }

    #[test]
    fn the_heaviest_holder_counts_and_one_that_has_ended_does_not() {
        let processes = [process(1, 0), process(10, 5), process(11, 0), process(12, -5)];
        let held = [(3, 10), (3, 1), (3, 11), (3, 11), (4, 12), (4, 99)];
        let held = held.map(|(inode, pid)| (SocketInode(inode), id(pid)));
        let sockets = vec![socket("0.0.0.0", 3), socket("0.0.0.0", 4), socket("0.0.0.0", 5)];
        let ownership = Ownership::new(Instant::now(), sockets, &held, &processes.into());
        let owner = ownership.of(&channel(Kind::Udp, "198.18.0.1"), NEAR).unwrap();
        let pids =
            |holders: &[Arc<Process>]| holders.iter().map(|each| each.pid).collect::<Vec<_>>();
        let each: Vec<_> =
            owner.sockets.iter().map(|each| (pids(&each.holders), each.weight())).collect();
        assert_eq!(each[0], (vec![11, 1, 10], Some(Weight(1024))));
        assert_eq!(each[1], (vec![12], Some(Weight(3121))));
        assert_eq!(each[2], (vec![], None));
        assert_eq!(
            (pids(&owner.processes()), owner.weight()),
            (vec![12, 11, 1, 10], Some(Weight(3121)))
        );
    }
}

//! Who has a socket open, by the kernel's iterators and by `/proc`: on every kernel the same.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::collections::{BTreeSet, HashSet};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use common::Network;
use weir_bpf::holders::{Found, HOLDERS_MAX, Holders, Process};
use weir_bpf::sync::lock;
use weir_bpf::sys::sock_diag::SocketDiag;
use weir_bpf::units::SocketInode;

/// What one test starts has all that this process has open until it runs its own program: one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Each socket's processes, once: name, user and scheduling.
fn owners(found: &Found) -> BTreeSet<(SocketInode, i32, String)> {
    let owner = |&(inode, id)| {
        let process = found.processes.iter().find(|process| process.id == id).unwrap();
        let Process { comm, uid, policies, .. } = process;
        (inode, id.pid, format!("{comm:?} {uid:?} {policies:?}"))
    };
    found.holders.iter().map(owner).collect()
}

#[test]
fn iterators_and_proc_agree() {
    let _turn = lock(&TURN);
    let network = Network::new();
    let look = || {
        let shared = UdpSocket::bind("0.0.0.0:5000").unwrap();
        let _six = UdpSocket::bind((common::NEAR_IP6, 5001)).unwrap();
        let _listener = TcpListener::bind("[::]:5002").unwrap();
        let mut child = Command::new("sleep");
        child.arg("1000").stdin(Stdio::from(OwnedFd::from(shared.try_clone().unwrap())));
        let mut child = child.spawn().unwrap();
        let sockets = SocketDiag::open().unwrap().sockets().unwrap();
        let ports: HashSet<u16> = sockets.iter().map(|each| each.port).collect();
        assert_eq!(ports, HashSet::from([5000, 5001, 5002]));
        let inodes: HashSet<SocketInode> = sockets.iter().filter_map(|each| each.inode).collect();
        assert_eq!(inodes.len(), 3);

        // Not by the way that would silently be taken where the kernel refuses.
        let by_iterators = Holders::by_iterators().unwrap().look(&inodes).unwrap();
        let by_proc = Holders::by_proc().look(&inodes).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let by_iterators_owners = owners(&by_iterators);
        assert_eq!(by_iterators_owners, owners(&by_proc));
        let own = std::process::id().cast_signed();
        let of = |pid: i32| by_iterators_owners.iter().filter(|each| each.1 == pid).count();
        assert_eq!((of(own), of(child.id().cast_signed())), (3, 1), "{by_iterators:?}");
        // Where groups exist at all, one look tells them.
        let has_groups = std::path::Path::new("/proc/self/cgroup").exists();
        assert!(by_iterators.processes.iter().all(|each| each.groups.is_some() == has_groups));
        let nothing = Holders::by_iterators().unwrap().look(&HashSet::new()).unwrap();
        assert!(nothing.holders.is_empty() && nothing.processes.is_empty());
    };
    network.near.run(look).unwrap();
}

/// A user may have any number of descriptors and processes.
#[test]
fn a_socket_that_is_open_very_often_is_told_a_few_times() {
    let _turn = lock(&TURN);
    let network = Network::new();
    let look = || {
        let socket = UdpSocket::bind("0.0.0.0:5000").unwrap();
        let _again = [(); 500].map(|()| socket.try_clone().unwrap());
        let sleep = || {
            let mut child = Command::new("sleep");
            child.arg("1000").stdin(Stdio::from(OwnedFd::from(socket.try_clone().unwrap())));
            child.spawn().unwrap()
        };
        let children = [(); HOLDERS_MAX + 36].map(|()| sleep());
        let sockets = SocketDiag::open().unwrap().sockets().unwrap();
        let inodes: HashSet<SocketInode> = sockets.iter().filter_map(|each| each.inode).collect();
        let ways = [Holders::by_iterators().unwrap(), Holders::by_proc()];
        let found = ways.map(|way| {
            let ended = way.look_while(&inodes, || false).unwrap();
            (way.look(&inodes).unwrap(), ended)
        });
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        for (found, ended) in found {
            assert_eq!((found.holders.len(), found.processes.len()), (HOLDERS_MAX, HOLDERS_MAX));
            assert_eq!(owners(&found).len(), HOLDERS_MAX);
            assert!(ended.holders.is_empty() && ended.processes.is_empty());
        }
    };
    network.near.run(look).unwrap();
}

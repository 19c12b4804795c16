//! What a look for owners costs, both ways, with 1,000 sockets of 500 processes: `docs/channels.md`. Needs
//! root.

#![allow(clippy::unwrap_used, reason = "a failed call ends the measurement")]

#[allow(dead_code, reason = "the guardian uses the rest")]
#[path = "../src/cgroup.rs"]
mod cgroup;
#[allow(dead_code, unused_imports, reason = "the command line and the tests use the rest")]
#[path = "../src/owners/mod.rs"]
mod owners;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../src/owners/tests/sandbox.rs"]
mod sandbox;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir_bpf::channels::Channel;
use weir_bpf::holders::Holders;
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::Kind;

use crate::owners::Owners;
use crate::sandbox::{Sleeper, bound, sandbox};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PROCESSES: u16 = 500;
const LOOKS: usize = 50;
/// The first sockets of the processes: each has one of either.
const PORTS: [u16; 2] = [10_000, 20_000];

fn main() {
    sandbox(|| {
        let processes: Vec<Sleeper> = (0..PROCESSES).map(sleeper).collect();
        for (way, holders) in [("iterators", Holders::open()), ("/proc", Holders::by_proc())] {
            let mut owners = Owners::open_with(holders).unwrap();
            let mut costs: Vec<Duration> =
                (0..=LOOKS).map(|_| look(&mut owners, processes[0].pid())).collect();
            let first = costs.remove(0);
            costs.sort_unstable();
            println!(
                "{way}: {} sockets of {PROCESSES} processes, {} on the host: first look {first:.1?}, \
                 further ones median {:.1?}, least {:.1?}",
                PORTS.len() * processes.len(),
                processes_of_the_host(),
                costs[LOOKS / 2],
                costs[0],
            );
        }
    });
}

fn sleeper(number: u16) -> Sleeper {
    let socket = |first| -> UdpSocket { bound(&format!("{LOOPBACK}:{}", first + number)) };
    let [stdin, stdout] = PORTS.map(socket);
    let mut command = Command::new("sleep");
    command.arg("1000").stdout(Stdio::from(OwnedFd::from(stdout)));
    Sleeper::spawn(command, stdin)
}

/// The time of one look, which must find the first process.
fn look(owners: &mut Owners, expected: i32) -> Duration {
    let begin = Instant::now();
    let ownership = owners.look().unwrap();
    let cost = begin.elapsed();
    let local = Some((LOOPBACK, PORTS[1]));
    let channel = Channel { local, ..Channel::of_kind(Kind::Udp) };
    let owner = ownership.of(&channel, IfIndex(1)).unwrap();
    assert_eq!(owner.processes()[0].pid, expected);
    cost
}

fn processes_of_the_host() -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|each| each.file_name().to_str().is_some_and(|name| name.parse::<i32>().is_ok()))
        .count()
}

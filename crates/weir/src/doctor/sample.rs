//! Looking: what the kernel had counted at one moment, and how the host is set up.
//!
//! Only files, netlink questions and, with the privilege, one BPF program that is attached nowhere (it reads what is
//! on top of an interface). Whatever cannot be read is told and left out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use rustix::process::Pid;
use weir_bpf::counters::{Counters, CountersReader};
use weir_bpf::features;
use weir_bpf::gate::Policy;
use weir_bpf::holders::Holders;
use weir_bpf::programs::Program;
use weir_bpf::sys::caps::{self, Capability};
use weir_bpf::sys::cpu_times::{self, CpuTimes};
use weir_bpf::sys::divert::{self, Sight};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::{LinkInfo, LinkStats, Links};
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::sched::{self, SchedStat};
use weir_bpf::sys::snmp::{self, IpStats, TcpStats, UdpStats};
use weir_bpf::sys::sock_diag::SocketDiag;
use weir_bpf::sys::stat::{self, Stat};
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::sys::tc::Egress;
use weir_bpf::units::IfIndex;

use super::between::Between;
use super::reading::{InterfaceReading, OWNERS, RUNNING, Reading};
use crate::attach;
use crate::error::Result;
use crate::owners::{Owners, Ownership};
use crate::rps;
use crate::sample::counts_ring_drops;
use crate::status::{InterfaceStatus, Leftover};
use crate::sysctl;
use crate::threading::THREADED;
use crate::walls::WallStatus;

/// Interfaces of which more is asked than their counters and what they are on top of. A container host has hundreds.
const ASKED_MAX: usize = 16;
/// Threads of one process that are looked at.
const THREADS_MAX: usize = 256;
/// Programs that change what weir changes, or what it goes by.
const NEIGHBOURS: [&str; 2] = ["bpftune", "irqbalance"];

/// `/sys/class/net/*/type` of PPP.
const ARPHRD_PPP: &str = "512";

/// Looks at a host.
pub struct Looker {
    links: Links,
    interfaces: Vec<LinkInfo>,
    loopback: Option<IfIndex>,
    owners: Option<Owners>,
    diag: Option<SocketDiag>,
    unseen: BTreeSet<String>,
}

/// What the kernel had counted.
pub struct Sample {
    pub(super) at: Instant,
    pub(super) cpus: BTreeMap<u32, CpuTimes>,
    pub(super) softnet: BTreeMap<u32, Softnet>,
    pub(super) ip: Option<IpStats>,
    pub(super) conntrack: Conntrack,
    pub(super) udp: Option<UdpStats>,
    pub(super) tcp: Option<TcpStats>,
    /// The same, before the sockets were looked at.
    pub(super) udp_before: Option<UdpStats>,
    pub(super) tcp_before: Option<TcpStats>,
    pub(super) links: HashMap<IfIndex, LinkStats>,
    pub(super) egresses: HashMap<IfIndex, Egress>,
    /// The interfaces that weir protects...
    pub(super) running: Vec<InterfaceStatus>,
    /// ...and what its gates have counted.
    pub(super) gates: HashMap<IfIndex, Counters>,
    pub(super) ownership: Option<Ownership>,
    pub(super) half_open: BTreeMap<(IpAddr, u16, IfIndex), u32>,
    /// Of those that have sockets open, by process and thread.
    pub(super) threads: HashMap<(i32, i32), SchedStat>,
    /// Of those that poll NAPI.
    pub(super) pollers: HashMap<i32, SchedStat>,
    pub(super) neighbours: BTreeSet<String>,
}

/// Of one CPU (`/proc/net/softnet_stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Softnet {
    pub(super) processed: u64,
    pub(super) dropped: u64,
    pub(super) squeezed: u64,
}

/// Of all CPUs (`/proc/net/stat/nf_conntrack`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conntrack {
    pub(super) dropped: u64,
    pub(super) given_up: u64,
}

impl Looker {
    /// For the calling thread's network namespace.
    pub fn new(named: &[String]) -> Result<Self> {
        let links = Links::open()?;
        let named = named.iter().map(|name| Ok(links.index(name)?)).collect::<Result<Vec<_>>>()?;
        let wanted = |link: &LinkInfo| match named[..] {
            [] => link.up && !link.loopback,
            _ => named.contains(&link.ifindex),
        };
        let mut interfaces = links.list()?;
        let loopback = interfaces.iter().find(|link| link.loopback).map(|link| link.ifindex);
        interfaces.retain(wanted);
        let mut looker =
            Self { links, interfaces, loopback, owners: None, diag: None, unseen: BTreeSet::new() };
        // By /proc, which loads nothing into the kernel.
        looker.owners = looker.seen("sockets", Owners::open_with(Holders::by_proc()));
        looker.diag = looker.seen("half-open connections", SocketDiag::open());
        let sees_all =
            caps::missing(&[Capability::SysAdmin]).is_ok_and(|missing| missing.is_empty());
        if !sees_all {
            let is_root = rustix::process::geteuid().is_root();
            let why = if is_root { "this root lacks CAP_SYS_ADMIN" } else { "run it as root" };
            looker.unseen.insert(format!(
                "{OWNERS}, XDP programs' names, and walls of `weir screen` ({why})"
            ));
        }
        Ok(looker)
    }

    fn seen<T, E: Display>(&mut self, what: &str, result: std::result::Result<T, E>) -> Option<T> {
        result.map_err(|error| self.unseen.insert(format!("{what}: {error}"))).ok()
    }

    /// Reads everything that is counted.
    pub fn look(&mut self) -> Sample {
        let cpus = cpu_times::read();
        let softnet = fs::read_to_string("/proc/thread-self/net/softnet_stat");
        let (pollers, neighbours) = processes();
        let (udp_before, tcp_before) = (snmp::udp_stats().ok(), snmp::tcp_stats().ok());
        let ownership = self.owners.as_mut().map(Owners::look);
        let ownership = ownership.and_then(|look| self.seen("sockets", look));
        let half_open = self.diag.as_mut().map(SocketDiag::half_open);
        let running = self.seen(RUNNING, InterfaceStatus::running()).unwrap_or_default();
        let protected = running.iter().filter(|status| status.attach.is_some());
        let counters = protected.map(|status| {
            let gate = CountersReader::open(status.counters_map_id);
            let counters = gate.and_then(|gate| gate.counters());
            // Without CAP_SYS_ADMIN, as in a container, what is published is all that is seen.
            (status.ifindex, counters.unwrap_or_else(|_| status.counters()))
        });
        let gates = counters.collect();
        let egresses = self.links.egresses();
        let egresses = self.seen("queueing disciplines", egresses).unwrap_or_default();
        let links = self.interfaces.iter().map(|link| link.ifindex).chain(self.loopback);
        Sample {
            gates,
            running,
            egresses,
            at: Instant::now(),
            links: links.filter_map(|link| Some((link, self.links.stats(link).ok()?))).collect(),
            half_open: half_open.and_then(std::result::Result::ok).unwrap_or_default(),
            threads: ownership.as_ref().map(threads_of_owners).unwrap_or_default(),
            ownership,
            cpus: self.seen("CPU times", cpus).unwrap_or_default(),
            softnet: softnets(&self.seen("softnet_stat", softnet).unwrap_or_default()),
            ip: self.seen("IP's counters", snmp::ip_stats()),
            conntrack: fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack")
                .map(|text| conntrack(&text))
                .unwrap_or_default(),
            udp: self.seen("UDP's counters", snmp::udp_stats()),
            tcp: self.seen("TCP's counters", snmp::tcp_stats()),
            udp_before,
            tcp_before,
            pollers,
            neighbours,
        }
    }

    /// What two looks say, and the facts of now.
    pub fn reading(mut self, earlier: &Sample, later: &Sample) -> Reading {
        for silent in later.running.iter().filter(|each| !each.reports()) {
            let name = &silent.interface;
            self.unseen
                .insert(format!("{RUNNING} on {name}: its daemon reports nothing, `weir status`"));
        }
        let between = Between::new(earlier, later);
        let walls = self.seen("walls of `weir screen`", WallStatus::read_all());
        let walls = walls.flatten().unwrap_or_default();
        let leftovers = self.seen("what a killed weir has left", Leftover::here());
        let name = |each: &Leftover| self.links.name(each.ifindex);
        let leftovers = leftovers.iter().flatten().filter_map(|each| name(each).ok()).collect();
        let interfaces = self.interfaces(&between, &later.running);
        // The first is printed.
        let mut unseen: Vec<String> = self.unseen.into_iter().collect();
        unseen.sort_by_key(|each| !each.starts_with(RUNNING));
        let protects = |each: &&InterfaceStatus| each.policy == Policy::On && each.reports();
        let protected = later.running.iter().filter(protects);
        let lacks = features::lacks().into_iter();
        Reading {
            seconds: between.seconds,
            kernel: kernel(),
            cpus: between.cpus(),
            ip: between.ip(),
            conntrack: between.conntrack(),
            udp: between.udp(),
            tcp: between.tcp(),
            sockets: between.sockets(),
            loopback_pps: self.loopback.map_or(0.0, |link| between.received(link)),
            rmem_max: sysctl::of_host("net/core/rmem_max"),
            somaxconn: sysctl::read("net/core/somaxconn"),
            interfaces,
            neighbours: later.neighbours.iter().cloned().collect(),
            protected: protected.map(|each| each.interface.clone()).collect(),
            unlisted: LocalAddresses::read(&[]).ok().and_then(|addresses| addresses.unlisted()),
            leftovers,
            walls,
            lacks: lacks.map(|lack| format!("{}: {}", lack.feature, lack.cost)).collect(),
            unseen,
        }
    }

    fn interfaces(
        &mut self,
        between: &Between<'_>,
        running: &[InterfaceStatus],
    ) -> Vec<InterfaceReading> {
        let sysfs = self.seen("interfaces' settings", NetSysfs::open());
        let pppoe = fs::read_to_string("/proc/thread-self/net/pppoe").unwrap_or_default();
        let names: HashSet<&str> = self.interfaces.iter().map(|link| link.name.as_str()).collect();
        let reading = |link: &LinkInfo| {
            let sysfs = sysfs.as_ref();
            let layer = sysfs.and_then(|sysfs| sysfs.read(&link.name, "type").ok());
            let is_ppp = layer.is_some_and(|layer| layer.trim() == ARPHRD_PPP);
            let has_device = |sysfs: &NetSysfs| sysfs.exists(&link.name, "device").unwrap_or(false);
            let below = sysfs.and_then(|sysfs| sysfs.lower(&link.name).ok()).unwrap_or_default();
            let below_ppp = pppoe_devices(&pppoe).filter(|_| is_ppp).map(Into::into);
            let below: BTreeSet<String> = below.into_iter().chain(below_ppp).collect();
            let (roots, egress_classes): (Vec<_>, _) =
                between.egress(link.ifindex).into_iter().partition(|queue| queue.class.is_none());
            InterfaceReading {
                name: link.name.clone(),
                takes_gate: link.takes_gate(),
                master: link.master.and_then(|master| self.links.name(master).ok()),
                receive_pps: between.received(link.ifindex),
                ring_drop_pps: between.ring_dropped(link.ifindex),
                egress: roots.into_iter().next(),
                egress_classes,
                outside: is_ppp || sysfs.is_some_and(has_device),
                lower: below.into_iter().filter(|name| names.contains(name.as_str())).collect(),
                ..InterfaceReading::default()
            }
        };
        let links = self.interfaces.iter();
        let mut readings: Vec<_> = links.map(|link| (link.ifindex, reading(link))).collect();
        put_outside_first(&mut readings);
        for (ifindex, reading) in readings.iter_mut().take(ASKED_MAX) {
            self.ask(*ifindex, sysfs.as_ref(), reading, running);
            if let Some((discarded_pps, reason)) = between.discarded(*ifindex) {
                reading.discarded_pps = discarded_pps;
                reading.discarded_as = Some(reason.name().into());
            }
        }
        readings.sort_by(|(_, one), (_, other)| other.receive_pps.total_cmp(&one.receive_pps));
        readings.sort_by_key(|(_, reading)| !reading.lower.is_empty());
        readings.into_iter().map(|(_, reading)| reading).collect()
    }

    fn ask(
        &mut self,
        ifindex: IfIndex,
        sysfs: Option<&NetSysfs>,
        reading: &mut InterfaceReading,
        running: &[InterfaceStatus],
    ) {
        let name = reading.name.clone();
        reading.addresses = self.links.addresses(ifindex).unwrap_or_default();
        reading.driver = ethtool::driver(&name).ok();
        // A veth's ring is its peer's to count.
        let uncounted = |it: &&str| *it != "veth" && !counts_ring_drops(Some(it));
        if let Some(driver) = reading.driver.as_deref().filter(uncounted) {
            self.unseen.insert(format!(
                "ring drops of {name} (its driver {driver} does not count them there: `ethtool -S {name}`)"
            ));
        }
        reading.native_cost = attach::native_cost(reading.driver.as_deref()).map(Into::into);
        if let Ok(queues) = ethtool::receive_queues(&name) {
            (reading.queues, reading.queues_max) = (Some(queues.now), Some(queues.most));
            reading.queues_apart = queues.apart;
        }
        if let Some(sysfs) = sysfs {
            let threaded = sysfs.read(&name, THREADED).ok();
            reading.threaded = threaded.map(|text| text.trim() != "0");
            reading.steered =
                rps::steering(sysfs, &name).into_iter().map(|(queue, _)| queue).collect();
            let queues = sysfs.list(&name, "queues").unwrap_or_default();
            let queues = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
            reading.queues =
                u32::try_from(queues).ok().filter(|queues| *queues > 0).or(reading.queues);
        }
        // What diverts, and which programs are whose, its daemon knows best.
        if let Some(status) = running.iter().find(|status| status.ifindex == ifindex) {
            reading.diversions = Some(status.diversions.clone());
            return;
        }
        let xdp = self.links.xdp(ifindex).ok().flatten();
        reading.xdp = xdp.map(|xdp| {
            let name = Program::of(xdp.prog_id).name;
            format!("{} (id {}, {})", name.as_deref().unwrap_or("?"), xdp.prog_id, xdp.mode)
        });
        let found = divert::diversions(ifindex, Sight::at_tc(), &[]);
        let found = self.seen(&format!("what diverts packets of {name}"), found);
        reading.diversions = found.map(|found| found.iter().map(Into::into).collect());
    }
}

/// What is on top of hardware or PPP is outside, too. It comes first, however little it receives, as it is where weir is
/// to run; and of those that are alike in this, what receives most.
fn put_outside_first(readings: &mut [(IfIndex, InterfaceReading)]) {
    // One on top of another may be below a third.
    loop {
        let outside = readings.iter().filter(|(_, reading)| reading.outside);
        let outside: HashSet<String> = outside.map(|(_, reading)| reading.name.clone()).collect();
        let is_on_top = |it: &InterfaceReading| it.lower.iter().any(|name| outside.contains(name));
        let mut found = false;
        for (_, reading) in readings.iter_mut().filter(|(_, reading)| !reading.outside) {
            reading.outside = is_on_top(reading);
            found |= reading.outside;
        }
        if !found {
            break;
        }
    }
    readings.sort_by(|(_, one), (_, other)| {
        let most_first = || other.receive_pps.total_cmp(&one.receive_pps);
        other.outside.cmp(&one.outside).then_with(most_first)
    });
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// A line of hexadecimal numbers for each CPU that is online; its number is the 13th.
fn softnets(text: &str) -> BTreeMap<u32, Softnet> {
    let line = |line: &str| {
        let hex = |word| u64::from_str_radix(word, 16).ok();
        let words: Vec<u64> = line.split_ascii_whitespace().map(hex).collect::<Option<_>>()?;
        let &[processed, dropped, squeezed, ..] = words.as_slice() else { return None };
        let cpu = u32::try_from(*words.get(12)?).ok()?;
        Some((cpu, Softnet { processed, dropped, squeezed }))
    };
    text.lines().filter_map(line).collect()
}

/// A line of names, and one of hexadecimal numbers for each CPU.
fn conntrack(text: &str) -> Conntrack {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let names: Vec<&str> = lines.next().into_iter().flatten().collect();
    let sum = |name: &str| {
        let Some(column) = names.iter().position(|each| *each == name) else { return 0 };
        let hex = |word| u64::from_str_radix(word, 16).ok();
        lines.clone().filter_map(|mut line| line.nth(column).and_then(hex)).sum()
    };
    Conntrack { dropped: sum("drop"), given_up: sum("early_drop") }
}

/// The interfaces below PPPoE sessions (`pppoe_seq_show()`). Which session is which PPP interface's is not told.
fn pppoe_devices(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(2))
}

fn threads_of_owners(ownership: &Ownership) -> HashMap<(i32, i32), SchedStat> {
    let pids: BTreeSet<i32> =
        ownership.each().flat_map(|each| &each.holders).map(|process| process.pid).collect();
    let mut threads = HashMap::new();
    for pid in pids {
        let tids = stat::threads(pid).unwrap_or_default().into_iter().take(THREADS_MAX);
        threads.extend(tids.filter_map(|tid| Some(((pid, tid), sched_stat(tid)?))));
    }
    threads
}

/// A thread's number is good below /proc, though it is not listed there.
fn sched_stat(tid: i32) -> Option<SchedStat> {
    sched::sched_stat(Pid::from_raw(tid)?).ok()
}

/// The threads that poll NAPI, of all network namespaces, and the neighbours that run.
fn processes() -> (HashMap<i32, SchedStat>, BTreeSet<String>) {
    let (mut pollers, mut neighbours) = (HashMap::new(), BTreeSet::new());
    for pid in stat::processes().unwrap_or_default() {
        let Some(stat) = Stat::of(pid) else { continue };
        if stat.is_kernel_thread() {
            let poller = stat.comm.starts_with(b"napi/");
            pollers.extend(poller.then(|| sched_stat(pid)).flatten().map(|stat| (pid, stat)));
        } else if let Some(name) = NEIGHBOURS.iter().find(|name| name.as_bytes() == stat.comm) {
            neighbours.insert((*name).into());
        }
    }
    (pollers, neighbours)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with many containers that hardly anybody sends to.
    #[test]
    fn of_hardware_more_is_asked_however_little_it_receives() {
        let interface = |name: &str, receive_pps, lower: &[&str], outside| InterfaceReading {
            name: name.into(),
            receive_pps,
            lower: lower.iter().map(|&name| name.into()).collect(),
            outside,
            ..InterfaceReading::default()
        };
        let veth = |number: usize| interface(&format!("veth{number}"), 1e5, &[], false);
        let mut readings: Vec<InterfaceReading> = (0..ASKED_MAX).map(veth).collect();
        readings.push(interface("docker0", 9e5, &["veth0", "veth1"], false));
        readings.push(interface("bond0.7", 1.0, &["bond0"], false));
        readings.push(interface("eth0", 2.0, &[], true));
        readings.push(interface("bond0", 3.0, &["eth0"], false));
        let mut readings: Vec<_> = readings.into_iter().map(|each| (IfIndex(1), each)).collect();
        put_outside_first(&mut readings);
        let names: Vec<_> = readings.iter().map(|(_, reading)| reading.name.as_str()).collect();
        assert_eq!(names[..5], ["bond0", "eth0", "bond0.7", "docker0", "veth0"]);
        assert!(readings.iter().all(|(_, it)| it.outside != it.name.starts_with(['v', 'd'])));
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let row = |cpu: &str| format!("0000000a 00000002 00000001 {}{cpu}\n", "0 ".repeat(9));
        let new = softnets(&(row("0") + &row("5")));
        assert_eq!(new[&5], Softnet { processed: 10, dropped: 2, squeezed: 1 });
        assert!(softnets("x y z\n1\n").is_empty());
        let table = "entries  insert_failed drop early_drop\n00000190  00000007 0000000f 00000001\n\
                     00000190  00000000 00000010 00000000\n";
        assert_eq!(conntrack(table), Conntrack { dropped: 31, given_up: 1 });
        assert_eq!(conntrack(""), Conntrack::default());
        let pppoe = "Id       Address              Device\n0000002A 02:00:00:00:00:01     eth0\n";
        assert_eq!(pppoe_devices(pppoe).collect::<Vec<_>>(), ["eth0"]);
    }
}

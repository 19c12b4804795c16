//! Looking: what the kernel had counted at one moment, and what two such moments say.
//!
//! Only files, netlink questions and, with the privilege, one BPF program that is attached nowhere (it reads what is
//! on top of an interface). Whatever cannot be read is told and left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use rustix::process::Pid;
use weir_bpf::channels::Channel;
use weir_bpf::counters::{Counters, CountersReader};
use weir_bpf::features;
use weir_bpf::gate::Policy;
use weir_bpf::holders::Holders;
use weir_bpf::programs::Program;
use weir_bpf::sys::caps::{self, Capability};
use weir_bpf::sys::divert::{self, Sight};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::{LinkInfo, LinkStats, Links};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched::{SchedStat, SchedStatFile};
use weir_bpf::sys::snmp::{self, TcpStats, UdpStats};
use weir_bpf::sys::sock_diag::{LocalSocket, SocketDiag, SocketKind};
use weir_bpf::sys::stat::Stat;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::{Kind, Reason, Verdict};

use super::reading::{
    CpuReading, InterfaceReading, OwnerReading, Reading, SocketReading, TcpReading, UdpReading,
};
use crate::attach;
use crate::error::Result;
use crate::owners::{OwnedSocket, Owner, Owners, Ownership, Process};
use crate::rps;
use crate::status::InterfaceStatus;
use crate::threading::THREADED;

/// Interfaces of which more is asked than their counters: those that receive most. A container host has hundreds.
const ASKED_MAX: usize = 16;
/// Threads of one process that are looked at.
const THREADS_MAX: usize = 256;
/// Programs that change what weir changes, or what it goes by.
const NEIGHBOURS: [&str; 2] = ["bpftune", "irqbalance"];

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
    at: Instant,
    cpus: BTreeMap<u32, CpuTimes>,
    softnet: BTreeMap<u32, Softnet>,
    udp: Option<UdpStats>,
    tcp: Option<TcpStats>,
    links: HashMap<IfIndex, LinkStats>,
    /// The interfaces that weir protects...
    running: Vec<InterfaceStatus>,
    /// ...and what its gates have counted.
    gates: HashMap<IfIndex, Counters>,
    ownership: Option<Ownership>,
    half_open: BTreeMap<(IpAddr, u16, IfIndex), u32>,
    /// Of those that have sockets open, by process and thread.
    threads: HashMap<(i32, i32), SchedStat>,
    /// Of those that poll NAPI.
    pollers: HashMap<i32, SchedStat>,
    neighbours: BTreeSet<String>,
}

/// Of one CPU, in ticks (proc(5), `/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuTimes {
    total: u64,
    idle: u64,
    softirq: u64,
}

/// Of one CPU (`/proc/net/softnet_stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Softnet {
    processed: u64,
    dropped: u64,
    squeezed: u64,
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
            looker
                .unseen
                .insert(format!("whose other users' sockets are, and XDP programs' names ({why})"));
        }
        Ok(looker)
    }

    fn seen<T, E: Display>(&mut self, what: &str, result: std::result::Result<T, E>) -> Option<T> {
        result.map_err(|error| self.unseen.insert(format!("{what}: {error}"))).ok()
    }

    /// Reads everything that is counted.
    pub fn look(&mut self) -> Sample {
        let cpus = fs::read_to_string("/proc/stat").map(|text| cpu_times(&text));
        let softnet = fs::read_to_string("/proc/thread-self/net/softnet_stat");
        let (pollers, neighbours) = processes();
        let ownership = self.owners.as_mut().map(Owners::look);
        let ownership = ownership.and_then(|look| self.seen("sockets", look));
        let half_open = self.diag.as_mut().map(SocketDiag::half_open);
        let running =
            self.seen("whether weir runs", InterfaceStatus::running()).unwrap_or_default();
        let links = self.interfaces.iter().map(|link| link.ifindex).chain(self.loopback);
        let counters = |status: &InterfaceStatus| {
            let gate = CountersReader::open(status.counters_map_id);
            Some((status.ifindex, gate.and_then(|gate| gate.counters()).ok()?))
        };
        Sample {
            gates: running.iter().filter_map(counters).collect(),
            running,
            at: Instant::now(),
            links: links.filter_map(|link| Some((link, self.links.stats(link).ok()?))).collect(),
            half_open: half_open.and_then(std::result::Result::ok).unwrap_or_default(),
            threads: ownership.as_ref().map(threads_of_owners).unwrap_or_default(),
            ownership,
            cpus: self.seen("CPU times", cpus).unwrap_or_default(),
            softnet: self
                .seen("softnet_stat", softnet)
                .map(|text| softnets(&text))
                .unwrap_or_default(),
            udp: self.seen("UDP's counters", udp()),
            tcp: self.seen("TCP's counters", snmp::tcp_stats()),
            pollers,
            neighbours,
        }
    }

    /// What two looks say, and the facts of now.
    pub fn reading(mut self, earlier: &Sample, later: &Sample) -> Reading {
        let seconds = later.at.duration_since(earlier.at).as_secs_f64();
        Reading {
            seconds,
            kernel: kernel(),
            cpus: cpus(earlier, later, seconds),
            udp: udp_reading(earlier, later, seconds),
            tcp: tcp_reading(earlier, later, seconds),
            sockets: sockets(earlier, later, seconds),
            loopback_pps: self.loopback.map_or(0.0, |link| received(link, earlier, later, seconds)),
            rmem_max: host_sysctl("net/core/rmem_max").and_then(|text| text.trim().parse().ok()),
            somaxconn: sysctl("net/core/somaxconn").and_then(|text| text.trim().parse().ok()),
            interfaces: self.interfaces(earlier, later, seconds),
            neighbours: later.neighbours.iter().cloned().collect(),
            protected: later
                .running
                .iter()
                .filter(|each| each.policy == Policy::On)
                .map(|each| each.interface.clone())
                .collect(),
            lacks: features::lacks()
                .iter()
                .map(|lack| format!("{}: {}", lack.feature, lack.cost))
                .collect(),
            unseen: self.unseen.into_iter().collect(),
        }
    }

    fn interfaces(
        &mut self,
        earlier: &Sample,
        later: &Sample,
        seconds: f64,
    ) -> Vec<InterfaceReading> {
        let sysfs = self.seen("interfaces' settings", NetSysfs::open());
        let mut readings = Vec::new();
        for link in &self.interfaces {
            let stats =
                |sample: &Sample| sample.links.get(&link.ifindex).copied().unwrap_or_default();
            let (before, after) = (stats(earlier), stats(later));
            readings.push((
                link.ifindex,
                InterfaceReading {
                    name: link.name.clone(),
                    takes_gate: link.takes_gate(),
                    master: link.master.and_then(|master| self.links.name(master).ok()),
                    receive_pps: received(link.ifindex, earlier, later, seconds),
                    ring_drop_pps: rate(before.ring_dropped(), after.ring_dropped(), seconds),
                    ..InterfaceReading::default()
                },
            ));
        }
        readings.sort_by(|(_, one), (_, other)| other.receive_pps.total_cmp(&one.receive_pps));
        let names: Vec<String> =
            readings.iter().take(ASKED_MAX).map(|(_, reading)| reading.name.clone()).collect();
        for (ifindex, reading) in readings.iter_mut().take(ASKED_MAX) {
            self.ask(*ifindex, sysfs.as_ref(), reading, &later.running);
            if let Some((discarded_pps, reason)) = discarded(*ifindex, earlier, later, seconds) {
                reading.discarded_pps = discarded_pps;
                reading.discarded_as = Some(reason.name().into());
            }
            let has = |attribute: &str| {
                let exists = |sysfs: &NetSysfs| sysfs.exists(&reading.name, attribute);
                sysfs.as_ref().map(exists).is_some_and(|exists| exists.unwrap_or(false))
            };
            reading.outside = has("device");
            let below = names.iter().filter(|name| has(&format!("lower_{name}")));
            reading.lower = below.cloned().collect();
        }
        // One on top of another may be below a third.
        for _ in &names {
            let outside = readings.iter().filter(|(_, reading)| reading.outside);
            let outside: Vec<String> = outside.map(|(_, reading)| reading.name.clone()).collect();
            for (_, reading) in &mut readings {
                reading.outside |= reading.lower.iter().any(|name| outside.contains(name));
            }
        }
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
        reading.native_cost = attach::native_cost(reading.driver.as_deref()).map(Into::into);
        if let Ok((queues, most)) = ethtool::receive_queues(&name) {
            (reading.queues, reading.queues_max) = (Some(queues), Some(most));
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

fn received(ifindex: IfIndex, earlier: &Sample, later: &Sample, seconds: f64) -> f64 {
    let of = |sample: &Sample| sample.links.get(&ifindex).map_or(0, |stats| stats.rx_packets);
    rate(of(earlier), of(later), seconds)
}

/// How much a gate has discarded, and as what most of it.
fn discarded(
    ifindex: IfIndex,
    earlier: &Sample,
    later: &Sample,
    seconds: f64,
) -> Option<(f64, Reason)> {
    let discards = later.running.iter().any(|each| each.ifindex == ifindex && each.discards());
    let (before, after) = (earlier.gates.get(&ifindex)?, later.gates.get(&ifindex)?);
    let of = |reason: Reason| rate(before.get(reason).packets, after.get(reason).packets, seconds);
    let reasons = Reason::ALL.into_iter().filter(|reason| reason.verdict() == Verdict::Discard);
    let by_reason = reasons.map(|reason| (of(reason), reason)).filter(|(pps, _)| *pps > 0.0);
    let by_reason: Vec<(f64, Reason)> = by_reason.filter(|_| discards).collect();
    let most = by_reason.iter().max_by(|one, other| one.0.total_cmp(&other.0))?.1;
    Some((by_reason.iter().map(|(pps, _)| pps).sum(), most))
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Counters of 32 bits and those of an interface that was made anew may have gone back.
fn rate(before: u64, after: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { after.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

fn udp() -> weir_bpf::Result<UdpStats> {
    let (v4, v6) = snmp::udp_stats()?;
    Ok(UdpStats {
        in_datagrams: v4.in_datagrams + v6.in_datagrams,
        no_ports: v4.no_ports + v6.no_ports,
        in_errors: v4.in_errors + v6.in_errors,
        rcvbuf_errors: v4.rcvbuf_errors + v6.rcvbuf_errors,
        csum_errors: v4.csum_errors + v6.csum_errors,
        mem_errors: v4.mem_errors + v6.mem_errors,
    })
}

/// Lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; guests' time is user's already.
fn cpu_times(text: &str) -> BTreeMap<u32, CpuTimes> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let at = |index: usize| ticks.get(index).copied();
        let total = ticks.iter().take(8).sum();
        Some((cpu, CpuTimes { total, idle: at(3)? + at(4)?, softirq: at(6)? }))
    };
    // The first line, of all CPUs together, has no number.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(line).collect()
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

fn cpus(earlier: &Sample, later: &Sample, seconds: f64) -> Vec<CpuReading> {
    let mut polled: HashMap<u32, f64> = HashMap::new();
    for (tid, after) in &later.pollers {
        let Some(before) = earlier.pollers.get(tid) else { continue };
        if let Some(cpu) = processor(&format!("/proc/{tid}/stat")) {
            *polled.entry(cpu).or_default() += rate(before.ran.0, after.ran.0, seconds) / 1e9;
        }
    }
    let softnet = |sample: &Sample, cpu| sample.softnet.get(&cpu).copied().unwrap_or_default();
    let reading = |(&cpu, after): (&u32, &CpuTimes)| {
        let before = earlier.cpus.get(&cpu).copied().unwrap_or_default();
        let total = after.total.saturating_sub(before.total);
        let share = |before: u64, after: u64| {
            if total == 0 { 0.0 } else { after.saturating_sub(before) as f64 / total as f64 }
        };
        let (old, new) = (softnet(earlier, cpu), softnet(later, cpu));
        CpuReading {
            cpu,
            softirq: share(before.softirq, after.softirq),
            napi_threads: polled.get(&cpu).copied().unwrap_or_default(),
            idle: share(before.idle, after.idle),
            packets_pps: rate(old.processed, new.processed, seconds),
            backlog_drop_pps: rate(old.dropped, new.dropped, seconds),
            squeezed_per_sec: rate(old.squeezed, new.squeezed, seconds),
        }
    };
    later.cpus.iter().map(reading).collect()
}

/// Field 39 of proc(5)'s `/proc/PID/stat`.
fn processor(path: &str) -> Option<u32> {
    Stat::read(path)?.field(39)
}

fn udp_reading(earlier: &Sample, later: &Sample, seconds: f64) -> Option<UdpReading> {
    let (before, after) = (earlier.udp?, later.udp?);
    let of = |counter: fn(&UdpStats) -> u64| rate(counter(&before), counter(&after), seconds);
    let (memory_pages, memory_limit_pages) = (udp_memory(), udp_memory_limit());
    Some(UdpReading {
        delivered_pps: of(|udp| udp.in_datagrams),
        queue_full_pps: of(|udp| udp.rcvbuf_errors),
        memory_pps: of(|udp| udp.mem_errors),
        checksum_pps: of(|udp| udp.csum_errors),
        no_socket_pps: of(|udp| udp.no_ports),
        memory_pages,
        memory_limit_pages,
    })
}

/// Of all network namespaces together.
fn udp_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/sockstat").ok()?;
    let words = text.lines().find_map(|line| line.strip_prefix("UDP: "))?.split_ascii_whitespace();
    words.skip_while(|word| *word != "mem").nth(1)?.parse().ok()
}

fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()
}

/// The whole host's, which its first network namespace alone shows.
fn host_sysctl(name: &str) -> Option<String> {
    sysctl(name).or_else(|| NetNs::open("/proc/1/ns/net").ok()?.run(|| sysctl(name)).ok()?)
}

fn udp_memory_limit() -> Option<[u64; 3]> {
    let text = host_sysctl("net/ipv4/udp_mem")?;
    let pages: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    pages?.try_into().ok()
}

fn tcp_reading(earlier: &Sample, later: &Sample, seconds: f64) -> Option<TcpReading> {
    let (before, after) = (earlier.tcp?, later.tcp?);
    let of = |counter: fn(&TcpStats) -> u64| rate(counter(&before), counter(&after), seconds);
    Some(TcpReading {
        cookies_per_sec: of(|tcp| tcp.syn_cookies_sent),
        request_drops_per_sec: requests_dropped(&before, &after, seconds),
        accept_queue_full_per_sec: of(|tcp| tcp.listen_overflows),
    })
}

/// Without cookies the kernel drops requests of unknown peers from three quarters of `net.ipv4.tcp_max_syn_backlog` on,
/// and counts these as `ListenDrops` alone (`tcp_conn_request()`).
fn requests_dropped(before: &TcpStats, after: &TcpStats, seconds: f64) -> f64 {
    let of = |counter: fn(&TcpStats) -> u64| rate(counter(before), counter(after), seconds);
    let others = |tcp: &TcpStats| tcp.listen_drops.saturating_sub(tcp.listen_overflows);
    of(|tcp| tcp.request_drops).max(of(others))
}

fn sockets(earlier: &Sample, later: &Sample, seconds: f64) -> Option<Vec<SocketReading>> {
    let (before, after) = (earlier.ownership.as_ref()?, later.ownership.as_ref()?);
    let mut half_open: HashMap<_, u32> = HashMap::new();
    for (&(address, port, interface), count) in &later.half_open {
        let channel = Channel { local: Some((address, port)), ..Channel::of_kind(Kind::Tcp) };
        for socket in after.of(&channel, interface).iter().flat_map(Owner::local) {
            *half_open.entry(socket.inode).or_default() += count;
        }
    }
    let reading = |OwnedSocket { socket, holders }: &OwnedSocket| {
        let dropped = socket.drops.wrapping_sub(before.drops(socket).unwrap_or(0));
        let listener = socket.kind == SocketKind::TcpListener;
        SocketReading {
            listener,
            local: local(socket),
            port: socket.port,
            queued: socket.queued,
            limit: socket.limit,
            drop_pps: rate(0, dropped.into(), seconds),
            half_open: half_open.get(&socket.inode).filter(|_| listener).copied().unwrap_or(0),
            owners: holders.iter().map(|process| owner(process, earlier, later, seconds)).collect(),
        }
    };
    let mut sockets: Vec<SocketReading> = after.each().map(reading).collect();
    sockets.sort_by(|one, other| (one.port, &one.local).cmp(&(other.port, &other.local)));
    Some(sockets)
}

fn local(socket: &LocalSocket) -> String {
    std::net::SocketAddr::new(socket.address, socket.port).to_string()
}

fn owner(process: &Process, earlier: &Sample, later: &Sample, seconds: f64) -> OwnerReading {
    let threads = later.threads.iter().filter(|((pid, _), _)| *pid == process.pid);
    let shares = threads.filter_map(|(id, after)| {
        let before = earlier.threads.get(id)?;
        let share = |before: u64, after: u64| rate(before, after, seconds) / 1e9;
        Some((id.1, share(before.ran.0, after.ran.0), share(before.waited.0, after.waited.0)))
    });
    let busiest = shares.max_by(|one, other| (one.1 + one.2).total_cmp(&(other.1 + other.2)));
    OwnerReading {
        pid: process.pid,
        comm: process.comm.clone(),
        place: process.place(),
        ran: busiest.map(|(_, ran, _)| ran.min(1.0)),
        waited: busiest.map(|(.., waited)| waited.min(1.0)),
        cpu: busiest
            .and_then(|(tid, ..)| processor(&format!("/proc/{}/task/{tid}/stat", process.pid))),
    }
}

fn threads_of_owners(ownership: &Ownership) -> HashMap<(i32, i32), SchedStat> {
    let pids: BTreeSet<i32> =
        ownership.each().flat_map(|each| &each.holders).map(|process| process.pid).collect();
    let mut threads = HashMap::new();
    for pid in pids {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        let tids = entries.flatten().filter_map(|each| each.file_name().to_str()?.parse().ok());
        threads
            .extend(tids.take(THREADS_MAX).filter_map(|tid| Some(((pid, tid), sched_stat(tid)?))));
    }
    threads
}

/// A thread's number is good below /proc, though it is not listed there.
fn sched_stat(tid: i32) -> Option<SchedStat> {
    SchedStatFile::open(Pid::from_raw(tid)?).ok()?.read().ok()
}

/// The threads that poll NAPI, of all network namespaces, and the neighbours that run.
fn processes() -> (HashMap<i32, SchedStat>, BTreeSet<String>) {
    let (mut pollers, mut neighbours) = (HashMap::new(), BTreeSet::new());
    let Ok(entries) = fs::read_dir("/proc") else { return (pollers, neighbours) };
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
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

    #[test]
    fn requests_that_are_dropped_with_the_listeners_other_drops_are_counted() {
        let of = |listen_drops, listen_overflows, request_drops| TcpStats {
            listen_drops,
            listen_overflows,
            request_drops,
            ..TcpStats::default()
        };
        let rate = |before, after| requests_dropped(&before, &after, 2.0);
        assert_eq!(rate(of(10, 10, 0), of(1030, 30, 0)), 500.0);
        assert_eq!(rate(of(0, 0, 0), of(80, 0, 80)), 40.0);
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 1 1\ncpu3 0 0 0 1 0 0 0 0 0 0\nintr 5\n";
        let times = cpu_times(text);
        assert_eq!(times[&0], CpuTimes { total: 36, idle: 9, softirq: 7 });
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let row = |cpu: &str| format!("0000000a 00000002 00000001 {}{cpu}\n", "0 ".repeat(9));
        let new = softnets(&(row("0") + &row("5")));
        assert_eq!(new[&5], Softnet { processed: 10, dropped: 2, squeezed: 1 });
        assert!(softnets("x y z\n1\n").is_empty());
    }
}

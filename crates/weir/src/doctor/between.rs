//! What two looks say of the time between them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use weir_bpf::channels::Channel;
use weir_bpf::gate::Policy;
use weir_bpf::printable::printable;
use weir_bpf::sys::cpu_times::CpuTimes;
use weir_bpf::sys::link::LinkStats;
use weir_bpf::sys::snmp::{IpStats, TcpStats, UdpStats};
use weir_bpf::sys::sock_diag::{LocalSocket, SocketKind};
use weir_bpf::sys::stat::Stat;
use weir_bpf::sys::tc::{Egress, EgressQueue};
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::{Kind, Reason, Verdict};

use super::reading::{
    ConntrackReading, CpuReading, EgressReading, IpReading, OwnerReading, SocketReading,
    TcpReading, UdpReading,
};
use super::sample::Sample;
use crate::cgroup::{self, Mounted};
use crate::owners::{OwnedSocket, Owner, Process};
use crate::sample::rate;
use crate::status::InterfaceStatus;
use crate::sysctl;

/// Two looks.
pub struct Between<'a> {
    earlier: &'a Sample,
    later: &'a Sample,
    /// The time between them.
    pub seconds: f64,
}

impl<'a> Between<'a> {
    /// The one before comes first.
    pub fn new(earlier: &'a Sample, later: &'a Sample) -> Self {
        Self { earlier, later, seconds: later.at.duration_since(earlier.at).as_secs_f64() }
    }

    /// Counters of 32 bits, too, may have gone back.
    fn rate(&self, before: u64, after: u64) -> f64 {
        rate(before, after, self.seconds)
    }

    /// What was counted while a look went on, which was read before and after: in both together.
    fn unsure(&self, read: impl Fn(&Sample) -> Option<(u64, u64)>) -> f64 {
        let looks = [self.earlier, self.later].into_iter().filter_map(read);
        looks.map(|(before, after)| self.rate(before, after)).sum()
    }

    /// Packets that an interface has received.
    pub fn received(&self, ifindex: IfIndex) -> f64 {
        let of = |sample: &Sample| sample.links.get(&ifindex).map_or(0, |stats| stats.rx_packets);
        self.rate(of(self.earlier), of(self.later))
    }

    /// Packets for which an interface's receive ring had no room.
    pub fn ring_dropped(&self, ifindex: IfIndex) -> f64 {
        let of = |sample: &Sample| sample.links.get(&ifindex).map_or(0, LinkStats::ring_dropped);
        self.rate(of(self.earlier), of(self.later))
    }

    /// What the queues by which an interface sends did, those that were there all the time.
    pub fn egress(&self, ifindex: IfIndex) -> Vec<EgressReading> {
        let of = |sample: &'a Sample| sample.egresses.get(&ifindex);
        let both = of(self.earlier).zip(of(self.later));
        both.map_or_else(Vec::new, |(before, after)| egress_between(before, after, self.seconds))
    }

    /// How much a gate has discarded, and as what most of it.
    pub fn discarded(&self, ifindex: IfIndex) -> Option<(f64, Reason)> {
        let is_on = |each: &&InterfaceStatus| each.policy == Policy::On;
        self.later.running.iter().filter(is_on).find(|each| each.ifindex == ifindex)?;
        let gates = (self.later.gates.get(&ifindex)?, self.earlier.gates.get(&ifindex)?);
        let discards = gates.0.since(gates.1);
        Some((self.rate(0, discards.verdict(Verdict::Discard).packets), discards.top_discard()?))
    }

    /// What the CPUs did, of those that were there all the time.
    pub fn cpus(&self) -> Vec<CpuReading> {
        let mut polled: HashMap<u32, f64> = HashMap::new();
        for (tid, after) in &self.later.pollers {
            let Some(before) = self.earlier.pollers.get(tid) else { continue };
            if let Some(cpu) = processor(&format!("/proc/{tid}/stat")) {
                *polled.entry(cpu).or_default() += self.rate(before.ran.0, after.ran.0) / 1e9;
            }
        }
        let softnet = |sample: &Sample, cpu| sample.softnet.get(&cpu).copied().unwrap_or_default();
        let reading = |(&cpu, after): (&u32, &CpuTimes)| {
            let before = self.earlier.cpus.get(&cpu)?;
            let total = after.total.saturating_sub(before.total);
            let share = |before: u64, after: u64| {
                if total == 0 { 0.0 } else { after.saturating_sub(before) as f64 / total as f64 }
            };
            let (old, new) = (softnet(self.earlier, cpu), softnet(self.later, cpu));
            Some(CpuReading {
                cpu,
                softirq: share(before.softirq, after.softirq),
                napi_threads: polled.get(&cpu).copied().unwrap_or_default(),
                idle: share(before.idle, after.idle),
                packets_pps: self.rate(old.processed, new.processed),
                backlog_drop_pps: self.rate(old.dropped, new.dropped),
                squeezed_per_sec: self.rate(old.squeezed, new.squeezed),
            })
        };
        self.later.cpus.iter().filter_map(reading).collect()
    }

    /// What happened to IP.
    pub fn ip(&self) -> Option<IpReading> {
        let (before, after) = (self.earlier.ip?, self.later.ip?);
        Some(IpReading {
            received_pps: self.rate(before.in_receives, after.in_receives),
            forwarded_pps: self.rate(before.forwarded, after.forwarded),
            reassembled_pps: self.rate(before.reassembled, after.reassembled),
            fragment_drop_pps: self.rate(0, fragments_dropped(&before, &after)),
            fragment_memory: sysctl::read("net/ipv4/ipfrag_high_thresh"),
        })
    }

    /// What happened in the connection tracking table.
    pub fn conntrack(&self) -> Option<ConntrackReading> {
        let (before, after) = (self.earlier.conntrack, self.later.conntrack);
        Some(ConntrackReading {
            entries: sysctl::read("net/netfilter/nf_conntrack_count")?,
            limit: sysctl::read("net/netfilter/nf_conntrack_max")?,
            drop_pps: self.rate(before.dropped, after.dropped),
            given_up_per_sec: self.rate(before.given_up, after.given_up),
        })
    }

    /// What happened to UDP.
    pub fn udp(&self) -> Option<UdpReading> {
        let (before, after) = (self.earlier.udp?, self.later.udp?);
        let of = |counter: fn(&UdpStats) -> u64| self.rate(counter(&before), counter(&after));
        let (memory_pages, memory_limit_pages) = (udp_memory(), udp_memory_limit());
        Some(UdpReading {
            delivered_pps: of(|udp| udp.in_datagrams),
            queue_full_pps: of(|udp| udp.rcvbuf_errors),
            queue_full_unsure_pps: self.unsure(|sample| {
                Some((sample.udp_before?.rcvbuf_errors, sample.udp?.rcvbuf_errors))
            }),
            memory_pps: of(|udp| udp.mem_errors),
            checksum_pps: of(|udp| udp.csum_errors),
            no_socket_pps: of(|udp| udp.no_ports),
            memory_pages,
            memory_limit_pages,
        })
    }

    /// What happened to TCP.
    pub fn tcp(&self) -> Option<TcpReading> {
        let (before, after) = (self.earlier.tcp?, self.later.tcp?);
        let of = |counter: fn(&TcpStats) -> u64| self.rate(counter(&before), counter(&after));
        Some(TcpReading {
            cookies_per_sec: of(|tcp| tcp.syn_cookies_sent),
            request_drops_per_sec: self.rate(0, requests_dropped(&before, &after)),
            accept_queue_full_per_sec: of(|tcp| tcp.listen_overflows),
            accept_queue_full_unsure_per_sec: self.unsure(|sample| {
                Some((sample.tcp_before?.listen_overflows, sample.tcp?.listen_overflows))
            }),
            checksum_pps: of(|tcp| tcp.csum_errors),
            handshake_resets_per_sec: of(|tcp| tcp.handshake_resets),
            syncookies: sysctl::read("net/ipv4/tcp_syncookies"),
        })
    }

    /// The sockets.
    pub fn sockets(&self) -> Option<Vec<SocketReading>> {
        let (before, after) = (self.earlier.ownership.as_ref()?, self.later.ownership.as_ref()?);
        let mut half_open: HashMap<_, u32> = HashMap::new();
        for (&(address, port, interface), count) in &self.later.half_open {
            let channel = Channel { local: Some((address, port)), ..Channel::of_kind(Kind::Tcp) };
            for socket in after.of(&channel, interface).iter().flat_map(Owner::local) {
                *half_open.entry(socket.inode).or_default() += count;
            }
        }
        // A process may have very many sockets.
        let mut owners: HashMap<i32, OwnerReading> = HashMap::new();
        let groups = cgroup::mounts();
        let mut owner = |process: &Arc<Process>| {
            owners.entry(process.pid).or_insert_with(|| self.owner(process, &groups)).clone()
        };
        let reading = |OwnedSocket { socket, holders }: &OwnedSocket| {
            let before = before.losses(socket).unwrap_or_default();
            let dropped = socket.drops.wrapping_sub(before.drops);
            let listener = socket.kind == SocketKind::TcpListener;
            SocketReading {
                listener,
                local: local(socket),
                port: socket.port,
                queued: socket.queued.max(before.queued),
                limit: socket.limit,
                drop_pps: self.rate(0, dropped.into()),
                half_open: half_open.get(&socket.inode).filter(|_| listener).copied().unwrap_or(0),
                owners: holders.iter().map(&mut owner).collect(),
            }
        };
        let mut sockets: Vec<SocketReading> = after.each().map(reading).collect();
        sockets.sort_by(|one, other| (one.port, &one.local).cmp(&(other.port, &other.local)));
        Some(sockets)
    }

    fn owner(&self, process: &Process, groups: &[Mounted]) -> OwnerReading {
        let threads = self.later.threads.iter().filter(|((pid, _), _)| *pid == process.pid);
        let shares = threads.filter_map(|(id, after)| {
            let before = self.earlier.threads.get(id)?;
            let share = |before: u64, after: u64| self.rate(before, after) / 1e9;
            Some((id.1, share(before.ran.0, after.ran.0), share(before.waited.0, after.waited.0)))
        });
        let busiest = shares.max_by(|one, other| (one.1 + one.2).total_cmp(&(other.1 + other.2)));
        let stat = Stat::of(process.pid);
        OwnerReading {
            pid: process.pid,
            comm: process.comm.clone(),
            place: process.place(),
            stopped: stat.as_ref().is_some_and(Stat::is_stopped),
            held_by: stat.filter(Stat::is_held).map(|_| {
                debugger(process.pid).unwrap_or_else(|| "which cannot be seen from here".into())
            }),
            frozen: cgroup::frozen(process.pid, groups)
                .map(|group| printable(group.as_os_str().as_bytes())),
            ran: busiest.map(|(_, ran, _)| ran.min(1.0)),
            waited: busiest.map(|(.., waited)| waited.min(1.0)),
            cpu: busiest
                .and_then(|(tid, ..)| processor(&format!("/proc/{}/task/{tid}/stat", process.pid))),
        }
    }
}

fn egress_between(before: &Egress, after: &Egress, seconds: f64) -> Vec<EgressReading> {
    let earlier: HashMap<_, _> =
        before.queues.iter().map(|each| ((&each.class, each.handle), each)).collect();
    let kinds = &after.kinds;
    let queue = |after: &EgressQueue| {
        let before =
            earlier.get(&(&after.class, after.handle)).filter(|_| before.kinds == *kinds)?;
        Some(EgressReading {
            kinds: kinds.clone(),
            class: after.class.clone(),
            sent_pps: rate(before.sent, after.sent, seconds),
            drop_pps: rate(before.dropped, after.dropped, seconds),
            waiting: after.packets.min(before.packets),
            waiting_bytes: after.bytes.min(before.bytes),
            waiting_bytes_most: after.bytes.max(before.bytes),
        })
    };
    after.queues.iter().filter_map(queue).collect()
}

/// Who debugs a process, if that is seen in this PID namespace.
fn debugger(pid: i32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    let tracer = tracer.trim().parse().ok()?;
    Some(format!("{} (pid {tracer})", printable(&Stat::of(tracer)?.comm)))
}

/// Field 39 of proc(5)'s `/proc/PID/stat`.
fn processor(path: &str) -> Option<u32> {
    Stat::read(path)?.field(39)
}

/// Without cookies the kernel drops requests of unknown peers from three quarters of `net.ipv4.tcp_max_syn_backlog` on,
/// and counts these as `ListenDrops` alone (`tcp_conn_request()`).
fn requests_dropped(before: &TcpStats, after: &TcpStats) -> u64 {
    let of = |counter: fn(&TcpStats) -> u64| counter(after).saturating_sub(counter(before));
    let others = |tcp: &TcpStats| tcp.listen_drops.saturating_sub(tcp.listen_overflows);
    of(|tcp| tcp.request_drops).max(of(others))
}

/// The kernel counts a datagram whose rest has not come in time (`ip_expire()`) as it counts a fragment that it has no
/// memory for (`ip_defrag()`).
fn fragments_dropped(before: &IpStats, after: &IpStats) -> u64 {
    let of = |counter: fn(&IpStats) -> u64| counter(after).saturating_sub(counter(before));
    of(|ip| ip.reassembly_failures).saturating_sub(of(|ip| ip.reassembly_timeouts))
}

/// Of all network namespaces together.
fn udp_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/sockstat").ok()?;
    let words = text.lines().find_map(|line| line.strip_prefix("UDP: "))?.split_ascii_whitespace();
    words.skip_while(|word| *word != "mem").nth(1)?.parse().ok()
}

fn udp_memory_limit() -> Option<[u64; 3]> {
    let text: String = sysctl::of_host("net/ipv4/udp_mem")?;
    let pages: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    pages?.try_into().ok()
}

fn local(socket: &LocalSocket) -> String {
    std::net::SocketAddr::new(socket.address, socket.port).to_string()
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
        let dropped = |before, after| requests_dropped(&before, &after);
        assert_eq!(dropped(of(10, 10, 0), of(1030, 30, 0)), 1000);
        assert_eq!(dropped(of(0, 0, 0), of(80, 0, 80)), 80);
    }

    #[test]
    fn what_waited_in_an_egress_queue_is_what_both_looks_found() {
        let of = |packets, bytes| Egress {
            kinds: vec!["tbf".into()],
            queues: vec![EgressQueue { packets, bytes, ..EgressQueue::default() }],
        };
        for (before, after) in [(of(20, 30_000), of(1, 1514)), (of(1, 1514), of(20, 30_000))] {
            let reading = &egress_between(&before, &after, 1.0)[0];
            assert_eq!((reading.waiting, reading.waiting_bytes), (1, 1514));
            assert_eq!(reading.waiting_bytes_most, 30_000);
        }
    }
}

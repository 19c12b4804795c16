//! What a trial reads: the generator, applications, the client, the kernel, the gate.

use std::fs;

use rustix::process::Pid;
use weir_bpf::accounts::monotonic_now;
use weir_bpf::sys::task_clock::TaskClock;
use weir_bpf::sys::{cpu_times, sched, snmp};
use weir_bpf::verdict::{Reason, Verdict};

use crate::apps::udp::Answer;
use crate::apps::{slots, udp};
use crate::bench::Bench;
use crate::error::{Error, Result, cannot};
use crate::histogram;
use crate::host::process::{Process, cpu_ns};
use crate::host::topology::{EGRESS, Host};
use crate::programs::Daemon;
use crate::reading::{Counter, Histogram, Reading};
use crate::scene::{AppKind, Beside, Books, Need, Role, Scene, Watch};

/// Everything that a trial reads. What is in shared memory comes first, within a microsecond; then what
/// takes a system call, each with its own instant.
pub struct Probe<'a> {
    pub bench: &'a Bench,
    pub host: &'a Host,
    pub scene: &'a Scene,
    /// The scene's applications, in its order.
    pub apps: Vec<&'a Process>,
    /// The lab's own client, once it runs.
    pub client: Option<Process>,
    /// The process beside the applications, once it runs.
    pub beside: Option<Process>,
    pub daemon: Option<&'a Daemon>,
    /// Connections are followed, so that what cannot be is dropped.
    pub follows: bool,
    pub pollers: Vec<Pid>,
    /// What they run, by perf, where accounts are watched.
    pub clocks: Vec<TaskClock>,
}

impl Probe<'_> {
    pub fn read(&self) -> Result<Reading> {
        let mut reading = Reading::default();
        self.memory(&mut reading);
        self.cpu(&mut reading)?;
        self.packets(&mut reading)?;
        Ok(reading)
    }

    /// Generator, applications, client: memory that they share with the lab.
    fn memory(&self, reading: &mut Reading) {
        reading.add(Counter::FloodSent, 0);
        for (index, flow) in self.scene.flows.iter().enumerate() {
            let counts = self.bench.generator.counts(index);
            let counter = if flow.light { Counter::LightSent } else { Counter::FloodSent };
            reading.add(counter, counts.sent + counts.refused);
            reading.add(Counter::RingDrop, counts.refused);
            reading.add(Counter::Missed, counts.missed);
        }
        for (app, running) in self.scene.apps.iter().zip(&self.apps) {
            if !running.counts() {
                continue;
            }
            let (delivered, ages) = match app.role {
                Role::Flooded => (Counter::Delivered, Some(Histogram::Age)),
                Role::Light => (Counter::LightDelivered, Some(Histogram::LightAge)),
                Role::Other => (Counter::OtherDelivered, None),
            };
            // A request over TCP is not a packet.
            if !matches!(app.kind, AppKind::Tcp { .. }) {
                reading.add(delivered, running.count(slots::DELIVERED));
            }
            if let Some(ages) = ages {
                reading.note(ages, running.histogram());
            }
            if matches!(app.kind, AppKind::Udp(udp::Server { answer: Answer::Echo, .. })) {
                reading.add(Counter::Replied, running.count(slots::REPLIED));
            }
        }
        if let Some(client) = &self.client {
            reading.add(Counter::Done, client.count(slots::DELIVERED));
            reading.add(Counter::Calls, client.count(slots::CALLS));
            reading.add(Counter::LastCallNs, client.count(slots::LAST_CALL_NS));
            reading.add(Counter::ClientSent, client.count(slots::SENT));
            reading.add(Counter::ClientLost, client.count(slots::LOST));
            reading.note(Histogram::Took, client.histogram());
        }
        match self.scene.beside.zip(self.beside.as_ref()) {
            None | Some((Beside::Spinner, _)) => {}
            Some((Beside::Interactive, process)) => {
                let open_ns = monotonic_now().0.saturating_sub(process.count(slots::DUE_NS));
                reading.note(Histogram::Wake, histogram::with(process.histogram(), open_ns));
            }
            Some((_, process)) => {
                reading.add(Counter::Work, process.count(slots::WORK));
                reading.add(Counter::WorkCpu, process.count(slots::CPU_NS));
            }
        }
        reading.note(Histogram::Loop, self.bench.speed.histogram());
    }

    /// Whom the kernel charges.
    fn cpu(&self, reading: &mut Reading) -> Result<()> {
        for (app, running) in self.scene.apps.iter().zip(&self.apps) {
            if let AppKind::Capture(kind) = app.kind {
                reading.add(Counter::Captured, kind.written(running.pid())?);
            }
            let ns = cpu_ns(&running.pids)?;
            reading.add(Counter::ServerCpu, ns);
            match app.role {
                Role::Flooded => reading.add(Counter::FloodedCpu, ns),
                Role::Light => reading.add(Counter::LightCpu, ns),
                Role::Other => {}
            }
        }
        for pid in &self.pollers {
            reading.add(Counter::InputCpu, sched::cpu_time(*pid)?.0);
        }
        for clock in &self.clocks {
            reading.add(Counter::NapiPerf, clock.read()?.0);
        }
        if let Some(daemon) = self.daemon {
            reading.add(Counter::DaemonCpu, cpu_ns(&daemon.process.pids)?);
        }
        let times = cpu_times::read().map_err(cannot("read", "/proc/stat"))?;
        let times = times.get(&self.bench.sut_cpu.0).copied().unwrap_or_default();
        let ns = |ticks| ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second());
        reading.add(Counter::IdleNs, ns(times.idle_alone));
        reading.add(Counter::StealNs, ns(times.steal));
        Ok(())
    }

    /// Where packets are, or were lost.
    fn packets(&self, reading: &mut Reading) -> Result<()> {
        let [far, own] = self.bench.topology.stats(self.host)?;
        let (ring, refused) = (far.tx_dropped, own.rx_dropped);
        reading.add(Counter::RingDrop, ring);
        // A veth that polls counts here what its polls took from the ring (veth_get_stats64()).
        reading.add(Counter::Taken, own.rx_packets);
        if let Some(daemon) = self.daemon {
            let counters = daemon.counters.counters()?;
            reading.add(Counter::Discarded, counters.verdict(Verdict::Discard).packets);
            reading.add(Counter::Judged, counters.total().packets);
            let answered = counters.get(Reason::TcpCookie).packets;
            reading.add(Counter::Answered, answered);
            reading.add(Counter::Cookies, answered);
            // Without a look at their destination.
            let passed = [Reason::Diverted, Reason::PolicyOff].map(|of| counters.get(of).packets);
            reading.add(Counter::Unjudged, passed.iter().sum());
        } else {
            reading.add(Counter::Discarded, 0);
        }
        let udp = self.host.netns.run(snmp::udp_stats)??;
        let socket = udp.rcvbuf_errors;
        let other = udp.in_errors.saturating_sub(socket) + udp.no_ports;
        let untracked = if self.follows { self.host.netns.run(conntrack_drops)?? } else { 0 };
        let (backlog, other) = (refused.saturating_sub(ring), other + untracked);
        reading.add(Counter::LateBacklog, backlog);
        reading.add(Counter::LateSocket, socket);
        reading.add(Counter::LateOther, other);
        reading.add(Counter::Untracked, untracked);
        reading.add(Counter::LateDrop, backlog + socket + other);
        if self.scene.books == Books::Ip {
            let [far, own] = [&self.bench.topology.generator, &self.host.netns];
            reading.add(Counter::ClientIpSent, far.run(snmp::ip_stats)??.out_requests);
            reading.add(Counter::IpReceived, own.run(snmp::ip_stats)??.in_receives);
        }
        if self.scene.books == Books::Tcp {
            let tcp = self.host.netns.run(snmp::tcp_stats)??;
            reading.add(Counter::Segments, tcp.in_segs);
            reading.add(Counter::Cookies, tcp.syn_cookies_sent);
            // Of the flood's frames, which are redirected, veth counts at both ends what the full ring refused.
            reading.add(Counter::RingDropClient, ring.saturating_sub(refused));
        }
        if self.scene.needs.iter().any(|need| matches!(need, Need::Egress | Need::Screened)) {
            let links = &self.host.links;
            reading.add(Counter::Forwarded, links.stats(links.index(EGRESS)?)?.tx_packets);
        }
        if self.scene.watch == Some(Watch::Replies) {
            reading.add(Counter::Arrived, far.rx_packets);
            reading.add(Counter::RepliesRefused, own.tx_dropped);
        }
        Ok(())
    }
}

/// Packets that the calling thread's namespace has dropped because their connection could not be followed, such as
/// in a full table: these columns, hexadecimal, of a line for each CPU.
fn conntrack_drops() -> Result<u64> {
    const PATH: &str = "/proc/thread-self/net/stat/nf_conntrack";
    let text = fs::read_to_string(PATH).map_err(cannot("read", PATH))?;
    let mut lines = text.lines().map(str::split_whitespace);
    let head: Vec<&str> = lines.next().into_iter().flatten().collect();
    let dropped = |(name, _): &(&&str, &str)| matches!(**name, "drop" | "chainlength");
    let of = |line| {
        head.iter().zip(line).filter(dropped).map(|(_, count)| u64::from_str_radix(count, 16))
    };
    lines.flat_map(of).sum::<std::result::Result<u64, _>>().map_err(|_| {
        Error::refused(format!("{PATH} is not as expected"), "please report this with its text")
    })
}

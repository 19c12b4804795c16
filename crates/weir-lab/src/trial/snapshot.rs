//! What a trial reads, before, at both ends of its window, and after.

use std::time::Instant;

use rustix::process::Pid;
use weir_bpf::sys::task_clock::TaskClock;
use weir_bpf::sys::{sched, snmp};
use weir_bpf::verdict::Verdict;

use super::{Load, books, receivers, replies, service, statistic};
use crate::bench::{Bench, Sut};
use crate::error::Result;
use crate::histogram;
use crate::machine;
use crate::results::{Ledger, Mode};
use crate::topology::SUT_INTERFACE;
use crate::worker::slots;
use crate::worker_process::{Daemon, Worker};

/// Cumulative counters, each with the instant at which it was read.
pub(super) struct Snapshot {
    pub(super) sent_at: Instant,
    pub(super) flood_sent: u64,
    pub(super) bystander_sent: u64,
    pub(super) flooded_delivered: u64,
    pub(super) bystander_delivered: u64,
    pub(super) flooded_cpu_ns: u64,
    pub(super) bystander_cpu_ns: u64,
    pub(super) input_cpu_ns: Option<u64>,
    pub(super) daemon_cpu_ns: Option<u64>,
    pub(super) work: u64,
    pub(super) work_cpu_ns: u64,
    pub(super) ages: Vec<u64>,
    pub(super) bystander_ages: Vec<u64>,
    pub(super) loops: Vec<u64>,
    pub(super) steal_s: f64,
    pub(super) kernel_at: Instant,
    pub(super) nic_drop: u64,
    pub(super) discarded: u64,
    pub(super) late_backlog: u64,
    pub(super) late_socket: u64,
    pub(super) late_other: u64,
    /// Of the TCP service, if it runs.
    pub(super) service: Option<service::Counts>,
    /// Of the echo server, if there is one.
    pub(super) replies: Option<replies::Counts>,
    /// Whom the kernel charges, where that is asked.
    pub(super) books: Option<books::Counts>,
    /// Of the two receivers, if they are there.
    pub(super) receivers: Option<receivers::Counts>,
}

impl Snapshot {
    pub(super) fn late_drop(&self) -> u64 {
        self.late_backlog + self.late_socket + self.late_other
    }

    /// Whether every packet since another snapshot has ended somewhere, and was replied to.
    pub(super) fn is_drained_since(&self, before: &Self) -> bool {
        let ledger = self.ledger_since(before);
        let sent = self.replies.zip(before.replies).map(|(now, then)| now.sent - then.sent);
        ledger.unaccounted == 0 && sent.is_none_or(|sent| sent == self.echoed_since(before))
    }

    /// What the echo server has received since another snapshot.
    pub(super) fn echoed_since(&self, before: &Self) -> u64 {
        let ends = self.replies.zip(before.replies);
        ends.map_or(0, |(now, then)| now.received - then.received)
    }

    /// Every packet between two snapshots: exact once everything has drained.
    pub(super) fn ledger_since(&self, before: &Self) -> Ledger {
        let sent = |s: &Self| s.flood_sent + s.bystander_sent;
        let delivered = |s: &Self| s.flooded_delivered + s.bystander_delivered;
        let mut ledger = Ledger {
            offered: sent(self) - sent(before),
            nic_drop: self.nic_drop - before.nic_drop,
            discarded: self.discarded - before.discarded,
            late_backlog: self.late_backlog.saturating_sub(before.late_backlog),
            late_socket: self.late_socket - before.late_socket,
            late_other: self.late_other.saturating_sub(before.late_other),
            delivered: delivered(self) - delivered(before),
            beyond_udp: 0,
            unaccounted: 0,
        };
        if let Some((now, before)) = self.service.as_ref().zip(before.service.as_ref()) {
            now.complete(before, &mut ledger);
        }
        if let Some((now, before)) = self.books.zip(before.books) {
            ledger.beyond_udp = now.pings - before.pings;
        }
        let ends = ledger.nic_drop
            + ledger.discarded
            + ledger.late_backlog
            + ledger.late_socket
            + ledger.late_other
            + ledger.delivered
            + ledger.beyond_udp;
        ledger.unaccounted = ledger.offered as i64 - ends as i64;
        ledger
    }
}

/// Everything that a trial reads.
pub(super) struct Observer<'a> {
    pub(super) bench: &'a Bench,
    pub(super) mode: Mode,
    pub(super) sut: &'a Sut,
    pub(super) client: Option<&'a Worker>,
    pub(super) flood_flows: usize,
    pub(super) flooded: &'a Worker,
    pub(super) bystander: &'a Worker,
    pub(super) echo: Option<&'a Worker>,
    pub(super) daemon: Option<&'a Daemon>,
    pub(super) pollers: Vec<Pid>,
    pub(super) ksoftirqd: Option<Pid>,
    /// Of the polling threads, where everybody's accounts are looked at.
    pub(super) clocks: Vec<TaskClock>,
    pub(super) load: Load,
}

impl Observer<'_> {
    /// How many flows there are: the light one first, then the flood.
    pub(super) fn flows(&self) -> usize {
        usize::from(self.load.bystander.is_some()) + self.flood_flows
    }

    /// What was sent to the bystander, and of the flood.
    fn sent(&self) -> (u64, u64) {
        let sent = |flow| self.bench.generator.counts(flow).sent;
        let light = usize::from(self.load.bystander.is_some());
        ((0..light).map(sent).sum(), (light..self.flows()).map(sent).sum())
    }

    /// CPU time of the polling threads; `None` where there are none.
    fn input_cpu_ns(&self) -> Result<Option<u64>> {
        let times: Vec<u64> = self
            .pollers
            .iter()
            .map(|pid| Ok(sched::cpu_time(*pid)?.0))
            .collect::<Result<Vec<u64>>>()?;
        Ok((!times.is_empty()).then(|| times.iter().sum()))
    }

    /// The counters, with those of the neighbour if it runs.
    pub(super) fn snapshot(&self, neighbour: Option<&Worker>) -> Result<Snapshot> {
        let (bench, sut, host) = (self.bench, self.sut, &self.sut.host);
        let (flooded, bystander) = (self.flooded, self.bystander);
        // The figures that matter most first, from memory, within a microsecond.
        let sent_at = Instant::now();
        let (bystander_sent, flood_sent) = self.sent();
        let flooded_delivered = flooded.delivered();
        let bystander_delivered = bystander.delivered();
        let service =
            self.client.map(|client| service::Counts::now(client, bench, (self.mode, sut)));
        let service = service.transpose()?;
        let many_delivered = service.as_ref().map_or(0, service::Counts::many_delivered);
        let work = |slot| neighbour.map_or(0, |neighbour| neighbour.count(slot));
        let (work, work_cpu_ns) = (work(slots::WORK), work(slots::CPU_NS));
        let ages = histogram::snapshot(flooded.shared(), slots::HISTOGRAM);
        let bystander_ages = histogram::snapshot(bystander.shared(), slots::HISTOGRAM);
        let loops = histogram::snapshot(bench.speed.shared(), slots::HISTOGRAM);
        let flooded_cpu_ns = sched::cpu_time(flooded.pid())?.0;
        let bystander_cpu_ns = sched::cpu_time(bystander.pid())?.0;
        let input_cpu_ns = self.input_cpu_ns()?;
        let daemon_cpu = self.daemon.map(Daemon::cpu_time).transpose()?;
        let steal_s = machine::steal_s(bench.sut_cpu);

        let kernel_at = Instant::now();
        let generator =
            |file: &str| statistic(&bench.topology.generator_sysfs, &host.generator_ifname, file);
        let nic_drop = generator("tx_dropped")?;
        let rx_dropped = statistic(&host.sysfs, SUT_INTERFACE, "rx_dropped")?;
        let discarded = match self.daemon {
            Some(daemon) => daemon.counters.counters()?.verdict(Verdict::Discard).packets,
            None => 0,
        };
        let (v4, v6) = host.netns.run(snmp::udp_stats)??;
        let late_socket = v4.rcvbuf_errors + v6.rcvbuf_errors;
        let replies = self.echo.map(|echo| replies::Counts::now(echo, bench, self.mode));
        let replies = replies.transpose()?;
        let receivers = || receivers::Counts::now([flooded, bystander]);
        let receivers = self.load.receivers.then(receivers).transpose()?;
        let books = self.load.books.map(|_| books::Counts::now(self)).transpose()?;
        let other = |s: &snmp::UdpStats| s.in_errors.saturating_sub(s.rcvbuf_errors) + s.no_ports;
        Ok(Snapshot {
            sent_at,
            flood_sent,
            bystander_sent,
            flooded_delivered: flooded_delivered + many_delivered,
            bystander_delivered,
            flooded_cpu_ns,
            bystander_cpu_ns,
            input_cpu_ns,
            daemon_cpu_ns: daemon_cpu.map(|time| time.0),
            work,
            work_cpu_ns,
            ages,
            bystander_ages,
            loops,
            steal_s,
            kernel_at,
            nic_drop,
            discarded,
            // veth counts what its full ring refused at both ends.
            late_backlog: rx_dropped.saturating_sub(nic_drop),
            late_socket,
            late_other: other(&v4) + other(&v6),
            service,
            replies,
            books,
            receivers,
        })
    }
}

//! The TCP service's side of a trial. Its client's packets come the same way as the flood, so the ledger
//! has them too: they are counted where the far end sends them, and all where the host's IP takes them.

use std::sync::atomic::Ordering;

use weir_bpf::sys::snmp;

use super::snapshot::Snapshot;
use crate::bench::{Bench, Sut};
use crate::error::Result;
use crate::histogram;
use crate::results::load::Service;
use crate::results::{Ledger, Mode};
use crate::worker::slots;
use crate::worker_process::Worker;

/// Cumulative counters.
pub(super) struct Counts {
    answered: u64,
    times: Vec<u64>,
    sent_by_client: u64,
    ip_received: u64,
    many_delivered: u64,
}

/// Lets the client send, or not.
pub(super) fn let_go(client: Option<&Worker>, go: bool) {
    if let Some(client) = client {
        client.shared().get(slots::GO).store(go.into(), Ordering::Release);
    }
}

impl Counts {
    pub(super) fn now(client: &Worker, bench: &Bench, (mode, sut): (Mode, &Sut)) -> Result<Self> {
        Ok(Self {
            answered: client.delivered(),
            many_delivered: bench.beside(mode)?.many.delivered(),
            times: histogram::snapshot(client.shared(), slots::HISTOGRAM),
            sent_by_client: bench.topology.generator.run(snmp::ip4_stats)??.out_requests,
            ip_received: sut.host.netns.run(snmp::ip4_stats)??.in_receives,
        })
    }

    /// What sockets received of a flood to many.
    pub(super) fn many_delivered(&self) -> u64 {
        self.many_delivered
    }

    /// Adds to a ledger what it has not: the client's packets, and what came as far as IP and was not
    /// UDP's.
    pub(super) fn complete(&self, before: &Self, ledger: &mut Ledger) {
        ledger.offered += self.sent_by_client - before.sent_by_client;
        let udp = ledger.late_socket + ledger.late_other + ledger.delivered;
        ledger.beyond_udp = (self.ip_received - before.ip_received).saturating_sub(udp);
    }
}

/// What it did between two snapshots.
pub(super) fn service(opened: &Snapshot, closed: &Snapshot) -> Option<Service> {
    let (before, after) = opened.service.as_ref().zip(closed.service.as_ref())?;
    let time = |percentile| {
        let ns = histogram::percentile(&before.times, &after.times, percentile);
        ns.map(|ns| ns as f64 / 1000.0)
    };
    let window_s = (closed.sent_at - opened.sent_at).as_secs_f64();
    Some(Service {
        answered_per_s: (after.answered - before.answered) as f64 / window_s,
        time_p50_us: time(50.0),
        time_p99_us: time(99.0),
    })
}

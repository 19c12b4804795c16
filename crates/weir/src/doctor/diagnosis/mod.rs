//! What a reading means: a function of numbers, without a look at anything.

pub mod finding;
mod notes;
mod receiving;
mod sending;
mod sockets;
mod words;

use serde::Serialize;

use self::finding::Finding;
use self::notes::notes;
use self::receiving::{
    backlog_full, conntrack_full, early_discard, fragments_lost, livelock, one_cpu_receives,
    ring_full, syn_flood, wall_left,
};
use self::sending::egress_full;
use self::sockets::{Losses, accept_queues_full, sockets_full, udp_memory};
use super::reading::{RUNNING, Reading};

/// What is wrong, and what else its reader should know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The sum of it.
    pub verdict: Verdict,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What is not wrong and bears on what weir would do.
    pub notes: Vec<String>,
    /// What could not be seen.
    pub unseen: Vec<String>,
}

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing was lost, and receiving leaves time for everything else.
    Well,
    /// There is a finding.
    Wrong,
    /// Something that would show was not seen.
    Unknown,
}

impl Diagnosis {
    /// What a reading means.
    pub fn of(reading: &Reading) -> Self {
        let mut findings: Vec<Finding> = Vec::new();
        let losses = Losses::of_udp(reading);
        findings.extend(reading.walls.iter().filter_map(wall_left));
        findings.extend(udp_memory(reading, &losses));
        findings.extend(conntrack_full(reading));
        findings.extend(fragments_lost(reading));
        findings.extend(syn_flood(reading));
        findings.extend(livelock(reading, &losses));
        let interfaces = || reading.interfaces.iter();
        findings.extend(interfaces().filter_map(|each| early_discard(reading, each)));
        findings.extend(sockets_full(reading, &losses));
        findings.extend(accept_queues_full(reading));
        findings.extend(interfaces().filter_map(|each| ring_full(reading, each)));
        findings.extend(backlog_full(reading));
        findings.extend(interfaces().filter_map(|each| egress_full(reading, each)));
        findings.extend(one_cpu_receives(reading));
        let seen = !reading.cpus.is_empty()
            && reading.udp.is_some()
            && reading.tcp.is_some()
            && !reading.unseen.iter().any(|each| each.starts_with(RUNNING));
        let verdict = match (findings.is_empty(), seen && reading.sockets.is_some()) {
            (false, _) => Verdict::Wrong,
            (true, true) => Verdict::Well,
            (true, false) => Verdict::Unknown,
        };
        let notes = notes(reading, &losses, &findings);
        Self { verdict, findings, notes, unseen: reading.unseen.clone() }
    }
}

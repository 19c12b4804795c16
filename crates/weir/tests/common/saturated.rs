//! A host with one CPU that everybody wants, and floods that fill no queue.

use std::ops::Deref;

use super::{Owned, TRIES_MAX, host, wait};

/// What a flood is: far over its share, and not so much that the ring overflows.
pub const FLOOD_PPS: f64 = 100_000.0;

/// A host that receives on one CPU, which another process wants too.
pub struct Host {
    pub busy: Owned,
    host: host::Host,
}

impl Host {
    pub fn new() -> Self {
        let host = host::Host::new();
        Self { busy: Owned::compute_bound(host.cpus.cpu), host }
    }

    /// What a kind's channels may take of the CPU, those that are limited now: by port, 0 of kinds that have none.
    pub fn limits(&self, kind: &str) -> Vec<(u64, f64)> {
        let status = self.network.interface_status();
        let threads = status["governed"].as_array().unwrap();
        let limits = threads.iter().flat_map(|each| each["limits"].as_array().unwrap());
        let limits = limits.filter(|each| each["kind"] == kind);
        let limit = |each: &serde_json::Value| {
            (each["port"].as_u64().unwrap_or(0), each["share"].as_f64().unwrap())
        };
        limits.map(limit).collect()
    }

    /// Whether a channel is limited to a share in this range.
    pub fn holds(&self, kind: &str, port: u16, shares: std::ops::Range<f64>) -> bool {
        let limits = self.limits(kind);
        limits.iter().any(|(of, share)| *of == u64::from(port) && shares.contains(share))
    }
}

impl Deref for Host {
    type Target = host::Host;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

/// What others do on this CPU may leave it without want for a while.
pub fn wait_long(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait(TRIES_MAX, condition), "waited in vain until {what}");
}

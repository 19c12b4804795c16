//! A host with one CPU that everybody wants, and floods that fill no queue.

use std::net::IpAddr;

use weir_bpf::sys::link::Links;
use weir_bpf::traffic::{FlowSpec, Sources, Transport};
use weir_bpf::units::CpuId;

use super::{Cpus, Daemon, NEAR, Network, Owned, TRIES_MAX, wait};

/// What a flood is: far over its share, and not so much that the ring overflows.
pub const FLOOD_PPS: f64 = 100_000.0;
/// A host that receives on one CPU, which another process wants too.
pub struct Host {
    pub network: Network,
    pub cpu: CpuId,
    pub busy: Owned,
    cpus: Cpus,
}

impl Host {
    pub fn new() -> Self {
        let cpus = Cpus::take();
        let busy = Owned::compute_bound(cpus.cpu);
        Self { network: Network::ipv4_only(), cpu: cpus.cpu, busy, cpus }
    }

    pub fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    pub fn start_with(&self, options: &[&str]) -> Daemon {
        let cpu = self.cpu.to_string();
        Daemon::start(&self.network, &[&["--cpus", &cpu], options].concat())
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

    /// Sends these flows while something is done.
    pub fn while_sent(&self, flows: &[FlowSpec], body: impl FnOnce()) {
        self.network.while_sent(flows, Some(self.cpus.elsewhere), |_| body());
    }

    /// TCP segments of no connection to this port, from 64 addresses that are there, so that they are answered.
    pub fn tcp_flow(&self, transport: Transport, port: u16, pps: f64) -> FlowSpec {
        let flow = self.network.flow(port, Some(pps));
        let know = |mac| {
            let links = Links::open().unwrap();
            for last in 64..128 {
                let ip = IpAddr::from([198, 18, 0, last]);
                links.add_neighbour(links.index(NEAR).unwrap(), ip, mac).unwrap();
            }
        };
        self.network.near.run(|| know(flow.mac.0)).unwrap();
        FlowSpec {
            transport,
            address: ("198.18.0.64".parse().unwrap(), flow.address.1),
            sources: Sources::Random { address_bits: 6, port_bits: 12 },
            ..flow
        }
    }
}

/// What others do on this CPU may leave it without want for a while.
pub fn wait_long(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait(TRIES_MAX, condition), "waited in vain until {what}");
}

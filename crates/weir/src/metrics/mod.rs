//! What `weir status` knows, as OpenMetrics: for a node exporter's textfile collector, or over HTTP ([`serve`]).
//!
//! Verdicts and reasons come from the one list in `bpf/verdict.h`. Labels are bounded: interfaces, reasons, kinds of
//! diversion and CPUs; nothing that a packet's sender chooses.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

mod serve;

use crate::status::InterfaceStatus;

pub use serve::serve;

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

/// The families, in the order in which they are printed.
#[derive(Default)]
struct Metrics {
    protected: Gauges,
    discarding: Gauges,
    age: Gauges,
    asleep: Gauges,
    packets: Counters,
    bytes: Counters,
    ring_drops: Counters,
    interface_drops: Counters,
    late_drops: Counters,
    unsent: Counters,
    diversions: Gauges,
    nice: Gauges,
    used: Gauges,
    wasted: Gauges,
    ring_pps: Gauges,
}

/// Everything, with `# EOF` at the end.
pub fn openmetrics(interfaces: &[InterfaceStatus]) -> String {
    let metrics = Metrics::default();
    for status in interfaces {
        metrics.add(status);
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &metrics.registry());
    text
}

impl Metrics {
    fn add(&self, status: &InterfaceStatus) {
        let labels = |more: &[(&'static str, String)]| -> Labels {
            let interface = ("interface", status.interface.clone());
            std::iter::once(interface).chain(more.iter().cloned()).collect()
        };
        let yes = |yes: bool| f64::from(u8::from(yes));
        let own = labels(&[]);
        self.protected.get_or_create(&own).set(yes(status.running));
        self.discarding.get_or_create(&own).set(yes(status.running && status.discards()));
        let age = status.silent_for.map_or(0.0, |silent| silent.as_secs_f64());
        self.age.get_or_create(&own).set(age);
        self.asleep.get_or_create(&own).set(yes(status.sleep.asleep));
        for reason in &status.reasons {
            let labels =
                labels(&[("verdict", reason.verdict.clone()), ("reason", reason.reason.clone())]);
            self.packets.get_or_create(&labels).inc_by(reason.packets);
            self.bytes.get_or_create(&labels).inc_by(reason.bytes);
        }
        self.ring_drops.get_or_create(&own).inc_by(status.drops.ring);
        self.interface_drops.get_or_create(&own).inc_by(status.drops.interface);
        self.late_drops.get_or_create(&own).inc_by(status.drops.udp_late);
        self.unsent.get_or_create(&own).inc_by(status.drops.unsent);
        for diversion in &status.diversions {
            let kind = serde_json::to_value(diversion.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default().to_owned();
            let labels = labels(&[("kind", kind)]);
            self.diversions.get_or_create(&labels).set(yes(diversion.passes_all));
        }
        for thread in &status.governed {
            let labels =
                labels(&[("cpu", thread.cpu.to_string()), ("thread", thread.pid.to_string())]);
            self.nice.get_or_create(&labels).set(thread.nice.0.into());
            self.used.get_or_create(&labels).set(thread.used);
            self.wasted.get_or_create(&labels).set(thread.wasted);
            if let Some(rate) = thread.r_ring_pps {
                self.ring_pps.get_or_create(&labels).set(rate);
            }
        }
    }

    fn registry(self) -> Registry {
        let mut registry = Registry::with_prefix("weir");
        let mut add =
            |name: &str, help: &str, metric: Gauges| registry.register(name, help, metric);
        add("protected", "1 while the interface's daemon runs", self.protected);
        add(
            "discarding",
            "1 while its gate may discard: the policy is on, and nothing diverts its packets",
            self.discarding,
        );
        add(
            "status_age_seconds",
            "For how long a daemon that runs has reported nothing; 0: it reports in time",
            self.age,
        );
        add(
            "gate_asleep",
            "1 while the gate lets everything pass unseen, as nothing is wrong",
            self.asleep,
        );
        add(
            "diversion",
            "What may take packets elsewhere; 1 if the gate passes everything because of it",
            self.diversions,
        );
        add("governor_nice", "The nice value of a thread that polls the interface", self.nice);
        add(
            "governor_used_ratio",
            "The share of a CPU that such a thread took in the last period",
            self.used,
        );
        add(
            "governor_wasted_ratio",
            "Of that: on packets that were discarded or dropped",
            self.wasted,
        );
        add(
            "ring_holds_packets_per_second",
            "The rate up to which the receive ring is estimated to hold",
            self.ring_pps,
        );
        let mut add =
            |name: &str, help: &str, metric: Counters| registry.register(name, help, metric);
        add("packets", "Packets since protection began, by verdict and reason", self.packets);
        add("bytes", "Bytes of their Ethernet frames", self.bytes);
        add(
            "ring_drops",
            "Packets for which the NIC's ring had no room, since the interface was made",
            self.ring_drops,
        );
        add(
            "interface_drops",
            "Packets that the interface received and dropped, since it was made",
            self.interface_drops,
        );
        add(
            "udp_late_drops",
            "UDP packets that the kernel dropped at sockets, in the whole network namespace",
            self.late_drops,
        );
        add(
            "unsent",
            "Packets counted as forwarded that the egress's driver did not take, since protection began",
            self.unsent,
        );
        registry
    }
}

#[cfg(test)]
mod tests;

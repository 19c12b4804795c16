//! What `weir status` knows, as OpenMetrics: for a node exporter's textfile collector, or over HTTP (`serve`).
//!
//! Verdicts and reasons come from the one list in `bpf/verdict.h`. Labels are bounded: interfaces, their namespaces,
//! reasons, kinds of diversion and CPUs; nothing that a packet's sender chooses.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

mod serve;

use crate::governor::observed::Observed;
use crate::status::{DiversionStatus, InterfaceStatus, ReasonCount};

pub use serve::Unserved;

type Labels = Vec<(&'static str, String)>;
/// What a family has of an interface: values by what tells them apart.
type Values<T> = fn(&InterfaceStatus) -> Vec<(Labels, T)>;

/// Families of gauges, in the order in which they are printed: name, help, values.
const GAUGES: [(&str, &str, Values<f64>); 9] = [
    ("protected", "1 while a daemon protects the interface", |status| {
        one(yes(status.running && !status.starts()))
    }),
    (
        "discarding",
        "1 while its gate may discard: its daemon is not stopped, the policy is on, nothing diverts its packets or \
         softirqs are limited, and they come to it",
        |status| one(yes(status.running && status.discards())),
    ),
    (
        "status_age_seconds",
        "For how long a daemon that runs has reported nothing; 0: it reports in time",
        |status| one(status.silent_for.map_or(0.0, |silent| silent.as_secs_f64())),
    ),
    (
        "gate_asleep",
        "1 while the gate lets everything pass unseen, as nothing is wrong",
        |status| one(yes(status.sleep.asleep)),
    ),
    (
        "diversion",
        "What may take packets elsewhere; 1 if the gate passes everything because of it",
        |status| by_diversion(&status.diversions),
    ),
    (
        "governor_nice",
        "The nice value of a thread that polls the interface; none while it has somebody else's policy",
        |status| {
            by_thread(status, |thread| thread.others_policy.is_none().then(|| thread.nice.0.into()))
        },
    ),
    (
        "governor_used_ratio",
        "The share of a CPU that such a thread took in the last second",
        |status| by_thread(status, |thread| Some(thread.used)),
    ),
    ("governor_wasted_ratio", "Of that: on packets that were discarded or dropped", |status| {
        by_thread(status, |thread| Some(thread.wasted))
    }),
    (
        "ring_holds_packets_per_second",
        "The rate up to which the receive ring is estimated to hold",
        |status| by_thread(status, |thread| thread.r_ring_pps),
    ),
];

/// The same, of counters; they follow the gauges.
const COUNTERS: [(&str, &str, Values<u64>); 6] = [
    ("packets", "Packets since protection began, by verdict and reason", |status| {
        by_reason(status, |reason| reason.counter.packets)
    }),
    ("bytes", "Bytes of their Ethernet frames", |status| {
        by_reason(status, |reason| reason.counter.bytes)
    }),
    (
        "ring_drops",
        "Packets for which the NIC's ring had no room, since the interface was made",
        |status| one(status.drops.ring),
    ),
    (
        "interface_drops",
        "Packets that the interface received and dropped, since it was made",
        |status| one(status.drops.interface),
    ),
    (
        "udp_late_drops",
        "UDP packets that the kernel dropped at sockets, in the whole network namespace",
        |status| one(status.drops.udp_late),
    ),
    (
        "unsent",
        "Packets counted as forwarded that the egress's driver did not take, since protection began",
        |status| one(status.drops.unsent),
    ),
];

fn yes(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn one<T>(value: T) -> Vec<(Labels, T)> {
    vec![(Labels::new(), value)]
}

fn by_thread(
    status: &InterfaceStatus,
    of: impl Fn(&Observed) -> Option<f64>,
) -> Vec<(Labels, f64)> {
    let row = |thread: &Observed| {
        let labels = vec![("cpu", thread.cpu.to_string()), ("thread", thread.pid.to_string())];
        Some((labels, of(thread)?))
    };
    status.governed.iter().filter_map(row).collect()
}

fn by_diversion(diversions: &[DiversionStatus]) -> Vec<(Labels, f64)> {
    let row = |each: &DiversionStatus| {
        // Several of a kind are one series.
        let mut alike = diversions.iter().filter(|other| other.kind == each.kind);
        let kind = serde_json::to_value(each.kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default().to_owned();
        (vec![("kind", kind)], yes(alike.any(|other| other.passes_all)))
    };
    diversions.iter().map(row).collect()
}

fn by_reason(status: &InterfaceStatus, of: impl Fn(&ReasonCount) -> u64) -> Vec<(Labels, u64)> {
    let row = |each: &ReasonCount| {
        (vec![("verdict", each.verdict.clone()), ("reason", each.reason.clone())], of(each))
    };
    status.reasons.iter().map(row).collect()
}

/// Everything, with `# EOF` at the end. Interfaces of several network namespaces, which may have one name, are told
/// apart by the inodes of those.
pub fn openmetrics(interfaces: &[InterfaceStatus], several: bool) -> String {
    let mut registry = Registry::with_prefix("weir");
    for (name, help, values) in GAUGES {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        each(interfaces.iter(), several, values, |labels, value| {
            family.get_or_create(labels).set(value);
        });
        registry.register(name, help, family);
    }
    for (name, help, values) in COUNTERS {
        let family = Family::<Labels, Counter>::default();
        // What is counted of one that is still to be protected is not known.
        let known = interfaces.iter().filter(|status| status.attach.is_some());
        each(known, several, values, |labels, value| {
            family.get_or_create(labels).inc_by(value);
        });
        registry.register(name, help, family);
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn each<'a, T>(
    interfaces: impl Iterator<Item = &'a InterfaceStatus>,
    several: bool,
    values: Values<T>,
    mut put: impl FnMut(&Labels, T),
) {
    for status in interfaces {
        for (more, value) in values(status) {
            let interface = ("interface", status.interface.clone());
            let netns = several.then(|| ("netns", status.netns.to_string()));
            put(&std::iter::once(interface).chain(netns).chain(more).collect(), value);
        }
    }
}

#[cfg(test)]
mod tests;

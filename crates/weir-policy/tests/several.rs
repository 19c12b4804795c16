//! Several sources of input on one CPU, one of them flooded (Mogul & Ramakrishnan, section 5.2).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::cases;
use proptest::prelude::*;
use weir_policy::sim::outcome::FlowCounts;
use weir_policy::sim::spec::{FlowSpec, HostSpec, QueueSpec};
use weir_policy::sim::vm::{self, Mode};
use weir_policy::sim::{Host, PacketsPerSec};
use weir_policy::{Nanos, Settings};

/// What else there is beside the flood and the light flow.
#[derive(Clone, Copy, Debug)]
struct Company {
    /// A compute-bound process.
    neighbour: bool,
    /// A second flow on the flooded interface, so that the governor separates there.
    bystander: bool,
    /// Whether anybody reads the flooded socket.
    read: bool,
}

fn company() -> impl Strategy<Value = Company> {
    any::<[bool; 3]>().prop_map(|[neighbour, bystander, read]| Company {
        neighbour,
        bystander,
        read,
    })
}

/// A flooded interface and, on the same CPU, one with a light flow to a socket that is read.
fn two_interfaces(mode: Mode, flood: f64, light: f64, company: Company) -> HostSpec {
    let mut host = vm::flooded(mode, PacketsPerSec::mega(flood));
    let reader = host.consumers[0];
    if !company.read {
        host.consumers[0].depth = 0;
    }
    if company.bystander {
        host = vm::with_bystander(host, PacketsPerSec::kilo(20.0));
    }
    if company.neighbour {
        host = vm::with_neighbour(host);
    }
    let flows = vec![FlowSpec::constant(host.consumers.len(), PacketsPerSec::kilo(light))];
    host.consumers.push(reader);
    host.queues.push(QueueSpec { cpu: 0, entries: vm::RING_ENTRIES, flows });
    host
}

/// What became of the light flow in half a second.
fn light_flow(mut host: HostSpec, seed: u64) -> FlowCounts {
    host.seed = seed;
    let (host, outcome) = Host::measure(host, Nanos::from_millis(100), Nanos::from_millis(500));
    assert_eq!(host.outcome().unaccounted(), 0);
    outcome.flows[1][0]
}

proptest! {
    #![proptest_config(cases(48))]

    /// Each interface has a ring and a thread of its own: whatever comes by the other, a light one's
    /// packets reach the gate.
    #[test]
    fn a_light_interface_beside_a_flooded_one_loses_nothing(
        flood in 0.1..8.0f64, light in 0.1..20.0f64, company in company(), seed in any::<u64>(),
    ) {
        let mode = Mode::Weir(Settings::default());
        let counts = light_flow(two_interfaces(mode, flood, light, company), seed);
        prop_assert_eq!(counts.ring_dropped, 0, "{:?}", counts);
    }
}

/// The same flood and light flow by each of so many interfaces of one CPU, and a compute-bound process.
fn flooded_interfaces(number: usize) -> f64 {
    let flood = PacketsPerSec::mega(5.0 / number as f64);
    let host = vm::flooded(Mode::Weir(Settings::default()), flood);
    let mut host = vm::with_neighbour(vm::with_bystander(host, PacketsPerSec::kilo(5.0)));
    let another = host.queues[0].clone();
    host.queues.resize(number, another);
    let (_, outcome) = Host::measure(host, Nanos::from_millis(100), Nanos::from_millis(500));
    outcome.share(|cpu| cpu.input).get()
}

/// Input's share is one CPU's, however many threads poll there.
#[test]
fn several_flooded_interfaces_have_one_share_together() {
    let one = flooded_interfaces(1);
    for number in [2, 4] {
        let together = flooded_interfaces(number);
        assert!(together < one + 0.1, "{number} take {together:.2} of the CPU, one {one:.2}");
    }
}

//! The 2-CPU virtual machine that docs/results was measured on: the CPU under test, as `weir lab run
//! udp-overload` sets it up. Costs are fitted to those curves (docs/simulation.md says which to what).

use super::packets::PacketsPerSec;
use super::spec::{ConsumerSpec, Costs, FlowSpec, HostSpec, NeighbourSpec, QueueSpec, Receive};
use crate::settings::Settings;
use crate::units::{Nanos, Share, Weight};

/// How the machine receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Softirqs, on a timer interrupt each 50 us.
    Stock,
    /// A NAPI thread at nice 0.
    Threaded,
    /// A NAPI thread at nice 19.
    Niced,
    /// The gate, in a NAPI thread at nice 0.
    Gate,
    /// The gate, in a NAPI thread at nice 19.
    NicedGate,
    /// The gate and the governor.
    Weir(Settings),
}

/// What steps cost there.
pub const COSTS: Costs = Costs {
    interrupt: Nanos(4_000),
    poll: Nanos(500),
    input: Nanos(650),
    gate: Nanos(130),
    wake: Nanos(1_000),
    switch: Nanos(1_500),
    look: Nanos(15_000),
};
/// What a packet costs the receiving process.
pub const CONSUMER_COST: Nanos = Nanos(750);
/// Packets that its socket holds.
pub const QUEUE_DEPTH: u64 = 50;
/// Entries of a veth's ring.
pub const RING_ENTRIES: u64 = 256;
/// 250 Hz.
pub const TICK: Nanos = Nanos::from_millis(4);
/// The scheduler's slice on 2 CPUs: 0.7 ms x (1 + log2(2)).
pub const SLICE: Nanos = Nanos::from_micros(1_400);
/// How much of its weight the receiving process has on its CPU: the machine has autogroup on, and the
/// generator of the same session loads the other CPU.
pub const SESSION_PART: f64 = 0.3;

/// The tested CPU under a flood of one socket.
pub fn flooded(mode: Mode, rate: PacketsPerSec) -> HostSpec {
    HostSpec {
        cpus: 1,
        costs: COSTS,
        receive: match mode {
            Mode::Stock => Receive::Softirq { timer: Some(Nanos::from_micros(50)) },
            Mode::Threaded | Mode::Gate => Receive::Thread(Weight::NORMAL),
            Mode::Niced | Mode::NicedGate => Receive::Thread(Weight::LIGHTEST),
            Mode::Weir(settings) => Receive::Governed(settings),
        },
        gate: matches!(mode, Mode::Gate | Mode::NicedGate | Mode::Weir(_)),
        deferral: Nanos::ZERO,
        tick: TICK,
        slice: SLICE,
        session: Share::new(SESSION_PART).unwrap_or_else(|| unreachable!("a part of one")),
        queues: vec![QueueSpec {
            cpu: 0,
            entries: RING_ENTRIES,
            flows: vec![FlowSpec::constant(0, rate)],
        }],
        consumers: vec![consumer()],
        neighbours: Vec::new(),
        seed: 1,
    }
}

/// The same with a light flow to a second socket.
pub fn with_bystander(mut host: HostSpec, rate: PacketsPerSec) -> HostSpec {
    let to = host.consumers.len();
    host.consumers.push(consumer());
    host.queues[0].flows.push(FlowSpec::constant(to, rate));
    host
}

/// The same with a compute-bound process beside the consumer.
pub fn with_neighbour(mut host: HostSpec) -> HostSpec {
    host.neighbours.push(NeighbourSpec { cpu: 0, weight: Weight::NORMAL });
    host
}

fn consumer() -> ConsumerSpec {
    let (weight, cost, depth) = (Weight::NORMAL, CONSUMER_COST, QUEUE_DEPTH);
    ConsumerSpec { cpu: 0, weight, cost, depth }
}

//! Governed hosts of 1 to 128 CPUs, as tables (docs/simulation.md).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use weir_policy::sim::governed::Swing;
use weir_policy::sim::outcome::CpuTime;
use weir_policy::sim::packets::Bursts;
use weir_policy::sim::spec::{
    ConsumerSpec, Costs, FlowSpec, HostSpec, NeighbourSpec, QueueSpec, Receive,
};
use weir_policy::sim::tables::{Table, percent, rate};
use weir_policy::sim::vm::{self, Mode};
use weir_policy::sim::{Host, Outcome, PacketsPerSec};
use weir_policy::{Nanos, Settings, Share, Weight};

fn measure(host: HostSpec, before_ms: u64, ms: u64) -> (Host, Outcome) {
    let measured = Host::measure(host, Nanos::from_millis(before_ms), Nanos::from_millis(ms));
    assert_eq!(measured.0.outcome().unaccounted(), 0);
    measured
}

const LOADS: [f64; 8] = [0.1, 0.2, 0.4, 0.6, 0.8, 1.2, 2.4, 5.0];
const NEIGHBOURS: fn(&CpuTime) -> Nanos = |cpu| cpu.neighbours;
const LOOKS: fn(&CpuTime) -> Nanos = |cpu| cpu.looks;
const INPUT: fn(&CpuTime) -> Nanos = |cpu| cpu.input;

#[test]
fn one_flood() {
    let mut table = Table::new(
        "This machine, one socket flooded: delivered packets/s, and the neighbour's part of the CPU",
        &[
            "offered",
            "niced",
            "weir",
            "niced",
            "neighbour",
            "threaded",
            "neighbour",
            "weir",
            "neighbour",
            "input",
            "looks",
            "nice",
        ],
    );
    let weir = Mode::Weir(Settings::default());
    for load in LOADS {
        let alone = |mode| vm::flooded(mode, PacketsPerSec::mega(load));
        let mut row = vec![rate(PacketsPerSec::mega(load))];
        row.extend(
            [Mode::Niced, weir].map(|mode| rate(measure(alone(mode), 60, 200).1.rate_of(0))),
        );
        for mode in [Mode::Niced, Mode::Threaded, weir] {
            let (host, outcome) = measure(vm::with_neighbour(alone(mode)), 60, 300);
            row.push(rate(outcome.rate_of(0)));
            row.push(percent(outcome.share(NEIGHBOURS).get()));
            if mode == weir {
                row.push(percent(outcome.share(INPUT).get()));
                row.push(percent(outcome.share(LOOKS).get()));
                row.push(swing(&host, 0));
            }
        }
        table.row(row);
    }
    insta::assert_snapshot!("one_flood", table.render());
}

/// Of the second half of a run's looks: the heaviest and the lightest nice value.
fn swing(host: &Host, queue: usize) -> String {
    let looks = host.looks(queue);
    Swing::of(&looks[looks.len() / 2..]).map_or_else(
        || "-".to_owned(),
        |s| format!("{} to {}", s.heaviest.nice(), s.lightest.nice()),
    )
}

#[test]
fn a_flood_beside_a_light_flow() {
    let mut table = Table::new(
        "This machine, 20 k packets/s beside a flood: flood delivered, and part of the light flow",
        &[
            "flood",
            "niced",
            "light",
            "niced gate",
            "light",
            "weir",
            "light",
            "input",
            "weir, neighbour",
            "light",
            "neighbour",
            "deferred",
            "light",
            "neighbour",
        ],
    );
    let weir = Mode::Weir(Settings::default());
    for load in LOADS {
        let host = |mode| {
            let flood = vm::flooded(mode, PacketsPerSec::mega(load));
            vm::with_bystander(flood, PacketsPerSec::kilo(20.0))
        };
        let mut row = vec![rate(PacketsPerSec::mega(load))];
        let light = |outcome: &Outcome| percent((outcome.rate_of(1).0 / 20e3).min(1.0));
        for mode in [Mode::Niced, Mode::NicedGate, weir] {
            let (_, outcome) = measure(host(mode), 60, 200);
            row.extend([rate(outcome.rate_of(0)), light(&outcome)]);
            if mode == weir {
                row.push(percent(outcome.share(INPUT).get()));
            }
        }
        for deferral in [0, 20] {
            let mut host = vm::with_neighbour(host(weir));
            host.deferral = Nanos::from_micros(deferral);
            let (_, outcome) = measure(host, 60, 300);
            row.extend([rate(outcome.rate_of(0)), light(&outcome)]);
            row.push(percent(outcome.share(NEIGHBOURS).get()));
        }
        table.row(row);
    }
    insta::assert_snapshot!("a_flood_beside_a_light_flow", table.render());
}

/// A server: on each CPU a queue of one of its NICs, its consumer and, if so wanted, a neighbour. What
/// steps cost is a guess at a good NIC's and a 3 GHz core's (design figure: 40 ns a discarded packet).
fn server(cpus: usize, offered: PacketsPerSec, neighbours: bool, receive: Receive) -> HostSpec {
    let each = PacketsPerSec(offered.0 / cpus as f64);
    let flows = |cpu| {
        let bursts = Bursts { on: Nanos::from_micros(300), off: Nanos::from_micros(300) };
        // Half comes in bursts. One queue in four is fed from elsewhere too.
        let mut flows = vec![
            FlowSpec::constant(cpu, PacketsPerSec(each.0 / 2.0)),
            FlowSpec { to: cpu, rate: each, bursts: Some(bursts) },
        ];
        if cpu % 4 == 0 {
            flows.push(FlowSpec::constant((cpu + 1) % cpus, PacketsPerSec::kilo(5.0)));
        }
        flows
    };
    let queue = |cpu| QueueSpec { cpu, entries: 1024, flows: flows(cpu) };
    let consumer = |cpu| ConsumerSpec { cpu, weight: Weight::NORMAL, cost: Nanos(500), depth: 277 };
    HostSpec {
        cpus,
        costs: Costs {
            interrupt: Nanos(1_500),
            poll: Nanos(300),
            input: Nanos(400),
            gate: Nanos(40),
            wake: Nanos(700),
            switch: Nanos(800),
            look: Nanos(8_000),
        },
        receive,
        gate: true,
        deferral: Nanos::from_micros(20),
        tick: Nanos::from_millis(4),
        slice: Nanos::from_micros(700 * (1 + u64::from(cpus.min(8).ilog2()))),
        session: Share::new(1.0).unwrap(),
        queues: (0..cpus).map(queue).collect(),
        consumers: (0..cpus).map(consumer).collect(),
        neighbours: (0..cpus)
            .filter(|_| neighbours)
            .map(|cpu| NeighbourSpec { cpu, weight: Weight::NORMAL })
            .collect(),
        seed: 7,
    }
}

#[test]
fn one_to_128_cpus() {
    let mut table = Table::new(
        "Servers, delivered packets/s by all consumers; with a neighbour on each CPU, its part too",
        &[
            "CPUs",
            "offered",
            "threaded",
            "weir",
            "threaded",
            "neighbours",
            "weir",
            "neighbours",
            "looks",
        ],
    );
    let weir = Receive::Governed(Settings::default());
    let threaded = Receive::Thread(Weight::NORMAL);
    for (cpus, offered) in [
        (1, 0.5),
        (1, 10.0),
        (4, 2.0),
        (4, 40.0),
        (16, 40.0),
        (64, 40.0),
        (128, 60.0),
        (128, 150.0),
    ] {
        let offered = PacketsPerSec::mega(offered);
        let mut row = vec![cpus.to_string(), rate(offered)];
        for receive in [threaded, weir] {
            let (_, outcome) = measure(server(cpus, offered, false, receive), 40, 10);
            row.push(rate(outcome.delivered_rate()));
        }
        for receive in [threaded, weir] {
            let (_, outcome) = measure(server(cpus, offered, true, receive), 40, 20);
            row.push(rate(outcome.delivered_rate()));
            row.push(percent(outcome.share(NEIGHBOURS).get()));
            if receive == weir {
                row.push(percent(outcome.share(LOOKS).get()));
            }
        }
        table.row(row);
    }
    insta::assert_snapshot!("one_to_128_cpus", table.render());
}

#[test]
fn one_flooded_queue_costs_the_others_nothing() {
    let weir = Receive::Governed(Settings::default());
    let mut host = server(8, PacketsPerSec::mega(0.4), false, weir);
    host.queues[0].flows.push(FlowSpec::constant(0, PacketsPerSec::mega(20.0)));
    let (_, outcome) = measure(host, 40, 100);
    for queue in &outcome.flows[1..] {
        let (offered, lost) = queue
            .iter()
            .filter(|flow| flow.offered > 1_000)
            .fold((0, 0), |sum, f| (sum.0 + f.offered, sum.1 + f.ring_dropped + f.discarded));
        assert!(lost * 1_000 <= offered, "{lost} of {offered}");
    }
}

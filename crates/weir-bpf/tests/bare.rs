//! What the lab measures the gate's cost with does what it says.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use common::threaded::napi_thread;
use common::{NEAR_IP4, Network, wait_until};
use weir_bpf::bare::{Bare, BarePrograms};
use weir_bpf::poll_cost::PollClock;
use weir_bpf::sys::link::Links;
use weir_bpf::test_run::XdpProgram;
use weir_bpf::traffic::{FlowSpec, Generator};

const PORT: u16 = 6016;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

fn flow(network: &Network) -> FlowSpec {
    network.flow(PORT, Some(20_000.0))
}

/// Sends so many packets of this flow, and some; says how many.
fn send(network: &Network, flow: FlowSpec, least: u64) -> u64 {
    let enough = |generator: &Generator| generator.counts(0).sent >= least;
    network.send(&mut network.generator(), &[flow], enough)[0]
}

#[test]
fn bare_programs_drop_and_pass() {
    let network = Network::new();
    let bare = BarePrograms::load().unwrap();
    let inside = || {
        let attached = bare.attach(Bare::Pass, network.near_ifindex).unwrap();
        for (program, returned) in
            [(Bare::Drop, XDP_DROP), (Bare::TouchDrop, XDP_DROP), (Bare::Pass, XDP_PASS)]
        {
            let run = bare.timed(program, &[0; 64], network.near_ifindex, 100).unwrap();
            assert_eq!(run.returned, returned, "{program:?}");
        }
        // Somebody else's program, as the lab sees the gate.
        let links = Links::open().unwrap();
        let id = links.xdp(network.near_ifindex).unwrap().unwrap().prog_id;
        let found = XdpProgram::by_id(id).unwrap();
        assert_eq!(found.timed(&[0; 64], network.near_ifindex, 1).unwrap().returned, XDP_PASS);
        assert!(bare.attach(Bare::Drop, network.near_ifindex).is_err(), "one is attached");
        drop(attached);
        assert!(links.xdp(network.near_ifindex).unwrap().is_none());
        assert!(XdpProgram::by_id(u32::MAX).is_err());
    };
    network.near.run(inside).unwrap();
}

#[test]
fn polls_are_counted() {
    let network = Network::new();
    let bare = BarePrograms::load().unwrap();
    let mut clock = PollClock::load().unwrap();
    let ifindex = network.near_ifindex;
    let attached = network.near.run(|| bare.attach(Bare::Pass, ifindex).unwrap()).unwrap();
    clock.watch(napi_thread(&network).napi_id);
    let sent = send(&network, flow(&network), 200);
    wait_until("all are polled", || clock.read().packets >= sent);
    assert_eq!(clock.read().packets, sent);
    drop(attached);
}

#[test]
fn a_flow_is_spread_over_ports() {
    let network = Network::new();
    let sockets: Vec<_> = (PORT..PORT + 4).map(|port| network.bind(NEAR_IP4, port)).collect();
    send(&network, FlowSpec { destination_port_bits: 2, ..flow(&network) }, 100);
    // With a wrong checksum the kernel would have dropped them.
    for socket in sockets {
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 14, "{socket:?}");
    }
}

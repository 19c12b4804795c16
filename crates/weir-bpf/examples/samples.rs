//! What a discard costs while nobody asks who sends it, and while somebody does: the figures of `docs/sources.md`. One
//! packet over and over (`BPF_PROG_TEST_RUN`), at a full socket. Needs root, and takes two CPUs.

#![allow(clippy::unwrap_used, reason = "a failed call ends the measurement")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{NEAR_IP4, Network, wait_until};
use etherparse::PacketBuilder;
use weir_bpf::alarm::Alarm;
use weir_bpf::attach::AttachMode;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::test_run::XdpProgram;
use weir_bpf::traffic::Generator;
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
/// Of each, in turn.
const ROUNDS: u32 = 400;
/// Half a millisecond: what the gate believes of a full queue is renewed between two calls.
const RUNS_PER_CALL: u32 = 5_000;
const PAUSE: Duration = Duration::from_micros(500);
/// Real packets meanwhile, which the kernel refuses now and then, and so teaches the gate.
const KEEP_FULL: f64 = 50_000.0;

fn main() {
    let network = Network::new();
    let (mut gate, probe) = network.gate(AttachMode::Native, &[NEAR_IP4], &[]);
    network.attach(&mut gate, AttachMode::Native);
    let _full = network.bind(NEAR_IP4, PORT);
    let flow = network.flow(PORT, Some(KEEP_FULL));
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(network.far_mac.0, network.near_mac.0)
        .ipv4([198, 18, 0, 128], [198, 18, 0, 1], 64)
        .udp(4096, PORT)
        .write(&mut frame, &[0; 14])
        .unwrap();
    let cpus = sched::online_cpus().unwrap();
    let alarm = Alarm::of(&probe).unwrap();
    let mut times = [Vec::new(), Vec::new()];
    let body = |_: &Generator| {
        let full = || gate.counters().unwrap().get(Reason::UdpFull).packets;
        wait_until("the gate discards", || full() > 1000);
        network.near.run(|| {
            sched::pin_current_thread(*cpus.last().unwrap()).unwrap();
            let attached = Links::open().unwrap().xdp(network.near_ifindex).unwrap().unwrap();
            let program = XdpProgram::by_id(attached.prog_id).unwrap();
            for round in 0..2 * ROUNDS {
                let sampled = round % 2 == 1;
                if sampled {
                    alarm.sample((PAUSE * 4).into());
                } else {
                    std::thread::sleep(PAUSE * 5);
                }
                std::thread::sleep(PAUSE);
                let before = full();
                let ran = program.timed(&frame, network.near_ifindex, RUNS_PER_CALL).unwrap();
                // A call of discards alone; the generator's own are some.
                if full() - before >= u64::from(RUNS_PER_CALL) {
                    times[usize::from(sampled)].push(ran.mean.0);
                }
            }
        })
    };
    network.while_sent(&mut network.generator(), &[flow], Some(cpus[0]), body).unwrap();
    for (mut of, name) in times.into_iter().zip(["nobody asks", "sampled"]) {
        of.sort_unstable();
        let at = |part: f64| of[((of.len() - 1) as f64 * part) as usize];
        println!(
            "{name:>12}: a discard takes {} ns (median of {} calls; quartiles {} and {})",
            at(0.5),
            of.len(),
            at(0.25),
            at(0.75)
        );
    }
}

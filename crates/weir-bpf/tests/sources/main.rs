//! Heavy sources are shed before light ones, on real packets: one socket, whose reader takes so many
//! packets a second, and many that send to it.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{NEAR_IP4, NEAR_IP6, Network};
use rustix::net::sockopt;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Generator, Transport};
use weir_bpf::units::PacketsPerSec;
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
const HEAVY: &str = "198.18.0.2";
/// The first address of a flow's sources, and how many bits of it are random: a hundred in all.
const LIGHT: [(&str, u8); 3] = [("198.18.0.64", 6), ("198.18.0.32", 5), ("198.18.0.4", 2)];
/// Some 200 packets on a veth: the reader may be away for a while.
const RECEIVE_BUFFER_BYTES: usize = 425_984;
/// The reader wakes this often.
const TICK: Duration = Duration::from_millis(1);
/// Packets per second: of each light source, and that are read.
const LIGHT_EACH: f64 = 50.0;
const READ: f64 = 6500.0;
/// An era is over several times in this.
const SETTLE: Duration = Duration::from_millis(1500);
const TIME: Duration = Duration::from_secs(2);
const TRIES: usize = 10;

/// Each test takes two CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who sends how much, and what is read, in packets per second.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Each of a hundred.
    light: f64,
    heavy: f64,
    /// Its packets come from so many random addresses, as a power of two.
    heavy_bits: u8,
    read: f64,
    /// Over IPv6, where all light ones are one /64, and so are all heavy ones.
    ipv6: bool,
}

const HEAVY_IP6: &str = "2001:2:0:2::";
const LIGHT_IP6: &str = "2001:2:0:1::";

/// What became of the packets of both kinds.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    light_sent: u64,
    light_read: u64,
    heavy_sent: u64,
    heavy_read: u64,
    /// Packets that were to be read when there was none.
    idle: u64,
    by_source: u64,
    by_queue: u64,
}

impl Outcome {
    fn since(self, before: Self) -> Self {
        Self {
            light_sent: self.light_sent - before.light_sent,
            light_read: self.light_read - before.light_read,
            heavy_sent: self.heavy_sent - before.heavy_sent,
            heavy_read: self.heavy_read - before.heavy_read,
            idle: self.idle - before.idle,
            by_source: self.by_source - before.by_source,
            by_queue: self.by_queue - before.by_queue,
        }
    }

    /// The part of the light ones' packets that is read.
    fn light(self) -> f64 {
        self.light_read as f64 / self.light_sent as f64
    }

    fn read(self) -> u64 {
        self.light_read + self.heavy_read
    }

    /// The part of its turns in which the reader found nothing.
    fn idle(self) -> f64 {
        self.idle as f64 / (self.idle + self.read()) as f64
    }
}

/// A reader that takes so many packets per second, and no more.
#[derive(Default)]
struct Reader {
    light: AtomicU64,
    heavy: AtomicU64,
    idle: AtomicU64,
    stop: AtomicBool,
}

impl Reader {
    fn run(&self, socket: &UdpSocket, rate: f64) {
        let (mut due, mut last) = (0.0, Instant::now());
        let mut buffer = [0; 64];
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let now = Instant::now();
            due += rate * now.duration_since(last).as_secs_f64();
            last = now;
            while due >= 1.0 {
                due -= 1.0;
                match socket.recv_from(&mut buffer) {
                    Ok((_, from)) => self.count(from),
                    Err(_) => _ = self.idle.fetch_add(1, Ordering::Relaxed),
                }
            }
        }
    }

    fn count(&self, from: SocketAddr) {
        let is_light = match from {
            SocketAddr::V4(from) => LIGHT.iter().any(|(first, bits)| {
                let first: Ipv4Addr = first.parse().unwrap();
                first.to_bits() >> bits == from.ip().to_bits() >> bits
            }),
            SocketAddr::V6(from) => from.ip().segments()[3] == 1,
        };
        let counter = if is_light { &self.light } else { &self.heavy };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bench {
    network: Network,
    gate: Gate,
    generator: Generator,
    _probe: QueueProbe,
}

impl Bench {
    fn new() -> Self {
        let network = Network::new();
        let probe = QueueProbe::load().expect("the tests need root");
        let mut gate = Gate::load(&probe).unwrap();
        gate.configure(network.near_mac, Policy::On);
        let own = [NEAR_IP4.parse().unwrap(), NEAR_IP6.parse().unwrap()];
        gate.set_addresses(&own, &[]).unwrap();
        let attach = || gate.attach(network.near_ifindex, "near", AttachMode::Native);
        network.near.run(attach).unwrap().unwrap();
        let load = || Generator::load(network.far_ifindex).unwrap();
        let generator = network.far.run(load).unwrap();
        Self { network, gate, generator, _probe: probe }
    }

    fn flow(&self, from: &str, random_address_bits: u8, rate: f64) -> FlowSpec {
        let from: IpAddr = from.parse().unwrap();
        let to = if from.is_ipv4() { NEAR_IP4 } else { NEAR_IP6 };
        FlowSpec {
            transport: Transport::Udp,
            mac: (self.network.far_mac, self.network.near_mac),
            address: (from, to.parse().unwrap()),
            random_address_bits,
            port: (4096, PORT),
            random_port_bits: 0,
            payload_len: 14,
            rate: Some(PacketsPerSec(rate)),
        }
    }

    fn flows(&self, load: Load) -> Vec<FlowSpec> {
        if load.ipv6 {
            return vec![
                self.flow(LIGHT_IP6, 0, load.light * 100.0),
                self.flow(HEAVY_IP6, load.heavy_bits, load.heavy),
            ];
        }
        let from = if load.heavy_bits == 0 { HEAVY } else { "198.19.0.0" };
        let mut flows = Vec::new();
        if load.light > 0.0 {
            let light = |(from, bits): &(&str, u8)| {
                self.flow(from, *bits, load.light * f64::from(1_u32 << bits))
            };
            flows.extend(LIGHT.iter().map(light));
        }
        flows.push(self.flow(from, load.heavy_bits, load.heavy));
        flows
    }

    /// What becomes of this load, after it has gone on for a while.
    fn measure(
        &mut self,
        selective: bool,
        load: Load,
        settle: Duration,
        time: Duration,
    ) -> Outcome {
        self.gate.set_selective(selective);
        let flows = self.flows(load);
        self.generator.set_flows(&flows).unwrap();
        let socket = self.network.bind(if load.ipv6 { NEAR_IP6 } else { NEAR_IP4 }, PORT);
        socket.set_nonblocking(true).unwrap();
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).unwrap();
        let reader = Reader::default();
        let elsewhere = sched::online_cpus().unwrap()[0];
        let so_far = || {
            let counters = self.gate.counters().unwrap();
            let sent = |index| self.generator.counts(index).sent;
            Outcome {
                light_sent: (0..flows.len() - 1).map(sent).sum(),
                light_read: reader.light.load(Ordering::Relaxed),
                heavy_sent: sent(flows.len() - 1),
                heavy_read: reader.heavy.load(Ordering::Relaxed),
                idle: reader.idle.load(Ordering::Relaxed),
                by_source: counters.get(Reason::UdpSource).packets,
                by_queue: counters.get(Reason::UdpFull).packets,
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| reader.run(&socket, load.read));
            let body = || {
                self.generator.start();
                std::thread::sleep(settle);
                let before = so_far();
                std::thread::sleep(time);
                so_far().since(before)
            };
            let outcome = self.generator.run_while(&self.network.far, Some(elsewhere), body);
            reader.stop.store(true, Ordering::Relaxed);
            outcome.unwrap()
        })
    }
}

/// Measures until it is as it should be. Others use the machine too: a reader or a sender that stands still
/// for a while loses packets of everyone.
fn measure_until(
    bench: &mut Bench,
    selective: bool,
    load: Load,
    as_it_should_be: impl Fn(Outcome) -> bool,
) {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let outcome = bench.measure(selective, load, SETTLE, TIME);
        println!("{load:?}, selective: {selective}: {outcome:?}");
        if as_it_should_be(outcome) {
            return;
        }
        seen.push(outcome);
    }
    panic!("selective: {selective}, {load:?}: {seen:#?}");
}

/// The reader never waits, and what it has read is what it could.
fn is_busy(outcome: Outcome) -> bool {
    outcome.idle() < 0.01
}

#[test]
fn a_heavy_source_does_not_shut_out_a_hundred_light_ones() {
    let _alone = alone();
    let mut bench = Bench::new();
    for heavy in [LIGHT_EACH * 100.0, LIGHT_EACH * 1000.0] {
        let load = Load { light: LIGHT_EACH, heavy, heavy_bits: 0, read: READ, ipv6: false };
        // All of the light ones together are less than what is read.
        let shut_out = |o: Outcome| o.light() < 0.8 && o.by_source == 0 && is_busy(o);
        measure_until(&mut bench, false, load, shut_out);
        let protected = |o: Outcome| o.light() >= 0.9 && o.by_source > 0 && is_busy(o);
        measure_until(&mut bench, true, load, protected);
    }
}

/// As slow a reader empties a quarter of its queue in more time than the gate believes anything for.
#[test]
fn so_it_is_with_a_slow_reader() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load { light: 10.0, heavy: 1000.0, heavy_bits: 0, read: 1300.0, ipv6: false };
    measure_until(&mut bench, true, load, |o| o.light() >= 0.9 && is_busy(o));
}

/// The usual flood. Only the first packets, from a source not seen before, keep anything free.
#[test]
fn one_source_alone_loses_nothing_by_it() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load { light: 0.0, heavy: 50_000.0, heavy_bits: 0, read: READ, ipv6: false };
    let as_without = |o: Outcome| o.by_source == 0 && o.by_queue > 0 && is_busy(o);
    measure_until(&mut bench, true, load, as_without);
}

/// Nobody can be told to be light where every packet has another source: all are treated alike.
#[test]
fn made_up_sources_are_treated_as_without_it() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load {
        light: LIGHT_EACH,
        heavy: LIGHT_EACH * 100.0,
        heavy_bits: 16,
        read: READ,
        ipv6: false,
    };
    let alike = |o: Outcome| {
        let heavy = o.heavy_read as f64 / o.heavy_sent as f64;
        is_busy(o) && (o.light() / heavy - 1.0).abs() < 0.1 && o.by_source * 20 < o.by_queue
    };
    measure_until(&mut bench, true, load, alike);
}

/// In IPv6 anyone may choose the lower half of his address.
#[test]
fn an_ipv6_sender_gains_nothing_by_other_addresses_in_its_64() {
    let _alone = alone();
    let mut bench = Bench::new();
    let (light, heavy) = (LIGHT_EACH / 2.0, LIGHT_EACH * 1000.0);
    let load = Load { light, heavy, heavy_bits: 16, read: READ, ipv6: true };
    let protected = |o: Outcome| o.light() >= 0.9 && o.by_source > 0 && is_busy(o);
    measure_until(&mut bench, true, load, protected);
}

/// Light ones that are more than what is read are refused as a full queue refuses, and nothing is idle.
#[test]
fn equals_share_a_full_queue() {
    let _alone = alone();
    let mut bench = Bench::new();
    let load = Load {
        light: LIGHT_EACH * 2.0,
        heavy: LIGHT_EACH * 2.0,
        heavy_bits: 0,
        read: READ,
        ipv6: false,
    };
    let expected = READ / (LIGHT_EACH * 2.0 * 101.0);
    measure_until(&mut bench, true, load, |o| is_busy(o) && (o.light() - expected).abs() < 0.05);
}

/// The figures of `docs/adr/0010-selective-dropping.md`: `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn table() {
    let _alone = alone();
    let mut bench = Bench::new();
    for (light, heavy, heavy_bits) in [
        (50.0, 5_000.0, 0),
        (50.0, 50_000.0, 0),
        (50.0, 200_000.0, 0),
        (1.0, 200_000.0, 0),
        (0.0, 200_000.0, 0),
        (50.0, 200_000.0, 4),
        (50.0, 200_000.0, 6),
        (50.0, 200_000.0, 8),
        (50.0, 5_000.0, 16),
        (50.0, 200_000.0, 16),
    ] {
        let load = Load { light, heavy, heavy_bits, read: READ, ipv6: false };
        for selective in [false, true] {
            let o = bench.measure(selective, load, SETTLE, TIME);
            println!(
                "light {light:4}/s each, heavy {heavy:7}/s from {:5}, selective {selective:5}: light \
                 {:.3}, heavy {:.3}, read {:5.0}/s, idle {:.3}",
                1 << heavy_bits,
                o.light(),
                o.heavy_read as f64 / o.heavy_sent as f64,
                o.read() as f64 / TIME.as_secs_f64(),
                o.idle(),
            );
        }
    }
}

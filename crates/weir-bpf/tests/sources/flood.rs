//! One socket, whose reader takes so many packets a second, and many that send to it.
//! `examples/sources.rs` uses it, too.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Generator, Sources};
use weir_bpf::units::PacketsPerSec;
use weir_bpf::verdict::Reason;

use crate::common::{NEAR_IP4, NEAR_IP6, Network};

const PORT: u16 = 5000;
const HEAVY: &str = "198.18.0.2";
/// The first address of a flow's sources, and how many bits of it are random: a hundred in all.
const LIGHT: [(&str, u8); 3] = [("198.18.0.64", 6), ("198.18.0.32", 5), ("198.18.0.4", 2)];
const HEAVY_IP6: &str = "2001:2:0:2::";
const LIGHT_IP6: &str = "2001:2:0:1::";
/// Some 200 packets on a veth: the reader may be away for a while.
const RECEIVE_BUFFER_BYTES: usize = 425_984;
/// The reader wakes this often.
const TICK: Duration = Duration::from_millis(1);
/// Packets per second that are read.
pub const READ: f64 = 6500.0;
/// Until it is looked at, and how long: several eras (bpf/sources.h).
pub const TIME: Duration = Duration::from_secs(1);
/// The first era, which of a slow reader lasts longer: twice `ERA_PACKETS` there.
const FIRST_ERA_PACKETS: f64 = 2048.0;

/// Who sends how much, and what is read, in packets per second.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Each of a hundred.
    pub light: f64,
    pub heavy: f64,
    /// Its packets come from so many random addresses, as a power of two.
    pub heavy_bits: u8,
    pub read: f64,
    /// Over IPv6, where all light ones are one /64, and so are all heavy ones.
    pub ipv6: bool,
}

/// What became of the packets of both kinds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub light_sent: u64,
    pub light_read: u64,
    pub heavy_sent: u64,
    pub heavy_read: u64,
    /// Packets that were to be read when there was none.
    pub idle: u64,
    pub by_source: u64,
    pub by_queue: u64,
    /// The part of the load that was sent.
    pub sent: f64,
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
            sent: self.sent,
        }
    }

    /// The part of the light ones' packets that is read.
    pub fn light(self) -> f64 {
        self.light_read as f64 / self.light_sent as f64
    }

    /// The same of the heavy ones'.
    pub fn heavy(self) -> f64 {
        self.heavy_read as f64 / self.heavy_sent as f64
    }

    pub fn read(self) -> u64 {
        self.light_read + self.heavy_read
    }

    /// The part of its turns in which the reader found nothing.
    pub fn idle(self) -> f64 {
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
        // Others who want the CPU are not to keep it from its turns.
        sched::set_fifo_current_thread(1).unwrap();
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

pub struct Bench {
    network: Network,
    gate: Gate,
    generator: Generator,
    _probe: QueueProbe,
}

impl Bench {
    pub fn new() -> Self {
        let network = Network::new();
        let (mut gate, probe) = network.gate(AttachMode::Native, &[NEAR_IP4, NEAR_IP6], &[]);
        network.attach(&mut gate, AttachMode::Native);
        let generator = network.generator();
        Self { network, gate, generator, _probe: probe }
    }

    fn flow(&self, from: &str, address_bits: u8, rate: f64) -> FlowSpec {
        let from: IpAddr = from.parse().unwrap();
        let to = if from.is_ipv4() { NEAR_IP4 } else { NEAR_IP6 };
        let mac = (self.network.far_mac, self.network.near_mac);
        FlowSpec {
            sources: Sources::Random { address_bits, port_bits: 0 },
            rate: Some(PacketsPerSec(rate)),
            ..FlowSpec::udp(mac, (from, to.parse().unwrap()), (4096, PORT))
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
    pub fn measure(&mut self, selective: bool, load: Load) -> Outcome {
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
                sent: 1.0,
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| reader.run(&socket, load.read));
            let body = || {
                self.generator.start();
                let time = TIME.max(Duration::from_secs_f64(FIRST_ERA_PACKETS / load.read));
                std::thread::sleep(time);
                let (before, begun) = (so_far(), Instant::now());
                std::thread::sleep(time);
                let (outcome, time) = (so_far().since(before), begun.elapsed());
                let sent = (outcome.light_sent + outcome.heavy_sent) as f64;
                let wanted = (load.light * 100.0 + load.heavy) * time.as_secs_f64();
                Outcome { sent: sent / wanted, ..outcome }
            };
            let outcome = self.generator.run_while(&self.network.far, Some(elsewhere), body);
            reader.stop.store(true, Ordering::Relaxed);
            outcome.unwrap()
        })
    }
}

//! Slow readers, fast senders, and what becomes of each packet.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_bpf::attach::AttachMode;
use weir_bpf::counters::Counters;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::sys::{sched, snmp};
use weir_bpf::traffic::{FlowSpec, Generator, STAMP_LEN, Stamp};
use weir_bpf::units::{CpuId, PacketsPerSec};
use weir_bpf::verdict::{Reason, Verdict};

use crate::common::{FAR_IP4, NEAR_IP4, NEAR_IP6, Network, Raise, wait_until};

/// A reader takes at most 8,000 packets per second...
const READ_INTERVAL: Duration = Duration::from_micros(125);
/// ...or 2,000 datagrams in fragments, which are sent more slowly.
const READ_INTERVAL_FRAGMENTS: Duration = Duration::from_micros(500);
/// Packets offered for each that is delivered.
const OVERLOAD: u64 = 10;
/// What a reader that was not scheduled makes up for at once.
const CATCH_UP_MAX: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(5);
pub const OVERLOAD_TIME: Duration = Duration::from_millis(400);
/// As many go into the smallest queue of these tests, and more.
const FEW: u64 = 8;
const FIT: u64 = 20;
/// UDP payload that makes three fragments of 1,500 bytes at most.
const FRAGMENTED_LEN: usize = 4000;
pub const FRAGMENTS: u64 = 3;

pub enum Source {
    Generated(Vec<FlowSpec>),
    /// By the far end's own stack.
    Fragments {
        port: u16,
    },
}

/// A kind of channel: its sockets, and what is sent to them.
pub struct Case {
    pub name: &'static str,
    /// Passed, discarded.
    pub reasons: [Reason; 2],
    /// How many sockets each packet goes to.
    pub copies: u64,
    pub sockets: Vec<UdpSocket>,
    pub source: Source,
}

impl Case {
    fn read_interval(&self) -> Duration {
        match self.source {
            // A large group is read as fast as two sockets are: else nothing could overload it.
            Source::Generated(_) => READ_INTERVAL * (self.sockets.len() as u32).div_ceil(2),
            Source::Fragments { .. } => READ_INTERVAL_FRAGMENTS,
        }
    }

    fn packets_per_datagram(&self) -> u64 {
        if matches!(self.source, Source::Fragments { .. }) { FRAGMENTS } else { 1 }
    }
}

/// What became of the packets of one overload. A packet for several sockets is delivered if one of them
/// took it, and late if none did.
pub struct Row {
    pub name: &'static str,
    /// Seen by the gate.
    pub offered: u64,
    pub discarded: u64,
    pub late: u64,
    pub delivered: u64,
    /// By full sockets: more than late, where another socket took the packet.
    pub copies_refused: u64,
}

impl Row {
    pub const HEADER: &str = "\
| kind | offered | discarded | late | late/discarded | delivered | refused copies |
|---|---:|---:|---:|---:|---:|---:|";

    pub fn late_percent(&self) -> f64 {
        100.0 * self.late as f64 / self.discarded as f64
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, offered, discarded, late, delivered, copies_refused } = self;
        let percent = self.late_percent();
        write!(
            f,
            "| {name} | {offered} | {discarded} | {late} | {percent:.2} % | {delivered} | \
             {copies_refused} |"
        )
    }
}

/// Counts of the host under test at one time.
struct Counts {
    gate: Counters,
    late: u64,
    ring_full: u64,
}

pub struct Bench {
    pub network: Network,
    pub gate: Gate,
    pub generator: Generator,
    pub cpu: CpuId,
    _probe: QueueProbe,
}

impl Bench {
    pub fn new() -> Self {
        let network = Network::new();
        network.make_far_a_host();
        let (mut gate, probe) =
            network.gate(AttachMode::Native, &[NEAR_IP4, NEAR_IP6], &["198.18.0.255"]);
        network.attach(&mut gate, AttachMode::Native);
        let generator = network.generator();
        let cpu = *sched::online_cpus().unwrap().last().unwrap();
        Self { network, gate, generator, cpu, _probe: probe }
    }

    fn counts(&self) -> Counts {
        let udp = self.network.near.run(|| snmp::udp_stats().unwrap()).unwrap();
        Counts {
            gate: self.gate.counters().unwrap(),
            late: udp.rcvbuf_errors,
            ring_full: self.network.ring_full(),
        }
    }

    /// Sends ten times what slow readers read. Where the machine had no time to send as much, once more.
    pub fn overload(&mut self, case: &Case) -> Row {
        for _ in 0..5 {
            let row = self.overload_once(case);
            if row.offered >= OVERLOAD * row.delivered * case.packets_per_datagram() {
                return row;
            }
        }
        panic!("{}: this machine cannot send {OVERLOAD} times what is read", case.name);
    }

    /// Sends to slow readers for a while; then they read what is left.
    fn overload_once(&mut self, case: &Case) -> Row {
        let before = self.counts();
        let read = Read::default();
        let stop = AtomicBool::new(false);
        if let Source::Generated(flows) = &case.source {
            self.generator.set_flows(flows).unwrap();
        }
        let sent = std::thread::scope(|scope| {
            for socket in &case.sockets {
                scope.spawn(|| read_slowly(socket, case.read_interval(), &stop, &read));
            }
            let _stop = Raise(&stop);
            let deadline = Instant::now() + OVERLOAD_TIME;
            self.send(case, || Instant::now() >= deadline)
        });
        self.settle(case, &before, sent, &read)
    }

    /// After that, as many as fit are sent at once: none is discarded.
    pub fn fewer_than_fit(&mut self, case: &Case) {
        for _ in 0..10 {
            let before = self.counts();
            if let Source::Generated(flows) = &case.source {
                let slow = FlowSpec { rate: Some(PacketsPerSec(1000.0)), ..flows[0].clone() };
                self.generator.set_flows(&[slow]).unwrap();
            }
            let sent = self.send_few(case);
            let row = self.settle(case, &before, sent, &Read::default());
            // If this thread was not scheduled for as long as it takes, more were sent than fit.
            if sent <= FIT * case.packets_per_datagram() {
                assert_eq!(
                    (row.discarded, row.copies_refused),
                    (0, 0),
                    "{}: {sent} fit",
                    case.name
                );
                let delivered = sent / case.packets_per_datagram();
                assert_eq!(row.delivered, delivered, "{}", case.name);
                return;
            }
        }
        panic!("{}: more than {FIT} packets were sent each time", case.name);
    }

    fn send_few(&self, case: &Case) -> u64 {
        match case.source {
            Source::Generated(_) => self.send(case, || self.generator.counts(0).sent >= FEW),
            Source::Fragments { .. } => {
                let mut left = FEW + 1;
                let enough = || {
                    left -= 1;
                    left == 0
                };
                self.send(case, enough)
            }
        }
    }

    /// Sends until `enough`, and says how many packets.
    fn send(&self, case: &Case, mut enough: impl FnMut() -> bool) -> u64 {
        match &case.source {
            Source::Generated(flows) => self.generate(flows.len(), enough),
            Source::Fragments { port } => {
                let make = || {
                    let socket = UdpSocket::bind((FAR_IP4, 0)).unwrap();
                    socket.connect((NEAR_IP4.parse::<Ipv4Addr>().unwrap(), *port)).unwrap();
                    socket
                };
                let socket = self.network.far.run(make).unwrap();
                let mut sent = 0;
                while !enough() {
                    socket.send(&[0; FRAGMENTED_LEN]).unwrap();
                    sent += FRAGMENTS;
                }
                sent
            }
        }
    }

    /// Runs the generator until `enough`, and says how many packets of its first flows it sent.
    pub fn generate(&self, flows: usize, mut enough: impl FnMut() -> bool) -> u64 {
        let generator = &self.generator;
        let body = || {
            generator.start();
            wait_until("enough is sent", &mut enough);
        };
        generator.run_while(&self.network.far, Some(self.cpu), body).unwrap();
        (0..flows).map(|flow| generator.counts(flow).sent).sum()
    }

    /// Waits until every packet is where it ends, reading what is queued. To the packet: sent = lost in
    /// the ring + discarded + passed, and passed = late + delivered.
    fn settle(&self, case: &Case, before: &Counts, sent: u64, read: &Read) -> Row {
        let [room, full] = case.reasons;
        let fragments = [Reason::Fragment, Reason::FragmentEarly, Reason::FragmentDiscarded];
        let deadline = Instant::now() + PATIENCE;
        loop {
            for socket in &case.sockets {
                while read.one(socket) {}
            }
            let now = self.counts();
            let since = |reason| now.gate.get(reason).packets - before.gate.get(reason).packets;
            let ring_full = now.ring_full - before.ring_full;
            let offered = since(room) + since(full) + fragments.map(since).iter().sum::<u64>();
            let refused = now.late - before.late;
            let read_copies = read.copies.load(Ordering::Relaxed);
            // Of a packet for many, each reader has what it has; late is what nobody has.
            let delivered = if case.copies > 1 { read.distinct() } else { read_copies };
            let late = since(room).saturating_sub(delivered);
            let discarded = [&now, before].map(|at| at.gate.verdict(Verdict::Discard).packets);
            let row = Row {
                name: case.name,
                offered,
                discarded: discarded[0] - discarded[1],
                late: late * case.packets_per_datagram(),
                delivered,
                copies_refused: refused,
            };
            if offered + ring_full == sent && since(room) * case.copies == refused + read_copies {
                return row;
            }
            assert!(
                Instant::now() < deadline,
                "not accounted for: {sent} sent, {ring_full} lost in the ring, {} passed: {row}",
                since(room)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the readers of a case have got.
#[derive(Default)]
struct Read {
    copies: AtomicU64,
    /// The generator's numbers of the packets.
    sequences: Mutex<BTreeSet<u32>>,
}

impl Read {
    /// Takes one packet, if there is one.
    fn one(&self, socket: &UdpSocket) -> bool {
        let mut payload = [0; STAMP_LEN];
        let Ok(len) = socket.recv(&mut payload) else { return false };
        self.copies.fetch_add(1, Ordering::Relaxed);
        if let Some(stamp) = Stamp::parse(&payload[..len]) {
            self.sequences.lock().unwrap().insert(stamp.sequence);
        }
        true
    }

    fn distinct(&self) -> u64 {
        self.sequences.lock().unwrap().len() as u64
    }
}

fn read_slowly(socket: &UdpSocket, interval: Duration, stop: &AtomicBool, read: &Read) {
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        read.one(socket);
        due = (due + interval).max(Instant::now() - CATCH_UP_MAX);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

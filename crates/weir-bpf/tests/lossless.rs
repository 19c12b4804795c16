//! Attaching, detaching and reconfiguring the gate lose no packet of a paced stream. Where the driver
//! itself drops, the same is done with a program that does nothing, in turn, and weir is held to that.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{FAR_IP4, NEAR_IP4, Network, Raise, local, wait_until};
use rustix::net::sockopt;
use weir_bpf::attach::{AttachMode, DoNothing};
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::{ethtool, snmp};
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::Verdict;

const CYCLES: usize = 100;
const PORT: u16 = 5000;
/// 15,000 packets per second.
const INTERVAL: Duration = Duration::from_nanos(66_667);
/// Packets that pass in each state: attached and detached.
const PACKETS_PER_STATE: u64 = 60;
/// What a sender that was not scheduled makes up for at once.
const CATCH_UP_MAX: Duration = Duration::from_millis(1);
/// The receiver may be away for as long as it takes to fill this.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// A veth that stops polling by NAPI frees what was being put into its ring at that moment
/// (`veth_napi_del_range()`): one packet in about 2,000 cycles.
const VANISHED_BY_CHANCE: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(15);

/// A numbered stream from the far to the near end.
struct Stream {
    sent: AtomicU64,
    stop: AtomicBool,
}

impl Stream {
    /// Lets this many packets be sent.
    fn pass(&self, packets: u64) {
        let until = self.sent.load(Ordering::Relaxed) + packets;
        let deadline = Instant::now() + PATIENCE;
        while self.sent.load(Ordering::Relaxed) < until {
            assert!(Instant::now() < deadline, "the stream has stopped");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn send(&self, socket: &UdpSocket) {
        let mut due = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.sent.load(Ordering::Relaxed);
            socket.send(&number.to_be_bytes()).unwrap();
            self.sent.store(number + 1, Ordering::Relaxed);
            due = (due + INTERVAL).max(Instant::now() - CATCH_UP_MAX);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }

    /// Which numbers arrive, until nothing has for as long as the socket waits.
    fn receive(&self, socket: &UdpSocket) -> Vec<bool> {
        let mut arrived = Vec::new();
        let mut bytes = [0; 8];
        loop {
            match socket.recv(&mut bytes) {
                Ok(8) => {
                    let number = u64::from_be_bytes(bytes) as usize;
                    arrived.resize(arrived.len().max(number + 1), false);
                    assert!(!arrived[number], "packet {number} arrived twice");
                    arrived[number] = true;
                }
                Ok(other) => panic!("{other} bytes"),
                Err(_) if self.stop.load(Ordering::Relaxed) => return arrived,
                Err(_) => {}
            }
        }
    }
}

/// Packets of one cycle that never arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Loss {
    /// Found no room in the near end's ring, because whoever polls it did not get the CPU in time: the
    /// far end's `tx_dropped`.
    ring_full: u64,
    /// Vanished.
    vanished: u64,
}

struct Bench {
    network: Network,
    gate: Gate,
    nothing: DoNothing,
    _probe: QueueProbe,
}

impl Bench {
    /// A veth without GRO, as it is made: it polls by NAPI only while it has an XDP program.
    fn new(mode: AttachMode) -> Self {
        let network = Network::new();
        network.near.run(|| ethtool::set_gro("near", false)).unwrap().unwrap();
        network.make_far_a_host();
        let (gate, probe) = network.gate(mode, &[NEAR_IP4], &[]);
        let nothing = DoNothing::load().unwrap();
        Self { network, gate, nothing, _probe: probe }
    }

    fn attach(&mut self, mode: AttachMode) {
        self.network.attach(&mut self.gate, mode);
    }

    /// Removing a filter asks the kernel in the namespace of the thread.
    fn detach(&mut self) {
        let Self { network, gate, .. } = self;
        network.near.run(|| gate.detach()).unwrap();
    }

    fn links<T: Send>(&self, act: impl FnOnce(&Links, IfIndex) -> T + Send) -> T {
        let near = self.network.near_ifindex;
        self.network.near.run(|| act(&Links::open().unwrap(), near)).unwrap()
    }

    fn attach_nothing(&mut self) {
        let Self { network, nothing, .. } = self;
        let attach = || nothing.attach(network.near_ifindex, "near", AttachMode::Native);
        network.near.run(attach).unwrap().unwrap();
    }

    /// And has let everything pass.
    fn assert_gate_was_there(&self) {
        let counters = self.gate.counters().unwrap();
        assert_eq!(counters.verdict(Verdict::Discard).packets, 0);
        let seen = counters.total().packets;
        assert!(seen >= CYCLES as u64 * PACKETS_PER_STATE / 2, "only {seen} packets seen");
    }

    /// Runs `cycle` while the stream flows, so many times; what was lost in each.
    fn lost_per_cycle(
        &mut self,
        cycles: usize,
        mut cycle: impl FnMut(&mut Self, &Stream, usize),
    ) -> Vec<Loss> {
        let receiver = self.network.bind(NEAR_IP4, PORT);
        sockopt::set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER_BYTES).unwrap();
        let bind = || UdpSocket::bind((FAR_IP4, 0)).unwrap();
        let sender = self.network.far.run(bind).unwrap();
        sender.connect((NEAR_IP4, PORT)).unwrap();
        let stream = Stream { sent: AtomicU64::new(0), stop: AtomicBool::new(false) };
        let began = Instant::now();
        let (ends, arrived) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| stream.receive(&receiver));
            scope.spawn(|| stream.send(&sender));
            // Stopped also if a cycle panics, so that the threads end.
            let stopped = Raise(&stream.stop);
            stream.pass(PACKETS_PER_STATE);
            let mut ends = vec![(0, self.network.ring_full())];
            for number in 0..cycles {
                cycle(self, &stream, number);
                ends.push((stream.sent.load(Ordering::Relaxed) as usize, self.network.ring_full()));
            }
            stream.pass(PACKETS_PER_STATE);
            drop(stopped);
            (ends, receiving.join().unwrap())
        });
        let elapsed = began.elapsed().as_secs_f64();
        println!("{:.0} packets/s", stream.sent.load(Ordering::Relaxed) as f64 / elapsed);
        let udp = self.network.near.run(|| snmp::udp_stats().unwrap()).unwrap();
        assert_eq!(udp.rcvbuf_errors, 0, "the receiver was too slow, which is not weir's doing");
        let lost_in = |from: usize, to: usize| {
            (from..to).filter(|n| !arrived.get(*n).is_some_and(|a| *a)).count() as u64
        };
        let loss = |range: &[(usize, u64)]| {
            let ring_full = range[1].1 - range[0].1;
            // A packet on its way while the cycle ends may be counted in the next.
            let lost = lost_in(range[0].0, range[1].0);
            Loss { ring_full, vanished: lost.saturating_sub(ring_full) }
        };
        let last = lost_in(ends[cycles].0, stream.sent.load(Ordering::Relaxed) as usize);
        assert_eq!(last, 0, "lost after the last cycle");
        ends.windows(2).map(loss).collect()
    }
}

fn report(what: &str, losses: &[Loss]) -> Loss {
    let mut total = Loss::default();
    for (cycle, loss) in losses.iter().enumerate().filter(|(_, loss)| **loss != Loss::default()) {
        println!("{what}: cycle {cycle}: {loss:?}");
        total.ring_full += loss.ring_full;
        total.vanished += loss.vanished;
    }
    println!("{what}: in {} cycles {total:?}", losses.len());
    total
}

/// Attaches and detaches the gate: nothing at all is lost.
fn nothing_is_lost_at(mode: AttachMode) {
    let mut bench = Bench::new(mode);
    let lost = bench.lost_per_cycle(CYCLES, |bench, stream, _| {
        bench.attach(mode);
        stream.pass(PACKETS_PER_STATE);
        bench.detach();
        stream.pass(PACKETS_PER_STATE);
    });
    bench.assert_gate_was_there();
    assert_eq!(report(mode.description(), &lost), Loss::default());
}

#[test]
fn generic_loses_nothing() {
    nothing_is_lost_at(AttachMode::Generic);
}

#[test]
fn tcx_loses_nothing() {
    nothing_is_lost_at(AttachMode::Tcx);
}

#[test]
fn clsact_loses_nothing() {
    nothing_is_lost_at(AttachMode::Clsact);
}

/// See `docs/adr/0004-attach-point.md` for what a veth loses and why.
#[test]
fn native_loses_no_more_than_a_program_that_does_nothing() {
    let mut bench = Bench::new(AttachMode::Native);
    // In turn, so that whatever else the machine does falls on both alike.
    let both = bench.lost_per_cycle(2 * CYCLES, |bench, stream, number| {
        let is_gate = number % 2 == 0;
        if is_gate {
            bench.attach(AttachMode::Native);
        } else {
            bench.attach_nothing();
        }
        // As the daemon does it, and puts it back before the gate goes: ADR 3.
        bench.network.set_threaded("1");
        stream.pass(PACKETS_PER_STATE);
        bench.network.set_threaded("0");
        if is_gate {
            bench.detach();
        } else {
            bench.nothing.detach();
        }
        stream.pass(PACKETS_PER_STATE);
    });
    bench.assert_gate_was_there();
    let of = |first: usize| both.iter().skip(first).step_by(2).copied().collect::<Vec<_>>();
    let gate = report("native XDP, the gate", &of(0));
    let nothing = report("native XDP, a program that does nothing", &of(1));
    assert!(
        gate.vanished <= nothing.vanished + VANISHED_BY_CHANCE,
        "the gate: {gate:?}; nothing: {nothing:?}"
    );
}

/// What this file's other tests would say if there were something to say.
#[test]
fn a_loss_is_seen() {
    let mut bench = Bench::new(AttachMode::Tcx);
    let lost = bench.lost_per_cycle(3, |bench, stream, number| {
        let is_down = number == 1;
        if is_down {
            bench.links(|links, near| links.set_down(near).unwrap());
        }
        stream.pass(PACKETS_PER_STATE);
        if is_down {
            bench.links(|links, near| links.set_up(near).unwrap());
            let is_up = || bench.links(|links, near| links.info(near).unwrap().oper_up);
            wait_until("the link is up", is_up);
        }
    });
    report("link down", &lost);
    let sums: Vec<u64> = lost.iter().map(|loss| loss.ring_full + loss.vanished).collect();
    assert!(sums[1] > PACKETS_PER_STATE / 2 && sums[0] == 0 && sums[2] == 0, "{sums:?}");
}

#[test]
fn reconfiguring_loses_nothing() {
    for mode in [AttachMode::Native, AttachMode::Tcx] {
        let mut bench = Bench::new(mode);
        bench.attach(mode);
        let own = local(&[NEAR_IP4]);
        let mut many = own.clone();
        many.own.splice(..0, (0..200_u32).map(|n| Ipv4Addr::from(0xc613_0000 + n).into()));
        let mac = bench.network.near_mac;
        let lost = bench.lost_per_cycle(CYCLES, |bench, stream, number| {
            let policy = if number % 2 == 0 { Policy::Off } else { Policy::On };
            bench.gate.configure(mac, policy);
            bench.gate.set_local(if number % 2 == 0 { &many } else { &own }).unwrap();
            stream.pass(PACKETS_PER_STATE / 2);
        });
        assert_eq!(
            report(&format!("reconfigured at {}", mode.description()), &lost),
            Loss::default()
        );
        assert_eq!(bench.gate.counters().unwrap().verdict(Verdict::Discard).packets, 0);
    }
}

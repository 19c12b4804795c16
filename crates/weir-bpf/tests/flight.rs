//! What a reader on another CPU has taken is not on its way to the queue any more: the gate at tc, packet by packet
//! (`BPF_PROG_TEST_RUN`) within one poll, and a queue that takes what was admitted and is read at once. What other
//! interfaces receive on that CPU ends polls, too; what was seen then does not count, and is looked at again.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{NEAR_IP4, Network, alone};
use rustix::net::sockopt;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::units::CpuId;
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
const PAYLOAD: &[u8] = b"fourteen bytes";
/// More than any queue here holds, and fewer than a NAPI poll may bring.
const PACKETS: usize = 40;
const ROUNDS: usize = 10;
const NOT_QUIET: &str = "this CPU receives nothing else for a moment";

/// Tries until nothing else is received meanwhile.
fn attempts() -> impl Iterator<Item = ()> {
    let end = Instant::now() + Duration::from_secs(30);
    std::iter::repeat(()).take_while(move |()| Instant::now() < end)
}

/// A socket whose reader and whose packets' way to it are the test's.
struct Queue {
    network: Network,
    gate: Gate,
    probe: QueueProbe,
    packet: Vec<u8>,
    socket: UdpSocket,
    sender: UdpSocket,
    polls: AtomicU64,
    cpu: CpuId,
}

impl Queue {
    /// On the last CPU, with a queue that has room for so many bytes.
    fn with<T: Send>(bytes: usize, body: impl FnOnce(&Self) -> T + Send) -> T {
        let _alone = alone();
        let queue = Self::new(bytes);
        queue.network.near.run(|| body(&queue)).unwrap()
    }

    /// What `look` sees in a queue of its own.
    fn seen<T: Send>(bytes: usize, look: impl Fn(&Self) -> T + Sync) -> T {
        let look = |()| Self::with(bytes, |queue| queue.undisturbed(|| look(queue)));
        attempts().find_map(look).expect(NOT_QUIET)
    }

    /// What `look` sees, if no other poll has ended on this CPU meanwhile than those of `next_poll`.
    fn undisturbed<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let others = || self.probe.polls(self.cpu).unwrap() - self.polls.load(Ordering::Relaxed);
        let before = others();
        let seen = look();
        (others() == before).then_some(seen)
    }

    fn new(bytes: usize) -> Self {
        let cpu = *sched::online_cpus().unwrap().last().unwrap();
        sched::pin_current_thread(cpu).unwrap();
        let network = Network::new();
        let (mut gate, probe) = network.gate(AttachMode::Tcx, &[NEAR_IP4], &[]);
        let packet = network.datagram(NEAR_IP4, PORT, PAYLOAD);
        let socket = network.bind(NEAR_IP4, PORT);
        sockopt::set_socket_recv_buffer_size(&socket, bytes / 2).unwrap();
        let sender = network.near.run(|| {
            let links = Links::open().unwrap();
            links.set_up(links.index("lo").unwrap()).unwrap();
            gate.stand_for(network.near_ifindex).unwrap();
            UdpSocket::bind((NEAR_IP4, 0)).unwrap()
        });
        let (sender, polls) = (sender.unwrap(), AtomicU64::new(0));
        Self { cpu, network, gate, probe, packet, socket, sender, polls }
    }

    fn admits(&self) -> bool {
        self.network.judge(&self.gate, &self.packet) == Reason::UdpRoom
    }

    fn deliver(&self, packets: usize) {
        on_another_cpu(|| {
            (0..packets).for_each(|_| {
                self.sender.send_to(PAYLOAD, (NEAR_IP4, PORT)).unwrap();
            });
        });
    }

    /// Of a look that does not count there may be fewer.
    fn read(&self, packets: usize) {
        self.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        _ = (0..packets).try_for_each(|_| self.socket.recv(&mut [0; 64]).map(drop));
    }

    /// How many fit into it, which is empty.
    fn fit(&self) -> usize {
        self.deliver(PACKETS);
        self.socket.set_nonblocking(true).unwrap();
        let packets = std::iter::from_fn(|| self.socket.recv(&mut [0; 64]).ok()).count();
        self.socket.set_nonblocking(false).unwrap();
        packets
    }

    /// Lets one end on this CPU, of the loopback's.
    fn next_poll(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.sender.send_to(PAYLOAD, (NEAR_IP4, PORT + 1)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Of so many packets in polls that bring as many, how many are discarded while a reader keeps up, but for those that
/// `wait` in the queue all the time? NAPI hands on `batch` at once.
fn discarded(buffer_bytes: usize, wait: usize, batch: usize) -> usize {
    Queue::with(buffer_bytes, |queue| {
        queue.deliver(wait);
        let round = || {
            let mut discarded = 0;
            for _ in 0..PACKETS / batch {
                let admitted = (0..batch).filter(|_| queue.admits()).count();
                discarded += batch - admitted;
                // What comes and goes between two looks.
                queue.deliver(admitted);
                queue.read(admitted);
            }
            queue.next_poll();
            discarded
        };
        let rounds: Vec<_> =
            attempts().filter_map(|()| queue.undisturbed(round)).take(ROUNDS).collect();
        assert_eq!(rounds.len(), ROUNDS, "{NOT_QUIET}");
        rounds.iter().sum()
    })
}

/// NAPI polls that end there are not this CPU's.
fn on_another_cpu(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = || {
            sched::pin_current_thread(CpuId(0)).unwrap();
            body();
        };
        scope.spawn(run);
    });
}

/// Memory that a reader gives back while a poll lasts hides as much that has arrived in it, which is not on its way any
/// more: the queue has room.
#[test]
fn what_is_hidden_by_a_reader_has_arrived() {
    let (fit, before, admitted) = Queue::seen(10240, |queue| {
        let fit = queue.fit();
        queue.deliver(fit - 7);
        let before = (0..7).filter(|_| queue.admits()).count();
        queue.deliver(4);
        queue.read(given_back(fit));
        (fit, before, (0..20).filter(|_| queue.admits()).count())
    });
    assert_eq!(before, 7, "7 of {fit} fit");
    // As many as were given back fit, maybe one more, and before Linux 6.18 another.
    let back = given_back(fit);
    assert!((back..=back + 2).contains(&admitted), "{admitted} where {back} of {fit} fit");
}

/// How many are read before a reader gives back a quarter, at once.
fn given_back(fit: usize) -> usize {
    fit / 4 + 1
}

/// Nor is a packet missing then, and what is admitted later is on its way to the queue as before.
#[test]
fn what_is_hidden_by_a_reader_is_not_missing() {
    // Room for 16 to 26, of which 8 are a quarter at least; NAPI keeps back no more.
    let (fit, before, admitted) = Queue::seen(20480, |queue| {
        let fit = queue.fit();
        queue.deliver(fit / 2);
        let mut before = (0..8).filter(|_| queue.admits()).count();
        queue.deliver(8);
        queue.read(8);
        // There is as much room as before.
        before += usize::from(queue.admits());
        queue.deliver(1);
        queue.next_poll();
        before += usize::from(queue.admits());
        let wait = fit / 2 + 1;
        queue.deliver(fit - 4 - wait);
        queue.next_poll();
        (fit, before, (0..8).filter(|_| queue.admits()).count())
    });
    assert_eq!(before, 10, "all have room");
    // Before Linux 6.18 a queue takes one more than fits.
    assert!(admitted <= 5, "{admitted} where 4 of {fit} fit");
}

#[test]
fn what_a_quick_reader_has_taken_is_not_on_its_way() {
    // At most 1,280 bytes are charged for each: room for three, where none waits, and else for 12.
    for (buffer_bytes, wait, batch) in [(16384, 0, 1), (16384, 0, 8), (16384, 3, 4), (3840, 0, 1)] {
        let discarded = discarded(buffer_bytes, wait, batch);
        assert_eq!(discarded, 0, "a queue of {buffer_bytes} bytes, {wait} wait, {batch} at once");
    }
}

//! What a reader on another CPU has taken is not on its way to the queue any more: the gate at tc, packet by packet
//! (`BPF_PROG_TEST_RUN`) within one poll, and a queue that takes what was admitted and is read at once.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::{NEAR_IP4, Network};
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

/// A socket whose reader and whose packets' way to it are the test's.
struct Queue {
    network: Network,
    gate: Gate,
    _probe: QueueProbe,
    packet: Vec<u8>,
    socket: UdpSocket,
    sender: UdpSocket,
}

impl Queue {
    /// Runs it on the last CPU, with a queue that has room for so many bytes.
    fn with(bytes: usize, body: impl FnOnce(&Self) + Send) {
        sched::pin_current_thread(*sched::online_cpus().unwrap().last().unwrap()).unwrap();
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
        let queue = Self { sender: sender.unwrap(), network, gate, _probe: probe, packet, socket };
        queue.network.near.run(|| body(&queue)).unwrap();
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

    fn read(&self, packets: usize) {
        (0..packets).for_each(|_| _ = self.socket.recv(&mut [0; 64]).unwrap());
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
        self.sender.send_to(PAYLOAD, (NEAR_IP4, PORT + 1)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Of so many packets in polls that bring as many, how many are discarded while a reader keeps up, but for those that
/// `wait` in the queue all the time? NAPI hands on `batch` at once.
fn discarded(buffer_bytes: usize, wait: usize, batch: usize) -> usize {
    let mut discarded = 0;
    Queue::with(buffer_bytes, |queue| {
        queue.deliver(wait);
        for _ in 0..ROUNDS {
            for _ in 0..PACKETS / batch {
                let admitted = (0..batch).filter(|_| queue.admits()).count();
                discarded += batch - admitted;
                // What comes and goes between two looks.
                queue.deliver(admitted);
                queue.read(admitted);
            }
            queue.next_poll();
        }
        queue.read(wait);
    });
    discarded
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
    Queue::with(10240, |queue| {
        let fit = queue.fit();
        queue.deliver(fit - 7);
        assert!((0..7).all(|_| queue.admits()));
        queue.deliver(4);
        // A quarter is given back at once. As many fit, maybe one more, and before Linux 6.18 another.
        let back = fit / 4 + 1;
        queue.read(back);
        let admitted = (0..20).filter(|_| queue.admits()).count();
        assert!((back..=back + 2).contains(&admitted), "{admitted} where {back} of {fit} fit");
    });
}

/// Nor is a packet missing then, and what is admitted later is on its way to the queue as before.
#[test]
fn what_is_hidden_by_a_reader_is_not_missing() {
    // Room for 16 to 26, of which 8 are a quarter at least; NAPI keeps back no more.
    Queue::with(20480, |queue| {
        let fit = queue.fit();
        queue.deliver(fit / 2);
        assert!((0..8).all(|_| queue.admits()));
        queue.deliver(8);
        queue.read(8);
        assert!(queue.admits(), "there is as much room as before");
        queue.deliver(1);
        queue.next_poll();
        assert!(queue.admits());
        let wait = fit / 2 + 1;
        queue.deliver(fit - 4 - wait);
        queue.next_poll();
        let admitted = (0..8).filter(|_| queue.admits()).count();
        // Before Linux 6.18 a queue takes one more than fits.
        assert!(admitted <= 5, "{admitted} where 4 of {fit} fit");
    });
}

#[test]
fn what_a_quick_reader_has_taken_is_not_on_its_way() {
    // At most 1,280 bytes are charged for each: room for three, where none waits, and else for 12.
    for (buffer_bytes, wait, batch) in [(16384, 0, 1), (16384, 0, 8), (16384, 3, 4), (3840, 0, 1)] {
        let discarded = discarded(buffer_bytes, wait, batch);
        assert_eq!(discarded, 0, "a queue of {buffer_bytes} bytes, {wait} wait, {batch} at once");
    }
}

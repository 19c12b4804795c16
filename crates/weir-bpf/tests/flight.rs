//! What a reader on another CPU has taken is not on its way to the queue any more: the gate at tc, packet by packet
//! (`BPF_PROG_TEST_RUN`) within one poll, and a queue that takes what was admitted and is read at once.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::{NEAR_IP4, Network};
use rustix::net::sockopt;
use weir_bpf::attach::AttachMode;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::units::CpuId;
use weir_bpf::verdict::Reason;

const PORT: u16 = 5000;
const PAYLOAD: &[u8] = b"fourteen bytes";
/// More than any queue here holds, and fewer than a NAPI poll may bring.
const PACKETS: usize = 40;
const ROUNDS: usize = 10;

/// A socket whose queue has room for this many bytes.
fn socket(network: &Network, bytes: usize) -> UdpSocket {
    let socket = network.bind(NEAR_IP4, PORT);
    sockopt::set_socket_recv_buffer_size(&socket, bytes / 2).unwrap();
    socket
}

/// Of so many packets in polls that bring as many, how many are discarded while a reader keeps up, but for those that
/// `wait` in the queue all the time? NAPI hands on `batch` at once.
fn discarded(buffer_bytes: usize, wait: usize, batch: usize) -> usize {
    let network = Network::new();
    let (mut gate, _probe) = network.gate(AttachMode::Tcx, &[NEAR_IP4], &[]);
    let packet = network.datagram(NEAR_IP4, PORT, PAYLOAD);
    let socket = socket(&network, buffer_bytes);
    let run = || {
        let links = Links::open().unwrap();
        links.set_up(links.index("lo").unwrap()).unwrap();
        gate.stand_for(network.near_ifindex).unwrap();
        let sender = UdpSocket::bind((NEAR_IP4, 0)).unwrap();
        let deliver = |packets| {
            on_another_cpu(|| {
                (0..packets).for_each(|_| {
                    sender.send_to(PAYLOAD, (NEAR_IP4, PORT)).unwrap();
                });
            });
        };
        let read = |packets| (0..packets).for_each(|_| _ = socket.recv(&mut [0; 64]).unwrap());
        deliver(wait);
        let mut discarded = 0;
        for _ in 0..ROUNDS {
            for _ in 0..PACKETS / batch {
                let reasons: Vec<_> = (0..batch).map(|_| network.judge(&gate, &packet)).collect();
                let admitted = reasons.iter().filter(|it| **it == Reason::UdpRoom).count();
                discarded += batch - admitted;
                // What comes and goes between two looks.
                deliver(admitted);
                read(admitted);
            }
            // The next poll.
            std::thread::sleep(Duration::from_millis(1));
        }
        read(wait);
        discarded
    };
    network.near.run(run).unwrap()
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

#[test]
fn what_a_quick_reader_has_taken_is_not_on_its_way() {
    sched::pin_current_thread(*sched::online_cpus().unwrap().last().unwrap()).unwrap();
    // At most 1,280 bytes are charged for each: room for three, where none waits, and else for 12.
    for (buffer_bytes, wait, batch) in [(16384, 0, 1), (16384, 0, 8), (16384, 3, 4), (3840, 0, 1)] {
        let discarded = discarded(buffer_bytes, wait, batch);
        assert_eq!(discarded, 0, "a queue of {buffer_bytes} bytes, {wait} wait, {batch} at once");
    }
}

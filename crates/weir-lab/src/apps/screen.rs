//! A user-mode screen that accepts every packet, as MR's screend was measured: one NFQUEUE, one packet at a time.

use std::io;

use nfq::{Queue, Verdict};
use weir_bpf::sys::shared_memory::SharedCounters;

use super::slots;

/// Which queue.
pub const QUEUE: u16 = 0;

/// Accepts until it is killed.
pub fn run(shared: &SharedCounters) -> io::Result<()> {
    let mut queue = Queue::open()?;
    queue.bind(QUEUE)?;
    // As Suricata has it: what overflows the socket is not this program's affair.
    queue.set_recv_enobufs(false)?;
    slots::ready(shared);
    loop {
        let mut packet = queue.recv()?;
        packet.set_verdict(Verdict::Accept);
        queue.verdict(packet)?;
        slots::add(shared, slots::DELIVERED, 1);
    }
}

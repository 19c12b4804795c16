//! The UDP applications, plain programs that do nothing special: one loop that receives, computes and
//! answers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde::{Deserialize, Serialize};
use weir_bpf::accounts::monotonic_now;
use weir_bpf::sys::shared_memory::SharedCounters;
use weir_bpf::traffic::Stamp;
use weir_socket::{DEFAULT_RING_BYTES, LazyUdpSocket};

use super::compute::Work;
use super::slots;
use crate::histogram;

/// A group of MCAST-TEST-NET (RFC 6676) that an application joins; nobody joins the next.
pub const GROUP: Ipv4Addr = Ipv4Addr::new(233, 252, 0, 1);
/// The sender of a window is told after so many.
const TELL_EVERY: u64 = 8;

/// Which packets of a flow: of each so many the one with this number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub of: u32,
    pub number: u32,
}

impl Turn {
    /// So few that reading the clock stays negligible.
    pub const SOME: Self = Self { of: 16, number: 0 };

    pub fn is_of(self, sequence: u32) -> bool {
        sequence % self.of == self.number
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    #[default]
    Nothing,
    /// Each packet is sent back to where it came from.
    Echo,
    /// How many have come, now and then.
    Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// `SO_RCVBUF` in bytes, if not the default: half of what the kernel then counts.
    pub(crate) buffer: Option<usize>,
    /// Joins the lab's multicast group, and is bound to any address.
    pub(crate) joined: bool,
    /// The generator's packets, which say when they were made: the ages of these are taken.
    pub(crate) ages: Option<Turn>,
    pub(crate) work: Work,
    /// What it answers.
    pub(crate) answer: Answer,
}

impl Server {
    /// Takes what the generator sends, and computes for so long for each packet.
    pub fn sink(time: Duration) -> Self {
        Self { ages: Some(Turn::SOME), work: Work { time, ..Work::default() }, ..Self::default() }
    }

    pub fn echo(work: Work) -> Self {
        Self { answer: Answer::Echo, work, ..Self::default() }
    }

    /// Receives until it is killed.
    pub fn run(self, bind: SocketAddr, shared: &SharedCounters) -> io::Result<()> {
        let socket = self.open(bind)?;
        let compute = self.work.prepare();
        slots::ready(shared);
        let mut buffer = [0; 2048];
        loop {
            if self.answer == Answer::Nothing {
                let len = socket.recv(&mut buffer)?;
                self.count(&buffer[..len], shared);
                compute();
                continue;
            }
            let (len, from) = socket.recv_from(&mut buffer)?;
            let count = self.count(&buffer[..len], shared);
            compute();
            if self.answer == Answer::Echo {
                socket.send_to(&buffer[..len], from)?;
                slots::add(shared, slots::REPLIED, 1);
            } else if count.is_multiple_of(TELL_EVERY) {
                socket.send_to(&count.to_be_bytes(), from)?;
            }
        }
    }

    /// An ordinary socket, but where weir offers a lazy one.
    fn open(&self, bind: SocketAddr) -> io::Result<LazyUdpSocket> {
        let group = match bind.ip() {
            IpAddr::V4(on) if self.joined => Some(on),
            _ => None,
        };
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, bind.port()));
        let socket = UdpSocket::bind(if group.is_some() { any } else { bind })?;
        if let Some(bytes) = self.buffer {
            set_socket_recv_buffer_size_force(&socket, bytes)?;
        }
        if let Some(on) = group {
            socket.join_multicast_v4(&GROUP, &on)?;
        }
        Ok(LazyUdpSocket::with_ring(socket, DEFAULT_RING_BYTES))
    }

    /// Counts a packet; returns how many that is in all.
    fn count(&self, packet: &[u8], shared: &SharedCounters) -> u64 {
        let count = slots::add(shared, slots::DELIVERED, 1) + 1;
        if let Some((turn, stamp)) = self.ages.zip(Stamp::parse(packet))
            && turn.is_of(stamp.sequence)
        {
            let age = monotonic_now().0.saturating_sub(stamp.sent_ns);
            histogram::record(shared, slots::HISTOGRAM, age);
        }
        count
    }
}

//! The UDP applications, plain programs that do nothing special: one loop that receives, computes and
//! answers.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use rustix::event::epoll::EventFlags;
use serde::{Deserialize, Serialize};
use weir_bpf::accounts::monotonic_now;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::traffic::Stamp;
use weir_socket::{DEFAULT_RING_BYTES, LazyUdpSocket};

use super::compute::Work;
use super::slots;
use super::sockets::{allow_many, at_port, each_ready};
use crate::histogram;
use crate::host::wire::GROUP;

/// One packet in this many has its age taken, so that reading the clock stays negligible.
const AGE_SAMPLE: u64 = 16;
/// Messages that `recvmmsg` takes at once.
const BATCH: usize = 32;
/// The sender of a window is told after so many.
const TELL_EVERY: u64 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Reader {
    /// A plain `recv()` loop.
    #[default]
    Recv,
    /// A `recvmmsg()` loop, 32 messages at once.
    Recvmmsg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    #[default]
    Nothing,
    /// Each packet is sent back to where it came from.
    Echo,
    /// How many have come, now and then, at the port that the packet itself begins with.
    Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Sockets beside the first, at the ports that follow.
    pub(crate) further: u16,
    pub(crate) reader: Reader,
    /// Receive buffer to ask for, bytes; 0: the system's default.
    pub(crate) rcvbuf: usize,
    /// Joins the lab's multicast group, and is bound to any address.
    pub(crate) joined: bool,
    /// The generator's packets, which say when they were made: the ages of some are taken.
    pub(crate) stamped: bool,
    pub(crate) work: Work,
    /// What it answers; not to batches.
    pub(crate) answer: Answer,
}

impl Server {
    /// Takes what the generator sends, and computes for so long for each packet.
    pub fn sink(reader: Reader, time: Duration) -> Self {
        Self { reader, stamped: true, work: Work { time, ..Work::default() }, ..Self::default() }
    }

    pub fn echo(work: Work) -> Self {
        Self { answer: Answer::Echo, work, ..Self::default() }
    }

    /// Receives until it is killed.
    pub fn run(self, bind: SocketAddr, shared: &SharedCounters) -> io::Result<()> {
        allow_many()?;
        let sockets = (0..=self.further).map(|offset| self.open(at_port(bind, offset)));
        let sockets: Vec<LazyUdpSocket> = sockets.collect::<io::Result<_>>()?;
        let compute = self.work.prepare();
        slots::ready(shared);
        if self.reader == Reader::Recvmmsg {
            return batches(&sockets[0], |count, last| {
                self.count(count, last, shared);
                (0..count).for_each(|_| compute());
            });
        }
        let mut buffer = [0; 2048];
        each_ready(&sockets, EventFlags::IN, |index| {
            let socket = &sockets[index];
            if self.answer == Answer::Nothing {
                let len = socket.recv(&mut buffer)?;
                self.count(1, &buffer[..len], shared);
                compute();
                return Ok(());
            }
            let (len, from) = socket.recv_from(&mut buffer)?;
            let count = self.count(1, &buffer[..len], shared);
            compute();
            if self.answer == Answer::Echo {
                socket.send_to(&buffer[..len], from)?;
                slots::add(shared, slots::REPLIED, 1);
            } else if count.is_multiple_of(TELL_EVERY) {
                let port = u16::from_be_bytes([buffer[0], buffer[1]]);
                sockets[0].send_to(&count.to_be_bytes(), (from.ip(), port))?;
            }
            Ok(())
        })
    }

    /// Ordinary sockets, but where weir offers lazy ones.
    fn open(&self, bind: SocketAddr) -> io::Result<LazyUdpSocket> {
        let group = match bind.ip() {
            IpAddr::V4(on) if self.joined => Some(on),
            _ => None,
        };
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, bind.port()));
        let socket = UdpSocket::bind(if group.is_some() { any } else { bind })?;
        if self.rcvbuf != 0 {
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, self.rcvbuf)?;
        }
        if let Some(on) = group {
            socket.join_multicast_v4(&GROUP, &on)?;
        }
        Ok(LazyUdpSocket::with_ring(socket, DEFAULT_RING_BYTES))
    }

    /// Counts what was received, of which `last` is the last; returns how much that is in all.
    fn count(&self, count: u64, last: &[u8], shared: &SharedCounters) -> u64 {
        let before = slots::add(shared, slots::DELIVERED, count);
        if self.stamped
            && before / AGE_SAMPLE != (before + count) / AGE_SAMPLE
            && let Some(stamp) = Stamp::parse(last)
        {
            let age = monotonic_now().0.saturating_sub(stamp.sent_ns);
            histogram::record(shared, slots::HISTOGRAM, age);
        }
        before + count
    }
}

fn batches(socket: &LazyUdpSocket, received: impl Fn(u64, &[u8])) -> io::Result<()> {
    if socket.ordinary().is_none() {
        let mut last = Vec::new();
        loop {
            let count = socket.recv_batch(BATCH, |datagram| {
                last.clear();
                last.extend_from_slice(datagram.payload);
            })?;
            received(count as u64, &last);
        }
    }
    let mut buffers = vec![[0_u8; 2048]; BATCH];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    loop {
        let (mut count, mut last_len) = (0, 0);
        {
            let mut slices: Vec<_> =
                buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
            let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_WAITFORONE);
            for message in recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None)? {
                count += 1;
                last_len = message.bytes;
            }
        }
        if count > 0 {
            received(count as u64, &buffers[count - 1][..last_len]);
        }
    }
}

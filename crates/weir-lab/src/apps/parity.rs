//! The clients of the lab's own conversations: as plain programs would have them, by one socket or many.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::net::sockopt::{self, Timeout};
use serde::{Deserialize, Serialize};
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use super::sockets::{allow_many, any_udp, at_port, connect_tcp, connect_udp, each_ready};
use super::tcp::CHUNK_BYTES;
use crate::error::{Result, cannot};

/// Datagrams under way: well below what the ring (256) and a buffer of the default size hold, also on a
/// veth with native XDP, which charges a page and more for each.
pub const WINDOW: u64 = 32;
/// An answer that takes so long does not come.
const PATIENCE: Duration = Duration::from_secs(1);

/// Payload of the largest datagram that an Ethernet frame of 1,500 bytes carries.
pub const DATAGRAM_BYTES: usize = 1472;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Round trip of one byte by UDP, microseconds.
    UdpRoundTrip,
    /// Payload that a sliding window of full datagrams brings, Mbit/s.
    UdpWindow,
    /// Round trip of one byte by TCP, microseconds.
    TcpRoundTrip,
    /// Payload of TCP, Mbit/s.
    TcpStream,
}

impl Measure {
    /// All.
    pub const ALL: [Self; 4] =
        [Self::UdpRoundTrip, Self::UdpWindow, Self::TcpRoundTrip, Self::TcpStream];

    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpRoundTrip => "udp-round-trip",
            Self::UdpWindow => "udp-window",
            Self::TcpRoundTrip => "tcp-round-trip",
            Self::TcpStream => "tcp-stream",
        }
    }

    /// Whether less is better.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::TcpRoundTrip)
    }

    /// Whether it is by UDP.
    pub const fn is_udp(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::UdpWindow)
    }
}

/// Which conversation, and by how many sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talk {
    /// What.
    pub measure: Measure,
    /// How many sockets at either end.
    pub flows: u16,
}

/// The client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    pub(crate) talk: Talk,
    pub(crate) server: SocketAddr,
}

impl Client {
    /// Sends until it is killed, or told by [`slots::STOP`] to send no more; stays then, so that its
    /// connections do, until it is killed.
    pub fn run(&self, shared: &SharedCounters) -> Result<()> {
        self.ask(shared).map_err(cannot("talk to", self.server))
    }

    fn ask(&self, shared: &SharedCounters) -> io::Result<()> {
        allow_many()?;
        let sockets: Vec<OwnedFd> = if self.talk.measure.is_udp() {
            let servers = (0..self.talk.flows).map(|offset| at_port(self.server, offset));
            connect_udp(servers)?.into_iter().map(Into::into).collect()
        } else {
            connect_tcp(self.server, self.talk.flows.into())?.into_iter().map(Into::into).collect()
        };
        slots::ready(shared);
        match self.talk.measure {
            Measure::UdpRoundTrip | Measure::TcpRoundTrip => round_trips(&sockets, shared),
            Measure::UdpWindow => window(&sockets, self.server.ip(), shared),
            Measure::TcpStream => stream(&sockets, shared),
        }
    }
}

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// One byte there and back, by one socket after the other.
fn round_trips(sockets: &[OwnedFd], shared: &SharedCounters) -> io::Result<()> {
    for socket in sockets {
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(PATIENCE))?;
    }
    let mut buffer = [0; 16];
    for socket in sockets.iter().cycle() {
        if slots::is_set(shared, slots::STOP) {
            break;
        }
        let began = Instant::now();
        write(socket, &[0])?;
        slots::add(shared, slots::SENT, 1);
        match read(socket, &mut buffer[..]) {
            Ok(_) => {
                slots::took(shared, began.elapsed());
            }
            Err(Errno::AGAIN) => drop(slots::add(shared, slots::LOST, 1)),
            Err(error) => return Err(error.into()),
        }
    }
    stay()
}

/// Full datagrams, never more than [`WINDOW`] of which the receiver has not told.
fn window(sockets: &[OwnedFd], server: IpAddr, shared: &SharedCounters) -> io::Result<()> {
    let told = any_udp(server)?;
    told.set_read_timeout(Some(PATIENCE))?;
    let mut datagram = [0; DATAGRAM_BYTES];
    datagram[..2].copy_from_slice(&told.local_addr()?.port().to_be_bytes());
    let (mut sent, mut received) = (0_u64, 0_u64);
    while !slots::is_set(shared, slots::STOP) {
        while sent - received < WINDOW {
            write(&sockets[sent as usize % sockets.len()], &datagram)?;
            sent += 1;
            shared.get(slots::SENT).store(sent, Ordering::Relaxed);
        }
        let mut count = [0; 8];
        match told.recv(&mut count) {
            Ok(_) => received = received.max(u64::from_be_bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slots::add(shared, slots::LOST, 1);
                received = sent;
            }
            Err(error) => return Err(error),
        }
    }
    stay()
}

/// As much as the connections take.
fn stream(sockets: &[OwnedFd], shared: &SharedCounters) -> io::Result<()> {
    // One is waited for by the call that writes.
    for socket in sockets.iter().filter(|_| sockets.len() > 1) {
        ioctl_fionbio(socket, true)?;
    }
    let chunk = vec![0; CHUNK_BYTES];
    each_ready(sockets, EventFlags::OUT, |index| {
        if slots::is_set(shared, slots::STOP) {
            stay();
        }
        match write(&sockets[index], &chunk) {
            Ok(len) => drop(slots::add(shared, slots::SENT, len as u64)),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    })
}

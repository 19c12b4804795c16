//! The clients of the lab's own conversations: as plain programs would have them, by one socket or many.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, read, write};
use rustix::net::sockopt::{self, Timeout};
use serde::{Deserialize, Serialize};
use weir_bpf::sys::shared::SharedCounters;

use super::slots;
use super::sockets::{allow_many, any_udp, at_port, connect_tcp, connect_udp, each_ready, stay};
use super::tcp::CHUNK_BYTES;

/// Datagrams under way: well below what the ring (256) and a buffer of the default size hold, also on a
/// veth with native XDP, which charges a page and more for each.
pub const WINDOW: u64 = 32;
/// An answer that takes so long does not come.
const PATIENCE: Duration = Duration::from_secs(1);

/// Payload of the largest datagram that an Ethernet frame of 1,500 bytes carries.
pub const DATAGRAM_BYTES: usize = 1472;

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
    pub const ALL: [Self; 4] =
        [Self::UdpRoundTrip, Self::UdpWindow, Self::TcpRoundTrip, Self::TcpStream];

    pub const fn name(self) -> &'static str {
        ["udp-round-trip", "udp-window", "tcp-round-trip", "tcp-stream"][self as usize]
    }

    /// Whether less is better.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::TcpRoundTrip)
    }

    pub const fn is_udp(self) -> bool {
        matches!(self, Self::UdpRoundTrip | Self::UdpWindow)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talk {
    pub measure: Measure,
    /// How many sockets at either end.
    pub flows: u16,
}

/// Sends until it is killed, or told by [`slots::STOP`] to send no more; stays then, so that its connections
/// do, until it is killed.
pub fn converse(
    Talk { measure, flows }: Talk,
    server: SocketAddr,
    shared: &SharedCounters,
) -> io::Result<()> {
    let udp = || connect_udp((0..flows).map(|offset| at_port(server, offset)));
    let tcp = || connect_tcp(server, flows.into());
    allow_many()?;
    match measure {
        Measure::UdpRoundTrip => round_trips(&udp()?, shared),
        Measure::UdpWindow => window(&udp()?, server.ip(), shared),
        Measure::TcpRoundTrip => round_trips(&tcp()?, shared),
        Measure::TcpStream => stream(&tcp()?, shared),
    }?;
    stay()
}

/// One byte there and back, by one socket after the other.
fn round_trips(sockets: &[impl AsFd], shared: &SharedCounters) -> io::Result<()> {
    for socket in sockets {
        sockopt::set_socket_timeout(socket, Timeout::Recv, Some(PATIENCE))?;
    }
    let mut buffer = [0; 16];
    slots::ready(shared);
    for socket in sockets.iter().cycle() {
        if slots::is_set(shared, slots::STOP) {
            return Ok(());
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
    Ok(())
}

/// Full datagrams, never more than [`WINDOW`] of which the receiver has not told.
fn window(sockets: &[UdpSocket], server: IpAddr, shared: &SharedCounters) -> io::Result<()> {
    let told = any_udp(server)?;
    told.set_read_timeout(Some(PATIENCE))?;
    let mut datagram = [0; DATAGRAM_BYTES];
    datagram[..2].copy_from_slice(&told.local_addr()?.port().to_be_bytes());
    let (mut sent, mut received) = (0_u64, 0_u64);
    slots::ready(shared);
    while !slots::is_set(shared, slots::STOP) {
        while sent - received < WINDOW {
            sockets[sent as usize % sockets.len()].send(&datagram)?;
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
    Ok(())
}

/// As much as the connections take.
fn stream(sockets: &[TcpStream], shared: &SharedCounters) -> io::Result<()> {
    // One is waited for by the call that writes.
    sockets.iter().try_for_each(|socket| socket.set_nonblocking(sockets.len() > 1))?;
    let chunk = vec![0; CHUNK_BYTES];
    slots::ready(shared);
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

//! The clients of the lab's own conversations with a UDP server: as plain programs would have them, by one socket.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_bpf::sys::shared_memory::SharedCounters;

use super::slots;
use super::sockets::{connect_udp, stay};

/// Datagrams under way: well below what the ring (256) and a buffer of the default size hold, also on a
/// veth with native XDP, which charges a page and more for each.
const WINDOW: u64 = 32;
/// An answer that takes so long does not come.
const PATIENCE: Duration = Duration::from_secs(1);

/// Payload of the largest datagram that an Ethernet frame of 1,500 bytes carries.
pub const DATAGRAM_BYTES: usize = 1472;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Talk {
    /// One byte there and back.
    RoundTrip,
    /// Full datagrams, never more than [`WINDOW`] of which the receiver has not told.
    Window,
}

/// Sends until it is killed, or told by [`slots::STOP`] to send no more; stays then, so that its socket
/// does, until it is killed.
pub fn converse(talk: Talk, server: SocketAddr, shared: &SharedCounters) -> io::Result<()> {
    let socket = connect_udp(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    slots::ready(shared);
    match talk {
        Talk::RoundTrip => round_trips(&socket, shared),
        Talk::Window => window(&socket, shared),
    }?;
    stay()
}

/// What the server says, if it comes in time.
fn answer(socket: &UdpSocket, buffer: &mut [u8], shared: &SharedCounters) -> io::Result<bool> {
    match socket.recv(buffer) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            slots::add(shared, slots::LOST, 1);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn round_trips(socket: &UdpSocket, shared: &SharedCounters) -> io::Result<()> {
    while !slots::is_set(shared, slots::STOP) {
        let began = Instant::now();
        socket.send(&[0])?;
        slots::add(shared, slots::SENT, 1);
        if answer(socket, &mut [0; 16], shared)? {
            slots::took(shared, began.elapsed());
        }
    }
    Ok(())
}

fn window(socket: &UdpSocket, shared: &SharedCounters) -> io::Result<()> {
    let (mut sent, mut received) = (0_u64, 0_u64);
    while !slots::is_set(shared, slots::STOP) {
        while sent - received < WINDOW {
            socket.send(&[0; DATAGRAM_BYTES])?;
            sent += 1;
            shared.get(slots::SENT).store(sent, Ordering::Relaxed);
        }
        let mut count = [0; 8];
        let told = answer(socket, &mut count, shared)?;
        received = if told { received.max(u64::from_be_bytes(count)) } else { sent };
    }
    Ok(())
}

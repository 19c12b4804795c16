//! The clients of the lab's own conversations with a UDP server: as plain programs would have them, by one socket.

use std::io;
use std::net::SocketAddr;
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
    let (bytes, window) = match talk {
        Talk::RoundTrip => (1, 1),
        Talk::Window => (DATAGRAM_BYTES, WINDOW),
    };
    let (mut sent, mut received) = (0_u64, 0_u64);
    while !slots::is_set(shared, slots::STOP) {
        let began = Instant::now();
        while sent - received < window {
            socket.send(&[0; DATAGRAM_BYTES][..bytes])?;
            sent += 1;
            slots::add(shared, slots::SENT, 1);
        }
        let mut answer = [0; 8];
        let told = match socket.recv(&mut answer) {
            Ok(_) if talk == Talk::Window => u64::from_be_bytes(answer),
            Ok(_) => {
                slots::took(shared, began.elapsed());
                sent
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slots::add(shared, slots::LOST, 1);
                sent
            }
            Err(error) => return Err(error),
        };
        received = received.max(told);
    }
    stay()
}

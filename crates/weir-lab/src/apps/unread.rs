//! The sockets that gate-cost sends to: some full, some with room, none ever read.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use weir_bpf::sys::shared_memory::SharedCounters;

use super::slots;
use super::sockets::stay;

/// How many sockets of each sort there are: 2 to this power, on ports in a row.
pub const SOCKET_BITS: u8 = 4;
/// First port of those that are full; its low bits are clear.
pub const FULL_PORT: u16 = 0x2000;
/// First port of those that have room.
pub const ROOM_PORT: u16 = 0x3000;

/// Holds the sockets of both addresses open until it is killed. The UDP sockets that are to be full fill
/// with the first packets; the listeners are full at once.
pub fn run(addresses: [IpAddr; 2], shared: &SharedCounters) -> io::Result<()> {
    let ports = |first| first..first + (1 << SOCKET_BITS);
    let open = |address| {
        let bind = |port| UdpSocket::bind((address, port));
        let udp =
            ports(FULL_PORT).chain(ports(ROOM_PORT)).map(bind).collect::<io::Result<Vec<_>>>();
        let full = SocketAddr::new(address, FULL_PORT);
        let listeners = [TcpListener::bind(full)?, TcpListener::bind((address, ROOM_PORT))?];
        // Over its limit (sk_acceptq_is_full()): one waits to be accepted, and none may.
        rustix::net::listen(&listeners[0], 0)?;
        Ok((udp?, listeners, TcpStream::connect(full)?))
    };
    let _held = addresses.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
    slots::ready(shared);
    stay()
}

//! The sockets that gate-cost sends to: some full, some with room, none ever read. The controller itself
//! holds them.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::error::{Result, cannot};

/// How many sockets of each sort there are: 2 to this power, on ports in a row.
pub const SOCKET_BITS: u8 = 4;
/// First port of those that are full; its low bits are clear.
pub const FULL_PORT: u16 = 0x2000;
/// First port of those that have room.
pub const ROOM_PORT: u16 = 0x3000;

/// A connection within one host takes microseconds; a lost SYN is sent again only after a second.
const ATTEMPT: Duration = Duration::from_millis(200);
/// If the listener was not ready for it.
const ATTEMPTS: u32 = 25;

/// The sockets of one family. They stay open until it is dropped.
pub struct Targets {
    _udp: Vec<UdpSocket>,
    _listeners: [TcpListener; 2],
    _client: TcpStream,
}

impl Targets {
    /// Opens them on a host's address, in the calling thread's network namespace. The UDP sockets
    /// that are to be full fill with the first packets; the listener is full at once.
    pub fn open(address: IpAddr) -> Result<Self> {
        Self::try_open(address).map_err(cannot("open the sockets of", address))
    }

    fn try_open(address: IpAddr) -> io::Result<Self> {
        let ports = |first| first..first + (1 << SOCKET_BITS);
        let bind = |port| UdpSocket::bind((address, port));
        let udp = ports(FULL_PORT).chain(ports(ROOM_PORT)).map(bind).collect::<io::Result<_>>()?;
        let full = SocketAddr::new(address, FULL_PORT);
        let listeners = [TcpListener::bind(full)?, TcpListener::bind((address, ROOM_PORT))?];
        // Over its limit (sk_acceptq_is_full()): one waits to be accepted, and none may.
        rustix::net::listen(&listeners[0], 0)?;
        Ok(Self { _udp: udp, _listeners: listeners, _client: connect(full)? })
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let attempt = || TcpStream::connect_timeout(&address, ATTEMPT);
    (1..ATTEMPTS).fold(attempt(), |connected, _| connected.or_else(|_| attempt()))
}

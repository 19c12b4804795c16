//! The sockets that gate-cost sends to: some full, some with room, none ever read. The controller itself
//! holds them, so that it can look them up.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How many sockets of each sort there are: 2 to this power, on ports in a row.
pub const SOCKET_BITS: u8 = 4;
/// First port of those that are full; its low bits are clear.
pub const FULL_PORT: u16 = 0x2000;
/// First port of those that have room.
pub const ROOM_PORT: u16 = 0x3000;
/// A port that nobody listens on.
pub const CLOSED_PORT: u16 = 0x4000;

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A connection within one host takes microseconds; a lost SYN is sent again only after a second.
const ATTEMPT: Duration = Duration::from_millis(200);

/// The sockets of one family. They stay open until it is dropped.
pub struct Targets {
    _udp: Vec<UdpSocket>,
    _listeners: Vec<TcpListener>,
    _clients: Vec<TcpStream>,
    /// A TCP connection to the listener with room: its client's end and its server's.
    pub connection: (SocketAddr, SocketAddr),
}

impl Targets {
    /// Opens them on a host's address, in the calling thread's network namespace. The UDP sockets
    /// that are to be full fill with the first packets; the listener is full at once.
    ///
    /// # Errors
    /// Where the kernel refuses one.
    pub fn open(address: IpAddr) -> Result<Self> {
        let mut udp = Vec::new();
        for port in ports(FULL_PORT).chain(ports(ROOM_PORT)) {
            let bind = SocketAddr::new(address, port);
            udp.push(UdpSocket::bind(bind).map_err(|s| Error::io("bind", bind.to_string(), s))?);
        }
        let full = SocketAddr::new(address, FULL_PORT);
        let room = SocketAddr::new(address, ROOM_PORT);
        let listeners = vec![listen(full)?, listen(room)?];
        let connection = connect(room)?;
        let client = local(&connection)?;
        let mut clients = vec![connection];
        // Over its limit (sk_acceptq_is_full()): one waits to be accepted, and none may.
        rustix::net::listen(&listeners[0], 0)
            .map_err(|source| Error::io("limit the queue of", full.to_string(), source))?;
        clients.push(connect(full)?);
        Ok(Self { _udp: udp, _listeners: listeners, _clients: clients, connection: (client, room) })
    }
}

fn ports(first: u16) -> impl Iterator<Item = u16> {
    first..first + (1 << SOCKET_BITS)
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|source| Error::io("listen on", address.to_string(), source))
}

/// Connects, and again if the listener was not ready for it.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_DEADLINE;
    loop {
        match TcpStream::connect_timeout(&address, ATTEMPT) {
            Ok(stream) => return Ok(stream),
            Err(source) if Instant::now() > deadline => {
                return Err(Error::io("connect to", address.to_string(), source));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn local(stream: &TcpStream) -> Result<SocketAddr> {
    stream.local_addr().map_err(|source| Error::io("read the address of", "a connection", source))
}

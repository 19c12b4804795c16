//! [`LazyUdpSocket`].

use std::io;
use std::net::{SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::net::SocketAddrAny;

use crate::attach::Ordinary;
use crate::channel::Channel;
use crate::datagram::Datagram;
use crate::message::wait;

/// Bytes of a ring unless something else is asked for: some 40,000 small packets.
pub const DEFAULT_RING_BYTES: u64 = 4 << 20;

/// A UDP socket with the surface of [`std::net::UdpSocket`], whose packets wait on a ring, unprocessed, until they
/// are received, where weir offers that; and an ordinary one where it does not. To send, and for all else, it is the
/// kernel's socket, which it dereferences to. What is received from that directly, or from a clone of it, is missed
/// here, and what is on the ring is missed there.
///
/// ```no_run
/// let socket = weir_socket::LazyUdpSocket::bind("198.18.0.1:9995")?;
/// if let Some(why) = socket.ordinary() {
///     eprintln!("an ordinary socket: {why}");
/// }
/// let mut buffer = [0; 2048];
/// loop {
///     let (length, from) = socket.recv_from(&mut buffer)?;
///     println!("{length} bytes from {from}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LazyUdpSocket {
    socket: UdpSocket,
    channel: Result<Channel, Ordinary>,
    v6: bool,
}

impl LazyUdpSocket {
    /// Binds a socket and makes it lazy, where that can be.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        UdpSocket::bind(address).map(|socket| Self::with_ring(socket, DEFAULT_RING_BYTES))
    }

    /// Makes a bound socket lazy, where that can be, with a ring of so many bytes: a power of two from 64 KiB to
    /// 64 MiB.
    pub fn with_ring(socket: UdpSocket, ring_bytes: u64) -> Self {
        let channel = Channel::attach(socket.as_fd(), ring_bytes);
        let v6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        Self { socket, channel, v6 }
    }

    /// Why it is an ordinary socket; `None` if it is lazy, or was.
    pub fn ordinary(&self) -> Option<&Ordinary> {
        self.channel.as_ref().err()
    }

    /// Has weir leave it: within milliseconds, its packets go to the kernel's socket. What is on the ring by then is
    /// received first, so nothing is lost.
    pub fn leave(&self) {
        if let Ok(channel) = &self.channel {
            channel.leave();
        }
    }

    /// Datagrams that came with a wrong checksum, which were dropped in the receive call as the kernel drops them.
    pub fn dropped(&self) -> u64 {
        self.channel.as_ref().map_or(0, Channel::dropped)
    }

    /// As [`UdpSocket::recv_from`].
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive(buffer, false)?;
        Ok((length, from.ok_or(io::ErrorKind::InvalidInput)?))
    }

    /// As [`UdpSocket::peek_from`].
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive(buffer, true)?;
        Ok((length, from.ok_or(io::ErrorKind::InvalidInput)?))
    }

    /// As [`UdpSocket::recv`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, false).map(|(length, _)| length)
    }

    /// As [`UdpSocket::peek`].
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, true).map(|(length, _)| length)
    }

    /// No sender: the socket is shut down.
    fn receive(&self, buffer: &mut [u8], peek: bool) -> io::Result<(usize, Option<SocketAddr>)> {
        let Ok(channel) = &self.channel else {
            return self.read_kernel(buffer, peek, true);
        };
        let buffer = std::cell::RefCell::new(buffer);
        let v6 = self.v6;
        channel.receive(
            self.socket.as_fd(),
            peek,
            || wait(self.socket.as_fd(), 0),
            |datagram| {
                let mut buffer = buffer.borrow_mut();
                let length = datagram.payload.len().min(buffer.len());
                buffer[..length].copy_from_slice(&datagram.payload[..length]);
                (length, Some(as_seen_by(v6, datagram.source)))
            },
            |may_block| self.read_kernel(&mut buffer.borrow_mut(), peek, may_block),
        )
    }

    /// By the C library's call: the preload library, if it is there, has made the socket lazy before this could, and
    /// stands in for that.
    #[allow(unsafe_code)]
    fn read_kernel(
        &self,
        buffer: &mut [u8],
        peek: bool,
        may_block: bool,
    ) -> io::Result<(usize, Option<SocketAddr>)> {
        const SIZE: libc::socklen_t = size_of::<libc::sockaddr_storage>() as _;
        let flags =
            if peek { libc::MSG_PEEK } else { 0 } | if may_block { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: zeros are an address of no family.
        let mut from: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let (mut size, from) = (SIZE, (&raw mut from).cast());
        let (fd, at) = (self.socket.as_raw_fd(), buffer.as_mut_ptr().cast());
        // SAFETY: the kernel writes no more to either than there is.
        let received = unsafe { libc::recvfrom(fd, at, buffer.len(), flags, from, &raw mut size) };
        let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: what the kernel has written, and zeros; so zeros if the socket is shut down.
        let from = unsafe { SocketAddrAny::read(from.cast(), SIZE) };
        Ok((length, SocketAddr::try_from(from).ok()))
    }

    /// Calls `each` with what waits, at most `most` datagrams at once; waits for the first as
    /// [`recv_from`](LazyUdpSocket::recv_from) does. How many there were; 0 if it is shut down. Other receivers of this
    /// socket wait meanwhile; to `each` itself, a receive says `WouldBlock`. Those of the kernel's socket, and so all of
    /// an ordinary one, have no [`Arrival`](crate::Arrival).
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv_batch(
        &self,
        most: usize,
        mut each: impl FnMut(&Datagram<'_>),
    ) -> io::Result<usize> {
        if most == 0 {
            return Ok(0);
        }
        let Ok(channel) = &self.channel else {
            return self.read_kernel_batch(&mut each, true);
        };
        let v6 = self.v6;
        let mut lazily = |datagram: &Datagram<'_>| {
            each(&Datagram { source: as_seen_by(v6, datagram.source), ..*datagram });
        };
        let count = channel.receive_waiting(self.socket.as_fd(), most, &mut lazily);
        if count > 0 {
            return Ok(count);
        }
        let each = std::cell::RefCell::new(&mut lazily);
        channel.receive(
            self.socket.as_fd(),
            false,
            || wait(self.socket.as_fd(), 0),
            |datagram| {
                (each.borrow_mut())(datagram);
                1
            },
            |may_block| self.read_kernel_batch(&mut *each.borrow_mut(), may_block),
        )
    }

    fn read_kernel_batch(
        &self,
        each: &mut impl FnMut(&Datagram<'_>),
        may_block: bool,
    ) -> io::Result<usize> {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        let (length, source) = self.read_kernel(&mut buffer, false, may_block)?;
        let Some(source) = source else { return Ok(0) };
        each(&Datagram { payload: &buffer[..length], source, arrival: None });
        Ok(1)
    }
}

/// A descriptor that is readable while a receive call would not block, for poll(2), epoll(7) and the like; not
/// edge-triggered. To read from it has no use. What is to be sent by, or set, is the kernel's socket, which
/// `LazyUdpSocket` dereferences to: `(*socket).as_fd()`.
impl AsFd for LazyUdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_ref().map_or(self.socket.as_fd(), Channel::ready_fd)
    }
}

/// As [`as_fd`](LazyUdpSocket::as_fd): to be polled. The kernel's socket is `(*socket).as_raw_fd()`.
impl AsRawFd for LazyUdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Deref for LazyUdpSocket {
    type Target = UdpSocket;

    fn deref(&self) -> &UdpSocket {
        &self.socket
    }
}

/// An IPv6 socket that takes IPv4, too, sees its addresses mapped.
pub(crate) fn as_seen_by(v6: bool, address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v6 => {
            SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
        }
        other => other,
    }
}

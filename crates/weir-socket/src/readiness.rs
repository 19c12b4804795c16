//! [`AsyncLazyUdpSocket`], for tokio.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Deref;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::datagram::Datagram;
use crate::socket::LazyUdpSocket;

/// A [`LazyUdpSocket`] that tokio's tasks wait for. For all else than its own calls, it is the kernel's socket, which
/// does not block now.
///
/// ```no_run
/// # async fn serve() -> std::io::Result<()> {
/// let socket = weir_socket::LazyUdpSocket::bind("198.18.0.1:8125")?;
/// let socket = weir_socket::AsyncLazyUdpSocket::new(socket)?;
/// loop {
///     let count = socket.recv_batch(64, |datagram| println!("{:?}", datagram.payload)).await?;
///     println!("{count} datagrams");
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncLazyUdpSocket(AsyncFd<LazyUdpSocket>);

impl AsyncLazyUdpSocket {
    /// Gives a socket to the current runtime.
    ///
    /// # Errors
    /// If the kernel refuses to poll it.
    ///
    /// # Panics
    /// As [`AsyncFd::register`], outside of a runtime with I/O enabled.
    #[allow(unsafe_code)]
    pub fn new(socket: LazyUdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // SAFETY: the socket has the descriptor as long as it lives, and it is not to be had by `&mut`.
        let polled = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self(polled?))
    }

    /// As [`LazyUdpSocket::recv_from`]. If it is cancelled, no datagram is lost.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.when_ready(|socket| socket.recv_from(buffer)).await
    }

    /// As [`LazyUdpSocket::recv_batch`]. If it is cancelled, no datagram is lost.
    pub async fn recv_batch(
        &self,
        most: usize,
        mut each: impl FnMut(&Datagram<'_>),
    ) -> io::Result<usize> {
        self.when_ready(|socket| socket.recv_batch(most, &mut each)).await
    }

    /// As [`UdpSocket::send_to`].
    pub async fn send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.when_writable(|socket| socket.send_to(payload, to)).await
    }

    /// As [`UdpSocket::send`].
    pub async fn send(&self, payload: &[u8]) -> io::Result<usize> {
        self.when_writable(|socket| socket.send(payload)).await
    }

    async fn when_writable(
        &self,
        send: impl Fn(&UdpSocket) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match send(self) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        // Seldom. The socket's own descriptor may be what is polled to receive.
        let socket = tokio::net::UdpSocket::from_std(self.try_clone()?)?;
        socket.async_io(Interest::WRITABLE, || send(self)).await
    }

    async fn when_ready<T>(
        &self,
        mut receive: impl FnMut(&LazyUdpSocket) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(received) = ready.try_io(|polled| receive(polled.get_ref())) {
                return received;
            }
        }
    }
}

impl Deref for AsyncLazyUdpSocket {
    type Target = LazyUdpSocket;

    fn deref(&self) -> &LazyUdpSocket {
        self.0.get_ref()
    }
}

//! The UDP applications: plain programs that do nothing special.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;

use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::traffic::Stamp;

use super::compute::{calibrated_loop, monotonic_ns};
use super::slots;
use crate::error::{Error, Result};
use crate::histogram;

/// One packet in this many has its age taken, so that reading the clock stays negligible.
const AGE_SAMPLE: u64 = 16;
/// Messages that `recvmmsg` takes at once.
const BATCH: usize = 32;

/// How an application receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Reader {
    /// A plain `recv()` loop.
    #[default]
    Recv,
    /// A `recvmmsg()` loop, 32 messages at once.
    Recvmmsg,
}

impl Reader {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recv => "recv",
            Self::Recvmmsg => "recvmmsg",
        }
    }
}

fn bind_udp(bind: SocketAddr, rcvbuf: usize) -> Result<UdpSocket> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let socket = UdpSocket::bind(bind).map_err(failed("bind"))?;
    if rcvbuf != 0 {
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, rcvbuf)
            .map_err(|source| Error::io("set the receive buffer of", bind.to_string(), source))?;
    }
    Ok(socket)
}

/// Counts what was received, of which `payload` is the last.
fn received(shared: &SharedCounters, count: u64, payload: &[u8]) {
    let before = shared.get(slots::DELIVERED).fetch_add(count, Ordering::Relaxed);
    if before / AGE_SAMPLE != (before + count) / AGE_SAMPLE
        && let Some(stamp) = Stamp::parse(payload)
    {
        let age = monotonic_ns().saturating_sub(stamp.sent_ns);
        histogram::record(shared, slots::HISTOGRAM, age);
    }
}

/// Sends each packet back, until it is killed.
///
/// # Errors
/// When the address is taken.
pub fn echo(bind: SocketAddr, rcvbuf: usize, shared: &SharedCounters) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let socket = bind_udp(bind, rcvbuf)?;
    shared.get(slots::READY).store(1, Ordering::Release);
    let mut buffer = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).map_err(failed("receive on"))?;
        received(shared, 1, &buffer[..len]);
        socket.send_to(&buffer[..len], from).map_err(failed("reply from"))?;
        shared.get(slots::REPLIED).fetch_add(1, Ordering::Relaxed);
    }
}

/// Receives until it is killed, and computes `passes` times for each packet.
///
/// # Errors
/// When the address is taken.
pub fn sink(
    bind: SocketAddr,
    (reader, rcvbuf, passes): (Reader, usize, u32),
    join: Option<(Ipv4Addr, Ipv4Addr)>,
    shared: &SharedCounters,
) -> Result<()> {
    let failed = |operation| move |source| Error::io(operation, bind.to_string(), source);
    let socket = bind_udp(bind, rcvbuf)?;
    if let Some((group, on)) = join {
        socket.join_multicast_v4(&group, &on).map_err(failed("join a group for"))?;
    }
    shared.get(slots::READY).store(1, Ordering::Release);
    let received = |count, payload: &[u8]| {
        received(shared, count, payload);
        for _ in 0..count * u64::from(passes) {
            std::hint::black_box(calibrated_loop(std::hint::black_box(1)));
        }
    };
    match reader {
        Reader::Recv => {
            let mut buffer = [0; 2048];
            loop {
                let len = socket.recv(&mut buffer).map_err(failed("receive on"))?;
                received(1, &buffer[..len]);
            }
        }
        Reader::Recvmmsg => batches(&socket, received).map_err(failed("receive on")),
    }
}

fn batches(socket: &UdpSocket, received: impl Fn(u64, &[u8])) -> std::io::Result<()> {
    use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

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

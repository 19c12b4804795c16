//! The three servers, plain programs, and their client.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;

use super::compute::monotonic_ns;
use super::slots;
use crate::error::{Error, Result};

/// What a call of the worker walks through: a good part of a second-level cache, as in LRP.
pub const WALK_BYTES: usize = 512 << 10;
/// Steps of the walk: a cache line each.
const LINES: usize = WALK_BYTES / 64;
/// How long the client waits for its sockets before it looks whether it is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Answers that the client takes from one socket before it looks at the next.
const TURN: usize = 16;

/// Walks that a call of the worker is: about 20 ms in a quick run, 100 ms in a full one.
pub const fn walks(quick: bool) -> u64 {
    if quick { 500 } else { 2500 }
}

fn failed(operation: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::io(operation, "RPCs", source)
}

/// A line that says which comes next, alone in its cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Place(usize);

/// Each call is so many walks through memory; every step depends on the one before it.
///
/// # Errors
/// Where the host refuses what it needs.
pub fn work(bind: SocketAddr, walks: u64, shared: &SharedCounters) -> Result<()> {
    // One cycle through all lines that no prefetcher follows: multiplication by 5, modulo a power of 2,
    // with an odd constant (Hull and Dobell).
    let lines: Vec<Place> = (0..LINES).map(|at| Place((at * 5 + 4099) % LINES)).collect();
    serve(bind, shared, |at: usize| (0..walks * LINES as u64).fold(at % LINES, |at, _| lines[at].0))
}

/// Each request is so many steps that depend on one another.
///
/// # Errors
/// Where the host refuses what it needs.
pub fn answer(bind: SocketAddr, steps: u64, shared: &SharedCounters) -> Result<()> {
    // Without the black box in each step the compiler finds a shorter way.
    let step = |x: usize, i: u64| std::hint::black_box(x.wrapping_mul(0x2545_f491) ^ i as usize);
    serve(bind, shared, |seed: usize| (0..steps).fold(seed, step))
}

fn serve(
    bind: SocketAddr,
    shared: &SharedCounters,
    compute: impl Fn(usize) -> usize,
) -> Result<()> {
    let socket = UdpSocket::bind(bind).map_err(failed("listen for"))?;
    shared.get(slots::READY).store(1, Ordering::Release);
    let mut buffer = [0; 64];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).map_err(failed("receive"))?;
        shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed);
        std::hint::black_box(compute(std::hint::black_box(1)));
        socket.send_to(&buffer[..len], from).map_err(failed("answer"))?;
        shared.get(slots::REPLIED).fetch_add(1, Ordering::Relaxed);
    }
}

/// The client: one call of the worker, and `outstanding` requests to each of `servers`, at any time, until
/// it is told by [`slots::STOP`] to send no more.
///
/// # Errors
/// Where the host refuses what it needs.
pub fn ask(
    worker: SocketAddr,
    servers: &[SocketAddr],
    outstanding: u32,
    shared: &SharedCounters,
) -> Result<()> {
    // Its CPU is the generator's, and it is to answer at once, whatever else runs there.
    sched::set_fifo_current_thread(1)?;
    let connect = |address: &SocketAddr| {
        let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    // The worker's first.
    let sockets: Vec<UdpSocket> = std::iter::once(&worker)
        .chain(servers)
        .map(connect)
        .collect::<std::io::Result<_>>()
        .map_err(failed("send"))?;
    let send = |socket: &UdpSocket| -> Result<()> {
        socket.send(&[0; 14]).map_err(failed("send"))?;
        shared.get(slots::SENT).fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    shared.get(slots::READY).store(1, Ordering::Release);
    send(&sockets[0])?;
    for _ in 0..outstanding {
        for socket in &sockets[1..] {
            send(socket)?;
        }
    }
    loop {
        let mut fds: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(source) => return Err(Error::io("wait for", "RPCs", source)),
        }
        let stopped = shared.get(slots::STOP).load(Ordering::Relaxed) != 0;
        for (index, socket) in sockets.iter().enumerate() {
            for _ in 0..TURN {
                match socket.recv(&mut [0; 64]) {
                    Ok(_) if index == 0 => {
                        shared.get(slots::LAST_CALL_NS).store(monotonic_ns(), Ordering::Relaxed);
                        shared.get(slots::CALLS).fetch_add(1, Ordering::Release);
                    }
                    Ok(_) => {
                        shared.get(slots::DELIVERED).fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(failed("receive")(error)),
                }
                if !stopped {
                    send(socket)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LINES;

    #[test]
    fn the_walk_goes_through_every_line() {
        let (mut at, mut steps) = (0, 0);
        loop {
            at = (at * 5 + 4099) % LINES;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, LINES);
    }
}

//! The client of the RPC servers.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use weir_bpf::accounts::monotonic_now;
use weir_bpf::sys::shared_memory::SharedCounters;

use super::compute::run_first;
use super::slots;
use super::sockets::connect_udp;

/// Answers that the client takes from one socket before it looks at the next.
const TURN: usize = 16;

/// Has one call of the worker and so many requests to each other server under way at any time, until it is
/// told by [`slots::STOP`] to send no more.
pub fn call(
    worker: SocketAddr,
    servers: impl Iterator<Item = SocketAddr>,
    outstanding: u32,
    shared: &SharedCounters,
) -> io::Result<()> {
    // Its CPU is the generator's, and it is to answer at once, whatever else runs there.
    run_first()?;
    // The worker's first.
    let sockets = std::iter::once(worker).chain(servers).map(connect_udp);
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    let send = |socket: &UdpSocket| -> io::Result<()> {
        socket.send(&[0; 14])?;
        slots::add(shared, slots::SENT, 1);
        Ok(())
    };
    slots::ready(shared);
    send(&sockets[0])?;
    for _ in 0..outstanding {
        sockets[1..].iter().try_for_each(send)?;
    }
    let mut polled: Vec<_> = sockets.iter().map(|it| PollFd::new(it, PollFlags::IN)).collect();
    loop {
        retry_on_intr(|| poll(&mut polled, None))?;
        let ready = |(_, of): &(usize, &PollFd<'_>)| of.revents().contains(PollFlags::IN);
        for (index, _) in polled.iter().enumerate().filter(ready) {
            let socket = &sockets[index];
            for _ in 0..TURN {
                match recv(socket, &mut [0; 64][..], RecvFlags::DONTWAIT) {
                    Ok(_) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
                if index == 0 {
                    shared.get(slots::LAST_CALL_NS).store(monotonic_now().0, Ordering::Relaxed);
                    shared.get(slots::CALLS).fetch_add(1, Ordering::Release);
                } else {
                    slots::add(shared, slots::DELIVERED, 1);
                }
                if !slots::is_set(shared, slots::STOP) {
                    send(socket)?;
                }
            }
        }
    }
}

//! Which sockets become lazy: UDP sockets that are bound to a server's port, but not on the loopback interface.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use weir_socket::message::borrow;
use weir_socket::protocol::RING_BYTES_MAX;
use weir_socket::{Channel, DEFAULT_RING_BYTES};

use crate::past;
use crate::say::{say, say_once};
use crate::slots::{self, Lazy};

/// Ports whose sockets may become lazy, such as `53,8125`; if it is not set, all below those of clients.
const PORTS: &str = "WEIR_PORTS";
/// The first and the last port that the kernel gives to clients.
const CLIENT_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The first of them, where a program has no /proc: the kernel's default.
const CLIENT_PORTS_FROM: u16 = 32768;
/// Bytes of a ring.
const RING: &str = "WEIR_RING_BYTES";

/// A socket has been bound.
pub(crate) fn consider(fd: c_int) {
    let Some(address) = address_of(fd) else { return };
    let port = address.port();
    if slots::has_place(fd)
        && is_wanted(port)
        && let Err(why) = make_lazy(fd, address)
    {
        static FURTHER: AtomicU32 = AtomicU32::new(0);
        match FURTHER.fetch_add(1, Ordering::Relaxed) {
            0 => say_once(&format!("UDP port {port} has an ordinary socket: {why}")),
            1 => say("more UDP sockets are ordinary ones, and are not named"),
            _ => {}
        }
    }
}

fn make_lazy(fd: c_int, address: SocketAddr) -> Result<(), String> {
    if let Some(why) = past::is_past() {
        return Err(why.into());
    }
    let sharing = slots::sharing(address);
    if sharing >= sharing_max(fd) {
        return Err(format!(
            "{sharing} of this process share its address and are lazy. More may not be, lest clients decide how many: one \
             is, or with SO_REUSEPORT as many as there are CPUs; so start no more threads than those"
        ));
    }
    let all = slots::with_duplicates(fd);
    if all.iter().any(|fd| slots::WATCHED.has(*fd)) {
        return Err("it was in an epoll set before it was bound".into());
    }
    let bytes = ring_bytes(fd)?;
    let channel = Channel::attach_untold(borrow(fd), bytes).map_err(|why| why.to_string())?;
    let lazy = Arc::new(Lazy::new(channel, fd, address));
    all.into_iter().for_each(|fd| slots::put(fd, Arc::clone(&lazy)));
    Ok(())
}

/// As many as the user says; else no fewer than the program has asked the kernel for.
fn ring_bytes(fd: c_int) -> Result<u64, String> {
    if let Ok(said) = std::env::var(RING) {
        let problem = || format!("{RING}={said:?} is no number of bytes, such as 4194304");
        return said.parse().map_err(|_| problem());
    }
    let asked = sockopt::socket_recv_buffer_size(borrow(fd)).unwrap_or_default() as u64;
    Ok(asked.next_power_of_two().clamp(DEFAULT_RING_BYTES, RING_BYTES_MAX))
}

/// How many lazy sockets of this process may share an address before another is an ordinary one. A server may have a
/// group of them, a thread each. One that makes a socket for each client lets outsiders decide how many there are; and
/// until that is connected, it is given all clients' datagrams.
fn sharing_max(fd: c_int) -> usize {
    if !sockopt::socket_reuseport(borrow(fd)).unwrap_or_default() {
        return 1;
    }
    // SAFETY: only asks.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1)
}

/// The address and the port that a UDP socket is bound to.
fn address_of(fd: c_int) -> Option<SocketAddr> {
    let socket = borrow(fd);
    let family = sockopt::socket_domain(socket).ok()?;
    if ![AddressFamily::INET, AddressFamily::INET6].contains(&family)
        || sockopt::socket_type(socket).ok()? != SocketType::DGRAM
        || sockopt::socket_protocol(socket).ok()? != Some(ipproto::UDP)
    {
        return None;
    }
    let address = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
    (!address.ip().is_loopback() && address.port() != 0).then_some(address)
}

fn is_wanted(port: u16) -> bool {
    match std::env::var(PORTS) {
        Ok(ports) => ports.split(',').map(str::trim).filter(|each| !each.is_empty()).any(|each| {
            let wanted: Result<u16, _> = each.parse();
            if wanted.is_err() {
                say_once(&format!("{PORTS}={ports:?} is no list of ports, such as 53,8125"));
            }
            wanted == Ok(port)
        }),
        Err(_) => port < client_ports_from().unwrap_or(CLIENT_PORTS_FROM),
    }
}

/// A resolver binds to another port at random for each query that it sends, and gets one answer there.
fn client_ports_from() -> Option<u16> {
    std::fs::read_to_string(CLIENT_PORTS).ok()?.split_whitespace().next()?.parse().ok()
}

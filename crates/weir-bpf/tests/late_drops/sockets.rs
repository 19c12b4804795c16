//! The sockets of each kind of channel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use crate::common::{NEAR_IP4, Network};

pub const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// The group's Ethernet address (RFC 1112, section 6.4).
pub const GROUP_MAC: [u8; 6] = [0x01, 0x00, 0x5e, 1, 2, 3];

/// A socket of the host under test that never waits.
pub fn plain(network: &Network, address: &str, port: u16) -> UdpSocket {
    ready(network.bind(address, port))
}

fn ready(socket: impl Into<UdpSocket>) -> UdpSocket {
    let socket = socket.into();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Made in the namespace of the host under test, prepared, and bound.
fn prepared(
    network: &Network,
    address: SocketAddr,
    prepare: impl Fn(&OwnedFd) + Sync,
) -> UdpSocket {
    let make = || {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::DGRAM, None).unwrap();
        prepare(&socket);
        bind(&socket, &address).unwrap();
        socket
    };
    ready(network.near.run(make).unwrap())
}

fn near(port: u16) -> SocketAddr {
    SocketAddr::new(NEAR_IP4.parse().unwrap(), port)
}

pub fn connected(network: &Network, port: u16, peer: SocketAddr) -> UdpSocket {
    let socket = plain(network, NEAR_IP4, port);
    socket.connect(peer).unwrap();
    socket
}

fn reuseport(network: &Network, port: u16) -> UdpSocket {
    prepared(network, near(port), |socket| sockopt::set_socket_reuseport(socket, true).unwrap())
}

pub fn reuseport_group(network: &Network, port: u16, members: u32) -> Vec<UdpSocket> {
    (0..members).map(|_| reuseport(network, port)).collect()
}

/// A group from which a classic BPF program picks one at random for each packet.
pub fn reuseport_by_program(network: &Network, port: u16, members: u32) -> Vec<UdpSocket> {
    let random = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let modulo = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
    let sockets = reuseport_group(network, port, members);
    let program = [
        (random, (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32),
        (modulo, members),
        (libc::BPF_RET | libc::BPF_A, 0),
    ];
    attach(&sockets[0], libc::SO_ATTACH_REUSEPORT_CBPF, &program);
    sockets
}

/// With a socket filter that takes every packet.
pub fn filtered(network: &Network, port: u16) -> UdpSocket {
    let socket = plain(network, NEAR_IP4, port);
    attach(&socket, libc::SO_ATTACH_FILTER, &[(libc::BPF_RET | libc::BPF_K, u32::MAX)]);
    socket
}

pub fn member(network: &Network, port: u16) -> UdpSocket {
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let socket = prepared(network, any, |s| sockopt::set_socket_reuseaddr(s, true).unwrap());
    socket.join_multicast_v4(&GROUP, &NEAR_IP4.parse().unwrap()).unwrap();
    socket
}

/// Attaches a classic BPF program: operation and operand, without jumps.
#[allow(unsafe_code)]
fn attach(socket: &impl AsFd, option: i32, program: &[(u32, u32)]) {
    let instruction = |(code, k): &(u32, u32)| {
        let code = u16::try_from(*code).unwrap();
        libc::sock_filter { code, jt: 0, jf: 0, k: *k }
    };
    let mut code: Vec<libc::sock_filter> = program.iter().map(instruction).collect();
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: the kernel reads one sock_fprog and, by it, `code`; both outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

//! Sockets of every kind that an application may have.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::frame::address;

/// A UDP socket's description.
#[derive(Clone, Copy, Default)]
pub struct Udp<'a> {
    pub bind: &'a str,
    pub connect: Option<&'a str>,
    /// `SO_RCVBUF`; the kernel doubles it. 0: the default.
    pub buffer_bytes: usize,
    pub reuse_port: bool,
    pub reuse_address: bool,
    pub only_v6: bool,
    pub device: Option<&'a str>,
    pub join: &'a [&'a str],
    /// Takes only packets whose payload begins with an even byte.
    pub even_only: bool,
    /// `UDP_GRO`: takes several packets of one sender as one.
    pub merged: bool,
}

impl Udp<'_> {
    /// In the calling thread's network namespace.
    pub fn open(&self) -> Socket {
        let bind = address(self.bind);
        let socket =
            Socket::new(Domain::for_address(bind), Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_reuse_port(self.reuse_port).unwrap();
        socket.set_reuse_address(self.reuse_address).unwrap();
        if bind.is_ipv6() {
            socket.set_only_v6(self.only_v6).unwrap();
        }
        socket.bind_device(self.device.map(str::as_bytes)).unwrap();
        if self.buffer_bytes > 0 {
            socket.set_recv_buffer_size(self.buffer_bytes).unwrap();
        }
        if self.merged {
            setsockopt(&socket, sockopt::UdpGroSegment, &true).unwrap();
        }
        if self.even_only {
            socket.attach_filter(&EVEN_ONLY).unwrap();
        }
        socket.bind(&bind.into()).unwrap();
        if let Some(peer) = self.connect {
            socket.connect(&address(peer).into()).unwrap();
        }
        for group in self.join {
            match group.parse().unwrap() {
                IpAddr::V4(group) => {
                    socket.join_multicast_v4(&group, &Ipv4Addr::new(198, 18, 0, 1)).unwrap();
                }
                IpAddr::V6(group) => {
                    let near = nix::net::if_::if_nametoindex("near").unwrap();
                    socket.join_multicast_v6(&group, near).unwrap();
                }
            }
        }
        socket
    }
}

/// A filter's data begins with the UDP header.
const EVEN_ONLY: [SockFilter; 4] = [
    SockFilter::new(0x30, 0, 0, 8),      // A = byte 8
    SockFilter::new(0x45, 1, 0, 1),      // if A & 1, skip one
    SockFilter::new(0x06, 0, 0, 0xffff), // take
    SockFilter::new(0x06, 0, 0, 0),      // drop
];

/// Gives a group a program that picks the socket that the payload's last byte names. (The first four
/// are its number.)
pub fn pick_by_fifth_byte(socket: &Socket) {
    let mut program = [
        libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 4 }, // A = byte 4
        libc::sock_filter { code: 0x16, jt: 0, jf: 0, k: 0 }, // return A
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: (&raw mut program).cast() };
    setsockopt(socket, sockopt::AttachReusePortCbpf, &program).unwrap();
}

/// A packet socket on an interface of the calling thread's namespace; of protocol 0 it only sends.
pub fn packet(interface: &str, ethertype: u16) -> Socket {
    let protocol = Protocol::from(i32::from(ethertype.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
    let link = getifaddrs().unwrap().find_map(|entry| {
        let address = entry.address.filter(|_| entry.interface_name == interface)?;
        address.as_link_addr().copied()
    });
    nix::sys::socket::bind(socket.as_raw_fd(), &link.unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Takes frames whose field of this name is not 0.
pub fn only_frames_with(socket: &Socket, field: Frames) {
    let load = match field {
        // SKF_AD_OFF + SKF_AD_PKTTYPE; PACKET_OTHERHOST is 3.
        Frames::ForOtherHosts => (0x30, 0xffff_f004_u32),
        // SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT
        Frames::Tagged => (0x30, 0xffff_f030),
    };
    let wanted = match field {
        Frames::ForOtherHosts => 3,
        Frames::Tagged => 1,
    };
    let filter = [
        SockFilter::new(load.0, 0, 0, load.1),
        SockFilter::new(0x15, 0, 1, wanted),
        SockFilter::new(0x06, 0, 0, 0xffff),
        SockFilter::new(0x06, 0, 0, 0),
    ];
    socket.attach_filter(&filter).unwrap();
    // What came before the filter.
    let mut frame = [0; 64];
    let mut reader = socket;
    while reader.read(&mut frame).is_ok() {}
}

#[derive(Clone, Copy)]
pub enum Frames {
    ForOtherHosts,
    Tagged,
}

pub fn listener(at: &str, backlog: i32) -> Socket {
    let at: SocketAddr = address(at);
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&at.into()).unwrap();
    socket.listen(backlog).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

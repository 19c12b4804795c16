//! Sockets that receive, and what waits in their queues (sock_diag(7)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NLM_F_DUMP;
use rustix::io::Errno;
use rustix::net::netlink;

use super::netlink::{Attributes, Socket, number};
use crate::error::{Error, Result};
use crate::units::{IfIndex, SocketInode};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// A type of attribute; in a request its bit, counted from 1.
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_SKV6ONLY: u16 = 11;
/// Behind `struct inet_diag_msg`.
const ATTRIBUTES: usize = 72;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
/// Of a UDP socket: connected.
const TCP_ESTABLISHED: u8 = 1;
/// Of a connection: a SYN has been answered. Listeners' requests are dumped with it (`inet_csk_reqsk_queue`).
const TCP_SYN_RECV: u8 = 3;
const TCP_FIN_WAIT1: u8 = 4;
const TCP_FIN_WAIT2: u8 = 5;
const TCP_TIME_WAIT: u8 = 6;
const TCP_CLOSE_WAIT: u8 = 8;
const TCP_LAST_ACK: u8 = 9;
const TCP_LISTEN: u8 = 10;
const TCP_CLOSING: u8 = 11;
/// Those of a connection whose handshake is over.
const CONNECTED: [u8; 7] = [
    TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_TIME_WAIT, TCP_CLOSE_WAIT, TCP_LAST_ACK,
    TCP_CLOSING,
];

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// UDP, connected or not.
    Udp,
    /// TCP, listening.
    TcpListener,
}

/// A socket that packets can be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSocket {
    /// What it is.
    pub kind: SocketKind,
    /// Where it is bound to; IPv6's form of an IPv4 address (`::ffff:0:0/96`) as IPv4's.
    pub address: IpAddr,
    /// Its local port.
    pub port: u16,
    /// Of the IPv6 wildcard address: it receives IPv4 too.
    pub dual_stack: bool,
    /// It receives from one peer only.
    pub connected: bool,
    /// The interface that it is bound to (`SO_BINDTODEVICE`), if it is.
    pub interface: Option<IfIndex>,
    /// What names it in a process's open files; `None`: it has no file, as those inside the kernel.
    pub inode: Option<SocketInode>,
    /// What waits in it: bytes that the queue is charged; of a listener, connections to be accepted.
    pub queued: u32,
    /// How much may wait: UDP's `SO_RCVBUF` as the kernel doubles it; of a listener its backlog.
    pub limit: u32,
    /// What the kernel has dropped at this socket since it was made; wraps (`sk_drops`).
    pub drops: u32,
}

/// Asks for sockets, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct SocketDiag {
    socket: Socket,
}

impl SocketDiag {
    /// Opens the kernel's service.
    ///
    /// # Errors
    /// [`Error::System`] on a kernel without `CONFIG_INET_DIAG`.
    pub fn open() -> Result<Self> {
        let socket = Socket::open(Some(netlink::SOCK_DIAG))
            .map_err(|errno| Error::system("open", "the kernel's list of sockets", errno))?;
        Ok(Self { socket })
    }

    /// Every UDP socket that is bound to a port and every TCP listener.
    ///
    /// # Errors
    /// [`Error::Refused`] on a kernel without the modules `udp_diag` and `tcp_diag`;
    /// [`Error::System`] otherwise.
    pub fn sockets(&mut self) -> Result<Vec<LocalSocket>> {
        let mut found = Vec::new();
        for (protocol, states) in [(IPPROTO_UDP, u32::MAX), (IPPROTO_TCP, 1 << TCP_LISTEN)] {
            self.dump(protocol, states, |answer| found.extend(local_socket(protocol, answer)))?;
        }
        Ok(found)
    }

    /// How many connections are half open, waiting for the last segment of their handshake, by local address, port, and
    /// the interface that their listener is bound to (0: none).
    ///
    /// # Errors
    /// As [`SocketDiag::sockets`].
    pub fn half_open(&mut self) -> Result<BTreeMap<(IpAddr, u16, IfIndex), u32>> {
        let mut by_local = BTreeMap::new();
        self.dump(IPPROTO_TCP, 1 << TCP_SYN_RECV, |answer| {
            if let Some(local) = local(answer) {
                *by_local.entry(local).or_default() += 1;
            }
        })?;
        Ok(by_local)
    }

    /// Local ports that have connections, also such as are being closed, and in TIME_WAIT.
    ///
    /// # Errors
    /// As [`SocketDiag::sockets`].
    pub fn connected_ports(&mut self) -> Result<BTreeSet<u16>> {
        let states = CONNECTED.iter().map(|state| 1 << state).sum();
        let mut ports = BTreeSet::new();
        self.dump(IPPROTO_TCP, states, |answer| {
            ports.extend(local(answer).map(|(_, port, _)| port));
        })?;
        Ok(ports)
    }

    /// Those of IPv4, then those of IPv6.
    fn dump(&mut self, protocol: u8, states: u32, mut with: impl FnMut(&[u8])) -> Result<()> {
        let failed = |errno| match errno {
            Errno::NOENT => Error::refused(
                "the kernel does not list its sockets",
                "it needs the modules udp_diag and tcp_diag: `sudo modprobe -a udp_diag tcp_diag`",
            ),
            errno => Error::system("list", "sockets", errno),
        };
        for family in [AF_INET, AF_INET6] {
            // struct inet_diag_req_v2; all of its socket id is 0: any.
            let mut request = [0; 56];
            request[..3].copy_from_slice(&[family, protocol, 1 << (INET_DIAG_SKMEMINFO - 1)]);
            request[4..8].copy_from_slice(&states.to_ne_bytes());
            let of_socket = |kind, answer: &[u8]| {
                if kind == SOCK_DIAG_BY_FAMILY {
                    with(answer);
                }
            };
            let socket = &mut self.socket;
            socket
                .ask_each(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, of_socket)
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// Address, port and interface of a `struct inet_diag_msg`.
fn local(answer: &[u8]) -> Option<(IpAddr, u16, IfIndex)> {
    let port = u16::from_be_bytes(*answer.get(4..)?.first_chunk()?);
    let octets: [u8; 16] = *answer.get(8..)?.first_chunk()?;
    let address = match *answer.first()? {
        AF_INET => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
        _ => IpAddr::V6(Ipv6Addr::from(octets)).to_canonical(),
    };
    Some((address, port, IfIndex(number(answer.get(40..)?)?)))
}

/// From a `struct inet_diag_msg` and its attributes; `None` if it is malformed, or bound to no port.
fn local_socket(protocol: u8, answer: &[u8]) -> Option<LocalSocket> {
    let (&family, &state) = (answer.first()?, answer.get(1)?);
    let (address, port, interface) = local(answer)?;
    let inode = number(answer.get(68..)?)?;
    let attributes = Attributes::of(answer.get(ATTRIBUTES..)?);
    let memory = attributes.value(INET_DIAG_SKMEMINFO)?;
    // SK_MEMINFO_*
    let memory = |at: usize| memory.get(4 * at..).and_then(number);
    let v6_only =
        attributes.value(INET_DIAG_SKV6ONLY).is_some_and(|value| value.first() != Some(&0));
    let listener = protocol == IPPROTO_TCP;
    // Of a listener these two are connections (tcp_diag_get_info()).
    let (queued, limit) = if listener {
        (number(answer.get(56..)?)?, number(answer.get(60..)?)?)
    } else {
        (memory(0)?, memory(1)?)
    };
    (port != 0).then_some(LocalSocket {
        kind: if listener { SocketKind::TcpListener } else { SocketKind::Udp },
        address,
        port,
        dual_stack: family == AF_INET6 && address.is_unspecified() && !v6_only,
        connected: state == TCP_ESTABLISHED,
        interface: (interface.0 != 0).then_some(interface),
        inode: (inode != 0).then_some(SocketInode(inode)),
        queued,
        limit,
        drops: memory(8)?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::sys::link::Links;
    use crate::sys::sockopt;
    use crate::sys::test_support::{Sandbox, sh, wait_until};

    fn inode(socket: &impl AsFd) -> SocketInode {
        let path = format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd());
        let name = std::fs::read_link(path).unwrap();
        let number = name.to_str().unwrap().trim_start_matches("socket:[").trim_end_matches(']');
        SocketInode(number.parse().unwrap())
    }

    fn in_sandbox(test: impl FnOnce() + Send) {
        Sandbox::new().run(|| {
            let links = Links::open().unwrap();
            links.set_up(links.index("lo").unwrap()).unwrap(); // the sandbox's own
            test();
        });
    }

    #[test]
    fn each_kind_of_socket_is_told() {
        in_sandbox(|| {
            let plain = UdpSocket::bind("127.0.0.1:5000").unwrap();
            let any = UdpSocket::bind("0.0.0.0:5001").unwrap();
            let dual = UdpSocket::bind("[::]:5002").unwrap();
            let mapped = UdpSocket::bind("[::ffff:127.0.0.1]:5003").unwrap();
            let six = UdpSocket::bind("[::1]:5004").unwrap();
            let connected = UdpSocket::bind("0.0.0.0:5005").unwrap();
            connected.connect("127.0.0.1:9").unwrap();
            let listener = TcpListener::bind("127.0.0.1:5006").unwrap();
            let client = TcpStream::connect("127.0.0.1:5006").unwrap();
            let found = SocketDiag::open().unwrap().sockets().unwrap();
            assert_eq!(found.len(), 7, "{found:?}");
            let of = |socket: &dyn AsFd| {
                let inode = inode(&socket.as_fd());
                found.iter().find(|each| each.inode == Some(inode)).unwrap()
            };
            for (socket, address, port) in [
                (&plain, "127.0.0.1", 5000),
                (&any, "0.0.0.0", 5001),
                (&dual, "::", 5002),
                (&mapped, "127.0.0.1", 5003),
                (&six, "::1", 5004),
                (&connected, "127.0.0.1", 5005),
            ] {
                let found = of(socket);
                assert_eq!((found.address, found.port), (address.parse().unwrap(), port));
                assert_eq!((found.dual_stack, found.connected), (port == 5002, port == 5005));
                assert_eq!((found.kind, found.interface), (SocketKind::Udp, None));
                assert_eq!((found.queued, found.drops), (0, 0));
                assert!(found.limit > 0);
            }
            // One connection waits to be accepted; std asks for a backlog of 128 or 4,096.
            let found = of(&listener);
            assert_eq!((found.kind, found.queued), (SocketKind::TcpListener, 1));
            assert!([128, 4096].contains(&found.limit), "{found:?}");
            drop(client);
        });
    }

    #[test]
    fn queues_fill_and_what_does_not_fit_is_counted() {
        in_sandbox(|| {
            let socket = UdpSocket::bind("127.0.0.1:5000").unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            (0..50).for_each(|_| {
                sender.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
            });
            let found = SocketDiag::open().unwrap().sockets().unwrap();
            let found = found.iter().find(|each| each.port == 5000).unwrap();
            assert_eq!(found.limit, 8192);
            assert!(found.queued > 4096 && (1..50).contains(&found.drops), "{found:?}");
        });
    }

    #[test]
    fn a_request_is_no_connection_before_its_handshake_is_over() {
        in_sandbox(|| {
            let _listener = TcpListener::bind("127.0.0.1:5000").unwrap();
            sh("nft 'add table t; add chain t c { type filter hook input priority 0; };
                     add rule t c tcp sport 5000 drop'");
            let client = std::thread::spawn(|| TcpStream::connect("127.0.0.1:5000").unwrap());
            let mut sockets = SocketDiag::open().unwrap();
            wait_until("it is half open", || !sockets.half_open().unwrap().is_empty());
            assert_eq!(sockets.connected_ports().unwrap(), [].into());
            sh("nft delete table t");
            let client = client.join().unwrap();
            let both = [5000, client.local_addr().unwrap().port()].into();
            wait_until("it is a connection", || sockets.connected_ports().unwrap() == both);
            drop(client);
            assert!(sockets.connected_ports().unwrap().contains(&5000), "being closed");
        });
    }

    #[test]
    fn a_socket_of_an_interface_and_one_without_ipv4_are_told() {
        in_sandbox(|| {
            let listener = rustix::net::socket(
                rustix::net::AddressFamily::INET6,
                rustix::net::SocketType::STREAM,
                None,
            )
            .unwrap();
            rustix::net::sockopt::set_ipv6_v6only(&listener, true).unwrap();
            let address: std::net::SocketAddr = "[::]:5000".parse().unwrap();
            rustix::net::bind(&listener, &address).unwrap();
            rustix::net::listen(&listener, 7).unwrap();
            let bound = UdpSocket::bind("0.0.0.0:5001").unwrap();
            sockopt::set(&bound, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, *b"lo").unwrap();
            let found = SocketDiag::open().unwrap().sockets().unwrap();
            let at = |port| found.iter().find(|each| each.port == port).unwrap();
            assert_eq!((at(5000).dual_stack, at(5000).limit), (false, 7));
            assert_eq!(at(5001).interface, Some(IfIndex(1)));
        });
    }

    #[test]
    fn a_malformed_answer_is_no_socket() {
        assert_eq!(local_socket(IPPROTO_UDP, &[]), None);
        for bytes in 0..80 {
            assert_eq!(local_socket(IPPROTO_UDP, &vec![1; bytes]), None);
        }
    }
}

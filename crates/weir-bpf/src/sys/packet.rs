//! Packet sockets (`AF_PACKET`), by which captures see an interface's packets and tests send frames.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::procfile::ProcFile;
use super::sockopt as option;
use crate::units::IfIndex;

/// The packet sockets of the calling thread's network namespace.
pub(super) const TABLE: &str = "/proc/thread-self/net/packet";

/// What a socket of IP's packets asks for: every protocol, or IP. Others hear of protocols such as LLDP's.
const PROTOCOLS: [u16; 3] = [ETH_P_ALL, 0x0800, 0x86dd];
const ETH_P_ALL: u16 = 0x0003;

/// How many packet sockets, such as captures', receive an interface's packets, or `ip`'s alone, by a namespace's
/// [`TABLE`]. Such sockets are served after XDP, so they miss what a program drops.
///
/// # Errors
/// If the table cannot be read; a kernel without packet sockets has none.
pub(super) fn taps(table: &mut ProcFile, ifindex: IfIndex, ip: bool) -> io::Result<usize> {
    let lines = table.read()?.lines().skip(1);
    Ok(lines.filter(|line| is_tap(line, ifindex, ip)).count())
}

/// From a line of `packet_seq_show()`: `sk RefCnt Type Proto Iface R Rmem User Inode`, with the
/// protocol in hexadecimal digits, interface 0 for all of them, and R for whether it receives.
fn is_tap(line: &str, ifindex: IfIndex, ip: bool) -> bool {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, _, _, protocol, interface, "1", ..] = fields[..] else { return false };
    let protocol = u16::from_str_radix(protocol, 16);
    protocol.is_ok_and(|protocol| !ip || PROTOCOLS.contains(&protocol))
        && interface.parse().is_ok_and(|bound: u32| bound == 0 || bound == ifindex.0)
}

/// The raw sockets of the calling thread's network namespace, of each family.
pub(super) const RAW_TABLES: [&str; 2] =
    ["/proc/thread-self/net/raw", "/proc/thread-self/net/raw6"];

/// How many raw sockets receive copies of UDP's or TCP's packets, by one of [`RAW_TABLES`]. They do as packets are
/// delivered, so they miss what a gate drops anywhere.
///
/// # Errors
/// If the table cannot be read; a kernel without the family has none.
pub(super) fn raw_sockets(table: &mut ProcFile) -> io::Result<usize> {
    Ok(table.read()?.lines().skip(1).filter(|line| is_raw(line)).count())
}

/// From a line of `raw_sock_seq_show()`: `sl: ADDRESS:PROTOCOL ...`, the protocol in hexadecimal digits.
fn is_raw(line: &str) -> bool {
    let address = line.split_ascii_whitespace().nth(1);
    let protocol = address.and_then(|address| address.rsplit_once(':')).map(|(_, it)| it);
    protocol.is_some_and(|it| ["0006", "0011"].contains(&it))
}

/// A packet socket.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens one on an interface of the calling thread's network namespace, all packets of which the program sees.
    pub(crate) fn open(
        program: BorrowedFd<'_>,
        ifindex: IfIndex,
        promiscuous: bool,
    ) -> io::Result<Self> {
        // Until it is bound, no packet comes by.
        let socket = Self::silent(ifindex, promiscuous)?;
        option::set(&socket.0, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())?;
        socket.bind(ifindex, ETH_P_ALL)?;
        Ok(socket)
    }

    /// One that receives nothing.
    pub(crate) fn silent(ifindex: IfIndex, promiscuous: bool) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        let socket = Self(socket_with(family, SocketType::RAW, flags, None)?);
        if promiscuous {
            socket.set_promiscuous(ifindex)?;
        }
        Ok(socket)
    }

    /// One that sends by an interface of the calling thread's network namespace: for tests.
    ///
    /// # Errors
    /// Without the privilege, or if there is no such interface.
    pub fn sender(ifindex: IfIndex) -> io::Result<Self> {
        let socket = Self::silent(ifindex, false)?;
        // Of no protocol, it receives nothing.
        socket.bind(ifindex, 0)?;
        Ok(socket)
    }

    /// Sends a frame from its Ethernet header on, byte for byte, however broken it is.
    ///
    /// # Errors
    /// When the kernel refuses, such as for want of room in the device's queue.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        Ok(rustix::io::write(&self.0, frame).map(drop)?)
    }

    /// One that receives what comes in by an interface, of one protocol.
    #[cfg(test)]
    pub(crate) fn of_protocol(ifindex: IfIndex, protocol: u16) -> io::Result<Self> {
        let socket = Self::silent(ifindex, false)?;
        socket.bind(ifindex, protocol)?;
        Ok(socket)
    }

    /// Waits for a frame; its length.
    #[cfg(test)]
    pub(crate) fn receive(&self, frame: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, frame)?)
    }

    /// As long as the socket is open.
    fn set_promiscuous(&self, ifindex: IfIndex) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: ifindex.0.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        Ok(option::set(&self.0, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)?)
    }

    #[allow(unsafe_code)]
    fn bind(&self, ifindex: IfIndex, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: ifindex.0.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the kernel reads the address, which outlives the call.
        let code = unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes the error that the kernel has for it, such as that the interface is down.
    pub(crate) fn check(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.0)??)
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::eth;

    use super::*;
    use crate::sys::test_support::{Sandbox, wait_until};

    #[test]
    fn sockets_that_miss_a_programs_drops_are_told_from_others() {
        let on_7 = |line| is_tap(line, IfIndex(7), true);
        assert!(on_7("0000000000000000 3      3    0003   0     1 0      0      31517 "));
        assert!(on_7("0000000000000000 3      3    0003   7     1 0      0      31517 "));
        assert!(on_7("0000000000000000 3      2    0800   7     1 0      1000   31517 "));
        // Of another interface, not receiving, of another protocol, sending only.
        assert!(!on_7("0000000000000000 3      3    0003   70    1 0      0      31517 "));
        assert!(!on_7("0000000000000000 3      3    0003   7     0 0      0      31517 "));
        assert!(!on_7("0000000000000000 3      3    88cc   7     1 0      0      31517 "));
        assert!(!on_7("0000000000000000 3      3    0000   0     0 0      0      31517 "));
        assert!(!on_7(""));
    }

    #[test]
    fn raw_sockets_of_udp_and_tcp_are_told_from_others() {
        assert!(is_raw(
            "  17: 00000000:0011 00000000:0000 07 00000000:00000000 00:00000000 00000000     0 "
        ));
        assert!(is_raw(
            "   6: 00000000000000000000000000000000:0006 00000000000000000000000000000000:0000 07 "
        ));
        assert!(!is_raw(
            "   1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0 "
        ));
        assert!(!is_raw(
            " 255: 00000000:00FF 00000000:0000 07 00000000:00000000 00:00000000 00000000     0 "
        ));
        assert!(!is_raw(""));
    }

    #[test]
    fn a_socket_on_all_interfaces_is_found_while_it_is_open() {
        Sandbox::new().run(|| {
            let lo = IfIndex(1);
            let taps = || taps(&mut ProcFile::new(TABLE), lo, true).unwrap();
            assert_eq!(taps(), 0);
            let open = |protocol| {
                let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
                socket_with(family, SocketType::RAW, flags, protocol).unwrap()
            };
            let silent = open(None);
            assert_eq!(taps(), 0);
            let capture = open(Some(eth::ALL));
            assert_eq!(taps(), 1);
            drop((silent, capture));
            // A child of another test has it, too, until it executes its program.
            wait_until("it is gone", || taps() == 0);
        });
    }
}

//! Packet sockets (`AF_PACKET`), by which captures see an interface's packets.

use super::divert::read_proc;
use crate::units::IfIndex;

const TABLE: &str = "/proc/thread-self/net/packet";

/// What a socket asks for: every protocol, or IP. Others hear of protocols that are none of weir's,
/// such as LLDP's.
const PROTOCOLS: [u16; 3] = [ETH_P_ALL, 0x0800, 0x86dd];
const ETH_P_ALL: u16 = 0x0003;

/// How many packet sockets of the calling thread's network namespace, such as captures', receive an interface's IP
/// packets. Such sockets are served after XDP, so they miss what a program drops.
///
/// # Errors
///
/// If the table cannot be read; a kernel without packet sockets has none.
pub(super) fn taps(ifindex: IfIndex) -> std::io::Result<usize> {
    let table = read_proc(TABLE)?;
    Ok(table.lines().skip(1).filter(|line| is_tap(line, ifindex)).count())
}

/// From a line of `packet_seq_show()`: `sk RefCnt Type Proto Iface R Rmem User Inode`, with the
/// protocol in hexadecimal digits, interface 0 for all of them, and R for whether it receives.
fn is_tap(line: &str, ifindex: IfIndex) -> bool {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, _, _, protocol, interface, "1", ..] = fields[..] else { return false };
    let protocol = u16::from_str_radix(protocol, 16);
    protocol.is_ok_and(|protocol| PROTOCOLS.contains(&protocol))
        && interface.parse().is_ok_and(|bound: u32| bound == 0 || bound == ifindex.0)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};

    use super::*;
    use crate::sys::test_support::Sandbox;

    #[test]
    fn sockets_that_miss_a_programs_drops_are_told_from_others() {
        let on_7 = |line| is_tap(line, IfIndex(7));
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
    fn a_socket_on_all_interfaces_is_found_while_it_is_open() {
        Sandbox::new().run(|| {
            let lo = IfIndex(1);
            assert_eq!(taps(lo).unwrap(), 0);
            let open = |protocol| {
                let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
                socket_with(family, SocketType::RAW, flags, protocol).unwrap()
            };
            let silent = open(None);
            assert_eq!(taps(lo).unwrap(), 0);
            let capture = open(Some(eth::ALL));
            assert_eq!(taps(lo).unwrap(), 1);
            drop((silent, capture));
            assert_eq!(taps(lo).unwrap(), 0);
        });
    }
}

//! Notice of changes to one interface.

use std::os::fd::{AsFd, BorrowedFd};

use super::link::object;
use super::netlink::{Message, Socket, number};
use crate::error::{Error, Result};
use crate::units::IfIndex;

/// Tells when an interface's addresses, Ethernet address, state or existence may have changed.
///
/// Poll its descriptor for input, then ask [`InterfaceWatch::changed`], then look: what is told is
/// that something happened since the last time, not what.
#[derive(Debug)]
pub struct InterfaceWatch {
    socket: Socket,
    ifindex: IfIndex,
}

impl InterfaceWatch {
    /// Starts watching, in the calling thread's network namespace. What changes from now on is
    /// told; look at the interface after this call, not before.
    ///
    /// # Errors
    /// [`Error::System`] if there is no netlink socket to be had. That there is such an interface
    /// is not checked.
    pub fn open(ifindex: IfIndex) -> Result<Self> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let socket = Socket::watch(None, groups.cast_unsigned())
            .map_err(|errno| Error::system("watch", object(ifindex), errno))?;
        Ok(Self { socket, ifindex })
    }

    /// Takes all pending notifications and says whether the interface may have changed since the
    /// last call. Does not wait. Notifications that were lost, because there were too many, or that
    /// cannot be understood, count as a change.
    ///
    /// # Errors
    /// [`Error::System`] if the socket fails.
    pub fn changed(&mut self) -> Result<bool> {
        let ifindex = self.ifindex;
        let changed = self.socket.drain(|message| concerns(message, ifindex));
        changed.map_err(|errno| Error::system("watch", object(ifindex), errno))
    }
}

impl AsFd for InterfaceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `struct ifinfomsg` and `struct ifaddrmsg` both have the index in their second four bytes.
fn concerns(message: &Message<'_>, ifindex: IfIndex) -> bool {
    let about_links = [libc::RTM_NEWLINK, libc::RTM_DELLINK, libc::RTM_NEWADDR, libc::RTM_DELADDR]
        .contains(&message.message_type());
    let index = message.payload().get(4..).and_then(number);
    about_links && index.is_none_or(|index| index == ifindex.0)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::sys::ipv6::quiet_ipv6;
    use crate::sys::link::Links;
    use crate::sys::test_support::{wait_until, with_pair};
    use crate::units::MacAddr;

    fn readable(watch: &InterfaceWatch) -> bool {
        let mut fds = [PollFd::new(watch, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
    }

    fn with_quiet_pair(test: impl FnOnce(&Links, IfIndex, IfIndex) + Send) {
        with_pair(|links, near, far| {
            quiet_ipv6("near").unwrap();
            quiet_ipv6("far").unwrap();
            test(links, near, far);
        });
    }

    #[test]
    fn each_kind_of_change_is_told() {
        type Change = (&'static str, fn(&Links, IfIndex));
        let changes: [Change; 6] = [
            ("mac", |links, near| links.set_mac(near, MacAddr([2, 0, 0, 0, 0, 9])).unwrap()),
            ("up", |links, near| links.set_up(near).unwrap()),
            ("IPv4", |links, near| {
                links.add_address(near, "10.0.0.1".parse().unwrap(), 24).unwrap();
            }),
            ("IPv6", |links, near| {
                links.add_address(near, "fd00::1".parse().unwrap(), 64).unwrap();
            }),
            ("down", |links, near| links.set_down(near).unwrap()),
            ("removal", |links, near| links.delete(near).unwrap()),
        ];
        with_quiet_pair(|links, near, _| {
            let mut watch = InterfaceWatch::open(near).unwrap();
            assert!(!readable(&watch) && !watch.changed().unwrap());
            for (name, change) in changes {
                change(links, near);
                // The kernel announces IPv6 addresses from a work queue, later than it answers.
                wait_until(name, || watch.changed().unwrap());
            }
        });
    }

    #[test]
    fn a_change_is_told_once_and_another_interfaces_not_at_all() {
        with_quiet_pair(|links, near, far| {
            let mut watch = InterfaceWatch::open(near).unwrap();
            links.set_mac(near, MacAddr([2, 0, 0, 0, 0, 8])).unwrap();
            assert!(readable(&watch));
            assert!(watch.changed().unwrap());
            assert!(!readable(&watch) && !watch.changed().unwrap());
            links.set_mac(far, MacAddr([2, 0, 0, 0, 0, 9])).unwrap();
            assert!(readable(&watch));
            assert!(!watch.changed().unwrap());
            assert!(!readable(&watch));
        });
    }

    #[test]
    fn lost_notifications_count_as_a_change() {
        with_quiet_pair(|links, near, far| {
            let mut watch = InterfaceWatch::open(near).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&watch, 1).unwrap();
            for last in 0..100 {
                links.set_mac(far, MacAddr([2, 0, 0, 0, 0, last])).unwrap();
            }
            assert!(watch.changed().unwrap());
            assert!(!watch.changed().unwrap());
        });
    }
}

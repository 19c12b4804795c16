//! Network interfaces over rtnetlink, one blocking call at a time.
//!
//! The set-up work of weir is sequential, so the asynchronous rtnetlink client is driven by a
//! runtime of its own behind plain functions. Interface names and indices mean nothing outside
//! one network namespace: a [`Links`] belongs to the namespace that the thread was in when it
//! was opened, whichever thread uses it later.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::io::Errno;

pub use super::ifname::{MAX_NAME_BYTES, check_name};
pub use super::link_info::{LinkInfo, LinkStats, XdpAttached, XdpMode};
use super::link_info::{is_bare, mac_of, name_of, stats_of, xdp_of};
use crate::error::{Error, Result};
use crate::units::{IfIndex, MacAddr};

/// The kernel answers at once; a reply that cannot be decoded never arrives.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The interfaces of one network namespace.
///
/// Must not be used or dropped on a thread of another asynchronous runtime.
#[derive(Debug)]
pub struct Links {
    pub(super) handle: Handle,
    runtime: tokio::runtime::Runtime,
}

impl Links {
    /// Opens the interfaces of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is no netlink socket to be had.
    pub fn open() -> Result<Self> {
        let failed = |source| Error::system("open", "rtnetlink", source);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let context = runtime.enter();
        let (connection, handle, _) = rtnetlink::new_connection().map_err(failed)?;
        runtime.spawn(connection);
        drop(context);
        Ok(Self { handle, runtime })
    }

    /// Index of the interface of this name.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`] if there is none; [`Error::Refused`] for an impossible name.
    pub fn index(&self, name: &str) -> Result<IfIndex> {
        check_name(name)?;
        let found = self.first(self.handle.link().get().match_name(name), || name.to_owned());
        match found {
            Ok(message) => Ok(IfIndex(message.header.index)),
            Err(error) if is_no_device(&error) => Err(Error::NoInterface(name.to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Name of an interface.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with `ENODEV` if there is none of this index, here and in all methods
    /// that take an index.
    pub fn name(&self, ifindex: IfIndex) -> Result<String> {
        name_of(&self.get(ifindex)?)
    }

    /// Ethernet address of an interface; all zero where no packet has one ([`LinkInfo::bare`]).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if it has none, and its packets have another header instead.
    pub fn mac(&self, ifindex: IfIndex) -> Result<MacAddr> {
        let message = self.get(ifindex)?;
        let none = is_bare(&message).then_some(MacAddr([0; 6]));
        mac_of(&message).or(none).ok_or_else(|| Error::Refused {
            problem: format!("{} has no Ethernet address", object(ifindex)),
            remedy: "choose an Ethernet interface, or one whose packets begin with IP".into(),
        })
    }

    /// Name, address, state, MTU and kind of an interface.
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub fn info(&self, ifindex: IfIndex) -> Result<LinkInfo> {
        LinkInfo::of(&self.get(ifindex)?)
    }

    /// Counters of an interface since it was made.
    ///
    /// # Errors
    ///
    /// As [`Links::name`]; [`Error::Netlink`] if the kernel's answer holds no 64-bit counters.
    pub fn stats(&self, ifindex: IfIndex) -> Result<LinkStats> {
        stats_of(&self.get(ifindex)?).ok_or_else(|| Error::Netlink {
            operation: "read counters of",
            object: object(ifindex),
            message: "no 64-bit counters in the kernel's answer".into(),
        })
    }

    /// The XDP program on an interface, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub fn xdp(&self, ifindex: IfIndex) -> Result<Option<XdpAttached>> {
        Ok(xdp_of(&self.get(ifindex)?))
    }

    /// Makes a veth pair, both ends down, the peer in `peer_ns` if given.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with `EEXIST` if a name is taken.
    pub fn create_veth(
        &self,
        name: &str,
        peer_name: &str,
        peer_ns: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        check_name(name)?;
        check_name(peer_name)?;
        let mut peer = LinkUnspec::new_with_name(peer_name);
        if let Some(ns) = peer_ns {
            peer = peer.setns_by_fd(ns.as_raw_fd());
        }
        let message = LinkMessageBuilder::<LinkVeth>::new(name, peer_name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())))
            .build();
        let request = self.handle.link().add(message).execute();
        self.ask("create veth pair", || format!("{name} and {peer_name}"), request)
    }

    /// Brings an interface up (administratively; [`LinkInfo::oper_up`] tells when it carries packets).
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub fn set_up(&self, ifindex: IfIndex) -> Result<()> {
        let message = LinkUnspec::new_with_index(ifindex.0).up().build();
        let request = self.handle.link().set(message).execute();
        self.ask("bring up", || object(ifindex), request)
    }

    /// Takes an interface down (administratively).
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub fn set_down(&self, ifindex: IfIndex) -> Result<()> {
        let message = LinkUnspec::new_with_index(ifindex.0).down().build();
        let request = self.handle.link().set(message).execute();
        self.ask("take down", || object(ifindex), request)
    }

    /// Changes an interface's Ethernet address.
    ///
    /// # Errors
    ///
    /// As [`Links::name`]; [`Error::System`] with `EADDRNOTAVAIL` for a multicast address.
    pub fn set_mac(&self, ifindex: IfIndex, mac: MacAddr) -> Result<()> {
        let message = LinkUnspec::new_with_index(ifindex.0).address(mac.0.to_vec()).build();
        let request = self.handle.link().set(message).execute();
        self.ask("set the Ethernet address of", || object(ifindex), request)
    }

    /// Adds an address with a prefix of `prefix_len` bits; an IPv6 one is usable at once, without
    /// duplicate address detection.
    ///
    /// # Errors
    ///
    /// As [`Links::name`]; [`Error::System`] with `EEXIST` if it is there already.
    pub fn add_address(&self, ifindex: IfIndex, ip: IpAddr, prefix_len: u8) -> Result<()> {
        let mut request = self.handle.address().add(ifindex.0, ip, prefix_len);
        if ip.is_ipv6() {
            let nodad = AddressAttribute::Flags(AddressFlags::Nodad);
            request.message_mut().attributes.push(nodad);
        }
        let what = || format!("{ip}/{prefix_len} to {}", object(ifindex));
        self.ask("add address", what, request.execute())
    }

    /// An interface's own IPv4 and IPv6 addresses, in the kernel's order; none if there is no
    /// such interface.
    ///
    /// # Errors
    ///
    /// [`Error::System`] or [`Error::Netlink`] if the kernel does not answer.
    pub fn addresses(&self, ifindex: IfIndex) -> Result<Vec<IpAddr>> {
        let dump = self.handle.address().get().set_link_index_filter(ifindex.0).execute();
        let all = async {
            let mut dump = pin!(dump);
            let mut found = Vec::new();
            while let Some(message) = dump.try_next().await? {
                found.extend(own_address(&message.attributes));
            }
            Ok(found)
        };
        self.ask("list addresses of", || object(ifindex), all)
    }

    /// Adds or replaces a permanent neighbour (ARP or ND) entry, so that nothing is asked.
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub fn add_neighbour(&self, ifindex: IfIndex, ip: IpAddr, mac: MacAddr) -> Result<()> {
        let request = self.handle.neighbours().add(ifindex.0, ip).link_layer_address(&mac.0);
        let what = || format!("{ip} to {}", object(ifindex));
        self.ask("add neighbour", what, request.replace().execute())
    }

    /// Adds a route to an IPv4 prefix, by a gateway that an interface of the namespace reaches.
    ///
    /// # Errors
    ///
    /// [`Error::System`] with `EEXIST` if there is one, `ENETUNREACH` if nothing reaches the gateway.
    pub fn add_route(&self, prefix: (Ipv4Addr, u8), gateway: Ipv4Addr) -> Result<()> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(prefix.0, prefix.1)
            .gateway(gateway)
            .build();
        let what = || format!("{}/{} by {gateway}", prefix.0, prefix.1);
        self.ask("add route", what, self.handle.route().add(message).execute())
    }

    /// Deletes an interface; a veth's peer goes with it.
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub fn delete(&self, ifindex: IfIndex) -> Result<()> {
        self.ask("delete", || object(ifindex), self.handle.link().del(ifindex.0).execute())
    }

    fn get(&self, ifindex: IfIndex) -> Result<LinkMessage> {
        self.first(self.handle.link().get().match_index(ifindex.0), || object(ifindex))
    }

    fn first(
        &self,
        request: rtnetlink::LinkGetRequest,
        object: impl Fn() -> String,
    ) -> Result<LinkMessage> {
        let answer = async { pin!(request.execute()).try_next().await };
        self.ask("look up", &object, answer)?.ok_or_else(|| Error::Netlink {
            operation: "look up",
            object: object(),
            message: "the kernel's answer is empty".into(),
        })
    }

    pub(super) fn ask<T>(
        &self,
        operation: &'static str,
        object: impl Fn() -> String,
        request: impl Future<Output = std::result::Result<T, rtnetlink::Error>>,
    ) -> Result<T> {
        let answer = async { tokio::time::timeout(ANSWER_TIMEOUT, request).await };
        match self.runtime.block_on(answer) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(rtnetlink::Error::NetlinkError(refusal))) => {
                Err(Error::system(operation, object(), refusal.to_io()))
            }
            Ok(Err(other)) => {
                Err(Error::Netlink { operation, object: object(), message: other.to_string() })
            }
            Err(_) => Err(Error::Netlink {
                operation,
                object: object(),
                message: format!("no answer within {ANSWER_TIMEOUT:?}"),
            }),
        }
    }
}

pub(super) fn object(ifindex: IfIndex) -> String {
    format!("interface number {}", ifindex.0)
}

fn is_no_device(error: &Error) -> bool {
    let no_device = Some(Errno::NODEV.raw_os_error());
    matches!(error, Error::System { source, .. } if source.raw_os_error() == no_device)
}

/// On a point-to-point link `Address` is the peer's; `Local` is always the interface's own.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let find = |of: fn(&AddressAttribute) -> Option<IpAddr>| attributes.iter().find_map(of);
    find(|a| if let AddressAttribute::Local(ip) = a { Some(*ip) } else { None })
        .or_else(|| find(|a| if let AddressAttribute::Address(ip) = a { Some(*ip) } else { None }))
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;

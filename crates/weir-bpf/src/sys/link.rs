//! Network interfaces over rtnetlink.
//!
//! Interface names and indices mean nothing outside one network namespace: a [`Links`] belongs to
//! the namespace that the thread was in when it was opened, whichever thread uses it later.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Mutex;

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, Parseable,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo as Info, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::stats::{StatsFilterMask, StatsMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Request};
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;

pub use super::ifname::{MAX_NAME_BYTES, check_name};
use super::link_info::{Answer, stats_of};
pub use super::link_info::{LinkInfo, LinkStats, XdpAttached, XdpMode};
use super::netlink::{Socket, terminated};
use crate::error::{Error, Result};
use crate::sync::lock;
use crate::units::{IfIndex, MacAddr};

const MAKE: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;

/// The interfaces of one network namespace.
#[derive(Debug)]
pub struct Links {
    socket: Mutex<Socket>,
}

impl Links {
    /// Opens the interfaces of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::System`] if there is no netlink socket to be had.
    pub fn open() -> Result<Self> {
        let socket =
            Socket::open(None).map_err(|errno| Error::system("open", "rtnetlink", errno))?;
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// Index of the interface of this name.
    ///
    /// # Errors
    /// [`Error::NoInterface`] if there is none; [`Error::Refused`] for an impossible name.
    pub fn index(&self, name: &str) -> Result<IfIndex> {
        // Alternative ones may be longer.
        if name.len() <= MAX_NAME_BYTES {
            check_name(name)?;
        }
        match self.named(name) {
            Ok(answer) => Ok(answer.ifindex()),
            Err(error) if error.errno() == Some(Errno::NODEV) => {
                Err(Error::NoInterface(name.to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// Name of an interface. The kernel tells it, unlike all else, also while somebody changes interfaces.
    ///
    /// # Errors
    /// [`Error::System`] with `ENODEV` if there is none of this index, here and in all methods
    /// that take an index.
    pub fn name(&self, ifindex: IfIndex) -> Result<String> {
        index_to_name(&*lock(&self.socket), ifindex.0)
            .map_err(|errno| Error::system("look up", object(ifindex), errno))
    }

    /// What the kernel calls the interface of this name, which may be an alternative one (`ip link property`); the
    /// name itself if there is none of it.
    pub fn kernel_name(&self, name: &str) -> String {
        let found = self.named(name).and_then(|answer| answer.name());
        found.unwrap_or_else(|_| name.to_owned())
    }

    /// Ethernet address of an interface; all zero where no packet has one ([`LinkInfo::bare`]).
    ///
    /// # Errors
    /// [`Error::Refused`] if it has none, and its packets have another header instead.
    pub fn mac(&self, ifindex: IfIndex) -> Result<MacAddr> {
        let answer = self.get(ifindex)?;
        let none = answer.is_bare().then_some(MacAddr([0; 6]));
        answer.mac().or(none).ok_or_else(|| {
            Error::refused(
                format!("{} has no Ethernet address", object(ifindex)),
                "choose an Ethernet interface, or one whose packets begin with IP",
            )
        })
    }

    /// All that is known of an interface.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn info(&self, ifindex: IfIndex) -> Result<LinkInfo> {
        self.get(ifindex)?.info()
    }

    /// Every interface of the network namespace whose name is text in UTF-8: no other can be named.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Netlink`] if the kernel does not answer.
    pub fn list(&self) -> Result<Vec<LinkInfo>> {
        let request = Request::GetLink(LinkMessage::default());
        let answers: Vec<Answer> = self.ask("list", || "interfaces".into(), request, NLM_F_DUMP)?;
        answers.iter().filter(|answer| answer.name().is_ok()).map(Answer::info).collect()
    }

    /// An interface, and those by which its packets come in: its ports, the one below it, and so on. A veth's peer is
    /// none. Others are asked for only if it may have such.
    ///
    /// # Errors
    /// As [`Links::name`], and as [`Links::list`].
    pub fn below(&self, ifindex: IfIndex) -> Result<Vec<LinkInfo>> {
        let mut found = vec![self.info(ifindex)?];
        let is_leaf = |it: &LinkInfo| matches!(it.kind.as_deref(), None | Some("veth" | "tun"));
        if is_leaf(&found[0]) {
            return Ok(found);
        }
        let mut others = self.list()?;
        let mut at = 0;
        while let Some(upper) = found.get(at).cloned() {
            let is_below = |it: &LinkInfo| {
                it.ifindex != ifindex
                    && (it.master == Some(upper.ifindex)
                        || upper.lower == Some(it.ifindex) && !is_leaf(&upper))
            };
            let (below, rest) = others.into_iter().partition(is_below);
            (found, others) = ([found, below].concat(), rest);
            at += 1;
        }
        Ok(found)
    }

    /// Counters of an interface since it was made.
    ///
    /// # Errors
    /// As [`Links::name`]; [`Error::Netlink`] if the kernel's answer holds no 64-bit counters.
    pub fn stats(&self, ifindex: IfIndex) -> Result<LinkStats> {
        let mut asked = StatsMessage::default();
        (asked.header.ifindex, asked.header.filter_mask) = (ifindex.0, StatsFilterMask::Link64);
        let what = || object(ifindex);
        let answers = self.ask("read counters of", what, Request::GetStats(asked), NLM_F_ACK)?;
        answers.first().and_then(stats_of).ok_or_else(|| Error::Netlink {
            operation: "read counters of",
            object: object(ifindex),
            message: "no 64-bit counters in the kernel's answer".into(),
        })
    }

    /// The XDP program on an interface, if there is one.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn xdp(&self, ifindex: IfIndex) -> Result<Option<XdpAttached>> {
        Ok(self.get(ifindex)?.xdp())
    }

    /// Makes a veth pair, both ends down, the peer in `peer_ns` if given.
    ///
    /// # Errors
    /// [`Error::System`] with `EEXIST` if a name is taken.
    pub fn create_veth(
        &self,
        name: &str,
        peer_name: &str,
        peer_ns: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        check_name(name)?;
        check_name(peer_name)?;
        let mut peer = LinkMessage::default();
        peer.attributes.push(LinkAttribute::IfName(peer_name.to_owned()));
        peer.attributes.extend(peer_ns.map(|ns| LinkAttribute::NetNsFd(ns.as_raw_fd())));
        let data = Info::Data(InfoData::Veth(InfoVeth::Peer(peer)));
        let mut pair = LinkMessage::default();
        pair.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![Info::Kind(InfoKind::Veth), data]),
        ];
        let what = || format!("{name} and {peer_name}");
        self.order("create veth pair", what, Request::NewLink(pair), MAKE)
    }

    /// Brings an interface up (administratively; [`LinkInfo::oper_up`] tells when it carries packets).
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn set_up(&self, ifindex: IfIndex) -> Result<()> {
        self.set("bring up", ifindex, |message| {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        })
    }

    /// Takes an interface down (administratively).
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn set_down(&self, ifindex: IfIndex) -> Result<()> {
        self.set("take down", ifindex, |message| message.header.change_mask = LinkFlags::Up)
    }

    /// Changes an interface's Ethernet address.
    ///
    /// # Errors
    /// As [`Links::name`]; [`Error::System`] with `EADDRNOTAVAIL` for a multicast address.
    pub fn set_mac(&self, ifindex: IfIndex, mac: MacAddr) -> Result<()> {
        self.set("set the Ethernet address of", ifindex, |message| {
            message.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
        })
    }

    fn set(
        &self,
        operation: &'static str,
        ifindex: IfIndex,
        change: impl FnOnce(&mut LinkMessage),
    ) -> Result<()> {
        let mut message = numbered(ifindex);
        change(&mut message);
        self.order(operation, || object(ifindex), Request::SetLink(message), NLM_F_ACK)
    }

    /// Adds an address with a prefix of `prefix_len` bits; an IPv6 one is usable at once, without
    /// duplicate address detection.
    ///
    /// # Errors
    /// As [`Links::name`]; [`Error::System`] with `EEXIST` if it is there already.
    pub fn add_address(&self, ifindex: IfIndex, ip: IpAddr, prefix_len: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.index = ifindex.0;
        message.header.prefix_len = prefix_len;
        message.attributes = vec![AddressAttribute::Address(ip), AddressAttribute::Local(ip)];
        message.attributes.extend(match ip {
            IpAddr::V4(ip) if prefix_len < 31 => {
                let broadcast = u32::from(ip) | u32::MAX >> prefix_len;
                Some(AddressAttribute::Broadcast(broadcast.into()))
            }
            IpAddr::V4(_) => None,
            IpAddr::V6(_) => Some(AddressAttribute::Flags(AddressFlags::Nodad)),
        });
        let what = || format!("{ip}/{prefix_len} to {}", object(ifindex));
        self.order("add address", what, Request::NewAddress(message), MAKE)
    }

    /// An interface's own IPv4 and IPv6 addresses, in the kernel's order; none if there is no
    /// such interface.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Netlink`] if the kernel does not answer.
    pub fn addresses(&self, ifindex: IfIndex) -> Result<Vec<IpAddr>> {
        let request = Request::GetAddress(AddressMessage::default());
        let mut all: Vec<AddressMessage> =
            self.ask("list addresses of", || object(ifindex), request, NLM_F_DUMP)?;
        all.retain(|message| message.header.index == ifindex.0);
        Ok(all.iter().filter_map(|message| own_address(&message.attributes)).collect())
    }

    /// Adds or replaces a permanent neighbour (ARP or ND) entry, so that nothing is asked.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn add_neighbour(&self, ifindex: IfIndex, ip: IpAddr, mac: MacAddr) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = ifindex.0;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unspec;
        message.attributes = vec![
            NeighbourAttribute::Destination(ip.into()),
            NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
        ];
        let what = || format!("{ip} to {}", object(ifindex));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.order("add neighbour", what, Request::NewNeighbour(message), flags)
    }

    /// Adds a route to an IPv4 prefix, by a gateway that an interface of the namespace reaches.
    ///
    /// # Errors
    /// [`Error::System`] with `EEXIST` if there is one, `ENETUNREACH` if nothing reaches the gateway.
    pub fn add_route(&self, prefix: (Ipv4Addr, u8), gateway: Ipv4Addr) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.destination_prefix_length = prefix.1;
        message.attributes = vec![
            RouteAttribute::Destination(IpAddr::from(prefix.0).into()),
            RouteAttribute::Gateway(IpAddr::from(gateway).into()),
        ];
        let what = || format!("{}/{} by {gateway}", prefix.0, prefix.1);
        self.order("add route", what, Request::NewRoute(message), MAKE)
    }

    /// Deletes an interface; a veth's peer goes with it.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn delete(&self, ifindex: IfIndex) -> Result<()> {
        self.order("delete", || object(ifindex), Request::DelLink(numbered(ifindex)), NLM_F_ACK)
    }

    fn get(&self, ifindex: IfIndex) -> Result<Answer> {
        self.first(numbered(ifindex), || object(ifindex))
    }

    /// By the usual name or an alternative one (Linux 5.5).
    pub(super) fn named(&self, name: &str) -> Result<Answer> {
        let mut asked = LinkMessage::default();
        let name_bytes = DefaultNla::new(libc::IFLA_ALT_IFNAME, terminated(name));
        asked.attributes.push(LinkAttribute::Other(name_bytes));
        self.first(asked, || name.to_owned())
    }

    fn first(&self, asked: LinkMessage, object: impl Fn() -> String) -> Result<Answer> {
        let answers: Vec<Answer> =
            self.ask("look up", &object, Request::GetLink(asked), NLM_F_ACK)?;
        answers.into_iter().next().ok_or_else(|| Error::Netlink {
            operation: "look up",
            object: object(),
            message: "the kernel's answer is empty".into(),
        })
    }

    fn order(
        &self,
        operation: &'static str,
        object: impl Fn() -> String,
        request: Request,
        flags: u16,
    ) -> Result<()> {
        self.ask::<Answer>(operation, object, request, flags).map(drop)
    }

    pub(super) fn ask<T: Parseable<[u8]>>(
        &self,
        operation: &'static str,
        object: impl Fn() -> String,
        request: Request,
        flags: u16,
    ) -> Result<Vec<T>> {
        let mut socket = lock(&self.socket);
        let answers = socket.route(&request, flags);
        answers.map_err(|errno| Error::system(operation, object(), errno))
    }
}

/// What stands for an interface in a request.
fn numbered(ifindex: IfIndex) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = ifindex.0;
    message
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

pub(crate) fn object(ifindex: IfIndex) -> String {
    format!("interface number {}", ifindex.0)
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

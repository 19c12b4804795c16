//! Following what diverts: notifications where the kernel sends them, a look now and then where not.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::Parseable as _;
use rustix::io::Errno;
use rustix::net::netlink;

use super::device::DeviceProbe;
use super::diversion::{Diversion, Sight};
use super::kind::DiversionKind;
use super::nfnetlink::NFNL_SUBSYS_NFTABLES;
use super::nft::{self, Rules};
use super::translation::Translation;
use super::way::Way;
use super::{legacy, link, proc, programs, rules, tc};
use crate::error::{Error, Result};
use crate::sys::link::{LinkInfo, Links, object};
use crate::sys::link_info::Answer;
use crate::sys::netlink::{Attributes, Message, Socket, number};
use crate::sys::netns::NetNs;
use crate::sys::packet;
use crate::sys::procfile::ProcFile;
use crate::sys::sched::own_cpu_time;
use crate::units::IfIndex;

/// `NFNLGRP_NFTABLES` is group 7.
const NFTABLES_GROUP: u32 = 1 << (7 - 1);
/// `RTNLGRP_IPV6_RULE` is group 19.
const RTMGRP_IPV6_RULE: u32 = 1 << (19 - 1);
/// `RTNLGRP_IPV4_NETCONF` is group 24: multicast forwarding.
const RTMGRP_IPV4_NETCONF: u32 = 1 << (24 - 1);
/// `RTNLGRP_IPV6_NETCONF` is group 25.
const RTMGRP_IPV6_NETCONF: u32 = 1 << (25 - 1);
const ROUTING_GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_TC | libc::RTMGRP_IPV4_RULE)
    .cast_unsigned()
    | RTMGRP_IPV6_RULE
    | RTMGRP_IPV4_NETCONF
    | RTMGRP_IPV6_NETCONF;

const AF_BRIDGE: u8 = 7;
/// `RTM_NEWCHAIN` and the two that follow it.
const RTM_NEWCHAIN: u16 = 100;
const RTM_GETCHAIN: u16 = 102;
const RTM_DELNETCONF: u16 = 81;
/// Bytes of `struct netconfmsg`, with what aligns its attributes.
const NETCONF_HEADER_BYTES: usize = 4;
/// Negative for all interfaces, and for those to come.
const NETCONFA_IFINDEX: u16 = 1;
/// `TCM_IFINDEX_MAGIC_BLOCK`: filters that several interfaces share.
const SHARED_FILTERS: u32 = u32::MAX;

/// Changes of tables, chains, rules and objects. Elements of sets come and go by the thousand and
/// divert nothing.
const NFT_CHANGES: [u16; 8] = [0, 2, 3, 5, 6, 8, 18, 20];

/// After a look, at least this many times the CPU time that it took passes before another, however
/// often rules change (a firewall that is loaded, containers that start): at most 2 % of a CPU, of looks of up to...
const REST_PER_LOOK: u32 = 50;
/// ...a fiftieth of this.
const REST_MAX: Duration = Duration::from_secs(60);

/// How long to rest after a look that began at this CPU time of the calling thread.
pub(super) fn rest_since(begun: Duration) -> Duration {
    (own_cpu_time().saturating_sub(begun) * REST_PER_LOOK).min(REST_MAX)
}

/// Whether what rtnetlink tells may be about this interface, or one on top of it. A host of containers makes and removes
/// others all the time.
fn concerns(message: &Message<'_>, ifindex: IfIndex) -> bool {
    let payload = message.payload();
    match message.message_type() {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            let link = Answer::parse(payload).ok().and_then(|link| link.info().ok());
            // A bridge tells of its port without saying that what is below is in a container, with a number of its own.
            let of_bridge = payload.first() == Some(&AF_BRIDGE);
            let is_on_top = |it: &LinkInfo| it.lower == Some(ifindex) && !of_bridge;
            link.is_none_or(|it| it.ifindex == ifindex || is_on_top(&it))
        }
        libc::RTM_NEWQDISC..=libc::RTM_GETTFILTER | RTM_NEWCHAIN..=RTM_GETCHAIN => {
            // In `struct tcmsg`.
            let index = payload.get(4..).and_then(number);
            index.is_none_or(|index| index == ifindex.0 || index == SHARED_FILTERS)
        }
        libc::RTM_NEWNETCONF | RTM_DELNETCONF => {
            let attributes =
                Attributes::of(payload.get(NETCONF_HEADER_BYTES..).unwrap_or_default());
            let index = attributes.number(NETCONFA_IFINDEX);
            index.is_none_or(|index| index == ifindex.0 || index.cast_signed() < 0)
        }
        _ => true,
    }
}

/// Tells what diverts an interface's packets, and when that may have changed.
///
/// Poll both descriptors for input, then ask [`DiversionWatch::changed`], then
/// [`DiversionWatch::read`]. Legacy iptables, IPVS, BPF programs and packet sockets send no notification, so
/// read now and then as well: what the kernel tells of is then read only if it has.
pub struct DiversionWatch {
    ifindex: IfIndex,
    sight: Sight,
    netfilter: Option<Socket>,
    routing: Socket,
    probe: DeviceProbe,
    netns: NetNs,
    ipvs: ProcFile,
    legacy: [ProcFile; 2],
    packet: ProcFile,
    raw: [ProcFile; 2],
    /// What rtnetlink tells; none once it has told of a change.
    routed: Option<Routed>,
    /// The rules of nftables, with their generation and the interface's name then.
    rules: Option<(u32, String, Rules)>,
    /// Their generation may have changed, also by elements of sets.
    rules_stale: bool,
    rested_at: Instant,
}

/// What the kernel tells of by rtnetlink whenever it changes.
#[derive(Clone)]
struct Routed {
    link: LinkInfo,
    own_programs: Vec<u32>,
    found: Vec<Diversion>,
    has_filters: bool,
}

impl Routed {
    fn read(ifindex: IfIndex, own_programs: &[u32]) -> Result<Self> {
        let link = Links::open()?.info(ifindex)?;
        let mut found = proc::multicast_forwarding(&link.name);
        let (filters, has_filters) = tc::filters(ifindex, own_programs);
        found.extend(filters);
        found.extend(rules::policy_routing(&link.name));
        Ok(Self { link, own_programs: own_programs.to_vec(), found, has_filters })
    }
}

impl DiversionWatch {
    /// Starts watching, in the calling thread's network namespace. What changes from now on is told.
    /// What the gate tells from other packets does not concern every one.
    ///
    /// # Errors
    /// [`Error::System`] if there is no netlink socket to be had; [`Error::Bpf`] without the
    /// privilege.
    pub fn open(ifindex: IfIndex, sight: Sight) -> Result<Self> {
        let failed = |errno| Error::system("watch", object(ifindex), errno);
        let netfilter = match Socket::watch(Some(netlink::NETFILTER), NFTABLES_GROUP) {
            Ok(socket) => Some(socket),
            // A kernel without netfilter's netlink has no nftables.
            Err(Errno::PROTONOSUPPORT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        Ok(Self {
            ifindex,
            sight,
            netfilter,
            routing: Socket::watch(None, ROUTING_GROUPS).map_err(failed)?,
            probe: DeviceProbe::load()?,
            netns: NetNs::current()?,
            ipvs: ProcFile::new(proc::IP_VS),
            legacy: legacy::tables(),
            packet: ProcFile::new(packet::TABLE),
            raw: packet::RAW_TABLES.map(ProcFile::new),
            routed: None,
            rules: None,
            rules_stale: true,
            rested_at: Instant::now(),
        })
    }

    /// Descriptors to poll.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.netfilter.iter().chain([&self.routing]).map(AsFd::as_fd)
    }

    /// Takes all pending notifications and says whether what diverts may have changed. Does not wait.
    /// Notifications that were lost count as a change.
    ///
    /// # Errors
    /// [`Error::System`] if a socket fails.
    pub fn changed(&mut self) -> Result<bool> {
        let told = Cell::new(false);
        let is_rule_change = |message: &Message<'_>| {
            told.set(true);
            let kind = message.message_type();
            kind >> 8 != NFNL_SUBSYS_NFTABLES || NFT_CHANGES.contains(&(kind & 0xff))
        };
        let failed = |errno| Error::system("watch", "diversions", errno);
        let rules = self.netfilter.as_mut().map(|socket| socket.drain(is_rule_change)).transpose();
        // Without notifications, they are asked for at each look.
        self.rules_stale |= told.get() || rules != Ok(Some(false));
        let ifindex = self.ifindex;
        let routing = self.routing.drain(|message| concerns(message, ifindex));
        if routing != Ok(false) {
            self.routed = None;
        }
        Ok(routing.map_err(failed)? || rules.map_err(failed)? == Some(true))
    }

    /// When the next look may be, if [`DiversionWatch::changed`] has told of a change: rules may change by
    /// the thousand.
    pub fn rested_at(&self) -> Instant {
        self.rested_at
    }

    /// For tests that must not wait for [`DiversionWatch::rested_at`], or would have to make it long.
    pub fn rest_for(&mut self, rest: Duration) {
        self.rested_at = Instant::now() + rest;
    }

    /// Looks. Programs with these numbers (the kernel's) at tc ingress are the caller's own and do not
    /// count. What cannot be read counts as [`DiversionKind::Unknown`].
    pub fn read(&mut self, own_programs: &[u32]) -> Vec<Diversion> {
        let begun = own_cpu_time();
        // What has changed until now is about to be read; what cannot be heard of is read, too.
        let _ = self.changed();
        let mut found = self.look(own_programs);
        found.sort();
        found.dedup();
        self.rested_at = Instant::now() + rest_since(begun);
        found
    }

    /// Whether rules were there at the last look that see the interface's packets before IP does, and may do with them
    /// what is no diversion: mark them, count them, or say that they are this host's. BPF programs are diversions.
    pub fn has_rules_at_ingress(&self) -> bool {
        self.routed.as_ref().is_some_and(|routed| routed.has_filters)
            || self.rules.as_ref().is_some_and(|(_, _, rules)| rules.are_at_ingress())
    }

    fn look(&mut self, own_programs: &[u32]) -> Vec<Diversion> {
        let routed = self.routed.take().filter(|known| known.own_programs == own_programs);
        let routed = match routed.map_or_else(|| Routed::read(self.ifindex, own_programs), Ok) {
            Ok(routed) => routed,
            Err(error) => return vec![Diversion::unknown("the interface cannot be read", error)],
        };
        let mut found = routed.found.clone();
        match self.probe.look(self.ifindex) {
            Ok(device) => found.extend(link::diversions(&routed.link, device, self.sight)),
            Err(error) => found.push(Diversion::unknown("interfaces on top", error)),
        }
        found.extend(self.tables(&routed.link.name));
        found.extend(proc::ipvs(&mut self.ipvs));
        found.extend(programs::tcx(self.ifindex, own_programs));
        found.extend(programs::sk_lookup(&self.netns));
        found.extend(self.packet_sockets());
        // What could not be read is tried again.
        let unread = routed.found.iter().any(|one| one.kind == DiversionKind::Unknown);
        self.routed = Some(routed).filter(|_| !unread);
        found
    }

    /// And raw ones.
    fn packet_sockets(&mut self) -> Vec<Diversion> {
        let packet = packet::taps(&mut self.packet, self.ifindex, self.sight.protocol);
        let raw = self.raw.iter_mut().map(packet::raw_sockets).sum();
        let told = |(what, count)| match count {
            Ok(0) => None,
            Ok(count) => {
                let detail = format!("{count} {what} socket(s)");
                Some(Diversion::new(DiversionKind::PacketSocket, detail))
            }
            Err(error) => {
                Some(Diversion::unknown(&format!("{what} sockets cannot be listed"), error))
            }
        };
        [("packet", packet), ("raw", raw)].into_iter().filter_map(told).collect()
    }

    /// Of both kinds of tables: one may translate what the other does to connections.
    fn tables(&mut self, ifname: &str) -> Vec<Diversion> {
        let mut translation = Translation::default();
        let mut found = self.nftables(ifname, &mut translation);
        found.extend(legacy::iptables(Way::In, &mut self.legacy, &mut translation));
        match self.sight.connections {
            true => translation.narrow(&mut found),
            false => translation.add_idle(&mut found),
        }
        found
    }

    /// Rules are read again only if their generation has changed.
    fn nftables(&mut self, ifname: &str, translation: &mut Translation) -> Vec<Diversion> {
        let of_name = |(_, name, _): &(u32, String, Rules)| name == ifname;
        if self.rules_stale || !self.rules.as_ref().is_some_and(of_name) {
            // Asked before the rules are read: a change in between is seen the next time.
            let generation = match nft::generation() {
                Ok(Some(generation)) => generation,
                Ok(None) => return Vec::new(),
                Err(errno) => {
                    return vec![Diversion::unknown("nftables does not answer", errno)];
                }
            };
            let current = |known: &(u32, String, Rules)| known.0 == generation && of_name(known);
            if !self.rules.as_ref().is_some_and(current) {
                self.rules = Some((generation, ifname.to_owned(), Rules::read(Way::In, ifname)));
            }
            self.rules_stale = false;
        }
        let Some((_, _, rules)) = &self.rules else { return Vec::new() };
        translation.extend(rules.translation());
        rules.diversions().to_vec()
    }
}

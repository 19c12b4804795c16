//! Rings of lazy sockets, filled by the gates: `bpf/lazy.h`.

use std::collections::{BTreeMap, HashSet};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use serde::{Deserialize, Serialize};

use crate::accounts::until;
use crate::error::{Error, Result};
use crate::gate::QueueProbe;
use crate::mapped::Mapped;
use crate::object::{id_of, load};
use crate::record::each;
use crate::skeleton::queue::types;
use crate::skeleton::rings::RingsSkelBuilder;
use crate::sys::netns;

const PORT_BITS: usize = 64;
const RING: &str = "a lazy socket's ring";
const ALL: &str = "the iterator of rings";

/// A UDP socket that may be lazy: in this network namespace, and bound to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LazySocket {
    cookie: u64,
    port: u16,
}

impl LazySocket {
    /// Of a socket that somebody else has passed, who thereby shows that it is his.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is not such a socket.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self> {
        let refused = |problem: &str, remedy: &str| Error::refused(problem, remedy);
        let no_socket = |_| refused("this is not a socket", "pass a bound UDP socket");
        let family = sockopt::socket_domain(socket).map_err(no_socket)?;
        let kind = sockopt::socket_type(socket).map_err(no_socket)?;
        let protocol = sockopt::socket_protocol(socket).map_err(no_socket)?;
        let is_udp = [AddressFamily::INET, AddressFamily::INET6].contains(&family)
            && kind == SocketType::DGRAM
            && protocol == Some(ipproto::UDP);
        if !is_udp {
            return Err(refused("this is not a UDP socket", "pass a bound UDP socket"));
        }
        if netns::cookie_of(socket)? != netns::cookie()? {
            return Err(refused(
                "the socket is in another network namespace than weir",
                "run weir in the socket's",
            ));
        }
        let cookie = sockopt::socket_cookie(socket).map_err(no_socket)?;
        let address = rustix::net::getsockname(socket).map_err(no_socket)?;
        let port = std::net::SocketAddr::try_from(address).map_or(0, |address| address.port());
        if port == 0 {
            return Err(refused("the socket is not bound to a port", "bind it first"));
        }
        Ok(Self { cookie, port })
    }

    /// Its local port.
    pub fn port(self) -> u16 {
        self.port
    }
}

/// A ring, by the kernel's number of it, which no other has while it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingId(u32);

/// The rings of all lazy sockets of one probe's gates.
pub struct LazyRings {
    /// An iterator over all rings.
    all: Link,
    shared: Mapped<types::weir_lazy>,
    rings: MapHandle,
    sockets: BTreeMap<u64, u16>,
}

impl LazyRings {
    /// Of this process's gates.
    ///
    /// # Errors
    /// When the kernel refuses to map what the gates share.
    pub fn of(probe: &QueueProbe) -> Result<Self> {
        let maps = probe.maps();
        let shared = Mapped::of(maps.lazy.as_fd(), 1)?;
        let rings = MapHandle::try_from(&maps.lazy_rings)
            .map_err(Error::bpf("open", "lazy sockets' rings"))?;
        let skel = load::<RingsSkelBuilder>(ALL, |_| Ok(()))?;
        let all = skel.progs.weir_rings.attach().map_err(Error::bpf("attach", ALL))?;
        Ok(Self { all, shared, rings, sockets: BTreeMap::new() })
    }

    /// The rings that are in memory, among them those that a program keeps after they have been
    /// [removed](LazyRings::remove).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn in_memory(&self) -> Result<HashSet<RingId>> {
        let mut found = HashSet::new();
        each(&self.all, ALL, |id: u32| {
            found.insert(RingId(id));
        })?;
        Ok(found)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Whether a socket has one.
    pub fn has(&self, socket: LazySocket) -> bool {
        self.sockets.contains_key(&socket.cookie)
    }

    /// Makes a ring of so many bytes, a power of two, and has the gates put the socket's packets there, as long as
    /// it is not [removed](LazyRings::remove).
    ///
    /// # Errors
    /// If the socket has a ring, or the kernel has no memory for one.
    pub fn add(&mut self, socket: LazySocket, bytes: u32) -> Result<(OwnedFd, RingId)> {
        if self.has(socket) {
            return Err(Error::refused(
                "the socket is lazy already",
                "close what has made it lazy first",
            ));
        }
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let ring = MapHandle::create(MapType::RingBuf, Some("weir_lazy"), 0, 0, bytes, &options)
            .map_err(Error::bpf("make", RING))?;
        let id = id_of(&ring, RING)?;
        let fd = ring.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|errno| Error::system("duplicate", RING, errno))?;
        self.rings
            .update(
                &socket.cookie.to_ne_bytes(),
                &ring.as_fd().as_raw_fd().to_ne_bytes(),
                MapFlags::NO_EXIST,
            )
            .map_err(Error::bpf("add", RING))?;
        self.sockets.insert(socket.cookie, socket.port);
        self.publish(socket.port);
        Ok((fd, RingId(id)))
    }

    /// Packets go to the kernel's socket from now on: when this returns, no gate puts any on the ring.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&mut self, socket: LazySocket) -> Result<()> {
        if self.sockets.remove(&socket.cookie).is_none() {
            return Ok(());
        }
        self.publish(socket.port);
        self.rings.delete(&socket.cookie.to_ne_bytes()).map_err(Error::bpf("remove", RING))
    }

    /// While they are held, all packets go to the kernel's sockets.
    pub fn hold(&self, held: bool) {
        self.shared.set(0, offset_of!(types::weir_lazy, held), u32::from(held));
    }

    /// Has the gates believe for as long from now that they are held, or not held, for good reason; then all packets go
    /// to the kernel's sockets until it is said anew. Whoever never says it is believed for ever.
    pub fn believe_for(&self, time: Duration) {
        self.shared.set(0, offset_of!(types::weir_lazy, fresh_until_ns), until(time).0);
    }

    /// Tells the gates how many sockets there are, and whether some are on this port.
    fn publish(&self, port: u16) {
        let word = usize::from(port) / PORT_BITS;
        let same_word = |other: &&u16| usize::from(**other) / PORT_BITS == word;
        let bits = self.sockets.values().filter(same_word);
        let bits = bits.fold(0_u64, |bits, other| bits | 1 << (usize::from(*other) % PORT_BITS));
        self.shared.set(0, offset_of!(types::weir_lazy, ports) + 8 * word, bits);
        let count = u32::try_from(self.sockets.len()).unwrap_or(u32::MAX);
        self.shared.set(0, offset_of!(types::weir_lazy, sockets), count);
    }
}

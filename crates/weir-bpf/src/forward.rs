//! The fast path of forwarding, in front of a gate or behind a wall: `bpf/forward.h`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, MapCore, MapFlags, ProgramMut};

use crate::address_table::{self, AddressTable};

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::shared::globals;
use crate::sys::ethtool;
use crate::units::{IfIndex, MacAddr};
use crate::wall::Wall;

/// What forwards an interface's packets in the driver.
pub trait FastPath {
    /// Whether packets that need nothing but routing leave at the driver, by the interfaces of
    /// [`FastPath::set_egresses`]. At first they do not. Takes effect with the next packet.
    fn set_forwarding(&mut self, forwards: bool);

    /// The interfaces by which the fast path sends, in place of those it knew.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    fn set_egresses(&mut self, egresses: &[IfIndex]) -> Result<()>;
}

impl Gate {
    /// Packets that the fast path does not take go on to the gate; those that it loses are counted.
    pub(crate) fn lead_on(&mut self) -> Result<()> {
        let gate = self.skel().progs.weir_gate.as_fd().as_raw_fd().to_ne_bytes();
        let behind = &self.skel().maps.behind;
        behind
            .update(&0_u32.to_ne_bytes(), &gate, MapFlags::ANY)
            .map_err(failed("put the gate behind"))?;
        let programs = &self.skel().progs;
        self.unsent = attach_both(&programs.weir_unsent, &programs.weir_rejected)?;
        Ok(())
    }

    /// Of the packets under [`Reason::Forwarded`], those that the egress's driver did not take: its transmit ring had
    /// no room.
    ///
    /// [`Reason::Forwarded`]: crate::verdict::Reason::Forwarded
    pub fn unsent(&self) -> u64 {
        globals(self.skel().maps.bss_data.as_deref()).unsent
    }
}

/// They are counted under [`Reason::Forwarded`]. While the gate is told that packets are diverted, or believes nothing,
/// no packet leaves so.
///
/// [`Reason::Forwarded`]: crate::verdict::Reason::Forwarded
impl FastPath for Gate {
    fn set_forwarding(&mut self, forwards: bool) {
        let forwards = u16::from(forwards && self.forwards);
        self.bss().interface.forwards = forwards;
    }

    fn set_egresses(&mut self, egresses: &[IfIndex]) -> Result<()> {
        match self.forwards {
            true => replace_egresses(&self.skel().maps.out_devices, egresses),
            false => Ok(()),
        }
    }
}

/// What the fast path behind a wall knows, beside what its variables hold.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    addresses: AddressTable,
    /// Of each side: whether a packet that came in there may leave by the other.
    open: [bool; 2],
    counting: Vec<Link>,
}

/// With [`Options::forwarding`](crate::wall::Options::forwarding) alone.
impl Wall {
    /// Those that the fast path loses are counted.
    pub(crate) fn count_unsent(&mut self) -> Result<()> {
        let programs = &self.skel.progs;
        self.behind.counting = attach_both(&programs.weir_unsent, &programs.weir_rejected)?;
        Ok(())
    }

    /// Of the accepted packets, those that the egress's driver did not take: its transmit ring had no room.
    pub fn unsent(&self) -> u64 {
        globals(self.skel.maps.bss_data.as_deref()).unsent
    }

    /// Tells which interface a side is, with its own MAC address.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn set_side(
        &mut self,
        side: usize,
        ifindex: IfIndex,
        ifname: &str,
        mac: MacAddr,
    ) -> Result<()> {
        let it = &mut globals(self.skel.maps.bss_data.as_deref_mut()).sides[side];
        it.ifindex = ifindex.0;
        it.mac = mac.words();
        it.unfinished = u32::from(ethtool::driver(ifname).is_ok_and(|driver| driver == "veth"));
        let device = ifindex.0.to_ne_bytes();
        let added = self.skel.maps.out_devices.update(&device, &device, MapFlags::ANY);
        added.map_err(failed("give an egress to"))
    }

    /// Tells the host's own addresses, in place of those that it knew. What they send, the kernel forwards.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn set_addresses(&mut self, own: &[IpAddr], broadcast: &[Ipv4Addr]) -> Result<()> {
        let maps = &self.skel.maps;
        let wanted = address_table::of(own, broadcast);
        self.behind.addresses.replace(&wanted, &maps.local_ipv4, &maps.local_ipv6)
    }

    /// One of the two sides, to be told what is on the way of the packets that come in there.
    pub fn side(&mut self, number: usize) -> Side<'_> {
        Side { wall: self, number }
    }
}

/// One side of a wall behind which what the screen has accepted may leave at the driver: by the other side alone, and
/// not while the screen is dead.
pub struct Side<'wall> {
    wall: &'wall mut Wall,
    number: usize,
}

impl FastPath for Side<'_> {
    fn set_forwarding(&mut self, forwards: bool) {
        let forwards = u16::from(forwards && self.wall.behind.open[self.number]);
        let bss = globals(self.wall.skel.maps.bss_data.as_deref_mut());
        bss.sides[self.number].forwards = forwards;
    }

    fn set_egresses(&mut self, egresses: &[IfIndex]) -> Result<()> {
        self.wall.behind.open[self.number] = !egresses.is_empty();
        Ok(())
    }
}

fn attach_both(unsent: &ProgramMut<'_>, rejected: &ProgramMut<'_>) -> Result<Vec<Link>> {
    let links: libbpf_rs::Result<_> =
        [unsent, rejected].map(|it| it.attach()).into_iter().collect();
    links.map_err(failed("count what is lost behind"))
}

fn replace_egresses(map: &impl MapCore, egresses: &[IfIndex]) -> Result<()> {
    let wanted: BTreeSet<_> = egresses.iter().map(|egress| egress.0.to_ne_bytes()).collect();
    let known: Vec<Vec<u8>> = map.keys().collect();
    for gone in known.iter().filter(|key| !wanted.iter().any(|wanted| *key == wanted)) {
        map.delete(gone).map_err(failed("take an egress from"))?;
    }
    for egress in wanted.iter().filter(|egress| !known.iter().any(|key| key == *egress)) {
        map.update(egress, egress, MapFlags::ANY).map_err(failed("give an egress to"))?;
    }
    Ok(())
}

fn failed(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    Error::libbpf(operation, "the fast path")
}

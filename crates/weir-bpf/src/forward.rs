//! The fast path of forwarding, in front of a gate or behind a wall: `bpf/forward.h`.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapMut, ProgramMut};

use crate::accounts::monotonic_now;
use crate::address_table::{self, AddressTable};

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::shared::globals;
use crate::skeleton::wall::types;
use crate::sys::ethtool;
use crate::sys::local_table::LocalAddresses;
use crate::units::{IfIndex, MacAddr};
use crate::wall::Wall;

/// What forwards an interface's packets in the driver.
pub trait FastPath {
    /// Whether packets that need nothing but routing leave at the driver, by the interfaces of
    /// [`FastPath::set_egresses`]. At first they do not. Takes effect with the next packet.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    fn set_forwarding(&mut self, forwards: bool) -> Result<()>;

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
    fn set_forwarding(&mut self, forwards: bool) -> Result<()> {
        let forwards = u16::from(forwards && self.forwards);
        self.bss().interface.forwards = forwards;
        Ok(())
    }

    fn set_egresses(&mut self, egresses: &[IfIndex]) -> Result<()> {
        match self.forwards {
            true => replace_egresses(&self.skel().maps.out_devices, egresses),
            false => Ok(()),
        }
    }
}

/// With [`Options::forwarding`](crate::wall::Options::forwarding) alone.
impl Wall {
    /// Those that the fast path loses are counted.
    pub(crate) fn count_unsent(&mut self) -> Result<()> {
        let programs = &self.skel.progs;
        self.unsent = attach_both(&programs.weir_unsent, &programs.weir_rejected)?;
        Ok(())
    }

    /// Of the accepted packets, those that the egress's driver did not take: its transmit ring had no room.
    pub fn unsent(&self) -> u64 {
        globals(self.skel.maps.bss_data.as_deref()).unsent
    }

    /// The fast path behind it, between these interfaces.
    ///
    /// # Errors
    /// For want of descriptors.
    pub fn behind(&self, sides: [(IfIndex, &str); 2]) -> Result<Behind> {
        let maps = &self.skel.maps;
        let handle = |map: &MapMut<'_>| MapHandle::try_from(map).map_err(failed("open"));
        Ok(Behind {
            map: handle(&maps.sides)?,
            out_devices: handle(&maps.out_devices)?,
            local: [handle(&maps.local_ipv4)?, handle(&maps.local_ipv6)?],
            addresses: AddressTable::default(),
            sides: sides.map(|(ifindex, ifname)| types::weir_wall_side {
                ifindex: ifindex.0,
                unfinished: u32::from(is_unfinished(ifname)),
                ..Default::default()
            }),
            open: [false; 2],
        })
    }
}

/// What forwards in the driver what a screen has accepted. It stays with the wall.
pub struct Behind {
    map: MapHandle,
    out_devices: MapHandle,
    local: [MapHandle; 2],
    addresses: AddressTable,
    sides: [types::weir_wall_side; 2],
    /// Of each side: whether a packet that came in there may leave by the other.
    open: [bool; 2],
}

impl Behind {
    /// A side's own MAC address. In force with [`Behind::believe_for`], and so is what a [`Side`] is told.
    pub fn set_mac(&mut self, side: usize, mac: MacAddr) {
        self.sides[side].mac = mac.words();
    }

    /// Tells the host's own addresses, in place of those that it knew. What they send, the kernel forwards.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn set_local(&mut self, addresses: &LocalAddresses) -> Result<()> {
        let [ipv4, ipv6] = &self.local;
        self.addresses.replace(&address_table::of(addresses), ipv4, ipv6)
    }

    /// Has what was told believed for as long from now; then the kernel forwards every packet.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn believe_for(&mut self, time: Duration) -> Result<()> {
        let until = monotonic_now().0.saturating_add(time.as_nanos() as u64);
        let devices: Vec<_> = self.sides.iter().map(|side| IfIndex(side.ifindex)).collect();
        replace_egresses(&self.out_devices, &devices)?;
        for number in 0..self.sides.len() {
            self.sides[number].fresh_until_ns = until;
            self.write(number)?;
        }
        Ok(())
    }

    /// One of the two sides, to be told what is on the way of the packets that come in there.
    pub fn side(&mut self, number: usize) -> Side<'_> {
        Side { behind: self, number }
    }

    fn write(&self, number: usize) -> Result<()> {
        let key = (number as u32).to_ne_bytes();
        let it = &self.sides[number];
        let mac = it.mac.map(u16::to_ne_bytes).concat();
        let value = [
            &it.fresh_until_ns.to_ne_bytes()[..],
            &it.ifindex.to_ne_bytes(),
            &mac,
            &it.forwards.to_ne_bytes(),
            &it.unfinished.to_ne_bytes(),
        ];
        self.map.update(&key, &value.concat(), MapFlags::ANY).map_err(failed("tell"))
    }
}

/// One side of a wall behind which what the screen has accepted may leave at the driver, by the other side alone.
pub struct Side<'behind> {
    behind: &'behind mut Behind,
    number: usize,
}

impl FastPath for Side<'_> {
    fn set_forwarding(&mut self, forwards: bool) -> Result<()> {
        let forwards = forwards && self.behind.open[self.number];
        self.behind.sides[self.number].forwards = u16::from(forwards);
        // What is allowed is with what else was seen; what is not, at once.
        if forwards { Ok(()) } else { self.behind.write(self.number) }
    }

    fn set_egresses(&mut self, egresses: &[IfIndex]) -> Result<()> {
        self.behind.open[self.number] = !egresses.is_empty();
        Ok(())
    }
}

/// Whether the driver hands on packets of which only their skb tells the tag and the checksum. One that is not known may.
pub(crate) fn is_unfinished(ifname: &str) -> bool {
    !ethtool::driver(ifname).is_ok_and(|driver| driver != "veth")
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

//! The fast path of forwarding, in front of a gate or behind a wall: `bpf/forward.h`.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};

use crate::accounts::until;
use crate::address_table::{self, AddressTable};
use crate::attach::AttachMode;
use crate::error::{Error, Result};
use crate::gate::{Gate, QueueProbe};
use crate::mapped::Mapped;
use crate::object::{attach_all, globals};
use crate::skeleton::wall::types::weir_wall_side as Side;
use crate::sys::ethtool;
use crate::sys::local_table::LocalAddresses;
use crate::sys::netns::NetNs;
use crate::units::{IfIndex, MacAddr};
use crate::wall::{WALL, Wall};

const FAST_PATH: &str = "the fast path";

/// What forwards an interface's packets in the driver.
pub trait FastPath {
    /// The interfaces by which packets that need nothing but routing leave at the driver, in place of those it knew.
    /// With none, as at first, the kernel forwards every packet from the next on, whether this succeeds or not.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    fn send_by(&mut self, egresses: &[IfIndex]) -> Result<()>;
}

impl Gate {
    /// As [`Gate::load`], with the fast path of forwarding in front of it, in the driver: see
    /// [`Gate::send_by`]. For an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Gate::load`].
    pub fn load_forwarding(probe: &QueueProbe) -> Result<Self> {
        let netns = NetNs::current()?.number();
        let mut gate =
            Self::load_with(probe, AttachMode::Native, true, |rodata| rodata.netns = netns)?;
        gate.lead_on()?;
        Ok(gate)
    }

    /// Packets that the fast path does not take go on to the gate; those that it loses are counted.
    fn lead_on(&mut self) -> Result<()> {
        let gate = self.skel().progs.weir_gate.as_fd().as_raw_fd().to_ne_bytes();
        let behind = &self.skel().maps.behind;
        behind
            .update(&0_u32.to_ne_bytes(), &gate, MapFlags::ANY)
            .map_err(Error::libbpf("put the gate behind", FAST_PATH))?;
        let programs = &self.skel().progs;
        self.unsent = attach_all(FAST_PATH, [&programs.weir_unsent, &programs.weir_rejected])?;
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
    fn send_by(&mut self, egresses: &[IfIndex]) -> Result<()> {
        let forwards = u16::from(self.forwards && !egresses.is_empty());
        self.bss().interface.forwards &= forwards;
        if self.forwards {
            replace_egresses(&self.skel().maps.out_devices, egresses)?;
        }
        self.bss().interface.forwards = forwards;
        Ok(())
    }
}

impl Wall {
    /// Of the accepted packets, those that the egress's driver did not take: its transmit ring had no room.
    pub fn unsent(&self) -> u64 {
        globals(self.skel.maps.bss_data.as_deref()).unsent
    }

    /// What it is told of its sides, these interfaces; and the fast path between them, with
    /// [`Options::forwarding`](crate::wall::Options::forwarding).
    ///
    /// # Errors
    /// For want of descriptors or memory.
    pub fn behind(&self, between: [(IfIndex, &str); 2]) -> Result<Behind> {
        let maps = &self.skel.maps;
        let handle =
            |map: &MapMut<'_>| MapHandle::try_from(map).map_err(Error::libbpf("open", WALL));
        let sides = Mapped::of(maps.sides.as_fd(), between.len())?;
        for (number, (ifindex, ifname)) in between.into_iter().enumerate() {
            let unfinished = u16::from(ethtool::is_unfinished(ifname));
            let side = Side { ifindex: ifindex.0, unfinished, ..Default::default() };
            sides.write(number as u32, side);
        }
        if globals(maps.rodata_data).forwarding {
            replace_egresses(&maps.out_devices, &between.map(|(ifindex, _)| ifindex))?;
        }
        Ok(Behind {
            sides,
            local: [handle(&maps.local_ipv4)?, handle(&maps.local_ipv6)?],
            addresses: AddressTable::default(),
        })
    }
}

/// What passes as the host's own, and what forwards in the driver what a screen has accepted. It stays with the wall.
pub struct Behind {
    sides: Mapped<Side>,
    local: [MapHandle; 2],
    addresses: AddressTable,
}

impl Behind {
    /// A side's own MAC address.
    pub fn set_mac(&mut self, side: usize, mac: MacAddr) {
        self.sides.set(side as u32, offset_of!(Side, mac), mac.words());
    }

    /// Tells the host's own addresses, in place of those that it knew. What is for them passes; what they send, the
    /// kernel forwards.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn set_local(&mut self, addresses: &LocalAddresses) -> Result<()> {
        let [ipv4, ipv6] = &self.local;
        self.addresses.replace(&address_table::of(addresses), ipv4, ipv6)
    }

    /// Has what was told believed for as long from now; before, and then, the kernel forwards every packet.
    pub fn believe_for(&mut self, time: Duration) {
        let until = until(time);
        for side in 0..self.sides.len() {
            self.sides.set(side, offset_of!(Side, fresh_until_ns), until.0);
        }
    }

    /// What is told of the way of the packets that come in at a side.
    pub fn way_from(&mut self, side: usize) -> Way<'_> {
        Way { behind: self, side: side as u32 }
    }
}

/// The way from one side of a wall to the other, by which alone what the screen has accepted may leave at the driver.
pub struct Way<'behind> {
    behind: &'behind mut Behind,
    side: u32,
}

impl FastPath for Way<'_> {
    fn send_by(&mut self, egresses: &[IfIndex]) -> Result<()> {
        let forwards = u16::from(!egresses.is_empty());
        self.behind.sides.set(self.side, offset_of!(Side, forwards), forwards);
        Ok(())
    }
}

fn replace_egresses(map: &impl MapCore, egresses: &[IfIndex]) -> Result<()> {
    let wanted: BTreeSet<_> = egresses.iter().map(|egress| egress.0.to_ne_bytes()).collect();
    let known: Vec<Vec<u8>> = map.keys().collect();
    for gone in known.iter().filter(|key| !wanted.iter().any(|wanted| *key == wanted)) {
        map.delete(gone).map_err(Error::libbpf("take an egress from", FAST_PATH))?;
    }
    for egress in wanted.iter().filter(|egress| !known.iter().any(|key| key == *egress)) {
        map.update(egress, egress, MapFlags::ANY)
            .map_err(Error::libbpf("give an egress to", FAST_PATH))?;
    }
    Ok(())
}

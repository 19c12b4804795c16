//! The fast path of forwarding, in front of a gate: `bpf/forward.h`.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags};

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::shared::globals;
use crate::units::IfIndex;

impl Gate {
    /// Packets that the fast path does not take go on to the gate; those that it loses are counted.
    pub(crate) fn lead_on(&mut self) -> Result<()> {
        let gate = self.skel().progs.weir_gate.as_fd().as_raw_fd().to_ne_bytes();
        let behind = &self.skel().maps.behind;
        behind
            .update(&0_u32.to_ne_bytes(), &gate, MapFlags::ANY)
            .map_err(failed("put the gate behind"))?;
        let programs = &self.skel().progs;
        let counting = [&programs.weir_unsent, &programs.weir_rejected];
        let counting: libbpf_rs::Result<_> = counting.map(|it| it.attach()).into_iter().collect();
        self.unsent = counting.map_err(failed("count what is lost behind"))?;
        Ok(())
    }

    /// Of the packets under [`Reason::Forwarded`], those that the egress's driver did not take: its transmit ring had
    /// no room.
    ///
    /// [`Reason::Forwarded`]: crate::verdict::Reason::Forwarded
    pub fn unsent(&self) -> u64 {
        globals(self.skel().maps.bss_data.as_deref()).unsent
    }

    /// Whether packets that need nothing but routing leave at the driver, by the interfaces of
    /// [`Gate::set_egresses`], under [`Reason::Forwarded`]. At first they do not. Takes effect with the next packet;
    /// while the gate is told that packets are diverted, or believes nothing, no packet leaves so.
    ///
    /// [`Reason::Forwarded`]: crate::verdict::Reason::Forwarded
    pub fn set_forwarding(&mut self, forwards: bool) {
        let forwards = u16::from(forwards && self.forwards);
        self.bss().interface.forwards = forwards;
    }

    /// The interfaces by which the fast path sends, in place of those it knew.
    ///
    /// # Errors
    /// When the kernel refuses a map update.
    pub fn set_egresses(&mut self, egresses: &[IfIndex]) -> Result<()> {
        if !self.forwards {
            return Ok(());
        }
        let map = &self.skel().maps.out_devices;
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
}

fn failed(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    Error::libbpf(operation, "the fast path")
}

//! The kernel's own record of what takes an interface's packets: `bpf/device.bpf.c`, run once.

use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::object::load;
use crate::skeleton::device::types::weir_device;
use crate::skeleton::device::{DeviceSkel, DeviceSkelBuilder};
use crate::sys::link::object;
use crate::test_run;
use crate::units::IfIndex;

const ETHERNET_HEADER_BYTES: usize = 14;

/// What is in the way of an interface's packets, in whichever namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    /// The kernel function that takes them (bridge, bond, macvlan, ...); 0: none.
    pub(super) rx_handler: u64,
    /// The port of a switch (DSA) whose packets it carries, tagged for the switch's other ports; 0: none.
    pub(super) dsa_ptr: u64,
    /// How many VLAN interfaces are on top.
    pub(super) vlan_devices: u32,
}

/// The loaded program.
pub(super) struct DeviceProbe {
    skel: DeviceSkel<'static>,
}

impl DeviceProbe {
    pub(super) fn load() -> Result<Self> {
        Ok(Self { skel: load::<DeviceSkelBuilder>("the device probe", |_| Ok(()))? })
    }

    /// Looks at an interface of the calling thread's network namespace.
    pub(super) fn look(&self, ifindex: IfIndex) -> Result<Device> {
        let context = test_run::skb_context(ifindex);
        let program = self.skel.progs.weir_device.as_fd();
        test_run::run(program, &[0; ETHERNET_HEADER_BYTES], &context, Default::default())
            .map_err(|source| Error::system("run the device probe on", object(ifindex), source))?;
        let seen = self.skel.maps.bss_data.as_deref().map(|bss| bss.seen);
        // Reads that fail leave zeros.
        match seen {
            Some(seen) if seen.ifindex == ifindex.0 => {
                let weir_device { rx_handler, dsa_ptr, vlan_devices, .. } = seen;
                Ok(Device { rx_handler, dsa_ptr, vlan_devices })
            }
            _ => Err(Error::refused(
                format!("the kernel's record of {} is unreadable", object(ifindex)),
                "use a kernel with BTF (/sys/kernel/btf/vmlinux)",
            )),
        }
    }
}

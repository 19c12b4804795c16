//! The kernel's own record of what takes an interface's packets: `bpf/device.bpf.c`, run once.

use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::object::load;
/// What is in the way of an interface's packets, in whichever namespace.
pub(super) use crate::skeleton::device::types::weir_device as Device;
use crate::skeleton::device::{DeviceSkel, DeviceSkelBuilder};
use crate::sys::link::object;
use crate::test_run;
use crate::units::IfIndex;

const ETHERNET_HEADER_BYTES: usize = 14;

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
            Some(seen) if seen.ifindex == ifindex.0 => Ok(seen),
            _ => Err(Error::refused(
                format!("the kernel's record of {} is unreadable", object(ifindex)),
                "use a kernel with BTF (/sys/kernel/btf/vmlinux)",
            )),
        }
    }
}

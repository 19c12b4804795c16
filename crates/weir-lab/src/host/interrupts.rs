//! Receive interrupts on a chosen CPU.
//!
//! A veth has no interrupt of its own: its NAPI instance runs on the CPU that sent, the generator's.
//! With interrupts deferred (`napi_defer_hard_irqs`, `gro_flush_timeout`), NAPI is started by a timer
//! on the CPU where it last ran, and by nothing else (`napi_complete_done()`, `napi_watchdog()`): a
//! timer interrupt, then softirq on its exit, as with a NIC that moderates its interrupts and whose
//! interrupt is bound to that CPU. So the first packet is to be sent from there.

use std::time::Duration;

use weir_bpf::sys::sysfs::NetSysfs;

use crate::error::Result;

/// Time between two interrupts of the host under test when packets arrive without pause: a NIC's
/// `rx-usecs`.
pub const MODERATION: Duration = Duration::from_micros(50);
/// As many polls without a packet as this before another CPU could get NAPI back: days.
const DEFER: &str = "2147483647";

/// Lets a timer alone start an interface's NAPI, on the CPU where it runs next.
pub fn defer(sysfs: &NetSysfs, interface: &str, moderation: Duration) -> Result<()> {
    sysfs.write(interface, "gro_flush_timeout", &moderation.as_nanos().to_string())?;
    sysfs.write(interface, "napi_defer_hard_irqs", DEFER)?;
    Ok(())
}

/// Undoes [`defer`]; the timer ends with the next poll.
pub fn defer_no_more(sysfs: &NetSysfs, interface: &str) -> Result<()> {
    sysfs.write(interface, "napi_defer_hard_irqs", "0")?;
    sysfs.write(interface, "gro_flush_timeout", "0")?;
    Ok(())
}

//! Receive interrupts on the SUT's CPU, for `stock` and `softirq`.
//!
//! A veth has no interrupt of its own: its NAPI instance runs on the CPU that sent, the generator's.
//! With interrupts deferred (`napi_defer_hard_irqs`, `gro_flush_timeout`), NAPI is started by a timer
//! on the CPU where it last ran, and by nothing else (`napi_complete_done()`, `napi_watchdog()`): a
//! timer interrupt, then softirq on its exit, as with a NIC that moderates its interrupts and whose
//! interrupt is bound to the SUT's CPU. So the first packet is sent from there.

use std::time::{Duration, Instant};

use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::units::PacketsPerSec;

use crate::bench::{Bench, FLOODED_PORT};
use crate::error::{Error, Result};
use crate::results::Mode;
use crate::topology::SUT_INTERFACE;

/// Time between two interrupts when packets arrive without pause: a NIC's `rx-usecs`.
pub const MODERATION: Duration = Duration::from_micros(50);
/// As many polls without a packet as this before the generator's CPU could get NAPI back: days.
const DEFER: &str = "2147483647";
const FIRST_PACKET_DEADLINE: Duration = Duration::from_secs(2);
const SLOWEST: PacketsPerSec = PacketsPerSec(10_000.0);

/// Binds a mode's receive interrupts to the SUT's CPU until [`release`].
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn bind(bench: &mut Bench, mode: Mode) -> Result<()> {
    defer(&bench.sut(mode).host.sysfs, SUT_INTERFACE, MODERATION)?;
    bench.aim_at_port(mode, FLOODED_PORT, SLOWEST)?;
    let bench = &*bench;
    let from_sut = Some(bench.sut_cpu);
    bench.generator.run_while(&bench.topology.generator, from_sut, || {
        bench.generator.start();
        let deadline = Instant::now() + FIRST_PACKET_DEADLINE;
        while bench.generator.counts(0).sent == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    })?;
    if bench.generator.counts(0).sent == 0 {
        return Err(Error::refused(
            "the generator sent nothing from the SUT's CPU",
            "is that CPU busy? see `top`",
        ));
    }
    Ok(())
}

/// Puts the interrupts back; the timer ends with the next poll.
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn release(bench: &Bench, mode: Mode) -> Result<()> {
    defer_no_more(&bench.sut(mode).host.sysfs, SUT_INTERFACE)
}

/// Lets a timer alone start an interface's NAPI, on the CPU where it runs next.
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn defer(sysfs: &NetSysfs, interface: &str, moderation: Duration) -> Result<()> {
    sysfs.write(interface, "gro_flush_timeout", &moderation.as_nanos().to_string())?;
    sysfs.write(interface, "napi_defer_hard_irqs", DEFER)?;
    Ok(())
}

/// Undoes [`defer`].
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn defer_no_more(sysfs: &NetSysfs, interface: &str) -> Result<()> {
    sysfs.write(interface, "napi_defer_hard_irqs", "0")?;
    sysfs.write(interface, "gro_flush_timeout", "0")?;
    Ok(())
}

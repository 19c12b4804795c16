//! The other end of a host's wire, as a client's host.
//!
//! A veth delivers on the CPU that sent, so the client's host would be working on the server's CPU; with
//! its interrupts deferred, NAPI runs on the generator's CPU, started by a timer there, as `stock`'s
//! does on the server's ([`crate::interrupts`]).
//!
//! A veth hands packets of its own host's sockets to the peer's NAPI, and so to the ring, only where
//! it has no TSO (`veth_skb_is_eligible_for_gro()`); others go past it, straight to IP, on the CPU
//! that sent. So neither end has TSO, in any mode.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use weir_bpf::sys::ethtool;

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::interrupts;
use crate::results::Mode;
use crate::topology::SUT_INTERFACE;

/// Time between two interrupts of the client's interface.
const MODERATION: Duration = Duration::from_micros(100);

/// Makes the generator's end of a host's wire the client's.
///
/// # Errors
/// Where the kernel refuses.
pub fn set_up(bench: &Bench, mode: Mode) -> Result<()> {
    let (topology, host) = (&bench.topology, &bench.sut(mode).host);
    let (client, server) = host.address;
    let links = &topology.generator_links;
    links.add_address(host.generator_ifindex, client, if client.is_ipv6() { 64 } else { 24 })?;
    links.add_neighbour(host.generator_ifindex, server, host.mac.1)?;
    topology.generator.run(|| {
        ethtool::set_gro(&host.generator_ifname, true)?;
        ethtool::set_tso(&host.generator_ifname, false)
    })??;
    host.netns.run(|| ethtool::set_tso(SUT_INTERFACE, false))??;
    Ok(())
}

/// Binds the interrupts of the client's end to the generator's CPU until [`release`], by a packet from
/// the host to `nobody`.
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn bind(bench: &Bench, mode: Mode, nobody: SocketAddr) -> Result<()> {
    let host = &bench.sut(mode).host;
    let (sysfs, interface) = (&bench.topology.generator_sysfs, host.generator_ifname.as_str());
    interrupts::defer(sysfs, interface, MODERATION)?;
    // From this CPU, the generator's.
    let any = SocketAddr::new(host.address.1, 0);
    let sent = host.netns.run(|| UdpSocket::bind(any)?.send_to(&[0], nobody))?;
    sent.map_err(|source| Error::io("send", "a packet to the generator", source))?;
    Ok(())
}

/// Puts the interrupts back.
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn release(bench: &Bench, mode: Mode) -> Result<()> {
    let host = &bench.sut(mode).host;
    interrupts::defer_no_more(&bench.topology.generator_sysfs, &host.generator_ifname)
}

//! The client's and the flood's side of the wire: what makes the generator's namespace a host that the
//! server can answer.
//!
//! The flood comes from random addresses of [`FLOOD_SOURCES`], so the server's answers to it come back,
//! and are dropped before IP sees them. A veth delivers on the CPU that sent, so the client's host
//! would be working on the server's CPU; with its interrupts deferred, NAPI runs on the
//! generator's CPU, started by a timer there, as `stock`'s does on the server's
//! ([`crate::interrupts`]).
//!
//! A veth hands packets of its own host's TCP to the peer's NAPI, and so to the ring that the flood
//! fills, only where it has no TSO (`veth_skb_is_eligible_for_gro()`); others go past it, straight to
//! IP, on the CPU that sent. So neither end has TSO, in any mode.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::interrupts;
use crate::nft::nft;
use crate::results::Mode;
use crate::topology::{Host, SUT_INTERFACE};

/// Where the flood's SYNs say they come from: the second half of the benchmarking range.
pub const FLOOD_SOURCES: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);
/// Time between two interrupts of the client's interface.
const MODERATION: Duration = Duration::from_micros(100);

/// Makes the generator's end of each host's wire the client's.
///
/// # Errors
/// Without `nft`, or where the kernel refuses.
pub fn set_up(bench: &Bench, modes: &[Mode]) -> Result<()> {
    let topology = &bench.topology;
    for mode in modes {
        let host = &bench.sut(*mode).host;
        let (client, server) = v4(host)?;
        let links = &topology.generator_links;
        links.add_address(host.generator_ifindex, client.into(), 24)?;
        links.add_neighbour(host.generator_ifindex, server.into(), host.mac.1)?;
        topology.generator.run(|| {
            ethtool::set_gro(&host.generator_ifname, true)?;
            ethtool::set_tso(&host.generator_ifname, false)
        })??;
        host.netns.run(|| {
            ethtool::set_tso(SUT_INTERFACE, false)?;
            Links::open()?.add_route(FLOOD_SOURCES, client)
        })??;
    }
    let interfaces: Vec<String> = modes
        .iter()
        .map(|mode| format!("\"{}\"", bench.sut(*mode).host.generator_ifname))
        .collect();
    let (network, bits) = FLOOD_SOURCES;
    let chain = format!(
        "type filter hook ingress devices = {{ {} }} priority 0; ip daddr {network}/{bits} drop;",
        interfaces.join(", ")
    );
    nft(&topology.generator, &format!("table netdev weir_lab {{ chain answers {{ {chain} }}; }}"))
}

/// The client's address and the server's.
fn v4(host: &Host) -> Result<(Ipv4Addr, Ipv4Addr)> {
    match host.address {
        (IpAddr::V4(client), IpAddr::V4(server)) => Ok((client, server)),
        _ => Err(Error::refused(format!("{} is over IPv4", super::NAME), "leave --ipv6 out")),
    }
}

/// Binds a host's answers to the generator's CPU until [`release`].
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn bind(bench: &Bench, mode: Mode) -> Result<()> {
    let host = &bench.sut(mode).host;
    let (sysfs, interface) = (&bench.topology.generator_sysfs, host.generator_ifname.as_str());
    interrupts::defer(sysfs, interface, MODERATION)?;
    // From this CPU, the generator's; it ends where the answers to the flood do.
    let sent = host.netns.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.send_to(&[0], (Ipv4Addr::from_bits(FLOOD_SOURCES.0.to_bits() + 1), 9))
    })?;
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

//! The flood's side of the wire, beside the client's ([`crate::far_end`]).
//!
//! The flood comes from random addresses of [`FLOOD_SOURCES`], so the server's answers to it come back,
//! and are dropped before IP sees them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_bpf::sys::link::Links;

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::far_end;
use crate::nft::nft;
use crate::results::Mode;
use crate::topology::Host;

/// Where the flood's SYNs say they come from: the second half of the benchmarking range.
pub const FLOOD_SOURCES: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);
/// The port of none of their listeners: they have none.
const NOBODYS_PORT: u16 = 9;

/// Makes the generator's end of each host's wire the client's and the flood's.
///
/// # Errors
/// Without `nft`, or where the kernel refuses.
pub fn set_up(bench: &Bench, modes: &[Mode]) -> Result<()> {
    for mode in modes {
        far_end::set_up(bench, *mode)?;
        let host = &bench.sut(*mode).host;
        let client = v4(host)?;
        host.netns.run(|| Links::open()?.add_route(FLOOD_SOURCES, client))??;
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
    let table = format!("table netdev weir_lab {{ chain answers {{ {chain} }}; }}");
    nft(&bench.topology.generator, &table)
}

/// The client's address.
fn v4(host: &Host) -> Result<Ipv4Addr> {
    match host.address.0 {
        IpAddr::V4(client) => Ok(client),
        IpAddr::V6(_) => {
            Err(Error::refused(format!("{} is over IPv4", super::NAME), "leave --ipv6 out"))
        }
    }
}

/// Binds a host's answers to the generator's CPU until [`far_end::release`].
///
/// # Errors
/// Where the kernel refuses the settings.
pub fn bind(bench: &Bench, mode: Mode) -> Result<()> {
    // It ends where the answers to the flood do.
    let source = Ipv4Addr::from_bits(FLOOD_SOURCES.0.to_bits() + 1);
    far_end::bind(bench, mode, SocketAddr::new(source.into(), NOBODYS_PORT))
}

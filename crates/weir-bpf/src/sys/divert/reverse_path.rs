//! The reverse path filter: it drops packets from where no route leads to (`__fib_validate_source()`).

use netlink_packet_core::{NLM_F_DUMP, Parseable};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Result;

use super::{proc, rules};
use crate::sys::local_table::DOWN;
use crate::sys::netlink::{Socket, ask_route, repeated};
use crate::units::IfIndex;

/// Of `rp_filter`: a packet's source must be reached by the interface that it came in on.
const STRICT: &str = "1";
/// ...or by any.
const LOOSE: &str = "2";

/// The kernel goes by the greater of the interface's and everybody's. 2 is loose: it drops what comes from where no
/// route leads, which is nowhere with a route to everywhere.
pub(super) fn reverse_path(ifindex: IfIndex, name: &str, for_whom: &str) -> Option<String> {
    let of = |name: &str| proc::read(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
    let filter = of("all").and_then(|all| of(name).map(|own| own.max(all)));
    let knob = format!("net.ipv4.conf.{name}.rp_filter");
    match filter.as_deref().map(str::trim) {
        Ok(STRICT) => Some(format!("{knob} is 1 (strict): 0, or 2 (loose), allows {for_whom}")),
        Ok(LOOSE) => {
            let why = match why_not_everywhere(ifindex, name) {
                Ok(why) => why?,
                Err(errno) => format!("routes cannot be read: {errno}"),
            };
            Some(format!(
                "{knob} is 2 (loose), and sources may exist that no route leads to: {why}; 0 allows {for_whom}"
            ))
        }
        Ok(_) => None,
        Err(error) => Some(format!("rp_filter of {name} cannot be read: {error}")),
    }
}

/// Why the kernel may find no route to a source; none if it finds one to each. What comes before the local table is not
/// looked at.
fn why_not_everywhere(ifindex: IfIndex, name: &str) -> Result<Option<String>> {
    if !has_address(ifindex)? {
        return Ok(Some(format!("{name} has no IPv4 address")));
    }
    Ok(rules::before_main()?.or(unrouted()?))
}

/// Without an address only the interface's own routes count.
fn has_address(ifindex: IfIndex) -> Result<bool> {
    let mut asked = AddressMessage::default();
    asked.header.family = AddressFamily::Inet;
    let request = RouteNetlinkMessage::GetAddress(asked);
    let addresses: Vec<AddressMessage> = ask_route(&request, NLM_F_DUMP)?;
    Ok(addresses.iter().any(|address| address.header.index == ifindex.0))
}

/// Why the tables may have no route to a source, whichever are asked before the main table.
fn unrouted() -> Result<Option<String>> {
    let mut asked = RouteMessage::default();
    asked.header.address_family = AddressFamily::Inet;
    let request = RouteNetlinkMessage::GetRoute(asked);
    repeated(|| {
        let (mut everywhere, mut nowhere) = (false, false);
        // A router has a million: the rest of each is not decoded.
        Socket::open(None)?.route_each(&request, NLM_F_DUMP, |route| {
            let Ok(header) = RouteHeader::parse(route) else { return };
            everywhere |= is_default(&header) && is_up(route);
            nowhere |= match header.kind {
                RouteType::Unicast | RouteType::Multicast => false,
                RouteType::Local | RouteType::Broadcast | RouteType::Anycast => {
                    header.table != libc::RT_TABLE_LOCAL
                }
                // Blackhole, unreachable, prohibit, ...
                _ => true,
            };
        })?;
        Ok(match (everywhere, nowhere) {
            (false, _) => Some("there is no default route in the main table".into()),
            (true, true) => Some("there are routes that lead nowhere, or to this host".into()),
            (true, false) => None,
        })
    })
}

fn is_default(header: &RouteHeader) -> bool {
    header.table == RouteHeader::RT_TABLE_MAIN
        && header.kind == RouteType::Unicast
        && (header.destination_prefix_length, header.tos) == (0, 0)
        && !header.flags.intersects(DOWN)
}

/// Of several next hops, one is enough.
fn is_up(route: &[u8]) -> bool {
    const DOWN: RouteNextHopFlags = RouteNextHopFlags::Dead.union(RouteNextHopFlags::Linkdown);
    let is_up = |hop: &RouteNextHop| !hop.flags.intersects(DOWN);
    RouteMessage::parse(route).is_ok_and(|route| {
        route.attributes.iter().all(|attribute| match attribute {
            RouteAttribute::MultiPath(hops) => hops.iter().any(is_up),
            _ => true,
        })
    })
}

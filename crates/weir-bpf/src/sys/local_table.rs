//! Which addresses the packets that come in by some interfaces are delivered for: the kernel's table of local routes.
//!
//! An interface's list of addresses does not say it. An address that was handed to a virtual machine is still
//! listed, while its route has gone; an address of a dummy device is delivered whatever it comes in by.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_DUMP, NlasIterator, parse_ip};
use netlink_packet_route::route::{RouteFlags, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;

use super::netlink::{Socket, number, repeated};
use crate::error::{Error, Result};
use crate::units::IfIndex;

/// `struct rtmsg`.
const HEADER_BYTES: usize = 12;
/// Dead, or without a link, which a setting may make dead.
pub(super) const DOWN: RouteFlags = RouteFlags::Dead.union(RouteFlags::Linkdown);
/// Several next hops, an encapsulation, or a next hop that is described elsewhere and may have either.
const NOT_PLAIN: [u16; 4] = [libc::RTA_MULTIPATH, libc::RTA_ENCAP_TYPE, libc::RTA_ENCAP, RTA_NH_ID];
const RTA_NH_ID: u16 = 30;

const LOCAL_ROUTES: &str = "local routes";

/// The addresses that the packets of some interfaces are delivered for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    /// Those of these interfaces.
    pub own: Vec<IpAddr>,
    /// Those of other interfaces of the namespace.
    pub of_others: Vec<IpAddr>,
    /// Broadcast addresses of these interfaces' subnets.
    pub broadcast: Vec<Ipv4Addr>,
    /// Those of which it is not certain that all their packets are delivered.
    pub unsure: Vec<IpAddr>,
    /// Prefixes that are local as a whole, but for 127.0.0.0/8, with their lengths.
    pub prefixes: Vec<(IpAddr, u8)>,
}

impl LocalAddresses {
    /// Asks the kernel, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel does not answer, or the table changes all the time.
    pub fn read(interfaces: &[IfIndex]) -> Result<Self> {
        Self::of_families(&[AddressFamily::Inet, AddressFamily::Inet6], interfaces)
    }

    fn of_families(families: &[AddressFamily], interfaces: &[IfIndex]) -> Result<Self> {
        let failed = |errno| Error::system("list", LOCAL_ROUTES, errno);
        let mut socket = Socket::open(None).map_err(failed)?;
        // Else the kernel lists every table: a router's has a million routes.
        socket.check_strictly().map_err(failed)?;
        let mut addresses = Self::default();
        for family in families {
            let read = of_family(&mut socket, *family, interfaces).map_err(failed)?;
            addresses.prefixes.extend(read.prefixes);
            for (ip, end) in read.ends {
                match (end, ip) {
                    (End::Own, _) => addresses.own.push(ip),
                    (End::OfAnother, _) => addresses.of_others.push(ip),
                    (End::Broadcast, IpAddr::V4(ip)) => addresses.broadcast.push(ip),
                    (End::Uncertain, _) => addresses.unsure.push(ip),
                    (End::Broadcast, _) => {}
                }
            }
        }
        Ok(addresses)
    }
}

/// As [`LocalAddresses::unlisted`], of IPv4: what claims to come from there, the kernel drops.
///
/// # Errors
/// As [`LocalAddresses::read`].
pub(crate) fn unlisted() -> Result<Option<String>> {
    Ok(LocalAddresses::of_families(&[AddressFamily::Inet], &[])?.unlisted())
}

/// What becomes of the packets for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// They are delivered; the address is one of the interfaces'.
    Own,
    /// They are delivered; the address is another interface's.
    OfAnother,
    /// They are delivered as broadcasts.
    Broadcast,
    /// Something else, or it depends.
    Uncertain,
}

impl End {
    /// Which of an address's two routes is taken depends on the packet. An address of two interfaces is delivered by
    /// either.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::OfAnother, Self::OfAnother) => Self::OfAnother,
            (Self::Own | Self::OfAnother, Self::Own | Self::OfAnother) => Self::Own,
            _ => Self::Uncertain,
        }
    }
}

/// What the table says of one family.
#[derive(Default)]
struct Local {
    ends: BTreeMap<IpAddr, End>,
    prefixes: BTreeSet<(IpAddr, u8)>,
}

fn of_family(
    socket: &mut Socket,
    family: AddressFamily,
    interfaces: &[IfIndex],
) -> rustix::io::Result<Local> {
    match repeated(|| try_family(socket, family, interfaces)) {
        // A kernel, or a namespace, without this family.
        Err(Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::NOENT) => Ok(Local::default()),
        read => read,
    }
}

fn try_family(
    socket: &mut Socket,
    family: AddressFamily,
    interfaces: &[IfIndex],
) -> rustix::io::Result<Local> {
    let mut all = Local::default();
    local_routes(socket, family, |header, attributes| {
        let Some((ip, oif, plain)) = parts(header, attributes) else { return };
        let length = header.destination_prefix_length;
        if length == if ip.is_ipv4() { 32 } else { 128 } {
            if let Some(end) = judge(header, ip, (oif, plain), interfaces) {
                all.ends.entry(ip).and_modify(|known| *known = known.or(end)).or_insert(end);
            }
        } else if header.kind == RouteType::Local && (length == 0 || !ip.is_loopback()) {
            all.prefixes.insert((ip, length));
        }
    })?;
    Ok(all)
}

fn local_routes(
    socket: &mut Socket,
    family: AddressFamily,
    mut each: impl FnMut(&RouteHeader, &[u8]),
) -> rustix::io::Result<()> {
    let mut asked = RouteMessage::default();
    (asked.header.address_family, asked.header.table) = (family, libc::RT_TABLE_LOCAL);
    socket.route_each(&RouteNetlinkMessage::GetRoute(asked), NLM_F_DUMP, |route| {
        let Ok(header) = RouteHeader::parse(route) else { return };
        if header.address_family == family && header.table == libc::RT_TABLE_LOCAL {
            each(&header, &route[HEADER_BYTES..]);
        }
    })
}

/// `None` for the route of an address of another link that this one may have as well.
fn judge(
    header: &RouteHeader,
    ip: IpAddr,
    (oif, plain): (Option<u32>, bool),
    interfaces: &[IfIndex],
) -> Option<End> {
    let here = oif.is_some_and(|it| interfaces.contains(&IfIndex(it)));
    let end = match header.kind {
        RouteType::Local if plain && here => End::Own,
        RouteType::Local if !here && is_of_link(ip) => return None,
        RouteType::Local if plain && !ip.is_loopback() => End::OfAnother,
        RouteType::Broadcast if plain && here => End::Broadcast,
        _ => End::Uncertain,
    };
    Some(end)
}

/// Where it leads, by which interface, and whether it holds for every packet.
fn parts(header: &RouteHeader, attributes: &[u8]) -> Option<(IpAddr, Option<u32>, bool)> {
    // The prefix of all addresses is told without one.
    let everywhere = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let (mut destination, mut oif, mut plain) = (Some(everywhere), None, true);
    // `RouteMessage` would decode every metric and next hop, and refuse the table over one that it does not know.
    for attribute in NlasIterator::new(attributes).map_while(std::result::Result::ok) {
        match (attribute.kind(), attribute.value()) {
            (libc::RTA_DST, ip) => destination = parse_ip(ip).ok(),
            (libc::RTA_OIF, index) => oif = number(index),
            (kind, _) => plain &= !NOT_PLAIN.contains(&kind),
        }
    }
    plain &= header.source_prefix_length == 0 && header.tos == 0 && !header.flags.intersects(DOWN);
    Some((destination?, oif, plain))
}

/// Whether no packet that comes in by another interface is looked up for it (`rt6_need_strict()`).
pub(crate) fn is_of_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::link::Links;
    use crate::sys::test_support::{Sandbox, assert_cheap, sh, wait_until};

    /// In a namespace with `near`, which has 198.18.0.1/24 and 2001:2::1/64.
    fn with_near(test: impl FnOnce(IfIndex) + Send) {
        Sandbox::new().run(|| {
            sh("ip link add near type veth peer far; ip link set lo up; ip link set near up;
                ip link set far up;
                for dev in near far; do
                    echo 1 >/proc/sys/net/ipv6/conf/$dev/addr_gen_mode; ip -6 addr flush dev $dev;
                done
                ip addr add 198.18.0.1/24 dev near; ip addr add 2001:2::1/64 dev near nodad");
            let near = Links::open().unwrap().index("near").unwrap();
            wait_until_own(near, &BOTH);
            test(near);
        });
    }

    /// An IPv6 address gets its route from a work queue (`addrconf_dad_work()`), after `ip` has ended.
    fn wait_until_own(near: IfIndex, all: &[&str]) {
        wait_until("the addresses have routes", || {
            let own = own(near);
            all.iter().all(|ip| own.iter().any(|it| it == ip))
        });
    }

    fn own(near: IfIndex) -> Vec<String> {
        let LocalAddresses { own, of_others, .. } = LocalAddresses::read(&[near]).unwrap();
        own.iter().chain(&of_others).map(IpAddr::to_string).collect()
    }

    const BOTH: [&str; 2] = ["198.18.0.1", "2001:2::1"];

    #[test]
    fn an_interfaces_own_addresses_and_its_broadcasts_are_local() {
        with_near(|near| {
            assert_eq!(own(near), BOTH);
            let broadcast = || LocalAddresses::read(&[near]).unwrap().broadcast;
            assert_eq!(broadcast(), [Ipv4Addr::new(198, 18, 0, 255)]);
            sh("ip addr add 198.18.1.1/24 broadcast 198.18.1.9 dev near");
            let all = [[198, 18, 0, 255], [198, 18, 1, 9], [198, 18, 1, 255]];
            assert_eq!(broadcast(), all.map(Ipv4Addr::from));
        });
    }

    #[test]
    fn a_prefix_that_is_local_as_a_whole_is_unlisted_and_so_are_too_many_addresses() {
        with_near(|near| {
            let unlisted = || LocalAddresses::read(&[near]).unwrap().unlisted();
            assert_eq!(unlisted(), None);
            for prefix in ["198.19.8.0/24", "2001:2:8::/64", "0.0.0.0/0"] {
                sh(&format!("ip route add local {prefix} dev lo table local"));
                assert_eq!(unlisted(), Some(format!("the prefix {prefix}")));
                sh(&format!("ip route del local {prefix} dev lo table local"));
            }
            sh("seq -f 'addr add 2001:2:7::%g/128 dev near nodad' 1100 | ip -b -");
            wait_until("all have routes", || own(near).len() == 1102);
            assert_eq!(unlisted().unwrap(), "1101 addresses");
        });
    }

    #[test]
    fn an_address_whose_packets_may_go_elsewhere_is_not_local() {
        with_near(|near| {
            let [v4, v6] = BOTH;
            let delete = "ip route del local 198.18.0.1 dev near table local";
            let restore = "ip route replace local 198.18.0.1 dev near table local src 198.18.0.1";
            for (take, give, left) in [
                // Handed to a machine behind another interface, by any route or by one in the same table.
                (delete, restore, v6),
                (
                    "ip route replace 198.18.0.1 dev far table local; \
                     ip route del local 198.18.0.1 table local || true",
                    "ip route del unicast 198.18.0.1 dev far table local; \
                     ip route replace local 198.18.0.1 dev near table local",
                    v6,
                ),
                // For packets of one type of service alone.
                (
                    "ip route add 198.18.0.1 tos 0x10 dev far table local",
                    "ip route del 198.18.0.1 tos 0x10 dev far table local",
                    v6,
                ),
                (
                    "ip -6 route del local 2001:2::1 dev near table local",
                    "ip -6 route add local 2001:2::1 dev near table local",
                    v4,
                ),
                (
                    "ip -6 route add 2001:2::1 from 2001:2::/64 dev far table local",
                    "ip -6 route del 2001:2::1 from 2001:2::/64 dev far table local",
                    v4,
                ),
            ] {
                sh(take);
                assert_eq!(own(near), [left], "{take}");
                sh(give);
                assert_eq!(own(near), BOTH, "{give}");
            }
        });
    }

    #[test]
    fn addresses_of_other_interfaces_are_local_where_the_kernel_says_so() {
        with_near(|near| {
            sh("ip link add vip type veth peer other; ip link set vip up;
                echo 1 >/proc/sys/net/ipv6/conf/vip/addr_gen_mode; ip link set other up;
                ip addr add 198.19.7.1/32 dev vip; ip addr add 198.19.7.2/32 dev lo;
                ip addr add 2001:2:7::1/128 dev vip nodad; ip addr add fe80::7/64 dev vip nodad;
                ip addr add fe80::1/64 dev near nodad; ip route add local 198.19.8.0/24 dev lo");
            wait_until_own(near, &["fe80::1", "2001:2:7::1"]);
            let mut all = own(near);
            // This interface's come first; the loopback's and another link's are not there.
            assert_eq!(all[..3], ["198.18.0.1", "2001:2::1", "fe80::1"]);
            all.retain(|ip| !ip.starts_with("fe80::") && !BOTH.contains(&ip.as_str()));
            assert_eq!(all, ["198.19.7.1", "198.19.7.2", "2001:2:7::1"]);
        });
    }

    /// As where a machine's own address is also its bridge's, and where links have one MAC address.
    #[test]
    fn an_address_of_two_interfaces_is_own() {
        with_near(|near| {
            sh("ip addr add 198.18.0.1/32 dev far; ip addr add 2001:2::1/128 dev far nodad;
                ip addr add fe80::1/64 dev near nodad; ip addr add fe80::1/64 dev far nodad;
                ip addr add 198.19.7.1/32 dev far; ip addr add 198.19.7.1/32 dev lo");
            let far = Links::open().unwrap().index("far").unwrap();
            wait_until_own(near, &["fe80::1"]);
            wait_until_own(far, &["fe80::1", "2001:2::1"]);
            let all = ["198.18.0.1", "2001:2::1", "fe80::1", "198.19.7.1"];
            assert_eq!(own(near), all);
            sh("ip route add local 198.18.0.1 tos 0x10 dev far table local");
            assert_eq!(own(near), all[1..]);
        });
    }

    /// What either of two links has is certain for both together.
    #[test]
    fn two_links_are_read_at_once() {
        with_near(|near| {
            let far = Links::open().unwrap().index("far").unwrap();
            sh("ip addr add fe80::1/64 dev near nodad; ip addr add fe80::2/64 dev far nodad;
                ip addr add 198.19.7.1/24 dev far");
            wait_until_own(near, &["fe80::1"]);
            wait_until_own(far, &["fe80::2"]);
            let both = LocalAddresses::read(&[near, far]).unwrap();
            let own = ["198.18.0.1", "198.19.7.1", "2001:2::1", "fe80::1", "fe80::2"];
            assert_eq!(both.own, own.map(|ip| ip.parse::<IpAddr>().unwrap()));
            assert_eq!(both.broadcast, [[198, 18, 0, 255], [198, 19, 7, 255]].map(Ipv4Addr::from));
            let unsure = |ip: &&IpAddr| !ip.is_multicast() && !ip.is_loopback();
            assert_eq!(both.unsure.iter().find(unsure), None);
        });
    }

    /// It is read twice a second, on routers, too: their other tables are not asked for.
    #[test]
    fn what_a_look_costs() {
        with_near(|near| {
            sh("seq -f 'route add blackhole 2001:2:%g::/64' 9999 | ip -6 -b -;
                seq 16384 | awk '{ printf \"addr add 198.19.%d.%d/32 dev near\\n\",
                    $1 / 256 % 64, $1 % 256 }' | head -1000 | ip -b -");
            let look = || assert_eq!(own(near).len(), 1002);
            assert_cheap("1000 addresses beside 9999 routes", 20, Duration::from_millis(20), look);
        });
    }
}

//! What else the kernel does to packets before a socket has them, and a lazy socket would be given past it: rules
//! that only drop, count or log, IPsec policies, reverse path filters, programs of control groups.

use std::fs::File;
use std::io;
use std::time::Duration;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::route::{RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netlink;

use super::watch::rest_since;
use super::{legacy, nft, proc, programs, tc};
use crate::sys::netlink::{Socket, ask, repeated};
use crate::sys::sched::own_cpu_time;

/// `XFRM_MSG_GETPOLICY`, and the bytes of its `struct xfrm_userpolicy_id`.
const XFRM_GETPOLICY: u16 = 0x15;
const XFRM_POLICY_ID_BYTES: usize = 64;
/// Of `rp_filter`: a packet's source must be reached by the interface that it came in on.
const RP_FILTER_STRICT: &str = "1";
/// ...or by any.
const RP_FILTER_LOOSE: &str = "2";

/// The scope of `::1` and of link-local addresses, which packets from other links do not reach (`if6_seq_show()`).
const NEARBY: [&str; 2] = ["10", "20"];

/// What is applied to packets of some interfaces, in one network namespace. What stays the same is not read again
/// where the kernel tells of changes.
#[derive(Debug, Default)]
pub struct Filters {
    nft: Option<Nft>,
    rest: Duration,
}

/// What was found in the rules of nftables of this generation.
#[derive(Debug)]
struct Nft {
    generation: u32,
    interfaces: Vec<String>,
    found: Vec<String>,
}

impl Filters {
    /// One line for each, in the calling thread's network namespace; what cannot be read counts.
    pub fn read(&mut self, interfaces: &[String]) -> Vec<String> {
        let begun = own_cpu_time();
        let mut found = self.nft(interfaces);
        found.extend(legacy::anything(&legacy::HOOKS_ELSEWHERE));
        found.extend(programs::at_netfilter(&legacy::HOOKS_ELSEWHERE));
        found.extend(ipsec());
        found.extend(interfaces.iter().flat_map(|interface| tc::anything(interface)));
        found.extend(
            interfaces.iter().filter_map(|interface| reverse_path(interface, "lazy sockets")),
        );
        found.extend(interfaces.iter().filter_map(|interface| ipv6_is_off(interface)));
        self.rest = rest_since(begun);
        found
    }

    /// How long to wait until the next look, as it may take long: a router has a million routes.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    fn nft(&mut self, interfaces: &[String]) -> Vec<String> {
        let generation = match nft::generation() {
            Ok(Some(generation)) => generation,
            Ok(None) => return Vec::new(),
            Err(errno) => return vec![format!("the rules of nftables cannot be read: {errno}")],
        };
        if let Some(known) = &self.nft
            && known.generation == generation
            && known.interfaces == interfaces
        {
            return known.found.clone();
        }
        let read = interfaces.iter().map(|interface| nft::anything(interface));
        let mut found: Vec<String> = match read.collect::<rustix::io::Result<Vec<_>>>() {
            Ok(found) => found.into_iter().flatten().collect(),
            // It may be another time.
            Err(errno) => return vec![format!("the rules of nftables cannot be read: {errno}")],
        };
        found.sort();
        found.dedup();
        let interfaces = interfaces.to_vec();
        self.nft = Some(Nft { generation, interfaces, found: found.clone() });
        found
    }
}

pub(super) fn ipsec() -> Option<String> {
    match ask(Some(netlink::XFRM), XFRM_GETPOLICY, NLM_F_DUMP, &[0; XFRM_POLICY_ID_BYTES]) {
        Ok(policies) if policies.is_empty() => None,
        Ok(policies) => Some(format!("{} IPsec policies (`ip xfrm policy`)", policies.len())),
        // A kernel without IPsec.
        Err(Errno::PROTONOSUPPORT | Errno::INVAL) => None,
        Err(errno) => Some(format!("IPsec policies cannot be read: {errno}")),
    }
}

/// `ip6_rcv_core()` drops what comes in there, also what is for another interface's address.
fn ipv6_is_off(interface: &str) -> Option<String> {
    let knob = format!("net.ipv6.conf.{interface}.disable_ipv6");
    let read = || {
        // Without such a file the interface has no IPv6, for which an MTU can be too small.
        let off = proc::read(&format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"))?;
        let addresses = proc::read("/proc/thread-self/net/if_inet6")?;
        let is_reached = |line: &str| {
            line.split_whitespace().nth(3).is_some_and(|scope| !NEARBY.contains(&scope))
        };
        Ok(off.trim() != "0" && addresses.lines().any(is_reached))
    };
    match read() {
        Ok(false) => None,
        Ok(true) => Some(format!(
            "IPv6 is off on {interface}, but other interfaces have IPv6 addresses: 0 in {knob}, and an MTU of 1280 or \
             more, allow lazy sockets"
        )),
        Err::<_, io::Error>(error) => Some(format!("{knob} cannot be read: {error}")),
    }
}

/// The kernel goes by the greater of the interface's and everybody's. 2 is loose: it drops what comes from where no
/// route leads, which is nowhere with a route to everywhere.
pub(super) fn reverse_path(interface: &str, for_whom: &str) -> Option<String> {
    let of = |name: &str| proc::read(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
    let filter = of("all").and_then(|all| of(interface).map(|own| own.max(all)));
    match filter {
        Ok(filter) if filter.trim() == RP_FILTER_STRICT => Some(format!(
            "net.ipv4.conf.{interface}.rp_filter is 1 (strict): 0, or 2 (loose), allows {for_whom}"
        )),
        Ok(filter) if filter.trim() == RP_FILTER_LOOSE && !leads_everywhere() => Some(format!(
            "net.ipv4.conf.{interface}.rp_filter is 2 (loose), and sources exist that no route leads to: 0 allows \
             {for_whom}, and so does a default route without unreachable ones"
        )),
        Ok(_) => None,
        Err(error) => Some(format!("rp_filter of {interface} cannot be read: {error}")),
    }
}

/// Whether there is an IPv4 route to every address. Routes by policy are not looked at: they could only add some.
fn leads_everywhere() -> bool {
    let mut asked = RouteMessage::default();
    asked.header.address_family = AddressFamily::Inet;
    let request = RouteNetlinkMessage::GetRoute(asked);
    let looked = repeated(|| {
        let (mut everywhere, mut nowhere) = (false, false);
        // A router has a million: the rest of each is not decoded.
        Socket::open(None)?.route_each(&request, NLM_F_DUMP, |route| {
            let Ok(RouteHeader { kind, destination_prefix_length, .. }) = RouteHeader::parse(route)
            else {
                return;
            };
            everywhere |= kind == RouteType::Unicast && destination_prefix_length == 0;
            // From here on nothing is led anywhere: blackhole, unreachable, prohibit, ...
            nowhere |= u8::from(kind) >= u8::from(RouteType::BlackHole);
        })?;
        Ok(everywhere && !nowhere)
    });
    looked.unwrap_or(false)
}

/// Where control groups of version 2 are: also beside those of version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/// BPF programs that may drop or change what the sockets of a process's control group receive; a line if there are any.
pub fn cgroup_programs(pid: i32) -> Option<String> {
    let groups = match proc::read(&format!("/proc/{pid}/cgroup")) {
        Ok(groups) => groups,
        Err(error) => return Some(format!("its control group cannot be read: {error}")),
    };
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Without a mounted hierarchy nobody has attached a program to it by its path.
    let group = GROUPS.iter().find_map(|root| File::open(format!("{root}{unified}")).ok())?;
    match programs::cgroup_received(&group) {
        Ok(programs) if programs.is_empty() => None,
        Ok(programs) => Some(format!(
            "BPF program {} is given what control group {unified} receives (`bpftool cgroup tree`; \
             systemd's IPAddressAllow=, IPAddressDeny= and IPAccounting= attach such)",
            programs[0]
        )),
        // No control groups with BPF, or the older hierarchy.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::BADF)) => {
            None
        }
        Err(error) => Some(format!("the programs of {unified} cannot be listed: {error}")),
    }
}

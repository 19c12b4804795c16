//! What the kernel does to packets that it forwards, and a fast path in the driver would leave out.

use std::io;

use netlink_packet_core::NLM_F_ACK;
use rustix::io::Errno;

use super::on_the_way::{OnTheWay, ipsec, unlisted};
use super::reverse_path::reverse_path;
use super::way::Way;
use super::{proc, programs, rules, tc};
use crate::sys::ethtool;
use crate::sys::netlink::{Attributes, attribute, open_generic};
use crate::sys::procfile::ProcFile;
use crate::sys::tc::Hook;
use crate::units::IfIndex;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const TAKES_FRAMES: u64 = 1 << 2;
/// 0: the route among several goes by the addresses, and by the flow label of IPv6.
const MULTIPATH: [&str; 2] = [
    "/proc/sys/net/ipv4/fib_multipath_hash_policy",
    "/proc/sys/net/ipv6/fib_multipath_hash_policy",
];

/// An interface's number and name.
pub type Interface = (IfIndex, String);

/// Reads what forwarded packets meet, in one network namespace. What stays the same is not read again where the kernel
/// tells of changes.
#[derive(Debug, Default)]
pub struct ForwardFilters {
    on_the_way: OnTheWay,
}

impl ForwardFilters {
    /// What packets meet that come in by the first of these interfaces and leave by another of them, wherever they
    /// leave: one line each. What cannot be read counts.
    pub fn on_the_way(&mut self, interfaces: &[Interface]) -> Vec<String> {
        let names: Vec<String> = interfaces.iter().map(|(_, name)| name.clone()).collect();
        let mut found = self.on_the_way.read(Way::Through, &names);
        found.extend(proc::ipvs(&mut ProcFile::new(proc::IP_VS)).map(|ipvs| ipvs.to_string()));
        found.extend(rules::beyond_default());
        found.extend(MULTIPATH.into_iter().filter_map(multipath));
        if let Some((ifindex, name)) = interfaces.first() {
            found.extend(unfinished(name));
            found.extend(ipv6_is_off(name));
            found.extend(unlisted());
            found.extend(reverse_path(*ifindex, name, "the fast path"));
            found.extend(tc::ingress_qdisc(*ifindex, name));
            found.extend(programs::at(*ifindex, name, Hook::Ingress));
        }
        found
    }
}

/// Whether packets to one address leave by one interface whatever their ports, in the calling thread's network
/// namespace. Not if that cannot be read.
pub fn ports_choose_no_egress() -> bool {
    ipsec().is_none()
        && rules::beyond_default().is_none()
        && MULTIPATH.into_iter().all(|path| multipath(path).is_none())
}

/// What a packet that is sent by an interface from its driver would be taken past.
pub fn past_at_egress((ifindex, name): &Interface) -> Option<String> {
    tc::egress_qdisc(*ifindex, name).or_else(|| programs::at(*ifindex, name, Hook::Egress))
}

/// Why no packet may be sent by an interface from its driver; none if it may. Some drivers do once they have a gate.
pub fn at_egress(interface: &Interface) -> Option<String> {
    let (ifindex, name) = interface;
    past_at_egress(interface).or_else(|| match takes_frames(*ifindex) {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "the driver of {name} sends no frames for XDP; a veth does while its peer has XDP or GRO \
             (`ethtool -K PEER gro on`)"
        )),
        Err(errno) => Some(format!(
            "the kernel does not tell whether the driver of {name} sends frames for XDP ({errno}): Linux 6.3 does"
        )),
    })
}

pub(super) fn takes_frames(ifindex: IfIndex) -> rustix::io::Result<bool> {
    let mut socket = open_generic()?;
    let family = socket.family("netdev")?;
    let which = attribute(NETDEV_A_DEV_IFINDEX, &ifindex.0.to_ne_bytes());
    let answers = socket.request(family, NETDEV_CMD_DEV_GET, NLM_F_ACK, &which)?;
    let features = answers
        .first()
        .and_then(|answer| Attributes::of(answer).value(NETDEV_A_DEV_XDP_FEATURES)?.try_into().ok())
        .map(u64::from_ne_bytes);
    features.map(|features| features & TAKES_FRAMES != 0).ok_or(Errno::BADMSG)
}

/// Drivers that hand packets of this machine, or of its guests, to XDP without checksums, and do not tell which: tun, and
/// xen-netfront (`XEN_NETRXF_csum_blank` is looked at only behind XDP).
pub(crate) const CHECKSUMS_UNTOLD: [&str; 2] = ["tun", "vif"];

fn unfinished(name: &str) -> Option<String> {
    let driver = ethtool::driver(name).unwrap_or_default();
    CHECKSUMS_UNTOLD
        .contains(&driver.as_str())
        .then(|| format!("{name} is a {driver}, whose packets may lack a checksum"))
}

/// `ip6_forward()` and `ip6_rcv_core()` drop what `bpf_fib_lookup()`, which asks the interface alone, finds a way for.
fn ipv6_is_off(name: &str) -> Option<String> {
    let of = |name: &str, what: &str| {
        let value = proc::read(&format!("/proc/sys/net/ipv6/conf/{name}/{what}"));
        value.map(|value| !matches!(value.trim(), "" | "0"))
    };
    let read = || {
        let forwards = of(name, "forwarding")?;
        Ok(forwards && (of(name, "disable_ipv6")? || !of("all", "forwarding")?))
    };
    let knob = format!("net.ipv6.conf.{name}.forwarding");
    match read() {
        Ok(false) => None,
        Ok(true) => Some(format!("{knob} is not 0, but IPv6 is off there, or not forwarded")),
        Err::<_, io::Error>(error) => Some(format!("{knob} cannot be read: {error}")),
    }
}

fn multipath(path: &str) -> Option<String> {
    match proc::read(path) {
        Ok(value) if matches!(value.trim(), "" | "0") => None,
        Ok(_) => Some(format!("{path} is not 0: ports choose among several routes")),
        Err(error) => Some(format!("{path} cannot be read: {error}")),
    }
}

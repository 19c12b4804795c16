//! What the kernel does to connection requests and its answers to them, and a SYN cookie of the gate's would be sent past:
//! then the kernel is to answer all of them.

use super::forward::{Interface, takes_frames};
use super::on_the_way::OnTheWay;
use super::way::Way;
use super::{proc, programs, rules, tc};
use crate::sys::ethtool;
use crate::sys::tc::Hook;

/// 1: a listener answers by cookie once its queue of requests is full.
const SYN_COOKIES: &str = "/proc/sys/net/ipv4/tcp_syncookies";

/// Reads it, in one network namespace. What stays the same is not read again where the kernel tells of changes.
#[derive(Debug, Default)]
pub struct CookieFilters {
    on_the_way: OnTheWay,
}

impl CookieFilters {
    /// Why the gate may not answer the requests that come in by an interface, in its driver (`native`) or at tc; none if
    /// it may. What cannot be read counts.
    pub fn why_not(&mut self, interface: &Interface, native: bool) -> Option<String> {
        let (ifindex, name) = interface;
        not_asked_for()
            .or_else(rules::beyond_default)
            .or_else(|| tc::anything(interface))
            .or_else(|| programs::at(*ifindex, name, Hook::Egress))
            .or_else(|| if native { cannot_send(interface) } else { None })
            .or_else(|| {
                let found = self.on_the_way.read(Way::Answered, std::slice::from_ref(name));
                found.into_iter().next()
            })
    }
}

fn not_asked_for() -> Option<String> {
    match proc::read(SYN_COOKIES) {
        Ok(value) if value.trim() == "1" => None,
        Ok(_) => Some("net.ipv4.tcp_syncookies is not 1".into()),
        Err(error) => Some(format!("{SYN_COOKIES} cannot be read: {error}")),
    }
}

/// What a driver sends for a program passes no queueing discipline. Every one that runs programs sends it, but a veth
/// whose peer takes no frames.
fn cannot_send((ifindex, name): &Interface) -> Option<String> {
    let is_veth = ethtool::driver(name).is_ok_and(|driver| driver == "veth");
    let refuses = || is_veth && takes_frames(*ifindex) != Ok(true);
    let told = || format!("the peer of {name} takes no frames of XDP (`ethtool -K PEER gro on`)");
    tc::egress_qdisc(*ifindex, name).or_else(|| refuses().then(told))
}

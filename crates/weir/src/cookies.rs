//! SYN cookies at the gate: whether it may answer connection requests that the kernel would answer by cookie, and how.
//! Followed while it does: it never answers past a rule, a program or a sysctl of the operator's.

use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Cookies, Gate};
use weir_bpf::sys::divert::CookieFilters;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;

use crate::error::Result;
use crate::sysctl;

/// Of the kernel, where nobody has said anything else.
const USUAL_TTL: u8 = 64;

/// What one interface's gate is told of them.
#[derive(Debug)]
pub struct Answering {
    mode: AttachMode,
    filters: CookieFilters,
    why_not: Option<String>,
}

impl Answering {
    /// Nothing is answered before the first look.
    pub fn new(mode: AttachMode) -> Self {
        let why_not = Some("not looked yet".into());
        Self { mode, filters: CookieFilters::default(), why_not }
    }

    /// Looks what is on the way of requests and answers, and tells the gate; nothing if it is `barred` anyway.
    pub fn look(
        &mut self,
        links: &Links,
        interface: (IfIndex, String),
        gate: &mut Gate,
        barred: Option<&str>,
    ) -> Result<()> {
        self.why_not = barred.map(Into::into).or_else(|| self.bar(&interface));
        let told = match self.why_not {
            Some(_) => None,
            None => Some(Cookies {
                mtu: mtu(links.info(interface.0)?.mtu, &interface.1),
                ttl: sysctl::read("net/ipv4/ip_default_ttl").unwrap_or(USUAL_TTL),
                hops: sysctl::read(&of_ipv6(&interface.1, "hop_limit")).unwrap_or(USUAL_TTL),
            }),
        };
        gate.set_cookies(told);
        Ok(())
    }

    fn bar(&mut self, interface: &(IfIndex, String)) -> Option<String> {
        let native = match self.mode {
            AttachMode::Native => true,
            AttachMode::Tcx | AttachMode::Clsact => false,
            AttachMode::Generic => return Some("the gate is in generic XDP".into()),
        };
        if !weir_bpf::features::makes_cookies() {
            return Some(
                "the kernel has no bpf_tcp_raw_gen_syncookie_ipv4(): Linux 6.0 has".into(),
            );
        }
        self.filters.why_not(interface, native)
    }

    /// Why the kernel answers all requests; none if the gate does while the CPU is short.
    pub fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }
}

/// A router may tell a smaller one for IPv6, which IPv4 goes by as well.
fn mtu(of_link: u32, name: &str) -> u32 {
    sysctl::read(&of_ipv6(name, "mtu")).map_or(of_link, |of_ipv6: u32| of_link.min(of_ipv6))
}

fn of_ipv6(name: &str, what: &str) -> String {
    format!("net/ipv6/conf/{name}/{what}")
}

#[cfg(test)]
mod tests {
    use weir_bpf::sys::netns::NetNs;

    use super::*;

    #[test]
    fn the_smaller_mtu_counts() {
        let test = || {
            let told = |mtu: &str| std::fs::write("/proc/sys/net/ipv6/conf/near/mtu", mtu).unwrap();
            Links::open().unwrap().create_veth("near", "far", None).unwrap();
            assert_eq!(mtu(1500, "near"), 1500);
            told("1280");
            assert_eq!(mtu(1500, "near"), 1280);
            assert_eq!(mtu(1500, "not there"), 1500);
        };
        NetNs::create().unwrap().run(test).unwrap();
    }
}

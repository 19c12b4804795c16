//! SYN cookies at the gate: whether it may answer connection requests that the kernel would answer by cookie, and how.
//! Followed while it does: it never answers past a rule, a program or a sysctl of the operator's.

use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Cookies, Gate};
use weir_bpf::sys::divert::CookieFilters;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;

use crate::error::Result;

/// Of the kernel, where nobody has said anything else.
const USUAL_TTL: u8 = 64;

/// What one interface's gate is told of them.
#[derive(Debug)]
pub struct Answering {
    wanted: bool,
    mode: AttachMode,
    filters: CookieFilters,
    why_not: Option<String>,
}

impl Answering {
    /// Nothing is answered before the first look.
    pub fn new(wanted: bool, mode: AttachMode) -> Self {
        Self {
            wanted,
            mode,
            filters: CookieFilters::default(),
            why_not: Some("not looked yet".into()),
        }
    }

    /// Whether it is wanted, from the next look on.
    pub fn set(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// Looks what is on the way of requests and answers, and tells the gate.
    pub fn look(
        &mut self,
        links: &Links,
        interface: (IfIndex, String),
        gate: &mut Gate,
    ) -> Result<()> {
        self.why_not = self.bar(&interface);
        let told = match self.why_not {
            Some(_) => None,
            None => Some(Cookies {
                mtu: links.info(interface.0)?.mtu,
                ttl: sysctl("ipv4/ip_default_ttl"),
                hops: sysctl(&format!("ipv6/conf/{}/hop_limit", interface.1)),
            }),
        };
        gate.set_cookies(told);
        Ok(())
    }

    fn bar(&mut self, interface: &(IfIndex, String)) -> Option<String> {
        if !self.wanted {
            return Some("syn_cookies is false".into());
        }
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

fn sysctl(name: &str) -> u8 {
    let read = std::fs::read_to_string(format!("/proc/sys/net/{name}"));
    read.ok().and_then(|value| value.trim().parse().ok()).unwrap_or(USUAL_TTL)
}

//! BPF programs beside the interface's packets: tcx at ingress, `sk_lookup` and netfilter's in the namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use libbpf_rs::{Link, libbpf_sys};
use rustix::io::Errno;

use super::diversion::Diversion;
use super::kind::DiversionKind;
use super::way::Way;
use crate::error::{Error, Result};
use crate::object::load;
use crate::record::each;
use crate::skeleton::netfilter::{NetfilterSkelBuilder, types};
use crate::sys::netns::NetNs;
use crate::sys::tc::Hook;
use crate::units::IfIndex;

/// More than the kernel allows at one place (`BPF_MPROG_MAX`, 64 per list).
const PROGRAMS_MAX: usize = 64;
const NETFILTER: &str = "the iterator of netfilter's programs";

/// Programs at tcx ingress, but for the caller's own.
pub(crate) fn tcx(ifindex: IfIndex, own: &[u32]) -> Option<Diversion> {
    match at_tcx(ifindex) {
        Ok(mut programs) => {
            programs.retain(|id| !own.contains(id));
            let detail = format!("tcx ingress, program {}", listed(&programs));
            (!programs.is_empty()).then(|| Diversion::new(DiversionKind::TcBpf, detail))
        }
        Err(error) => unless_absent("tcx programs cannot be listed", &error),
    }
}

/// Programs at tcx ingress, in the order in which they run.
pub(crate) fn at_tcx(ifindex: IfIndex) -> io::Result<Vec<u32>> {
    query(ifindex.0.cast_signed(), libbpf_sys::BPF_TCX_INGRESS)
}

/// Programs that choose a network namespace's sockets.
pub(super) fn sk_lookup(netns: &NetNs) -> Option<Diversion> {
    match query(netns.as_fd().as_raw_fd(), libbpf_sys::BPF_SK_LOOKUP) {
        Ok(programs) => {
            let detail = format!("program {}", listed(&programs));
            (!programs.is_empty()).then(|| Diversion::new(DiversionKind::SkLookup, detail))
        }
        Err(error) => unless_absent("sk_lookup programs cannot be listed", &error),
    }
}

/// Programs that see an interface's packets at a tcx hook, a line if there are any.
pub(super) fn at(ifindex: IfIndex, name: &str, hook: Hook) -> Option<String> {
    let (attach_type, end) = match hook {
        Hook::Ingress => (libbpf_sys::BPF_TCX_INGRESS, "ingress"),
        Hook::Egress => (libbpf_sys::BPF_TCX_EGRESS, "egress"),
    };
    match query(ifindex.0.cast_signed(), attach_type) {
        Ok(programs) if programs.is_empty() => None,
        Ok(programs) => Some(format!("{name} has BPF program {} at tcx {end}", listed(&programs))),
        Err(error) => unless_absent("tcx programs cannot be listed", &error).map(|it| it.detail),
    }
}

/// Programs at netfilter's hooks on a way, a line if there are any.
pub(super) fn at_netfilter(way: Way) -> Option<String> {
    let mut found = None;
    let read = netfilter_links().and_then(|links| {
        each(links, NETFILTER, |link: types::weir_netfilter_link| {
            if way.has(link.hooknum as usize) {
                found = Some(link.prog_id);
            }
        })
    });
    match read {
        Err(error) => Some(format!("programs at netfilter's hooks cannot be listed: {error}")),
        Ok(()) => {
            found.map(|id| format!("BPF program {id} is at a netfilter hook (`bpftool link`)"))
        }
    }
}

/// Loaded once.
fn netfilter_links() -> Result<&'static Link> {
    static LINKS: OnceLock<Link> = OnceLock::new();
    if let Some(links) = LINKS.get() {
        return Ok(links);
    }
    let skel = load::<NetfilterSkelBuilder>(NETFILTER, |_| Ok(()))?;
    let links = skel.progs.weir_netfilter.attach().map_err(Error::bpf("attach", NETFILTER))?;
    Ok(LINKS.get_or_init(|| links))
}

fn listed(programs: &[u32]) -> String {
    programs.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// `EINVAL`: the kernel has no such place for programs.
fn unless_absent(what: &str, error: &io::Error) -> Option<Diversion> {
    let absent = Errno::from_io_error(error) == Some(Errno::INVAL);
    (!absent).then(|| Diversion::unknown(what, error))
}

/// Programs that see what sockets of this control group receive, or from whom: its own and those of the groups above.
pub(super) fn cgroup_received(group: &std::fs::File) -> io::Result<Vec<u32>> {
    let places = [
        libbpf_sys::BPF_CGROUP_INET_INGRESS,
        libbpf_sys::BPF_CGROUP_UDP4_RECVMSG,
        libbpf_sys::BPF_CGROUP_UDP6_RECVMSG,
    ];
    let at = |place| query_with(group.as_raw_fd(), place, libbpf_sys::BPF_F_QUERY_EFFECTIVE);
    Ok(places.into_iter().map(at).collect::<io::Result<Vec<_>>>()?.concat())
}

fn query(target: i32, attach_type: libbpf_sys::bpf_attach_type) -> io::Result<Vec<u32>> {
    query_with(target, attach_type, 0)
}

#[allow(unsafe_code)]
fn query_with(
    target: i32,
    attach_type: libbpf_sys::bpf_attach_type,
    query_flags: u32,
) -> io::Result<Vec<u32>> {
    let mut programs = [0; PROGRAMS_MAX];
    let (mut flags, mut count) = (0, PROGRAMS_MAX as u32);
    // SAFETY: `programs` has room for `count` numbers; all three outlive the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_query(
            target,
            attach_type,
            query_flags,
            &raw mut flags,
            programs.as_mut_ptr(),
            &raw mut count,
        )
    };
    // ENOSPC: there are more, and as many as fit were listed.
    if result < 0 && result != -Errno::NOSPC.raw_os_error() {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(programs.into_iter().take(count as usize).filter(|id| *id != 0).collect())
}

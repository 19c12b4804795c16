//! What `weir run` and `weir reset` must be allowed to do.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_bpf::error::FILES_REMEDY;
use weir_bpf::sys::caps::{self, Capability, CapabilitySet};
use weir_bpf::sys::sched::{self, SchedPolicy};

use crate::error::{Error, Result};

/// What they cannot do without. `CAP_SYS_ADMIN` is not among them: it is needed for threading
/// outside the mount namespace's own network namespace alone, and the gate works without.
const NEEDED: [Capability; 4] =
    [Capability::NetAdmin, Capability::Bpf, Capability::Perfmon, Capability::SysNice];

/// What commands that look at single packets cannot do without: for programs, packet sockets, promiscuous mode, and the
/// messages of a screen that rejects.
pub const FOR_PACKETS: [Capability; 4] =
    [Capability::NetAdmin, Capability::NetRaw, Capability::Bpf, Capability::Perfmon];

/// Checks that this process may do what `command` does, which turns knobs: what it keeps in the run directory
/// is believed of root alone, and the kernel's files belong to root.
pub fn check(command: &str) -> Result<()> {
    check_for(command, &NEEDED)?;
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Ok(());
    }
    Err(Error::refused(
        format!(
            "`{command}` has the capabilities that it needs, but runs as user {}, and its files in \
             /run/weir must be root's",
            uid.as_raw()
        ),
        format!(
            "run it as root: `sudo {command} ...`; a service can be root with these capabilities \
             alone (systemd: CapabilityBoundingSet=)"
        ),
    ))
}

/// What the daemon and its guardian keep for their life. `CAP_SYS_ADMIN` stays: objects of others are opened by their
/// numbers with it (`BPF_MAP_GET_FD_BY_ID`), and namespaces entered. `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH` look at
/// who has which socket open, and read the user's configuration again; `CAP_NET_BIND_SERVICE` serves metrics at a port
/// below 1024, which may be free later only.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Gives up what a daemon does not need, before it starts threads and its guardian: they inherit what is left. And it
/// needs turns when others have theirs: neither before its own real-time threads nor after all.
pub fn confine() -> Result<()> {
    let own = rustix::thread::gettid();
    let _ =
        sched::nice(own).and_then(|nice| sched::set_weight(own, SchedPolicy::Normal, nice, None));
    Ok(caps::confine(KEPT)?)
}

/// Lets a daemon of so many interfaces have as many descriptors as the hard limit allows, since the usual soft one is for
/// users of select(2).
///
/// # Errors
/// If those are too few: it would start in part. One interface takes 230 while it starts, each other one 47.
pub fn open_many(interfaces: usize) -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let needed = 200 + 50 * interfaces as u64;
    match maximum.filter(|maximum| *maximum < needed) {
        None => Ok(()),
        Some(maximum) => Err(Error::refused(
            format!(
                "`weir run` may open {maximum} files, and needs {needed} for {interfaces} interface(s)"
            ),
            FILES_REMEDY,
        )),
    }
}

/// Checks that this process has the capabilities that `command` needs.
pub fn check_for(command: &str, needed: &[Capability]) -> Result<()> {
    let missing = caps::missing(needed)?;
    if missing.is_empty() {
        return Ok(());
    }
    let remedy: String = if rustix::process::geteuid().is_root() {
        "this root is confined; give its container or service these capabilities (systemd: \
         CapabilityBoundingSet=, docker: --cap-add)"
            .into()
    } else {
        format!("run it as root: `sudo {command} ...`")
    };
    Err(Error::refused(format!("`{command}` lacks {}", missing.join(", ")), remedy))
}

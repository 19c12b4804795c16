//! What a socket lookup from XDP costs, by helper, family and what is found.

use std::net::SocketAddr;

use rustix::thread::gettid;
use weir_bpf::lookup_cost::{LOOKUPS_PER_RUN, Lookup, LookupPrograms};
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

use super::rig::{Rig, SOURCE_PORT};
use super::targets::{CLOSED_PORT, ROOM_PORT};
use crate::error::{Error, Result};
use crate::stats::median;
use crate::stop::Stop;

/// Runs of [`LOOKUPS_PER_RUN`] lookups per system call: some milliseconds, which is also what a call of
/// a program that is attached nowhere costs by itself.
const RUNS_PER_CALL: u32 = 1_000;
/// System calls per lookup.
const CALLS: u32 = 4;

/// One helper's time on one target in one repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupTime {
    /// Name of the helper.
    pub helper: &'static str,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// What was looked up.
    pub target: &'static str,
    /// Whether it was found.
    pub found: bool,
    /// One lookup and release.
    pub ns: f64,
}

/// Times every helper on the SUT's CPU, while some XDP program is attached.
///
/// # Errors
/// When the kernel refuses a run, a socket that is there is not found, or the user stops.
pub fn run(rig: &Rig, programs: &mut LookupPrograms, stop: &Stop) -> Result<Vec<LookupTime>> {
    rig.host.netns.run(|| {
        sched::set_nice(gettid(), Nice(0))?;
        sched::pin_current_thread(rig.sut_cpu)?;
        let mut times = Vec::new();
        for (family, name) in ["ipv4", "ipv6"].into_iter().enumerate() {
            let (generator, host) = rig.addresses[family];
            let source = SocketAddr::new(generator, SOURCE_PORT);
            let to = |port| (source, SocketAddr::new(host, port));
            let (open, closed) = (to(ROOM_PORT), to(CLOSED_PORT));
            let (empty_loop, _) = time(rig, programs, Lookup::Nothing, closed)?;
            let connection = rig.targets[family].connection;
            for (helper, lookup, target, tuple) in [
                ("bpf_sk_lookup_udp", Lookup::Udp, "socket", open),
                ("bpf_sk_lookup_udp", Lookup::Udp, "nothing", closed),
                ("bpf_sk_lookup_tcp", Lookup::Tcp, "connection", connection),
                ("bpf_sk_lookup_tcp", Lookup::Tcp, "listener", open),
                ("bpf_sk_lookup_tcp", Lookup::Tcp, "nothing", closed),
                ("bpf_skc_lookup_tcp", Lookup::SkcTcp, "connection", connection),
                ("bpf_skc_lookup_tcp", Lookup::SkcTcp, "listener", open),
                ("bpf_skc_lookup_tcp", Lookup::SkcTcp, "nothing", closed),
            ] {
                stop.check()?;
                let (whole, found) = time(rig, programs, lookup, tuple)?;
                let ns = (whole - empty_loop).max(0.0) / f64::from(LOOKUPS_PER_RUN);
                if found == (target == "nothing") {
                    return Err(Error::refused(
                        format!("{helper} was to find {target} at {}, and did not", tuple.1),
                        "this is a defect of the lab: please report it",
                    ));
                }
                times.push(LookupTime { helper, family: name, target, found, ns });
            }
        }
        Ok(times)
    })?
}

/// Nanoseconds per run, and whether every lookup found a socket.
fn time(
    rig: &Rig,
    programs: &mut LookupPrograms,
    lookup: Lookup,
    (source, destination): (SocketAddr, SocketAddr),
) -> Result<(f64, bool)> {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..CALLS {
        let run = programs.time(lookup, source, destination, rig.host.ifindex, RUNS_PER_CALL)?;
        times.push(run.mean.0 as f64);
        found = run.found;
    }
    Ok((median(times), found == LOOKUPS_PER_RUN))
}

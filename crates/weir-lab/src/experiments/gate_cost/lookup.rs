//! What a socket lookup from XDP costs, by helper, family and what is found.

use std::net::SocketAddr;

use rustix::thread::gettid;
use weir_bpf::lookup_cost::{LOOKUPS_PER_RUN, Lookup, LookupPrograms};
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

use super::super::shared::*;
use crate::apps::unread::{CLOSED_PORT, ROOM_PORT};
use crate::arm::Arm;
use crate::bench::{Bench, RANDOM_PORTS, addresses};

/// How these cases' names begin.
pub(super) const PREFIX: &str = "lookup-";
/// Runs of [`LOOKUPS_PER_RUN`] lookups per system call, and system calls.
const RUNS_PER_CALL: u32 = 1_000;
const CALLS: u32 = 4;

/// A helper, and what it looks for.
pub(super) struct Asked {
    /// The case's name, without its beginning.
    pub(super) name: &'static str,
    lookup: Lookup,
    ipv6: bool,
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// A UDP socket, or a listener.
    Socket,
    Connection,
    Nothing,
}

const fn ask(name: &'static str, lookup: Lookup, ipv6: bool, target: Target) -> Asked {
    Asked { name, lookup, ipv6, target }
}

/// Every one.
pub(super) const LOOKUPS: &[Asked] = &[
    ask("sk-udp4-socket", Lookup::Udp, false, Target::Socket),
    ask("sk-udp4-nothing", Lookup::Udp, false, Target::Nothing),
    ask("sk-tcp4-connection", Lookup::Tcp, false, Target::Connection),
    ask("sk-tcp4-listener", Lookup::Tcp, false, Target::Socket),
    ask("sk-tcp4-nothing", Lookup::Tcp, false, Target::Nothing),
    ask("skc-tcp4-connection", Lookup::SkcTcp, false, Target::Connection),
    ask("skc-tcp4-listener", Lookup::SkcTcp, false, Target::Socket),
    ask("skc-tcp4-nothing", Lookup::SkcTcp, false, Target::Nothing),
    ask("sk-udp6-socket", Lookup::Udp, true, Target::Socket),
    ask("sk-udp6-nothing", Lookup::Udp, true, Target::Nothing),
    ask("sk-tcp6-connection", Lookup::Tcp, true, Target::Connection),
    ask("sk-tcp6-listener", Lookup::Tcp, true, Target::Socket),
    ask("sk-tcp6-nothing", Lookup::Tcp, true, Target::Nothing),
    ask("skc-tcp6-connection", Lookup::SkcTcp, true, Target::Connection),
    ask("skc-tcp6-listener", Lookup::SkcTcp, true, Target::Socket),
    ask("skc-tcp6-nothing", Lookup::SkcTcp, true, Target::Nothing),
];

/// Whether a quick run has it.
pub(super) fn is_quick(name: &str) -> bool {
    ["sk-udp4-socket", "sk-udp4-nothing", "skc-tcp4-listener"].contains(&name)
}

/// Times one on the tested CPU, while some XDP program is attached.
pub(super) fn measure(bench: &Bench, arm: &Arm, name: &str, trial: &mut Trial) -> Result<()> {
    let sut = bench.sut(arm);
    let Some(asked) = LOOKUPS.iter().find(|asked| asked.name == name) else { return Ok(()) };
    let Some(targets) = sut.unread() else { return Ok(()) };
    let family = usize::from(asked.ipv6);
    let (generator, host) = addresses(&sut.host)[family];
    let from = SocketAddr::new(generator, RANDOM_PORTS);
    let to = |port| (from, SocketAddr::new(host, port));
    let tuple = match asked.target {
        Target::Socket => to(ROOM_PORT),
        Target::Connection => targets[family].connection,
        Target::Nothing => to(CLOSED_PORT),
    };
    let mut programs = LookupPrograms::load()?;
    let (empty, whole, found) = sut.host.netns.run(|| -> Result<_> {
        sched::set_nice(gettid(), Nice(0))?;
        sched::pin_current_thread(bench.sut_cpu)?;
        let mut time = |lookup| -> Result<_> {
            let (mut times, mut found) = (vec![], 0);
            for _ in 0..CALLS {
                let run =
                    programs.time(lookup, tuple.0, tuple.1, sut.host.ifindex, RUNS_PER_CALL)?;
                times.push(run.mean.0 as f64);
                found = run.found;
            }
            Ok((median(times), found))
        };
        let (empty, (whole, found)) = (time(Lookup::Nothing)?.0, time(asked.lookup)?);
        Ok((empty, whole, found))
    })??;
    if (found == LOOKUPS_PER_RUN) == (asked.target == Target::Nothing) {
        return Err(Error::refused(
            format!("the lookup {name} found {found} sockets in {LOOKUPS_PER_RUN}"),
            "this is a defect of the lab: please report it",
        ));
    }
    let ns = (whole - empty).max(0.0) / f64::from(LOOKUPS_PER_RUN);
    trial.set(&m::ns_per_packet, Some(ns));
    Ok(())
}

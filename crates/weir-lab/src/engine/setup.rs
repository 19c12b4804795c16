//! What ran where in an arm that is set up.

use rustix::process::{Pid, getpid};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::stat::Stat;

use crate::arm::Arm;
use crate::bench::{Begun, Bench, Running, place, poll_in_words};
use crate::error::Result;
use crate::host::topology::SUT_INTERFACE;
use crate::run::Setup;
use crate::scene::{Books, Scene};
use crate::stop::Stop;

/// What ran where in an arm that is set up, read back from the kernel rather than from what was asked for.
pub(super) fn describe(
    bench: &mut Bench,
    arm: &Arm,
    scene: &Scene,
    begun: &Begun,
    stop: &Stop,
) -> Result<Setup> {
    let counted = !scene.without_generator
        && matches!(scene.books, Books::Udp | Books::Ip)
        && arm.bare.is_none();
    let depth = if counted { Some(bench.queue_depth(arm, stop)?) } else { None };
    let bench = &*bench;
    let sut = bench.sut(arm);
    let host = &sut.host;
    let driver_poll = poll_in_words(bench, arm)?;
    let attach = begun.daemon.as_ref().map_or("none", |daemon| &daemon.attach);
    let application = scene.apps.first().and_then(|app| sut.app(app)).map(Running::pids);
    let application = application.and_then(|pids| pids.first().copied());
    Ok(Setup {
        gate: match (&arm.bare, attach) {
            (Some(bare), _) => format!("a bare program: {bare:?}"),
            (None, "none") => "none".into(),
            _ => driver_poll.clone(),
        },
        driver_poll,
        application: match application {
            Some(pid) => format!("{}, {}", place(pid)?, session(pid)),
            None => "none".into(),
        },
        attach: attach.to_owned(),
        gro: host.netns.run(|| ethtool::gro(SUT_INTERFACE))??,
        tso: bench.topology.generator.run(|| ethtool::tso(&host.generator_ifname))??,
        rps_cpus: host.sysfs.read(SUT_INTERFACE, "queues/rx-0/rps_cpus")?.trim().to_owned(),
        queue_depth_packets: depth.map(|depth| depth.0),
        rcvbuf_bytes: depth.map(|depth| depth.1),
        daemon: arm.daemon.as_ref().map_or("none".into(), |spec| {
            let binary =
                spec.binary.as_ref().map_or("weir".into(), |path| path.display().to_string());
            [&[binary, "run".into()], &spec.options[..]].concat().join(" ")
        }),
    })
}

/// Whom the scheduler weighs a process with.
fn session(pid: Pid) -> &'static str {
    let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    // A server's worker process is in its master's. Not getsid(2) by rustix, which takes a session
    // of 0, one that was begun outside the PID namespace, for impossible.
    let session = |pid: Pid| Stat::of(pid.as_raw_nonzero().get()).and_then(|stat| stat.session());
    match (session(pid) != session(getpid()), autogroup.is_ok_and(|text| text.trim() == "1")) {
        (true, true) => "a session of its own, autogroup on",
        (true, false) => "a session of its own, no autogroup",
        (false, true) => "in the lab's session, autogroup on",
        (false, false) => "in the lab's session, no autogroup",
    }
}

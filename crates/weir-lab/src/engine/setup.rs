//! What ran where in an arm that is set up.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::{Pid, getpid};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::sys::stat::Stat;

use crate::arm::{Arm, Napi};
use crate::bench::{Begun, Bench, FIRST_PACKET_DEADLINE};
use crate::error::{Result, cannot};
use crate::host::topology::SUT_INTERFACE;
use crate::host::wire;
use crate::run::{Load, Setup};
use crate::scene::{Books, Flow, Scene};
use crate::stop::{Stop, until};

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
    let depth = if counted { Some(queue_depth(bench, arm, stop)?) } else { None };
    let bench = &*bench;
    let sut = bench.sut(arm);
    let host = &sut.host;
    let driver_poll = poll_in_words(bench, arm)?;
    let attach = begun.daemon.as_ref().map_or("none", |daemon| &daemon.attach);
    let application = scene.apps.first().and_then(|app| begun.app(sut, app));
    let application = application.and_then(|running| running.pids.first().copied());
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
fn session(pid: Pid) -> String {
    let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    // A server's worker process is in its master's. Not getsid(2) by rustix, which takes a session
    // of 0, one that was begun outside the PID namespace, for impossible.
    let session = |pid: Pid| Stat::of(pid.as_raw_nonzero().get()).and_then(|stat| stat.session());
    let own = session(pid) != session(getpid());
    let grouped = autogroup.is_ok_and(|text| text.trim() == "1");
    let session = if own { "a session of its own" } else { "in the lab's session" };
    format!("{session}, {}", if grouped { "autogroup on" } else { "no autogroup" })
}

/// How many packets an arm's ring has refused, or NAPI has taken from it.
fn ended(bench: &Bench, arm: &Arm) -> Result<u64> {
    let [far, own] = bench.topology.stats(&bench.sut(arm).host)?;
    Ok(far.tx_dropped + own.rx_packets)
}

/// How many packets of this run a socket's buffer holds on this path, counted rather than computed:
/// the charge per packet (truesize) depends on the driver. And `SO_RCVBUF`.
fn queue_depth(bench: &mut Bench, arm: &Arm, stop: &Stop) -> Result<(u32, u32)> {
    const PORT: u16 = 5998;
    /// Slow enough that nothing but the socket can be full.
    const FILL_PPS: f64 = 50_000.0;
    const FILL_TIME: Duration = Duration::from_millis(100);
    /// How long the last packet may take to arrive.
    const QUIET: Duration = Duration::from_millis(20);
    let host = &bench.sut(arm).host;
    let address = SocketAddr::from((host.address.1, PORT));
    let socket = host.netns.run(|| UdpSocket::bind(address))?.map_err(cannot("bind", address))?;
    let rcvbuf =
        sockopt::socket_recv_buffer_size(&socket).map_err(cannot("read the buffer of", address))?;
    bench.aim(arm, &[Flow::udp(PORT, Load::Rate(FILL_PPS))])?;
    let before = ended(bench, arm)?;
    bench.generate_while(|| {
        bench.generator.start();
        stop.sleep(FILL_TIME)
    })??;
    // A thread at nice 19 may wait long on a busy machine; what it then brings would be the trial's.
    until(FIRST_PACKET_DEADLINE, || {
        stop.check()?;
        let sent = bench.generator.counts(0).sent;
        Ok((ended(bench, arm)? - before >= sent).then_some(()))
    })?;
    socket.set_read_timeout(Some(QUIET)).map_err(cannot("set the timeout of", address))?;
    let (mut buffer, mut packets) = ([0; 2048], 0);
    while socket.recv(&mut buffer).is_ok() {
        packets += 1;
    }
    Ok((packets, rcvbuf as u32))
}

/// How the arm's wire is, in words.
fn poll_in_words(bench: &Bench, arm: &Arm) -> Result<String> {
    if arm.veth {
        return Ok(format!("none: backlog of CPU {}, by RPS", bench.sut_cpu));
    }
    Ok(match (bench.pollers(arm)?.first(), arm.napi) {
        (Some(thread), _) if arm.unpinned => format!("{}, NAPI thread", place(thread.pid)?),
        (None, _) if arm.unpinned => "softirq of the sender".into(),
        // Its weight is that of the moment.
        (Some(_), _) if arm.daemon.is_some() => {
            format!("CPU {}, NAPI thread that weir governs", bench.sut_cpu)
        }
        (Some(thread), _) => format!("{}, NAPI thread", place(thread.pid)?),
        (None, Napi::Rps) => format!("CPU {}, softirq of the sender", bench.generator_cpu),
        (None, _) => {
            let moderation = wire::MODERATION.as_micros();
            format!("CPU {}, softirq on a timer interrupt each {moderation} us", bench.sut_cpu)
        }
    })
}

/// CPU, policy and weight of a thread.
fn place(pid: Pid) -> Result<String> {
    let cpus: Vec<String> = sched::affinity(pid)?.iter().map(ToString::to_string).collect();
    let batch = if sched::policy(pid)? == SchedPolicy::Batch { ", SCHED_BATCH" } else { "" };
    Ok(format!("CPU {} at nice {}{batch}", cpus.join(","), sched::nice(pid)?))
}

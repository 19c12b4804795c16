//! One packet over and over (`BPF_PROG_TEST_RUN`): the gate's own time step by step, with everything
//! in the caches and no driver.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::thread::gettid;
use weir_bpf::bare::Bare;
use weir_bpf::counters::Counters;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::test_run::XdpProgram;
use weir_bpf::units::{Nice, PacketsPerSec};
use weir_bpf::verdict::{Reason, Verdict};

use super::packets::{Ends, HotPacket, hot_packets};
use super::rig::{Program, Rig};
use super::rows::RowSpec;
use super::targets::FULL_PORT;
use crate::error::{Error, Result};
use crate::stats::median;
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::worker_process::Daemon;

/// Runs per system call: half a millisecond, so that what the gate believes of a full queue is
/// renewed between two calls.
const RUNS_PER_CALL: u32 = 5_000;
/// Real packets to a full socket meanwhile: the kernel refuses them, and so teaches the gate.
const KEEP_FULL: PacketsPerSec = PacketsPerSec(50_000.0);
const SETTLE: Duration = Duration::from_millis(5);
const PAUSE: Duration = Duration::from_micros(300);
/// Calls of a bare program. It is attached nowhere, so that each call costs milliseconds: the kernel's
/// XDP dispatcher is rebuilt for it.
const BARE_CALLS: u32 = 5;
/// A call counts for a reason if this share of its packets was under it.
const PURE: f64 = 0.99;

/// One packet's time in one repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct HotTime {
    /// The packet.
    pub packet: String,
    /// What the gate counted it under.
    pub reason: Reason,
    /// Through the gate.
    pub gate_ns: f64,
    /// Through the bare program with the same verdict.
    pub bare_ns: f64,
}

/// Times every packet, with the gate attached.
///
/// # Errors
/// When the kernel refuses a run, or the user stops.
pub fn run(rig: &mut Rig, program: &Program, calls: u32, stop: &Stop) -> Result<Vec<HotTime>> {
    let Some(daemon) = program.gate() else { return Ok(vec![]) };
    rig.napi_thread()?;
    let id = rig.host.netns.run(|| Links::open()?.xdp(rig.host.ifindex))??;
    let id = id.map(|attached| attached.prog_id).ok_or_else(|| {
        Error::refused(format!("{SUT_INTERFACE} has lost its gate"), "run the experiment again")
    })?;
    let gate = XdpProgram::by_id(id)?;
    let ends = Ends { mac: rig.host.mac, addresses: rig.addresses };
    let bare = Bares::time(rig)?;
    let mut times = Vec::new();
    for packet in hot_packets(&ends) {
        stop.check()?;
        let time = |rig: &Rig| time(rig, (&gate, &bare), daemon, &packet, calls, stop);
        let time = match packet.keep_full {
            None => time(rig)?,
            Some(kind) => {
                let one = RowSpec { kind, address_bits: 0, port_bits: 0, socket_bits: 0 };
                rig.aim(one, FULL_PORT, Some(KEEP_FULL))?;
                let (netns, cpu) = (&rig.topology.generator, Some(rig.generator_cpu));
                rig.generator.run_while(netns, cpu, || {
                    rig.generator.start();
                    stop.sleep(SETTLE)?;
                    time(rig)
                })??
            }
        };
        times.extend(time);
    }
    Ok(times)
}

/// What the bare programs take, whatever the packet.
struct Bares {
    drop_ns: f64,
    pass_ns: f64,
}

impl Bares {
    /// On the SUT's CPU.
    fn time(rig: &Rig) -> Result<Self> {
        let times = |bare| -> Result<f64> {
            let mut times = Vec::new();
            for _ in 0..BARE_CALLS {
                let run = rig.bare.timed(bare, &[0; 64], rig.host.ifindex, RUNS_PER_CALL)?;
                times.push(run.mean.0 as f64);
            }
            Ok(median(times))
        };
        rig.host.netns.run(|| {
            on_sut(rig)?;
            Ok(Self { drop_ns: times(Bare::Drop)?, pass_ns: times(Bare::Pass)? })
        })?
    }
}

/// Puts the calling thread where the packets are received.
fn on_sut(rig: &Rig) -> Result<()> {
    sched::set_nice(gettid(), Nice(0))?;
    sched::pin_current_thread(rig.sut_cpu)?;
    Ok(())
}

/// On the SUT's CPU. `None` where no call was of one reason.
fn time(
    rig: &Rig,
    (gate, bare): (&XdpProgram, &Bares),
    daemon: &Daemon,
    packet: &HotPacket,
    calls: u32,
    stop: &Stop,
) -> Result<Option<HotTime>> {
    let mut gated = Vec::new();
    rig.host.netns.run(|| -> Result<()> {
        on_sut(rig)?;
        for _ in 0..calls {
            stop.check()?;
            let before = daemon.counters.counters()?;
            let run = gate.timed(&packet.frame, rig.host.ifindex, RUNS_PER_CALL)?;
            let after = daemon.counters.counters()?;
            if let Some(reason) = only_reason(&before, &after) {
                gated.push((reason, run.mean.0 as f64));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    })??;
    Ok(settle(&gated).map(|(reason, gate_ns)| HotTime {
        packet: packet.name.clone(),
        reason,
        gate_ns,
        bare_ns: if reason.verdict() == Verdict::Discard { bare.drop_ns } else { bare.pass_ns },
    }))
}

/// The reason that nearly all packets between two readings are under, if there is one.
fn only_reason(before: &Counters, after: &Counters) -> Option<Reason> {
    let since = |reason| after.get(reason).packets - before.get(reason).packets;
    let all: u64 = Reason::ALL.into_iter().map(since).sum();
    Reason::ALL.into_iter().find(|reason| since(*reason) as f64 >= PURE * all as f64 && all > 0)
}

/// Which reason the packet is measured under, and the median of its calls: a discard if there was
/// one, because a full queue is admitted to now and then, and never the other way round.
fn settle(calls: &[(Reason, f64)]) -> Option<(Reason, f64)> {
    let mut by_reason: BTreeMap<Reason, Vec<f64>> = BTreeMap::new();
    for (reason, ns) in calls {
        by_reason.entry(*reason).or_default().push(*ns);
    }
    by_reason
        .into_iter()
        .max_by_key(|(reason, times)| (reason.verdict() == Verdict::Discard, times.len()))
        .map(|(reason, times)| (reason, median(times)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discard_outweighs_what_was_admitted_meanwhile() {
        let (room, full) = (Reason::UdpRoom, Reason::UdpFull);
        let calls = [(room, 90.0), (room, 92.0), (full, 110.0)];
        assert_eq!(settle(&calls), Some((full, 110.0)));
        assert_eq!(settle(&calls[..2]), Some((room, 91.0)));
        assert_eq!(settle(&[]), None);
    }
}

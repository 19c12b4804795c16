//! One trial of the real path: one row in one mode, at the generator's top rate.

use std::time::{Duration, Instant};

use weir_bpf::counters::Counters;
use weir_bpf::poll_cost::PollCost;
use weir_bpf::sys::sched;
use weir_bpf::verdict::{Reason, Verdict};

use super::rig::{Program, Rig};
use super::rows::RowSpec;
use super::targets::{FULL_PORT, ROOM_PORT};
use crate::error::{Error, Result};
use crate::histogram;
use crate::machine;
use crate::results::gate_cost::{CostLedger, CostMode, CostTrial};
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::trial::{DRAIN_DEADLINE, DRAIN_STEP, SPIN_UP, statistic};
use crate::worker::slots;

/// With fewer of the packets in full polls than this, those say too little: the CPU time is taken.
pub const IN_FULL_POLLS_MIN: f64 = 0.02;

/// Length of a trial's parts.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Before the window.
    pub warm_up: Duration,
    /// The measured window.
    pub window: Duration,
}

/// Cumulative counters at one moment.
struct Snapshot {
    at: Instant,
    sent: u64,
    ring_drop: u64,
    seen: u64,
    gate: Option<Counters>,
    polls: PollCost,
    napi_cpu_ns: u64,
    loops: Vec<u64>,
    steal_s: f64,
}

impl Snapshot {
    fn take(rig: &Rig, napi: rustix::process::Pid, program: &Program) -> Result<Self> {
        let at = Instant::now();
        let (sent, polls) = (rig.generator.counts(0).sent, rig.clock.read());
        let host = &rig.host;
        let sysfs = &rig.topology.generator_sysfs;
        let gate = match program.gate() {
            None => None,
            Some(daemon) => Some(daemon.counters.counters()?),
        };
        Ok(Self {
            at,
            sent,
            ring_drop: statistic(sysfs, &host.generator_ifname, "tx_dropped")?,
            // A veth that polls counts here what its polls took from the ring (veth_get_stats64()).
            seen: statistic(&host.sysfs, SUT_INTERFACE, "rx_packets")?,
            gate,
            polls,
            napi_cpu_ns: sched::cpu_time(napi)?.0,
            loops: histogram::snapshot(rig.speed.shared(), slots::HISTOGRAM),
            steal_s: machine::steal_s(rig.sut_cpu),
        })
    }

    fn ledger_since(&self, before: &Self) -> CostLedger {
        let since = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        let gate = |of: fn(&Counters) -> u64| {
            let both = self.gate.as_ref().zip(before.gate.as_ref());
            both.map(|(now, before)| of(now).saturating_sub(of(before)))
        };
        let (offered, ring_drop, seen) =
            (since(|s| s.sent), since(|s| s.ring_drop), since(|s| s.seen));
        CostLedger {
            offered,
            ring_drop,
            seen,
            counted: gate(counted),
            discarded: gate(discarded),
            unjudged: gate(unjudged),
            unaccounted: offered as i64 - ring_drop as i64 - seen as i64,
        }
    }
}

fn counted(gate: &Counters) -> u64 {
    gate.total().packets
}

fn discarded(gate: &Counters) -> u64 {
    gate.verdict(Verdict::Discard).packets
}

/// Packets that passed without a look at their destination.
fn unjudged(gate: &Counters) -> u64 {
    gate.get(Reason::Diverted).packets + gate.get(Reason::PolicyOff).packets
}

/// Whether every packet is where it must be, in as many counters as there are.
fn adds_up(ledger: &CostLedger) -> bool {
    ledger.unaccounted == 0 && ledger.counted.is_none_or(|counted| counted == ledger.seen)
}

/// Runs one trial with a program that is attached.
///
/// # Errors
/// Where packets do not add up, or the user stops the run.
pub fn run(
    rig: &mut Rig,
    (row, repeat, spec): (u32, u32, RowSpec),
    mode: CostMode,
    program: &Program,
    times: Times,
    stop: &Stop,
) -> Result<CostTrial> {
    let napi = rig.napi_thread()?.pid;
    rig.aim(spec, if mode.passes() { ROOM_PORT } else { FULL_PORT }, None)?;
    let rig = &*rig;
    let _sink = if mode.passes() { Some(rig.attach_sink()?) } else { None };
    let snapshot = || Snapshot::take(rig, napi, program);

    let (netns, cpu) = (&rig.topology.generator, Some(rig.generator_cpu));
    let (before, opened, closed) = rig.generator.run_while(netns, cpu, || {
        stop.sleep(SPIN_UP)?;
        let before = snapshot()?;
        rig.generator.start();
        stop.sleep(times.warm_up)?;
        let opened = snapshot()?;
        stop.sleep(times.window)?;
        Ok::<_, Error>((before, opened, snapshot()?))
    })??;
    let deadline = Instant::now() + DRAIN_DEADLINE;
    let after = loop {
        let now = snapshot()?;
        if adds_up(&now.ledger_since(&before)) || Instant::now() > deadline {
            break now;
        }
        stop.sleep(DRAIN_STEP)?;
    };
    let ledger = after.ledger_since(&before);
    if !adds_up(&ledger) {
        return Err(Error::Conservation {
            mode: format!("{mode} with {}", spec.kind),
            rate: "top rate".into(),
            unaccounted: ledger.unaccounted,
            offered: ledger.offered,
            ledger: format!("{ledger:?}"),
        });
    }
    refuse_unjudged(&ledger)?;
    // Before and after the load the thread sleeps, and its CPU time is exact.
    let cpu_ns = after.napi_cpu_ns.saturating_sub(before.napi_cpu_ns) as f64;
    let mut trial = window((row, repeat), mode, &opened, &closed);
    trial.cpu_ns_per_packet = cpu_ns / ledger.seen.max(1) as f64;
    trial.busy = (cpu_ns / (closed.at - before.at).as_nanos() as f64).min(1.0);
    if trial.in_full_polls < IN_FULL_POLLS_MIN {
        trial.ns_per_packet = trial.cpu_ns_per_packet;
    }
    Ok(CostTrial { ledger, ..trial })
}

/// What the gate costs is what it costs to judge.
fn refuse_unjudged(ledger: &CostLedger) -> Result<()> {
    match ledger.unjudged {
        None | Some(0) => Ok(()),
        Some(packets) => Err(Error::refused(
            format!("the gate passed {packets} of {} packets unjudged", ledger.seen),
            "something in the lab's namespace may divert packets, or was added to it; `weir status` \
             there names it; otherwise please report this",
        )),
    }
}

/// The figures of the window.
fn window(
    (row, repeat): (u32, u32),
    mode: CostMode,
    opened: &Snapshot,
    closed: &Snapshot,
) -> CostTrial {
    let window_s = (closed.at - opened.at).as_secs_f64();
    let polls = |of: fn(&PollCost) -> u64| of(&closed.polls).saturating_sub(of(&opened.polls));
    let ratio = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
    let quantile = |share| closed.polls.quantile_ns_since(&opened.polls, share).unwrap_or(0.0);
    let full_packets = polls(|p| p.full_packets);
    CostTrial {
        row,
        repeat,
        mode,
        window_s,
        offered_pps: closed.sent.saturating_sub(opened.sent) as f64 / window_s,
        handled_pps: polls(|p| p.packets) as f64 / window_s,
        ns_per_packet: quantile(0.5),
        ns_p25: quantile(0.25),
        ns_p75: quantile(0.75),
        mean_ns_per_packet: ratio(polls(|p| p.full_time.0), full_packets),
        cpu_ns_per_packet: 0.0,
        busy: 0.0,
        in_full_polls: ratio(full_packets, polls(|p| p.packets)).min(1.0),
        discarded_share: closed.gate.as_ref().zip(opened.gate.as_ref()).map(|(closed, opened)| {
            let since = |of: fn(&Counters) -> u64| of(closed).saturating_sub(of(opened));
            ratio(since(discarded), since(counted)).min(1.0)
        }),
        interrupted_polls: polls(|p| p.interrupted),
        // The undisturbed passes of the loop: interrupts only ever make it slower.
        sut_loop_ns: histogram::percentile(&opened.loops, &closed.loops, 10.0).unwrap_or(0) as f64,
        steal: (closed.steal_s - opened.steal_s) / window_s,
        ledger: CostLedger::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_did_not_judge_is_no_result() {
        let ledger = |unjudged| CostLedger { seen: 9, unjudged, ..CostLedger::default() };
        assert!(refuse_unjudged(&ledger(None)).is_ok());
        assert!(refuse_unjudged(&ledger(Some(0))).is_ok());
        assert!(refuse_unjudged(&ledger(Some(1))).is_err());
    }
}

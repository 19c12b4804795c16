//! A bare `XDP_DROP` at the generator's top rate, as `gate-cost` measures it: the median time of NAPI
//! polls that took a whole budget one after another, which never wait for packets.

use std::time::{Duration, Instant};

use weir_bpf::bare::{Bare, BarePrograms};
use weir_bpf::poll_cost::PollClock;
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::gate_cost::IN_FULL_POLLS_MIN;
use crate::stop::Stop;
use crate::topology::{Host, SUT_INTERFACE};
use crate::trial::{DRAIN_DEADLINE, DRAIN_STEP, SPIN_UP, statistic};

/// A host of its own, and the program.
pub(super) struct BareDrop {
    host: Host,
    programs: BarePrograms,
    clock: PollClock,
}

/// Cumulative counters.
struct Counts {
    sent: u64,
    ring_drop: u64,
    seen: u64,
    cpu_ns: u64,
}

impl BareDrop {
    /// Makes the host.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(super) fn set_up(bench: &mut Bench) -> Result<Self> {
        let host = bench.topology.add_host("bare-drop", bench.workload.ipv6)?;
        host.wait_until_up()?;
        Ok(Self { host, programs: BarePrograms::load()?, clock: PollClock::load()? })
    }

    /// Nanoseconds per packet of one trial.
    ///
    /// # Errors
    /// Where packets do not add up, or the user stops the run.
    pub(super) fn run(
        &mut self,
        bench: &mut Bench,
        warm_up: Duration,
        window: Duration,
        stop: &Stop,
    ) -> Result<f64> {
        let host = &self.host;
        let _program = host.netns.run(|| self.programs.attach(Bare::Drop, host.ifindex))??;
        let threads = host.thread_napi(bench.sut_cpu, Nice(0))?;
        let Some(thread) = threads.first() else {
            return Err(Error::refused("no NAPI thread", "please report this"));
        };
        self.clock.watch(thread.napi_id);
        bench.aim_at_host(host)?;
        let bench = &*bench;
        let counts = || -> Result<Counts> {
            let ring_drop =
                statistic(&bench.topology.generator_sysfs, &host.generator_ifname, "tx_dropped")?;
            Ok(Counts {
                sent: bench.generator.counts(0).sent,
                ring_drop,
                // A veth that polls counts here what its polls took from the ring.
                seen: statistic(&host.sysfs, SUT_INTERFACE, "rx_packets")?,
                cpu_ns: sched::cpu_time(thread.pid)?.0,
            })
        };
        let (before, opened, closed) = bench.generate_while(|| {
            stop.sleep(SPIN_UP)?;
            let before = counts()?;
            bench.generator.start();
            stop.sleep(warm_up)?;
            let opened = self.clock.read();
            stop.sleep(window)?;
            Ok::<_, Error>((before, opened, self.clock.read()))
        })??;
        let deadline = Instant::now() + DRAIN_DEADLINE;
        let (seen, cpu_ns) = loop {
            let now = counts()?;
            let offered = now.sent - before.sent;
            let ring_drop = now.ring_drop - before.ring_drop;
            let seen = now.seen - before.seen;
            let unaccounted = offered as i64 - (ring_drop + seen) as i64;
            if unaccounted == 0 {
                break (seen, now.cpu_ns.saturating_sub(before.cpu_ns));
            }
            if Instant::now() > deadline {
                return Err(Error::Conservation {
                    mode: "bare XDP_DROP".into(),
                    rate: "top rate".into(),
                    unaccounted,
                    offered,
                    ledger: format!("{ring_drop} refused by the ring, {seen} seen"),
                });
            }
            stop.sleep(DRAIN_STEP)?;
        };
        let in_full = closed.full_packets.saturating_sub(opened.full_packets) as f64;
        let all = closed.packets.saturating_sub(opened.packets).max(1) as f64;
        let by_polls = closed.quantile_ns_since(&opened, 0.5);
        let by_cpu = cpu_ns as f64 / seen.max(1) as f64;
        Ok(by_polls.filter(|_| in_full / all >= IN_FULL_POLLS_MIN).unwrap_or(by_cpu))
    }
}

//! One trial: one measure by so many flows in one arm, and what was lost meanwhile.

use std::net::SocketAddr;
use std::time::Instant;

use super::rig::{Begun, Rig};
use super::{RowSpec, iperf};
use crate::drops::Drops;
use crate::error::{Error, Result};
use crate::load::Plan;
use crate::results::parity::{Arm, Lost, Measure, ParityTrial};
use crate::stop::Stop;
use crate::trial::{DRAIN_DEADLINE, DRAIN_STEP, age_us};
use crate::worker::slots;
use crate::worker_process::Worker;
use crate::{histogram, machine};

/// Payload of the largest datagram that an Ethernet frame of 1,500 bytes carries.
pub const DATAGRAM_BYTES: usize = 1472;
const PORT: u16 = 6000;

/// Runs one.
///
/// # Errors
/// Where datagrams do not add up, a process does not come up, or the user stops the run.
pub(super) fn measure(
    rig: &Rig,
    plan: &Plan,
    (repeat, (measure, flows), arm): (u32, RowSpec, Arm),
    stop: &Stop,
) -> Result<ParityTrial> {
    let begun = rig.begin(arm)?;
    let looked = Look::now(rig, None);
    let blank = ParityTrial {
        repeat,
        measure,
        flows,
        arm,
        figure: 0.0,
        window_s: 0.0,
        p99_us: None,
        sut_loop_ns: 0.0,
        steal: 0.0,
        idle_cpu: 0.0,
        lost: Lost::default(),
    };
    if measure == Measure::TcpStream && flows == 1 {
        let before = drops(rig, arm, &begun)?;
        // It measures whole seconds.
        let seconds = (plan.window.as_secs_f64().round() as u64).max(1);
        let (far, server) = ((&*rig.topology.generator_path, rig.far_cpu), rig.host(arm).address.1);
        let log = rig.topology.directory("iperf3")?.join("client.json");
        let (figure, window_s) = iperf::send(&rig.iperf, far, (server, seconds), &log, stop)?;
        let lost = lost(&drops(rig, arm, &begun)?.since(&before), None);
        let machine = looked.until(&Look::now(rig, None), blank);
        return Ok(ParityTrial { figure, window_s, lost, ..machine });
    }
    converse(rig, plan, &begun, blank, stop)
}

/// With the lab's own peers.
fn converse(
    rig: &Rig,
    plan: &Plan,
    begun: &Begun<'_>,
    blank: ParityTrial,
    stop: &Stop,
) -> Result<ParityTrial> {
    let (measure, flows, arm) = (blank.measure, blank.flows, blank.arm);
    let host = rig.host(arm);
    let before = drops(rig, arm, begun)?;
    let role = |name: &str| {
        let server = SocketAddr::new(host.address.1, PORT).to_string();
        let flows = flows.to_string();
        [name, measure.name(), "--server", &server, "--flows", &flows].map(str::to_owned)
    };
    let server = Worker::start(&host.netns_path, rig.sut_cpu, &role("parity-server"))?;
    let far = &rig.topology.generator_path;
    let client = Worker::start(far, rig.far_cpu, &role("parity-client"))?;
    stop.sleep(plan.warm_up)?;
    let counted = if measure.is_time() { &client } else { &server };
    let opened = Look::now(rig, Some((counted, &client)));
    stop.sleep(plan.window)?;
    let closed = Look::now(rig, Some((counted, &client)));
    client.shared().get(slots::STOP).store(1, std::sync::atomic::Ordering::Relaxed);
    let deadline = Instant::now() + DRAIN_DEADLINE;
    let lost = loop {
        let datagrams = measure.is_udp().then(|| (client.count(slots::SENT), server.delivered()));
        let lost = lost(&drops(rig, arm, begun)?.since(&before), datagrams);
        if lost.unaccounted == 0 || Instant::now() > deadline {
            break lost;
        }
        stop.sleep(DRAIN_STEP)?;
    };
    if lost.unaccounted != 0 {
        return Err(Error::Conservation {
            mode: arm.to_string(),
            rate: format!("{} by {flows} flows", measure.name()),
            unaccounted: lost.unaccounted,
            offered: lost.offered.unwrap_or(0),
            ledger: format!("{lost:?}"),
        });
    }
    let window_s = (closed.at - opened.at).as_secs_f64();
    let count = (closed.counted - opened.counted) as f64;
    if count == 0.0 {
        return Err(Error::refused(
            format!("nothing came through in mode {arm}: {} by {flows} flows", measure.name()),
            "is the machine overloaded? give it longer with --seconds",
        ));
    }
    let figure = match measure {
        Measure::UdpRoundTrip | Measure::TcpRoundTrip => window_s * 1e6 / count,
        Measure::UdpWindow => count * DATAGRAM_BYTES as f64 * 8.0 / window_s / 1e6,
        Measure::TcpStream => count * 8.0 / window_s / 1e6,
    };
    let machine = opened.until(&closed, blank);
    let p99_us = measure.is_time().then(|| age_us(&opened.times, &closed.times, 99.0)).flatten();
    Ok(ParityTrial { figure, window_s, p99_us, lost, ..machine })
}

fn drops(rig: &Rig, arm: Arm, begun: &Begun<'_>) -> Result<Drops> {
    Drops::read(&rig.topology, rig.host(arm), begun.daemon.as_ref())
}

/// Of datagrams that were sent and received, if they were counted.
fn lost(drops: &Drops, datagrams: Option<(u64, u64)>) -> Lost {
    let (ring, late) = (drops.nic_drop + drops.late_backlog, drops.late_socket + drops.late_other);
    let discarded = drops.discarded;
    let unaccounted = datagrams.map_or(0, |(offered, delivered)| {
        offered as i64 - (delivered + ring + discarded + late) as i64
    });
    Lost {
        offered: datagrams.map(|(offered, _)| offered),
        delivered: datagrams.map(|(_, delivered)| delivered),
        ring,
        discarded,
        late,
        unaccounted,
    }
}

/// What stands at one end of a window.
struct Look {
    at: Instant,
    counted: u64,
    times: Vec<u64>,
    loops: Vec<u64>,
    steal_s: f64,
    idle_s: f64,
}

impl Look {
    /// Of who counts, and of who times, where there are such.
    fn now(rig: &Rig, talkers: Option<(&Worker, &Worker)>) -> Self {
        Self {
            at: Instant::now(),
            counted: talkers.map_or(0, |(counted, _)| counted.delivered()),
            times: talkers
                .map_or(vec![], |(_, timer)| histogram::snapshot(timer.shared(), slots::HISTOGRAM)),
            loops: histogram::snapshot(rig.speed.shared(), slots::HISTOGRAM),
            steal_s: machine::steal_s(rig.sut_cpu),
            idle_s: machine::idle_s(rig.sut_cpu),
        }
    }

    /// How the machine was from this look to the next.
    fn until(&self, next: &Self, trial: ParityTrial) -> ParityTrial {
        let seconds = (next.at - self.at).as_secs_f64();
        let loop_ns = histogram::percentile(&self.loops, &next.loops, 10.0);
        ParityTrial {
            sut_loop_ns: loop_ns.unwrap_or(0) as f64,
            steal: (next.steal_s - self.steal_s) / seconds,
            idle_cpu: (next.idle_s - self.idle_s) / seconds,
            ..trial
        }
    }
}

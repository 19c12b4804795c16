//! What of an echo server's replies arrived at the far end, over time (MR, sections 4.4 and 6.6:
//! transmit starvation).
//!
//! Counted by the generator's interface, so that a reply counts only if it left; what becomes of it there
//! is in [`Host::client`](crate::topology::Host::client).

use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::results::{Mode, Replies};
use crate::stats::spread;
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::worker::slots;
use crate::worker_process::Worker;

use super::{Flood, statistic};

/// How often arrivals are read while the window lasts: long against the microseconds that it takes.
pub(super) const SLICE: Duration = Duration::from_millis(10);

/// Packets that the generator's interface has received so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    at: Instant,
    packets: u64,
}

impl Arrived {
    pub(super) fn now(bench: &Bench, mode: Mode) -> Result<Self> {
        let ifname = &bench.sut(mode).host.generator_ifname;
        let at = Instant::now();
        Ok(Self { at, packets: statistic(&bench.topology.generator_sysfs, ifname, "rx_packets")? })
    }
}

/// Where replies have ended so far, packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) sent: u64,
    arrived: u64,
    refused: u64,
}

impl Counts {
    pub(super) fn now(server: &Worker, bench: &Bench, mode: Mode) -> Result<Self> {
        Ok(Self {
            // First, so that what has not been replied to is seen.
            received: server.delivered(),
            sent: server.count(slots::REPLIED),
            arrived: Arrived::now(bench, mode)?.packets,
            refused: statistic(&bench.sut(mode).host.sysfs, SUT_INTERFACE, "tx_dropped")?,
        })
    }
}

/// Lasts a window, and reads at both of its ends and between slices.
pub(super) fn watch(
    bench: &Bench,
    mode: Mode,
    (window, slice): (Duration, Duration),
    stop: &Stop,
) -> Result<Vec<Arrived>> {
    let mut readings = vec![Arrived::now(bench, mode)?];
    let began = Instant::now();
    loop {
        let left = window.saturating_sub(began.elapsed());
        // What is left over of the window lengthens its last slice.
        if left < slice * 2 {
            stop.sleep(left)?;
            readings.push(Arrived::now(bench, mode)?);
            return Ok(readings);
        }
        stop.sleep(slice)?;
        readings.push(Arrived::now(bench, mode)?);
    }
}

/// Rate and steadiness of what arrived.
pub(super) fn rates(readings: &[Arrived]) -> (f64, Option<f64>) {
    let per_s = |from: &Arrived, to: &Arrived| {
        (to.packets - from.packets) as f64 / (to.at - from.at).as_secs_f64()
    };
    let whole = readings.first().zip(readings.last());
    let slices = spread(readings.windows(2).map(|pair| per_s(&pair[0], &pair[1])));
    let steady = (readings.len() > 2 && slices.median > 0.0).then(|| slices.min / slices.median);
    (whole.map_or(0.0, |(first, last)| per_s(first, last)), steady)
}

/// The replies of a trial, from its ends and the readings in its window.
pub(super) fn replies(before: &Counts, after: &Counts, readings: &[Arrived]) -> Replies {
    let (arrived_pps, steady) = rates(readings);
    Replies {
        arrived_pps,
        steady,
        sent: after.sent - before.sent,
        arrived: after.arrived - before.arrived,
        refused: after.refused - before.refused,
    }
}

/// Every packet that was delivered was replied to, and each reply has arrived or was refused.
pub(super) fn check(replies: &Replies, delivered: u64, mode: Mode, flood: Flood) -> Result<()> {
    if replies.sent == delivered && replies.sent == replies.arrived + replies.refused {
        return Ok(());
    }
    Err(Error::Replies {
        mode: mode.to_string(),
        rate: flood.to_string(),
        replies: format!("{delivered} packets delivered, {replies:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_slice_is_held_against_the_median() {
        let began = Instant::now();
        let at = |ms, packets| Arrived { at: began + Duration::from_millis(ms), packets };
        // 1,000, 400 and, in twice the time, 1,800 packets.
        let readings = [at(0, 50), at(10, 1_050), at(20, 1_450), at(40, 3_250)];
        let (pps, steady) = rates(&readings);
        assert!((pps - 80e3).abs() < 1e-6, "{pps}");
        assert!((steady.unwrap() - 40.0 / 90.0).abs() < 1e-9, "{steady:?}");
        // Where nothing comes, nothing is steady.
        assert_eq!(rates(&[at(0, 50), at(10, 50)]), (0.0, None));
        assert_eq!(rates(&[]), (0.0, None));
    }
}

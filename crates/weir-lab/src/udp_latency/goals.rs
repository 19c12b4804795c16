//! What is wanted: that weir keeps pings fast, and loses none, as long as the ring takes what comes.

use super::VARIANT;
use crate::goals::{accounted, goal};
use crate::results::latency::{Latency, LatencyRun};
use crate::results::merit::MeritPoint;
use crate::results::{Goal, Mode};
use crate::trial::Flood;

/// Up to this share lost at it, the ring takes what comes: R_ring is the highest such rate.
const RING_LOSS_MAX: f64 = 0.005;
/// The round trip's 99th percentile against the unloaded one.
const TIMES_MAX: f64 = 2.0;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &LatencyRun) -> Vec<Goal> {
    let up_to = up_to_r_ring(run.series.get(&Mode::Weir).map_or(&[][..], Vec::as_slice));
    let r_ring = up_to.last().map_or(0.0, |point| point.flood_pps) / 1e3;
    vec![
        goal(
            "weir: the round trip's p99 up to R_ring, of unloaded",
            format!("<= {TIMES_MAX}"),
            slowest(run, &up_to).map(|times| {
                (format!("{times:.2} at worst, up to {r_ring:.0} k/s"), times <= TIMES_MAX)
            }),
        ),
        goal(
            "weir: pings lost up to R_ring",
            "0".to_owned(),
            (!up_to.is_empty()).then(|| {
                let count =
                    |of: fn(&Latency) -> u64| up_to.iter().map(|p| of(&p.detail)).sum::<u64>();
                let (lost, sent) = (count(|pings| pings.lost), count(|pings| pings.sent));
                (format!("{lost} of {sent}, up to {r_ring:.0} k/s"), lost == 0)
            }),
        ),
        accounted(run.trials.iter().map(|trial| &trial.load)),
    ]
}

/// The points with a flood up to the first at which the ring overflows.
fn up_to_r_ring(points: &[MeritPoint<Latency>]) -> Vec<&MeritPoint<Latency>> {
    points
        .iter()
        .filter(|point| point.variant == VARIANT && point.target_pps != Flood::Off.target_pps())
        .take_while(|point| point.ring_loss <= RING_LOSS_MAX)
        .collect()
}

/// The slowest of these points against the unloaded one.
fn slowest(run: &LatencyRun, points: &[&MeritPoint<Latency>]) -> Option<f64> {
    let all = run.series.get(&Mode::Weir)?;
    let calm = all.iter().find(|point| point.target_pps == Flood::Off.target_pps())?;
    let unloaded = calm.detail.p99_us?;
    let times: Option<Vec<f64>> =
        points.iter().map(|point| Some(point.detail.p99_us? / unloaded)).collect();
    times?.into_iter().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::goals;
    use crate::report::fixture_latency::latency;

    #[test]
    fn they_are_asked_up_to_r_ring_alone() {
        let mut run = latency();
        let met = |run: &_| goals(run).iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(&run), [true, true, true]);
        assert_eq!(goals(&run)[0].got, "1.50 at worst, up to 400 k/s");
        assert_eq!(goals(&run)[1].got, "0 of 3000, up to 400 k/s");
        // Where the ring takes all, what came of the highest rate counts too.
        for point in run.series.values_mut().flatten() {
            point.ring_loss = 0.0;
        }
        assert_eq!(met(&run), [false, false, true]);
        for point in run.series.values_mut().flatten() {
            point.ring_loss = 0.5;
        }
        assert!(goals(&run).iter().take(2).all(|goal| goal.got.contains("not measured")));
    }
}

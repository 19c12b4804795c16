//! What is wanted: that weir keeps the server's rate under a flood to another listener.

use super::Usage;
use crate::goals::{accounted, goal};
use crate::results::http::HttpRun;
use crate::results::{Goal, Mode};

/// The flood at which it is asked, SYN/s.
const FLOOD_PPS: f64 = 400e3;
/// It was that flood if this share of it was sent.
const SENT_MIN: f64 = 0.95;
/// Share of the unflooded rate.
const KEPT_MIN: f64 = 0.9;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &HttpRun) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Usage::ALL.iter().map(|usage| kept(run, *usage)).collect();
    goals.push(accounted(run.trials.iter().map(|trial| &trial.load)));
    goals
}

fn kept(run: &HttpRun, usage: Usage) -> Goal {
    let points = run.series.get(&Mode::Weir).map_or(&[][..], Vec::as_slice);
    let flooded = points
        .iter()
        .find(|point| point.variant == usage.name() && point.target_pps == Some(FLOOD_PPS));
    goal(
        &format!(
            "weir: {} requests/s at {:.0} k SYN/s, of unflooded",
            usage.name(),
            FLOOD_PPS / 1e3
        ),
        format!(">= {KEPT_MIN:.2}"),
        flooded.and_then(|point| {
            let (kept, sent) = (point.of_unloaded?, point.flood_pps);
            if sent < FLOOD_PPS * SENT_MIN {
                let got = format!("{kept:.3}, but only {:.0} k SYN/s were sent", sent / 1e3);
                return Some((got, false));
            }
            Some((format!("{kept:.3}"), kept >= KEPT_MIN))
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::goals;
    use crate::report::fixture_http::http;

    #[test]
    fn the_goal_is_asked_at_400_k_alone_and_of_each_usage() {
        let mut run = http();
        let met = |run: &_| goals(run).iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(&run), [true, false, true]);
        assert_eq!(goals(&run)[0].got, "0.950");
        run.series.values_mut().flatten().for_each(|point| point.flood_pps *= 0.9);
        assert_eq!(goals(&run)[0].got, "0.950, but only 360 k SYN/s were sent");
        assert_eq!(met(&run), [false, false, true]);
        for point in run.series.values_mut().flatten() {
            point.target_pps = point.target_pps.map(|rate| rate * 2.0);
        }
        assert_eq!(met(&run), [false, false, true]);
        assert!(goals(&run)[1].got.contains("not measured"));
    }
}

//! What is wanted: weir gives overloaded receivers what their weights say.

use crate::goals::{accounted, goal};
use crate::results::receivers::{ReceiversPoint, ReceiversRun};
use crate::results::{Goal, Mode};

/// The ratio may differ from that of the weights by this share of it.
const WITHIN: f64 = 0.2;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &ReceiversRun) -> Vec<Goal> {
    let points = run.series.get(&Mode::Weir).map_or(&[][..], Vec::as_slice);
    vec![
        goal_of_weights(run.reference.weights_ratio, points),
        accounted(run.trials.iter().map(|trial| &trial.load)),
    ]
}

/// At the rate at which it is missed most.
pub(super) fn goal_of_weights(wanted: f64, points: &[ReceiversPoint]) -> Goal {
    // None at all is as far away as can be.
    let off = |point: &ReceiversPoint| {
        point.ratio.map_or(f64::INFINITY, |ratio| (ratio / wanted - 1.0).abs())
    };
    let overloaded = points.iter().filter(|point| point.overloaded);
    let worst = overloaded.max_by(|a, b| off(a).total_cmp(&off(b)));
    goal(
        "weir: packets of the heavier receiver to one of the lighter, where both are overloaded",
        format!("{wanted:.2} (their weights), within {:.0} %, at every rate", WITHIN * 100.0),
        worst.map(|point| {
            let rate = format!("{:.0} k packets/s each", point.heavier_offered_pps / 1000.0);
            let got = match point.ratio {
                Some(ratio) => format!("{ratio:.2} at worst, at {rate}"),
                None => format!("the lighter received nothing at {rate}"),
            };
            (got, off(point) <= WITHIN)
        }),
    )
}

//! The fair division: what is wanted beside a compute-bound process, at every rate.

use crate::goals::{accounted, goal, least};
use crate::results::neighbour::{NeighbourPoint, NeighbourRun};
use crate::results::{Goal, Mode};

/// Where all fits, the consumer receives this share of what it does without the neighbour.
const CONSUMER_FITS_MIN: f64 = 0.95;
/// And the neighbour does this share of the work that the CPU left over allows.
const NEIGHBOUR_FITS_MIN: f64 = 0.95;
/// Past that, of its half of the user share.
const NEIGHBOUR_PAST_MIN: f64 = 0.9;
/// And the consumer receives this share of what its half can consume.
const CONSUMER_PAST_MIN: f64 = 0.9;

/// One of the four.
struct Wanted {
    name: &'static str,
    fits: bool,
    least: f64,
    ratio: fn(&NeighbourPoint) -> Option<f64>,
}

const WANTED: [Wanted; 4] = [
    Wanted {
        name: "weir, where all fits: consumer against without the neighbour",
        fits: true,
        least: CONSUMER_FITS_MIN,
        ratio: |p| (p.alone_pps > 0.0).then(|| p.delivered_pps / p.alone_pps),
    },
    Wanted {
        name: "weir, where all fits: neighbour against the CPU that remains",
        fits: true,
        least: NEIGHBOUR_FITS_MIN,
        ratio: |p| Some(p.work / p.fair_work?),
    },
    Wanted {
        name: "weir, past that: neighbour against its half of the user share",
        fits: false,
        least: NEIGHBOUR_PAST_MIN,
        ratio: |p| Some(p.work / p.fair_work?),
    },
    Wanted {
        name: "weir, past that: consumer against what its half can consume",
        fits: false,
        least: CONSUMER_PAST_MIN,
        ratio: |p| Some(p.delivered_pps / p.fair_pps?),
    },
];

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &NeighbourRun) -> Vec<Goal> {
    let points = run.series.get(&Mode::Weir).map_or(&[][..], Vec::as_slice);
    let mut goals: Vec<Goal> = WANTED
        .iter()
        .map(|wanted| {
            let at = points.iter().filter(|point| point.fits == Some(wanted.fits));
            let worst = least(at.filter_map(|p| Some(((wanted.ratio)(p)?, p.offered_pps))));
            goal(
                wanted.name,
                format!(">= {} at every rate", wanted.least),
                worst.map(|(ratio, rate)| {
                    let got = format!("{ratio:.3} at worst, at {:.0} k packets/s", rate / 1000.0);
                    (got, ratio >= wanted.least)
                }),
            )
        })
        .collect();
    goals.push(accounted(run.trials.iter().map(|trial| &trial.load)));
    goals
}

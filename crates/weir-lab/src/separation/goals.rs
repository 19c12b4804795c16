//! What is wanted of separation, of mode `weir`.

use super::R_RING;
use super::analysis::{OF_FRONTIER, WELL, frontier};
use crate::goals::{accounted, goal, least};
use crate::results::separation::SeparationRun;
use crate::results::{Goal, Mode};

/// R_ring must reach this share of a bare `XDP_DROP`'s rate.
const OF_BARE_DROP_MIN: f64 = 0.38;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &SeparationRun) -> Vec<Goal> {
    let summary = run.summary.get(&Mode::Weir);
    let r_ring = summary.and_then(|summary| summary.r_ring_pps);
    let at = |(figure, rate): (f64, f64), wanted: f64| {
        let got = format!("{figure:.3} at worst, at {:.0} k packets/s", rate / 1000.0);
        (got, figure >= wanted)
    };
    let bare = run.reference.bare_drop_pps;
    let of_bare = r_ring.filter(|_| bare > 0.0).map(|r_ring| {
        let (ratio, rates) = (r_ring / bare, (r_ring / 1e6, bare / 1e6));
        let got = format!("{ratio:.3}: {:.2} of {:.2} M packets/s", rates.0, rates.1);
        (got, ratio >= OF_BARE_DROP_MIN)
    });
    vec![
        goal(
            "weir: victim's goodput against its own unflooded, at every flood up to R_ring",
            format!(">= {WELL}"),
            victim(run).map(|worst| at(worst, WELL)),
        ),
        goal(
            "weir: R_ring against the rate of a bare XDP_DROP",
            format!(">= {OF_BARE_DROP_MIN}"),
            of_bare,
        ),
        goal(
            "weir: flooded application against peak x (1 - R x c_gate), at every flood up to R_ring",
            format!(">= {OF_FRONTIER}"),
            flooded(run).map(|worst| at(worst, OF_FRONTIER)),
        ),
        accounted(run.trials.iter().map(|trial| &trial.load)),
    ]
}

/// The victim's worst goodput at a swept flood up to R_ring.
fn victim(run: &SeparationRun) -> Option<(f64, f64)> {
    let r_ring = run.summary.get(&Mode::Weir)?.r_ring_pps?;
    let points = run.series.get(&Mode::Weir)?.iter();
    let below = points.filter(|point| point.flood_pps > 0.0 && point.flood_pps <= r_ring);
    least(below.map(|point| (point.of_unflooded, point.flood_pps)))
}

/// The flooded application's worst share of the frontier up to R_ring: of the sweep's points, and of
/// the search's trial at R_ring itself.
fn flooded(run: &SeparationRun) -> Option<(f64, f64)> {
    let summary = run.summary.get(&Mode::Weir)?;
    let (r_ring, c_gate) = (summary.r_ring_pps?, summary.c_gate_ns?);
    let points = run.series.get(&Mode::Weir)?.iter();
    let swept = points.map(|point| (point.flood_pps, point.flooded_pps));
    let searched = run
        .trials
        .iter()
        .filter(|t| t.key == Mode::Weir && t.load.purpose == R_RING)
        .filter(|t| t.load.offered_pps >= r_ring)
        .map(|t| (t.load.offered_pps, t.load.delivered_pps));
    let ratios = swept.chain(searched).filter(|(flood, _)| *flood > 0.0 && *flood <= r_ring);
    least(ratios.filter_map(|(flood, delivered)| {
        let most = frontier(run.reference.peak_pps, c_gate, flood);
        (most > 0.0).then(|| (delivered / most, flood))
    }))
}

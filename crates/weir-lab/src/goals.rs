//! What is wanted of each experiment, compared with what was measured.

use crate::results::{Experiment, Goal, Mode, Point, Trial};

/// `stock`'s livelock must show below this share of its peak at the top rate.
const STOCK_RETAINED_MAX: f64 = 0.2;
/// `weir` must keep this share of its peak at the top rate.
const WEIR_RETAINED_MIN: f64 = 0.85;
/// Past `stock`'s peak, `weir` must reach this share of the best baseline at every rate.
const WEIR_AGAINST_BEST_MIN: f64 = 0.9;

/// `weir` must keep this share of an echo server's highest rate of replies at the top rate,
const ECHO_RETAINED_MIN: f64 = 0.9;
/// and reach this share of the best baseline's there.
const ECHO_AGAINST_BEST_MIN: f64 = 0.97;

/// Goals of `udp-overload`. One that this run could not measure is not met.
pub fn udp_overload(experiment: &Experiment) -> Vec<Goal> {
    vec![
        goal(
            "stock: livelock is visible (retained at the top rate)",
            format!("<= {STOCK_RETAINED_MAX}"),
            retained_at_top(experiment, Mode::Stock)
                .map(|retained| (format!("{retained:.3}"), retained <= STOCK_RETAINED_MAX)),
        ),
        goal(
            "weir: retained at the top rate",
            format!(">= {WEIR_RETAINED_MIN}"),
            retained_at_top(experiment, Mode::Weir)
                .map(|retained| (format!("{retained:.3}"), retained >= WEIR_RETAINED_MIN)),
        ),
        goal(
            "weir: delivered against the best of stock, threaded, niced, at every rate past stock's \
             peak",
            format!(">= {WEIR_AGAINST_BEST_MIN}"),
            worst_against_best(experiment).map(|(ratio, rate)| {
                let got = format!("{ratio:.3} at worst, at {:.0} k packets/s", rate / 1000.0);
                (got, ratio >= WEIR_AGAINST_BEST_MIN)
            }),
        ),
        goal(
            "weir: echo replies at the top rate against their highest rate",
            format!(">= {ECHO_RETAINED_MIN}"),
            echo_retained(experiment)
                .map(|retained| (format!("{retained:.3}"), retained >= ECHO_RETAINED_MIN)),
        ),
        goal(
            "weir: echo replies at the top rate against the best of stock, threaded, niced",
            format!(">= {ECHO_AGAINST_BEST_MIN}"),
            echo_against_best(experiment)
                .map(|ratio| (format!("{ratio:.3}"), ratio >= ECHO_AGAINST_BEST_MIN)),
        ),
        accounted(experiment.trials.iter()),
    ]
}

/// That no packet is in no counter.
pub(crate) fn accounted<'a>(trials: impl ExactSizeIterator<Item = &'a Trial>) -> Goal {
    let count = trials.len();
    let lost: i64 = trials.map(|trial| trial.ledger.unaccounted.abs()).sum();
    Goal {
        name: "every packet of every trial accounted for".into(),
        want: "0 unaccounted".into(),
        got: format!("{lost} unaccounted in {count} trials"),
        met: lost == 0,
    }
}

/// The lowest figure and where it was found.
pub(crate) fn least(figures: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    figures.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// A goal; one that could not be measured is not met.
pub(crate) fn goal(name: &str, want: String, measured: Option<(String, bool)>) -> Goal {
    let (got, met) = measured.unwrap_or_else(|| ("not measured in this run".into(), false));
    Goal { name: name.into(), want, got, met }
}

/// `None` unless the mode was run at the generator's top rate.
fn retained_at_top(experiment: &Experiment, mode: Mode) -> Option<f64> {
    let at_top = experiment.series.get(&mode)?.iter().any(|point| point.target_pps.is_none());
    at_top.then(|| experiment.summary.get(&mode).map(|summary| summary.retained))?
}

/// An echo server's replies at the generator's top rate.
fn echo_at_top(experiment: &Experiment, mode: Mode) -> Option<f64> {
    experiment.series.get(&mode)?.iter().find(|point| point.target_pps.is_none())?.echo_pps
}

/// `None` unless there were replies, at the top rate and at another.
fn echo_retained(experiment: &Experiment) -> Option<f64> {
    let top = echo_at_top(experiment, Mode::Weir)?;
    let replies: Vec<f64> =
        experiment.series.get(&Mode::Weir)?.iter().filter_map(|point| point.echo_pps).collect();
    let highest = replies.iter().copied().fold(0.0, f64::max);
    (replies.len() > 1 && highest > 0.0).then(|| top / highest)
}

/// `None` unless all four were measured.
fn echo_against_best(experiment: &Experiment) -> Option<f64> {
    let baselines: Vec<f64> =
        Mode::BASELINES.iter().map(|mode| echo_at_top(experiment, *mode)).collect::<Option<_>>()?;
    let best = baselines.into_iter().fold(0.0, f64::max);
    (best > 0.0).then_some(echo_at_top(experiment, Mode::Weir)? / best)
}

/// The lowest ratio of `weir` to the best baseline at a rate past `stock`'s peak, and that rate.
/// `None` unless all four were measured past it.
fn worst_against_best(experiment: &Experiment) -> Option<(f64, f64)> {
    let weir = experiment.series.get(&Mode::Weir)?;
    let baselines: Vec<&Vec<Point>> =
        Mode::BASELINES.iter().map(|mode| experiment.series.get(mode)).collect::<Option<_>>()?;
    let stock = baselines[0];
    let peak = (0..stock.len())
        .max_by(|a, b| stock[*a].delivered_pps.total_cmp(&stock[*b].delivered_pps))?;
    least((peak + 1..weir.len()).map(|index| {
        let best = baselines.iter().map(|points| points[index].delivered_pps);
        let best = best.fold(0.0, f64::max);
        (weir[index].delivered_pps / best, weir[index].offered_pps)
    }))
}

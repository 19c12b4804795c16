//! What is wanted of each experiment, compared with what was measured.

use crate::results::{Experiment, Goal, Mode, Point};

/// `stock`'s livelock must show below this share of its peak at the top rate.
const STOCK_RETAINED_MAX: f64 = 0.2;
/// `weir` must keep this share of its peak at the top rate.
const WEIR_RETAINED_MIN: f64 = 0.85;
/// Past `stock`'s peak, `weir` must reach this share of the best baseline at every rate.
const WEIR_AGAINST_BEST_MIN: f64 = 0.9;

/// Goals of `udp-overload`.
pub fn udp_overload(experiment: &Experiment) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(stock) = experiment.summary.get(&Mode::Stock) {
        goals.push(Goal {
            name: "stock: livelock is visible (retained at the top rate)".into(),
            want: format!("<= {STOCK_RETAINED_MAX}"),
            got: format!("{:.3}", stock.retained),
            met: stock.retained <= STOCK_RETAINED_MAX,
        });
    }
    if let Some(weir) = experiment.summary.get(&Mode::Weir) {
        goals.push(Goal {
            name: "weir: retained at the top rate".into(),
            want: format!(">= {WEIR_RETAINED_MIN}"),
            got: format!("{:.3}", weir.retained),
            met: weir.retained >= WEIR_RETAINED_MIN,
        });
    }
    if let Some((ratio, rate)) = worst_against_best(experiment) {
        goals.push(Goal {
            name: "weir: delivered against the best of stock, threaded, niced, at every rate past \
                   stock's peak"
                .into(),
            want: format!(">= {WEIR_AGAINST_BEST_MIN}"),
            got: format!("{ratio:.3} at worst, at {:.0} k packets/s", rate / 1000.0),
            met: ratio >= WEIR_AGAINST_BEST_MIN,
        });
    }
    let lost: i64 = experiment.trials.iter().map(|t| t.ledger.unaccounted.abs()).sum();
    goals.push(Goal {
        name: "every packet of every trial accounted for".into(),
        want: "0 unaccounted".into(),
        got: format!("{lost} unaccounted in {} trials", experiment.trials.len()),
        met: lost == 0,
    });
    goals
}

/// The lowest ratio of `weir` to the best baseline at a rate past `stock`'s peak, and that rate.
/// `None` unless all four were measured.
fn worst_against_best(experiment: &Experiment) -> Option<(f64, f64)> {
    let weir = experiment.series.get(&Mode::Weir)?;
    let baselines: Vec<&Vec<Point>> =
        Mode::BASELINES.iter().map(|mode| experiment.series.get(mode)).collect::<Option<_>>()?;
    let stock = baselines[0];
    let peak = (0..stock.len())
        .max_by(|a, b| stock[*a].delivered_pps.total_cmp(&stock[*b].delivered_pps))?;
    (peak + 1..weir.len())
        .map(|index| {
            let best = baselines.iter().map(|points| points[index].delivered_pps);
            let best = best.fold(0.0, f64::max);
            (weir[index].delivered_pps / best, weir[index].offered_pps)
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
}

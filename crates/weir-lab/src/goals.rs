//! Whether a run shows what is wanted of its experiment.

use serde::Serialize;

use crate::experiment::{Against, At, Bound, Cases, Found, Goal};
use crate::metric::{Merge, Metric, m};
use crate::run::{Load, Trial};
use crate::stats::median;
use crate::view::View;

/// What a run says of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// At every point the whole interval lies within the bound.
    Met,
    /// At some point the interval lies on both sides; or it was not measured.
    Undecided,
    /// At some point the whole interval lies outside.
    Unmet,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Undecided => "undecided",
            Self::Unmet => "NOT met",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub name: String,
    pub want: String,
    pub got: String,
    pub verdict: Verdict,
}

impl Goal {
    /// One that runs with any of these cases are judged by.
    pub fn new(
        text: impl Into<String>,
        about: Cases,
        want: Bound,
        find: impl Fn(&View<'_>) -> Vec<Found> + 'static,
    ) -> Self {
        Self { text: text.into(), find: Box::new(find), want, about }
    }

    pub fn judge(&self, view: &View<'_>) -> Outcome {
        let found = (self.find)(view);
        let (least, most) = self.want.range();
        let beyond = |found: &Found| (least - found.value).max(found.value - most);
        let worst = found.iter().rev().max_by(|a, b| beyond(a).total_cmp(&beyond(b)));
        let verdicts = found.iter().map(|Found { low, high, .. }| match () {
            () if *low >= least && *high <= most => Verdict::Met,
            () if *low <= most && *high >= least => Verdict::Undecided,
            () => Verdict::Unmet,
        });
        let verdict = verdicts.max_by_key(|verdict| *verdict as u8).unwrap_or(Verdict::Undecided);
        let got = worst.map_or("not measured in this run".into(), |worst| {
            let Found { value, low, high, pairs, place } = worst;
            let interval = match pairs {
                0 | 1 => String::new(),
                pairs => format!(" ({low:.3} to {high:.3}, {pairs} pairs)"),
            };
            let most = if found.len() > 1 { " at worst" } else { "" };
            format!("{value:.3}{interval}{most}, {place}")
        });
        let (name, want) = (self.text.clone(), self.want.text());
        Outcome { name, want, got, verdict }
    }
}

fn wanted_at(view: &View<'_>, arm: &str, case: &str, at: At, figure: &Metric) -> Vec<Load> {
    let all = view.loads(case);
    let with_figure = |load: &Load| Some((load.pps(), view.get(arm, case, *load, figure)?));
    let peak = all.iter().filter_map(with_figure).max_by(|a, b| a.1.total_cmp(&b.1));
    let peak = peak.map_or(f64::INFINITY, |(pps, _)| pps);
    let is_flooded = |load: &&Load| **load != Load::Off;
    let holds = |load: &&Load| view.ring_holds(arm, case, **load);
    let held: Vec<&Load> = all.iter().filter(is_flooded).take_while(holds).collect();
    let is_highest = |load: &&Load| all.last() == Some(*load);
    let is_wanted = |load: &&Load| match at {
        At::Every => true,
        At::Flooded => is_flooded(load),
        At::Only(only) => **load == only,
        At::Highest => is_highest(load),
        At::Peak => load.pps() == peak,
        // What still rises at the highest rate has lost nothing.
        At::PastPeak => load.pps() > peak || load.pps() == peak && is_highest(load),
        At::WhileRingHolds => held.contains(load),
    };
    all.iter().filter(is_wanted).copied().collect()
}

/// A figure of an arm's at points, each divided by something.
pub fn find(
    view: &View<'_>,
    arm: &str,
    cases: Cases,
    at: At,
    figure: &'static Metric,
    against: Against,
) -> Vec<Found> {
    let mut all = vec![];
    for case in view.cases().iter().filter(|case| cases.has(&case.name)) {
        let case = case.name.as_str();
        for load in wanted_at(view, arm, case, at, figure) {
            let place = place(view, case, load);
            let whole = match against {
                Against::Best(arms) => {
                    all.extend(view.best(arms, case, load, figure).and_then(|(best, _)| {
                        let pairs = view.pairs((arm, case, load), (best, case, load), figure);
                        compare(pairs, format!("{place}, of {best}"))
                    }));
                    continue;
                }
                Against::Nothing => Some(1.0),
                Against::Unloaded => view.get(arm, case, Load::Off, figure),
                Against::OwnPeak => view.peak(arm, case, figure),
                Against::PeakOf(arms) => {
                    arms.iter().filter_map(|arm| view.peak(arm, case, figure)).reduce(f64::max)
                }
            };
            all.extend(whole.and_then(|whole| own(view, (arm, case, load), figure, whole, place)));
        }
    }
    all
}

/// Where, for a person: the case only where there are several.
pub fn place(view: &View<'_>, case: &str, load: Load) -> String {
    let several = view.cases().len() > 1;
    match (several, load) {
        (true, Load::Off) => case.to_owned(),
        (true, load) => format!("{case} at {load}"),
        (false, load) => format!("at {load}"),
    }
}

/// What pairs of figures say of the first divided by the second: the median of the ratios. `None` without a
/// pair whose second is above 0.
///
/// The interval lies between the two ratios, counted from either end, that hold the true median with 95 %
/// probability whatever the distribution (the binomial distribution's quantile); of eight pairs or fewer that is
/// their range.
pub fn compare(
    pairs: impl IntoIterator<Item = (f64, f64)>,
    place: impl Into<String>,
) -> Option<Found> {
    let pairs = pairs.into_iter().filter(|(_, other)| *other > 0.0);
    let mut ratios: Vec<f64> = pairs.map(|(own, other)| own / other).collect();
    ratios.sort_by(f64::total_cmp);
    let left_out = beyond(ratios.len());
    let (low, high) = (*ratios.get(left_out)?, ratios[ratios.len() - 1 - left_out]);
    let pairs = ratios.len() as u32;
    Some(Found { value: median(ratios), low, high, pairs, place: place.into() })
}

/// How many of `count` values may be left out at each end.
fn beyond(count: usize) -> usize {
    let mut chance = 0.5_f64.powi(count as i32);
    let (mut sum, mut left_out) = (0.0, 0_usize);
    loop {
        // The chance that at most `left_out` of the values lie on one side of the median.
        sum += chance;
        if sum > 0.025 {
            return left_out.saturating_sub(1);
        }
        chance *= (count - left_out) as f64 / (left_out + 1) as f64;
        left_out += 1;
    }
}

/// An arm's figure of a point, divided by a whole.
pub fn own(
    view: &View<'_>,
    (arm, case, load): (&str, &str, Load),
    figure: &'static Metric,
    whole: f64,
    place: String,
) -> Option<Found> {
    // By trials, so that noise is told; sums and maxima have none.
    let has_noise = figure.merge == Merge::Median && whole > 0.0;
    let trials = view.trials_of(arm, case, load).filter(|_| has_noise);
    let merged = view.get(arm, case, load, figure)? / whole;
    let exact = || merged.is_finite().then(|| Found::exact(merged, place.clone()));
    let pairs = trials.filter_map(|trial| Some((trial.get(figure)?, whole)));
    compare(pairs, place.clone()).or_else(exact)
}

/// That no packet is in no counter: every experiment's.
fn accounted(view: &View<'_>) -> Vec<Found> {
    let ledgers: Vec<_> = view.trials.iter().filter_map(|trial| trial.ledger).collect();
    let lost: i64 = ledgers.iter().map(|ledger| ledger.unaccounted.abs()).sum();
    if ledgers.is_empty() {
        return vec![];
    }
    vec![Found::exact(lost as f64, format!("{} trials", ledgers.len()))]
}

/// That the gate discarded nothing, where nothing is overloaded.
pub fn nothing_discarded() -> Goal {
    let discarded = |view: &View<'_>| {
        let of = |trial: &Trial| match trial.ledger {
            Some(ledger) => ledger.discarded as f64,
            // Where packets are not counted to their end: in the window.
            None => {
                let per_s = trial.get(&m::discarded_pps).unwrap_or(0.0);
                per_s * trial.get(&m::window_s).unwrap_or(0.0)
            }
        };
        let sum: f64 = view.trials.iter().map(of).sum();
        vec![Found::exact(sum, format!("{} trials", view.trials.len()))]
    };
    Goal::new("packets discarded", Cases::All, Bound::AtMost(0.0), discarded)
}

/// What a run says of everything that is wanted of its experiment.
pub fn judge(view: &View<'_>) -> Vec<Outcome> {
    let cases = view.cases();
    let asked = |goal: &&Goal| cases.iter().any(|case| goal.about.has(&case.name));
    let mut goals: Vec<Outcome> =
        (view.experiment.goals)().iter().filter(asked).map(|goal| goal.judge(view)).collect();
    if view.trials.iter().any(|trial| trial.ledger.is_some()) {
        let all = Goal::new("packets in no counter", Cases::All, Bound::AtMost(0.0), accounted);
        goals.push(all.judge(view));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Found {
        compare(ratios.iter().map(|ratio| (ratio * 8.0, 8.0)), "").unwrap()
    }

    #[test]
    fn few_pairs_tell_their_range_and_of_ten_one_at_each_end_is_left_out() {
        let few = of(&[0.96, 1.02, 1.01]);
        assert_eq!((few.value, few.low, few.high, few.pairs), (1.01, 0.96, 1.02, 3));
        let mut ratios = [1.0; 10];
        ratios[4] = 0.5;
        assert_eq!(of(&ratios).low, 1.0);
        ratios[5] = 0.9;
        assert_eq!(of(&ratios).low, 0.9);
        assert_eq!(compare([(1.0, 0.0)], ""), None);
    }

    #[test]
    fn the_quantiles_are_the_binomial_tables() {
        // Conover, Practical Nonparametric Statistics: order statistics for the median, 95 %.
        for (count, left_out) in
            [(3, 0), (8, 0), (9, 1), (10, 1), (15, 3), (20, 5), (25, 7), (50, 17)]
        {
            assert_eq!(beyond(count), left_out, "{count}");
        }
    }
}

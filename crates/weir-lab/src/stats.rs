//! Medians, ranges, and the bisection that finds a loss-free rate.

pub mod rank;

use serde::Serialize;

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median, or what a metric merges its repeats to instead.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Median and range; `None` for no values.
pub fn spread(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    };
    Some(Spread { median, min, max })
}

/// Median; `None` for no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    spread(values).map(|spread| spread.median)
}

/// Where the mean of values lies with 95 %, by Student's t; anywhere if they are one, or more than five.
pub fn t_interval(values: &[f64]) -> (f64, f64) {
    /// Of 1 to 4 degrees of freedom.
    const T: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = values.len().checked_sub(2).and_then(|freedom| T.get(freedom));
    let half = t.map_or(f64::INFINITY, |t| t * (variance / count).sqrt());
    (mean - half, mean + half)
}

/// The smallest of these, which are sorted, that at least so many in a thousand do not exceed.
pub fn nearest_rank(sorted: &[f64], permille: usize) -> Option<f64> {
    sorted.get((sorted.len() * permille).div_ceil(1000).saturating_sub(1)).copied()
}

/// Between what a search has the highest rate that passes. A search all of whose rates fail, or pass, knows a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bracket {
    /// The highest rate that passed, if any did: the one that was really offered.
    pub passed: Option<f64>,
    /// The lowest that failed, if any did, likewise.
    pub failed: Option<f64>,
}

impl Bracket {
    /// The least and the most that it may be.
    pub fn range(self) -> (f64, f64) {
        (self.passed.unwrap_or(0.0), self.failed.unwrap_or(f64::INFINITY))
    }

    /// The rate that passed, or else the one below which it is.
    pub fn known(self) -> Option<f64> {
        self.passed.or(self.failed)
    }

    /// What is left of it beside other rates that it contradicts, each with whether it passed.
    #[must_use]
    pub fn widened(self, rates: &[(f64, bool)]) -> Self {
        let (low, high) = self.range();
        let that = |passes| rates.iter().filter(move |rate| rate.1 == passes).map(|rate| rate.0);
        let highest = that(true).fold(0.0, f64::max);
        let lowest = that(false).fold(f64::INFINITY, f64::min);
        let above = || that(false).filter(|rate| *rate > highest).reduce(f64::min);
        let below = || that(true).filter(|rate| *rate < lowest).reduce(f64::max);
        Self {
            passed: if lowest < low { below() } else { self.passed },
            failed: if highest > high { above() } else { self.failed },
        }
    }

    pub fn text(self, rate: impl Fn(f64) -> String) -> String {
        match (self.passed.map(&rate), self.failed.map(&rate)) {
            (Some(passed), Some(failed)) => format!("{passed} to {failed}"),
            (Some(passed), None) => format!("at least {passed}"),
            (None, Some(failed)) => format!("below {failed}"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// A search for the highest rate that passes, which halves the logarithm of an interval so many times (RFC 2544): what
/// its trials say, each the rate that was really offered and whether it passed, and the rate to try next, or `None`
/// when the search is over.
///
/// A rate passes or fails once so many of its trials do: on a shared machine a hiccup of a millisecond fails
/// any rate now and then, and would send the search astray for good (MLRsearch's exceed ratio of 0.5).
pub fn bisect(
    (mut low, mut high): (f64, f64),
    steps: u32,
    majority: u32,
    trials: impl IntoIterator<Item = (f64, bool)>,
) -> (Bracket, Option<f64>) {
    let (mut bracket, mut passed, mut failed, mut done) = (Bracket::default(), 0, 0, 0);
    let middle = |low: f64, high: f64| (low * high).sqrt();
    for (offered, passes) in trials {
        let count = if passes { &mut passed } else { &mut failed };
        *count += 1;
        if passed == majority {
            low = middle(low, high);
            bracket.passed = Some(offered);
        } else if failed == majority {
            high = middle(low, high);
            // Near what can be sent, less may be than at a rate that passed.
            bracket.failed = Some(offered.max(bracket.passed.unwrap_or(0.0)));
        } else {
            continue;
        }
        (passed, failed) = (0, 0);
        done += 1;
    }
    (bracket, (done < steps).then(|| middle(low, high)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn median_and_range() {
        assert_eq!(spread([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!((spread([]), median([2.0]), median([])), (None, Some(2.0), None));
    }

    fn search(mut passes: impl FnMut(f64) -> bool) -> Bracket {
        let mut trials = vec![];
        loop {
            let (bracket, next) = bisect((1e4, 1e7), 14, 2, trials.iter().copied());
            let Some(rate) = next else { return bracket };
            trials.push((rate, passes(rate)));
        }
    }

    proptest! {
        #[test]
        fn bisection_closes_in_from_both_sides(threshold in 10_010.0..9_990_000.0_f64) {
            let (passed, failed) = search(|rate| rate <= threshold).range();
            prop_assert!(passed <= threshold && threshold <= failed, "{passed} {failed}");
            prop_assert!(failed / passed < 1.001, "{passed} {failed}");
        }

        #[test]
        fn one_hiccup_changes_nothing(threshold in 20_000.0..9_999_999.0_f64, at in 0_u32..28) {
            let mut trial = 0;
            let found = search(|rate| {
                trial += 1;
                rate <= threshold && trial - 1 != at
            });
            prop_assert_eq!(found, search(|rate| rate <= threshold));
        }
    }

    #[test]
    fn a_bracket_holds_no_rate_that_others_contradict() {
        let found = Bracket { passed: Some(243.0), failed: Some(260.0) };
        assert_eq!(found.widened(&[(100.0, true), (600.0, false)]), found);
        let passes = found.widened(&[(100.0, true), (300.0, true), (600.0, false)]);
        assert_eq!(passes, Bracket { failed: Some(600.0), ..found });
        let fails = found.widened(&[(100.0, true), (200.0, false), (300.0, true)]);
        assert_eq!(fails, Bracket { passed: Some(100.0), failed: None });
    }

    #[test]
    fn a_search_of_no_steps_is_over() {
        assert_eq!(bisect((1e4, 1e7), 0, 2, []), (Bracket::default(), None));
    }

    #[test]
    fn a_search_that_always_fails_or_passes_ends_with_a_bound() {
        let below = search(|_| false);
        assert_eq!((below.passed, below.range().0), (None, 0.0));
        assert!((10_000.0..10_010.0).contains(&below.known().unwrap()), "{below:?}");
        let above = search(|_| true);
        assert_eq!((above.failed, above.range().1), (None, f64::INFINITY));
        assert!((9_990_000.0..1e7).contains(&above.known().unwrap()), "{above:?}");
    }
}

//! Medians, ranges, and the bisection that finds a loss-free rate.

use crate::results::Spread;

/// Median and range; all zero for no values.
pub fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
        return Spread::default();
    };
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    };
    Spread { median, min, max }
}

/// Median; 0 for no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    spread(values).median
}

/// Median of the values that are there, or `None` if none is.
pub fn median_of_some(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let present: Vec<f64> = values.into_iter().flatten().collect();
    (!present.is_empty()).then(|| median(present))
}

/// Finds the highest rate that passes, between `low` and `high`, in `steps` trials that halve the
/// interval's logarithm each time (RFC 2544's and MLRsearch's method). Returns the highest rate that
/// was tried and passed.
///
/// # Errors
/// The first error of a trial.
pub fn bisect<E>(
    low: f64,
    high: f64,
    steps: u32,
    mut passes: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    let (mut low, mut high) = (low, high);
    let mut best = None;
    for _ in 0..steps {
        let rate = (low * high).sqrt();
        if passes(rate)? {
            best = Some(rate);
            low = rate;
        } else {
            high = rate;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn median_and_range() {
        assert_eq!(spread([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(spread([]), Spread::default());
        assert_eq!(median_of_some([None, Some(2.0), None]), Some(2.0));
        assert_eq!(median_of_some([None, None]), None);
    }

    proptest! {
        #[test]
        fn bisection_closes_in_from_below(threshold in 10_001.0..9_999_999.0_f64) {
            let found = bisect(10_000.0, 10_000_000.0, 14, |rate| Ok::<_, ()>(rate <= threshold));
            let ratio = found.unwrap().unwrap_or(10_000.0) / threshold;
            prop_assert!((0.998..=1.0).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn bisection_finds_nothing_where_nothing_passes() {
        assert_eq!(bisect(1.0, 100.0, 5, |_| Ok::<_, ()>(false)), Ok(None));
    }
}

//! One mode against another, trial by trial: pairs of trials that stood next to each other in time.

use serde::{Deserialize, Serialize};

use crate::stats::spread;

/// So many pairs a comparison takes for its interval to be more than their range.
pub const PAIRS_MIN: usize = 10;
/// "Within 3 %, or better."
pub const WITHIN: f64 = 0.97;

/// How good one is against another; 1 is as good, more is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Median of the pairs' ratios.
    pub ratio: f64,
    /// Lower end of what the median may be.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How many pairs.
    pub pairs: u32,
    /// Whether it is at least [`WITHIN`].
    pub verdict: Verdict,
}

/// What a comparison allows one to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies within.
    Met,
    /// The interval lies on both sides: noise.
    Undecided,
    /// The whole interval lies below.
    Unmet,
}

impl Verdict {
    /// As reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Undecided => "undecided",
            Self::Unmet => "NOT met",
        }
    }
}

/// Compares, by pairs of a figure of which more is better; `None` without a pair.
///
/// From [`PAIRS_MIN`] pairs on, the interval is the one between the two ratios, counted from either
/// end, that hold the true median with 95 % probability, whatever the distribution (the binomial
/// distribution's quantile): what a bootstrap of the median comes to, without a random number. With
/// fewer it is the range.
pub fn compare(pairs: &[(f64, f64)]) -> Option<Compared> {
    let mut ratios: Vec<f64> = pairs
        .iter()
        .filter(|(own, other)| *own > 0.0 && *other > 0.0)
        .map(|(own, other)| own / other)
        .collect();
    ratios.sort_by(f64::total_cmp);
    if ratios.is_empty() {
        return None;
    }
    let left_out = if ratios.len() < PAIRS_MIN { 0 } else { beyond(ratios.len()) };
    let (low, high) = (ratios[left_out], ratios[ratios.len() - 1 - left_out]);
    let verdict = if low >= WITHIN {
        Verdict::Met
    } else if high < WITHIN {
        Verdict::Unmet
    } else {
        Verdict::Undecided
    };
    let pairs = ratios.len() as u32;
    Some(Compared { ratio: spread(ratios).median, low, high, pairs, verdict })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Compared {
        let pairs: Vec<(f64, f64)> = ratios.iter().map(|ratio| (ratio * 8.0, 8.0)).collect();
        compare(&pairs).unwrap()
    }

    #[test]
    fn few_pairs_are_decided_by_all_of_them() {
        assert_eq!(of(&[0.98, 1.02, 1.5]).verdict, Verdict::Met);
        assert_eq!(of(&[0.5, 0.96]).verdict, Verdict::Unmet);
        let noise = of(&[0.96, 1.02, 1.01]);
        assert_eq!(noise.verdict, Verdict::Undecided);
        assert_eq!((noise.ratio, noise.low, noise.high, noise.pairs), (1.01, 0.96, 1.02, 3));
    }

    #[test]
    fn of_ten_one_at_each_end_is_left_out() {
        let mut ratios = [1.0; 10];
        ratios[4] = 0.5;
        assert_eq!((of(&ratios).low, of(&ratios).verdict), (1.0, Verdict::Met));
        ratios[5] = 0.9;
        assert_eq!((of(&ratios).low, of(&ratios).verdict), (0.9, Verdict::Undecided));
    }

    #[test]
    fn the_quantiles_are_the_binomial_tables() {
        // Conover, Practical Nonparametric Statistics: order statistics for the median, 95 %.
        for (count, left_out) in [(10, 1), (15, 3), (20, 5), (25, 7), (50, 17)] {
            assert_eq!(beyond(count), left_out, "{count}");
        }
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(compare(&[]), None);
        assert_eq!(compare(&[(1.0, 0.0), (0.0, 1.0)]), None);
    }
}

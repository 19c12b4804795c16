//! Rank tests of a shift, each with its Hodges-Lehmann estimate and interval.
//!
//! Source, unless another is named: Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*,
//! 3rd edition: sections 3.1 to 3.3 for pairs, 4.1 to 4.3 for two samples. Ranks and their sums are
//! doubled, so that the mean ranks of ties are whole numbers too.

/// Two samples of up to so many values each are compared exactly.
const EXACT_MAX: usize = 20;

/// How the values of two samples belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// By pairs: Wilcoxon's signed-rank test, Tukey's interval between two of the Walsh averages.
    ///
    /// Exact for any distribution where chance decides which member of a pair is which: without a shift
    /// the sign of each difference is then a toss of a coin. Differences of 0 are left out of the test and
    /// ties get their mean rank; the distribution is that of the ranks that there are, so it stays exact.
    Pairs,
    /// Not at all: the rank-sum test (Wilcoxon; Mann and Whitney) and Moses' interval.
    ///
    /// Exact, given the ties, up to 20 values each, if without a shift each value is as likely to be one
    /// sample's as the other's. Beyond that the normal approximation.
    Runs,
}

/// By how much `b` is above `a`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// The Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Where the shift lies, with a confidence of 1 less the level; `None`: too few values for that.
    pub interval: Option<(f64, f64)>,
    /// The chance of ranks at least as far from even, in either direction, without a shift.
    pub p: f64,
}

impl Design {
    /// Estimates the shift, and tests whether there is one; `None` without values.
    pub fn shift(self, a: &[f64], b: &[f64], level: f64) -> Option<Shift> {
        // All of which the estimate is the median, how many the interval leaves out at each end, and p.
        let (mut all, left_out, p) = match self {
            Self::Pairs => of_pairs(a.iter().zip(b).map(|(a, b)| b - a).collect(), level),
            Self::Runs => of_samples(a, b, level),
        };
        all.sort_by(f64::total_cmp);
        let interval = left_out.and_then(|at| Some((*all.get(at)?, all[all.len() - 1 - at])));
        Some(Shift { estimate: super::median(all)?, interval, p })
    }

    /// The fewest pairs, or values in each sample, with which a shift can be found at a level.
    pub fn needed(self, level: f64) -> usize {
        let can = |n: &usize| self.shift(&vec![0.0; *n], &vec![1.0; *n], level)?.interval;
        (1..).find(|n| can(n).is_some()).unwrap_or(usize::MAX)
    }
}

fn of_pairs(differences: Vec<f64>, level: f64) -> (Vec<f64>, Option<usize>, f64) {
    let signed: Vec<f64> = differences.iter().copied().filter(|value| *value != 0.0).collect();
    let ranks = doubled_ranks(&signed.iter().map(|value| value.abs()).collect::<Vec<_>>());
    let positive = signed.iter().zip(&ranks).filter(|(value, _)| **value > 0.0);
    let p = two_sided(&sums_of_any(&ranks), positive.map(|(_, rank)| rank).sum());
    let untied: Vec<usize> = (1..=differences.len()).map(|rank| 2 * rank).collect();
    let from = |at: usize| differences[at..].iter().map(move |value| (value, at));
    let walsh = (0..differences.len()).flat_map(from);
    let walsh = walsh.map(|(value, at)| (value + differences[at]) / 2.0).collect();
    (walsh, left_out(&sums_of_any(&untied), level), p)
}

fn of_samples(a: &[f64], b: &[f64], level: f64) -> (Vec<f64>, Option<usize>, f64) {
    let ranks = doubled_ranks(&[b, a].concat());
    let p = two_sided(&sums_of(b.len(), &ranks), ranks[..b.len()].iter().sum());
    let untied: Vec<usize> = (1..=ranks.len()).map(|rank| 2 * rank).collect();
    let lowest: usize = untied[..b.len()].iter().sum();
    let left_out = left_out(&sums_of(b.len(), &untied)[lowest..], level);
    (b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect(), left_out, p)
}

/// Twice each value's rank; ties get their mean.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

/// How likely each sum is of numbers each of which a coin puts in or leaves out.
fn sums_of_any(numbers: &[usize]) -> Vec<f64> {
    let mut chances = vec![0.0; numbers.iter().sum::<usize>() + 1];
    chances[0] = 1.0;
    for number in numbers {
        for sum in (0..chances.len()).rev() {
            let without = sum.checked_sub(*number).map_or(0.0, |rest| chances[rest]);
            chances[sum] = (chances[sum] + without) / 2.0;
        }
    }
    chances
}

/// How likely each sum is of so many of these numbers, drawn without replacement.
fn sums_of(drawn: usize, numbers: &[usize]) -> Vec<f64> {
    let largest: usize = numbers.iter().sum();
    let mut chances = if drawn.max(numbers.len() - drawn) <= EXACT_MAX {
        let mut ways = vec![vec![0.0; largest + 1]; drawn + 1];
        ways[0][0] = 1.0;
        for number in numbers {
            for count in (1..=drawn).rev() {
                for sum in *number..=largest {
                    ways[count][sum] += ways[count - 1][sum - number];
                }
            }
        }
        ways.swap_remove(drawn)
    } else {
        // A sum of scores drawn so has this mean and variance (Lehmann, *Nonparametrics*, appendix,
        // section 1), whatever the ties.
        let (drawn, all) = (drawn as f64, numbers.len() as f64);
        let mean = largest as f64 / all;
        let squares: f64 = numbers.iter().map(|number| (*number as f64 - mean).powi(2)).sum();
        let variance = drawn * (all - drawn) / (all * (all - 1.0)) * squares;
        let density = |sum: usize| {
            (-(sum as f64 - drawn * mean).powi(2) / (2.0 * variance.max(f64::MIN_POSITIVE))).exp()
        };
        (0..=largest).map(density).collect()
    };
    let all: f64 = chances.iter().sum();
    chances.iter_mut().for_each(|chance| *chance /= all);
    chances
}

/// The chance of a sum at least as far from the middle.
fn two_sided(chances: &[f64], sum: usize) -> f64 {
    let (low, high) = (&chances[..=sum], &chances[sum..]);
    (2.0 * low.iter().sum::<f64>().min(high.iter().sum())).min(1.0)
}

/// How many differences an interval leaves out at each end: the largest undoubled sum, counted from the
/// lowest, that is reached from below with at most half the level; `None` where even the lowest is not.
fn left_out(chances: &[f64], level: f64) -> Option<usize> {
    let mut sum = 0.0;
    let within = chances.iter().take_while(|chance| {
        sum += **chance;
        sum <= level / 2.0
    });
    within.count().checked_sub(1).map(|last| last / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pairs(differences: &[f64], level: f64) -> Option<Shift> {
        Design::Pairs.shift(&vec![0.0; differences.len()], differences, level)
    }

    fn of_samples(a: &[f64], b: &[f64], level: f64) -> Option<Shift> {
        Design::Runs.shift(a, b, level)
    }

    fn at_most(chances: &[f64], sum: usize) -> f64 {
        chances[..=2 * sum].iter().sum()
    }

    fn doubled(count: usize) -> Vec<usize> {
        (1..=count).map(|rank| 2 * rank).collect()
    }

    #[test]
    fn the_signed_rank_distribution_is_the_tables() {
        // Wilcoxon, Katti and Wilcox (1970), *Critical Values and Probability Levels*, table II; also
        // Hollander and Wolfe, table A.4.
        for (pairs, sum, chance) in
            [(5, 0, 0.0313), (8, 3, 0.0195), (10, 8, 0.0244), (10, 3, 0.0049), (15, 25, 0.0240)]
        {
            let found = at_most(&sums_of_any(&doubled(pairs)), sum);
            assert!((found - chance).abs() < 6e-5, "{pairs} {sum}: {found}");
        }
        // Critical values, two-sided: 1 %, 2 %, 5 %.
        for (pairs, critical) in [(10, [3, 5, 8]), (15, [15, 19, 25]), (20, [37, 43, 52])] {
            let chances = sums_of_any(&doubled(pairs));
            assert_eq!(
                [0.01, 0.02, 0.05].map(|level| left_out(&chances, level).unwrap()),
                critical
            );
        }
    }

    #[test]
    fn the_rank_sum_distribution_is_the_tables() {
        // Mann and Whitney (1947), table I: n = 6.
        for (values, u, chance) in [(3, 0, 0.012), (5, 3, 0.015), (6, 7, 0.047), (6, 5, 0.021)] {
            let chances = sums_of(values, &doubled(values + 6));
            let found = at_most(&chances[values * (values + 1)..], u);
            assert!((found - chance).abs() < 6e-4, "{values} {u}: {found}");
        }
        // Siegel, *Nonparametric Statistics*, table K: critical U, two-sided 5 %.
        for (values, critical) in [(10, 23), (15, 64), (20, 127)] {
            let chances = sums_of(values, &doubled(2 * values));
            assert_eq!(left_out(&chances[values * (values + 1)..], 0.05), Some(critical));
        }
    }

    #[test]
    fn the_normal_approximation_joins_the_exact_distribution() {
        let exact = left_out(&sums_of(20, &doubled(40))[420..], 0.05).unwrap() as f64 / 400.0;
        let approximate = left_out(&sums_of(21, &doubled(42))[462..], 0.05).unwrap() as f64 / 441.0;
        assert!((exact - approximate).abs() < 0.01, "{exact} {approximate}");
    }

    #[test]
    fn estimate_and_interval_of_a_textbook_example() {
        // Hollander and Wolfe, example 3.1 (Hamilton depression scale factor IV): T+ of the differences
        // before and after is 5, so the estimate is -0.46, its 96 % interval -0.786 to -0.010.
        let differences = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010];
        let shift = of_pairs(&differences, 0.04).unwrap();
        assert!((shift.estimate + 0.46).abs() < 1e-9, "{shift:?}");
        let (low, high) = shift.interval.unwrap();
        assert!((low + 0.786).abs() < 1e-9 && (high + 0.010).abs() < 1e-9, "{shift:?}");
        assert!((shift.p - 0.0391).abs() < 1e-4, "{shift:?}");
    }

    #[test]
    fn small_examples_by_hand() {
        let shift = of_pairs(&[1.0, 2.0, 4.0], 0.25).unwrap();
        assert_eq!(shift, Shift { estimate: 2.25, interval: Some((1.0, 4.0)), p: 0.25 });
        // All differences: 2, 3, 5, 6; of 6 ways to draw two ranks of four, one is at the end.
        let shift = of_samples(&[0.0, 1.0], &[3.0, 6.0], 0.34).unwrap();
        assert_eq!(shift.interval, Some((2.0, 6.0)));
        assert!((shift.estimate - 4.0).abs() < 1e-12 && (shift.p - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(of_pairs(&[1.0, 2.0], 0.02).unwrap().interval, None);
        assert_eq!(of_pairs(&[0.0; 9], 0.02).unwrap().p, 1.0);
        assert_eq!(of_samples(&[1.0; 40], &[1.0; 40], 0.02).unwrap().p, 1.0);
        assert_eq!(of_pairs(&[], 0.02), None);
        assert_eq!(of_samples(&[1.0], &[], 0.02), None);
    }

    #[test]
    fn ties_share_their_rank_and_keep_the_distribution_a_distribution() {
        assert_eq!(doubled_ranks(&[5.0, 1.0, 5.0, 0.5]), [7, 4, 7, 2]);
        // Of 2^3 signs of the ranks 1.5, 1.5, 3, one reaches 6 and two 4.5.
        assert_eq!(of_pairs(&[1.0, 1.0, 2.0], 0.5).unwrap().p, 0.25);
        assert_eq!(of_pairs(&[1.0, -1.0, 2.0], 0.5).unwrap().p, 0.75);
    }

    #[test]
    fn enough_pairs_are_those_that_chance_seldom_gives_one_sign() {
        // 2 / 2^n, and 2 / C(2n, n).
        assert_eq!(
            [0.05, 0.02, 0.01, 0.001].map(|level| Design::Pairs.needed(level)),
            [6, 7, 8, 11]
        );
        assert_eq!([0.05, 0.02, 0.01, 0.001].map(|level| Design::Runs.needed(level)), [4, 5, 5, 7]);
    }
}

//! A histogram in memory that two processes share.
//!
//! The application under test counts into it with one relaxed add per sample, and the controller
//! takes the difference of two snapshots, so that neither waits for the other.

use std::sync::atomic::Ordering;

use weir_bpf::sys::shared_memory::SharedCounters;

/// Slots of an octave: the middle of one is within 0.8 % of the values that it stands for.
const OCTAVE_SLOTS: usize = 46;
/// Slots that a histogram occupies: values up to 2^40 ns (18 minutes).
pub const SLOTS: usize = 40 * OCTAVE_SLOTS;

fn slot(value: u64) -> usize {
    let octaves = (value.max(1) as f64).log2();
    ((octaves * OCTAVE_SLOTS as f64) as usize).min(SLOTS - 1)
}

/// The middle of the values that share a slot.
fn middle(slot: usize) -> f64 {
    ((slot as f64 + 0.5) / OCTAVE_SLOTS as f64).exp2()
}

/// Counts one value into the histogram whose slots begin at `base`.
pub fn record(shared: &SharedCounters, base: usize, value: u64) {
    shared.get(base + slot(value)).fetch_add(1, Ordering::Relaxed);
}

pub fn snapshot(shared: &SharedCounters, base: usize) -> Vec<u64> {
    (base..base + SLOTS).map(|index| shared.get(index).load(Ordering::Relaxed)).collect()
}

/// A snapshot with one value more, such as of what has not ended yet.
pub fn with(mut snapshot: Vec<u64>, value: u64) -> Vec<u64> {
    snapshot[slot(value)] += 1;
    snapshot
}

/// Value that this share of the samples between two snapshots do not exceed, or `None` without samples.
pub fn quantile(before: &[u64], after: &[u64], share: f64) -> Option<f64> {
    let counts = || before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before));
    let wanted = (counts().sum::<u64>() as f64 * share).max(1.0);
    let mut sum = 0;
    let is_reached = |count| {
        sum += count;
        sum as f64 >= wanted
    };
    counts().position(is_reached).map(middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slot_stands_for_its_values_within_one_percent(value in 1_u64..1 << 40) {
            let middle = middle(slot(value));
            prop_assert!((middle / value as f64 - 1.0).abs() < 0.008, "{value} -> {middle}");
        }
    }

    #[test]
    fn quantiles_come_from_the_difference_of_two_snapshots() {
        let before = vec![5; SLOTS];
        let mut after = before.clone();
        for value in 1..=100_u64 {
            after[slot(value * 1000)] += 1;
        }
        let near = |got: Option<f64>, want: f64| (got.unwrap() / want - 1.0).abs() < 0.03;
        assert!(near(quantile(&before, &after, 0.5), 50_000.0));
        assert!(near(quantile(&before, &after, 0.99), 99_000.0));
        assert_eq!(quantile(&before, &before, 0.5), None);
        let open = with(after, 2_000_000_000);
        assert!(near(quantile(&with(before, 1000), &open, 1.0), 2e9));
    }
}

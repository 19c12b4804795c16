//! A histogram in memory that two processes share.
//!
//! The application under test counts into it with one relaxed add per sample, and the controller
//! takes the difference of two snapshots, so that neither waits for the other. Percentiles are then
//! hdrhistogram's work.

use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use weir_bpf::sys::shared::SharedCounters;

const SUB_BUCKET_BITS: u32 = 6;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;

/// Slots that a histogram occupies: values up to 2^40 ns (18 minutes), each within 1.6 %.
pub const SLOTS: usize = SUB_BUCKETS * (40 - SUB_BUCKET_BITS as usize + 1);

fn slot(value: u64) -> usize {
    let value = value.min((1 << 40) - 1);
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    // The leading bit selects the octave, the next SUB_BUCKET_BITS the slot in it.
    let octave = 63 - value.leading_zeros() - SUB_BUCKET_BITS + 1;
    let sub = (value >> (octave - 1)) as usize & (SUB_BUCKETS - 1);
    octave as usize * SUB_BUCKETS + sub
}

/// The middle of the values that share a slot.
fn middle(slot: usize) -> u64 {
    if slot < SUB_BUCKETS {
        return slot as u64;
    }
    let octave = slot / SUB_BUCKETS;
    let low = ((SUB_BUCKETS + slot % SUB_BUCKETS) as u64) << (octave - 1);
    low + (1_u64 << (octave - 1)) / 2
}

/// Counts one value into the histogram whose slots begin at `base`.
pub fn record(shared: &SharedCounters, base: usize, value: u64) {
    shared.get(base + slot(value)).fetch_add(1, Ordering::Relaxed);
}

pub fn snapshot(shared: &SharedCounters, base: usize) -> Vec<u64> {
    (base..base + SLOTS).map(|index| shared.get(index).load(Ordering::Relaxed)).collect()
}

/// Value below which `percentile` percent of the samples between two snapshots lie, or `None`
/// without samples.
pub fn percentile(before: &[u64], after: &[u64], percentile: f64) -> Option<u64> {
    let mut histogram = Histogram::<u64>::new(3).ok()?;
    for (slot, (before, after)) in before.iter().zip(after).enumerate() {
        histogram.record_n(middle(slot), after.saturating_sub(*before)).ok()?;
    }
    (!histogram.is_empty()).then(|| histogram.value_at_percentile(percentile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slot_stands_for_its_values_within_two_percent(value in 0_u64..1 << 40) {
            let slot = slot(value);
            prop_assert!(slot < SLOTS);
            let error = middle(slot).abs_diff(value) as f64;
            prop_assert!(error <= value as f64 * 0.016 + 0.5, "{value} -> {}", middle(slot));
        }
    }

    #[test]
    fn percentiles_come_from_the_difference_of_two_snapshots() {
        let before = vec![5; SLOTS];
        let mut after = before.clone();
        for value in 1..=100_u64 {
            after[slot(value * 1000)] += 1;
        }
        let near = |got: Option<u64>, want: f64| (got.unwrap() as f64 / want - 1.0).abs() < 0.03;
        assert!(near(percentile(&before, &after, 50.0), 50_000.0));
        assert!(near(percentile(&before, &after, 99.0), 99_000.0));
        assert_eq!(percentile(&before, &before, 50.0), None);
    }
}

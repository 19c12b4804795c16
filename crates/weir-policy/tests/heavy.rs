//! Space-Saving against exact counts, for any stream.

mod common;

use std::collections::HashMap;

use common::cases;
use proptest::prelude::*;
use weir_policy::heavy::Heavy;

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn what_is_told_is_true_and_nobody_heavy_is_missing(
        places in 1_usize..40,
        stream in prop::collection::vec((0_u32..80, 1_u64..50), 1..2_000),
    ) {
        let (mut heavy, mut exact) = (Heavy::new(places), HashMap::<u32, u64>::new());
        for (key, weight) in &stream {
            heavy.add(*key, *weight);
            *exact.entry(*key).or_default() += weight;
        }
        let total: u64 = exact.values().sum();
        let found: HashMap<u32, u64> = heavy.found().map(|(key, found)| (key, found.least)).collect();
        prop_assert!(found.len() <= places);
        let error = total / places as u64;
        for (key, weight) in exact {
            match found.get(&key) {
                Some(least) => prop_assert!(*least <= weight && *least + error >= weight),
                None => prop_assert!(weight <= error, "{} of {}", weight, total),
            }
        }
    }
}

/// A flood from addresses that are all different, and one sender of a tenth of it.
#[test]
fn random_sources_do_not_push_out_a_heavy_one() {
    const PLACES: usize = 256;
    let mut random = fastrand::Rng::with_seed(1);
    let mut heavy = Heavy::new(PLACES);
    for _ in 0..1_000_000 {
        let key = if random.u32(..10) == 0 { 1 } else { random.u64(2..) };
        heavy.add(key, 1);
    }
    let mut found: Vec<_> = heavy.found().collect();
    found.sort_by_key(|(_, found)| std::cmp::Reverse(found.least));
    let (key, first) = found[0];
    let share = |least: u64| least as f64 / 1_000_000.0;
    assert_eq!((found.len(), key), (PLACES, 1));
    assert!((share(first.least) - 0.1).abs() <= 1.0 / PLACES as f64, "{first:?}");
    // None of the others is said to be heavy.
    assert!(found[1..].iter().all(|(_, found)| share(found.least) < 0.001), "{:?}", found[1]);
}

//! Heavy hitters of a stream, in memory that does not grow with it: Space-Saving (A. Metwally, D. Agrawal and
//! A. El Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005), with weights.

use std::collections::HashMap;
use std::hash::Hash;

/// What is known of one element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// It weighs at least so much...
    pub least: u64,
    /// ...and was seen at least so often.
    pub times: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    found: Found,
    /// What others weighed that had the place before: the element may weigh so much more than is known.
    error: u64,
}

/// The heaviest elements of a stream. With `n` places, an element of more than an `n`th of the whole weight is among
/// them, and lacks an `n`th of it at most (theorem 2 of the paper), whatever else comes and in whatever order.
#[derive(Clone, Debug)]
pub struct Heavy<K> {
    places: usize,
    counts: HashMap<K, Count>,
}

impl<K: Copy + Eq + Hash> Heavy<K> {
    /// With so many places, at least one.
    pub fn new(places: usize) -> Self {
        Self { places: places.max(1), counts: HashMap::new() }
    }

    /// One more element.
    pub fn add(&mut self, key: K, weight: u64) {
        if self.counts.len() >= self.places && !self.counts.contains_key(&key) {
            self.take_place(key);
        }
        let found = &mut self.counts.entry(key).or_default().found;
        found.least += weight;
        found.times += 1;
    }

    /// The lightest one's place is another's from now on, who may have weighed as much before.
    fn take_place(&mut self, key: K) {
        let most = |count: &Count| count.found.least + count.error;
        let lightest = self.counts.iter().min_by_key(|(_, count)| most(count));
        let Some((lightest, error)) = lightest.map(|(key, count)| (*key, most(count))) else {
            return;
        };
        self.counts.remove(&lightest);
        self.counts.insert(key, Count { error, ..Count::default() });
    }

    /// Those that have a place, in any order.
    pub fn found(&self) -> impl Iterator<Item = (K, Found)> {
        self.counts.iter().map(|(key, count)| (*key, count.found))
    }
}

//! Axes of rates in thousands of packets per second, with round figures where people look for
//! them: the drawing library's own choice of labels is poor on a logarithmic axis.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::units::count;

/// A span wider than this is drawn logarithmically.
const LINEAR_SPAN_MAX: f64 = 8.0;
/// More labels than this would run into each other.
const LABELS_MAX: usize = 14;

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub logarithmic: bool,
    pub low: f64,
    pub high: f64,
}

impl Axis {
    /// The axis of offered rates between these two, which are above 0.
    pub fn offered(low: f64, high: f64) -> Self {
        if high / low > LINEAR_SPAN_MAX {
            Self { logarithmic: true, low: low / 1.15, high: high * 1.15 }
        } else {
            Self { logarithmic: false, low: 0.0, high: high * 1.05 }
        }
    }

    /// The axis of delivered rates from 0 to a little over `most`.
    pub fn delivered(most: f64) -> Self {
        // Never an empty axis, even where nothing at all was delivered.
        let high = if most > 0.0 { most * 1.06 } else { 1.0 };
        Self { logarithmic: false, low: 0.0, high }
    }

    /// The value at this share of the axis, from 0 to 1.
    pub fn value_at(&self, share: f64) -> f64 {
        if self.logarithmic {
            self.low * (self.high / self.low).powf(share)
        } else {
            self.low + (self.high - self.low) * share
        }
    }

    /// The share of the axis at which a value lies.
    fn share_of(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic { self.decades() } else { self.steps() }
    }

    /// 1, 2, 5, 10; only powers of ten where that would be too many, every so many of them where
    /// even that would.
    fn decades(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |digits: &[f64]| -> Vec<f64> {
            (first..=last)
                .flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)))
                .filter(|rate| (self.low..=self.high).contains(rate))
                .collect()
        };
        let fine = within(&[1.0, 2.0, 5.0]);
        if fine.len() <= LABELS_MAX {
            return fine;
        }
        let coarse = within(&[1.0]);
        let every = coarse.len().div_ceil(LABELS_MAX).max(1);
        coarse.into_iter().step_by(every).collect()
    }

    /// Equal steps from 0: 1, 2, 2.5 or 5 times a power of ten, at most seven of them.
    fn steps(&self) -> Vec<f64> {
        const STEPS_MAX: u32 = 7;
        let raw = self.high / f64::from(STEPS_MAX);
        let decade = 10f64.powf(raw.log10().floor());
        let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * decade);
        let step = round.into_iter().find(|step| *step >= raw).unwrap_or(raw);
        (0..=STEPS_MAX).map(|n| f64::from(n) * step).filter(|tick| *tick <= self.high).collect()
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share_of(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    /// `2,000`, `100`, `0.5`.
    fn format(kpps: &f64) -> String {
        if *kpps >= 1e3 {
            return count(kpps.round() as u128);
        }
        let text = format!("{kpps:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wide_span_is_logarithmic_with_round_labels() {
        let wide = Axis::offered(100.0, 5_100.0);
        assert!(wide.logarithmic);
        assert_eq!(wide.ticks(), [100.0, 200.0, 500.0, 1e3, 2e3, 5e3]);
        let narrow = Axis::offered(100.0, 600.0);
        assert!(!narrow.logarithmic);
        assert_eq!(narrow.ticks(), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0]);
        assert_eq!(Axis::delivered(0.0).high, 1.0);
    }

    #[test]
    fn labels_are_plain_figures() {
        for (kpps, text) in [(0.0, "0"), (0.5, "0.5"), (100.0, "100"), (20_000.0, "20,000")] {
            assert_eq!(<Axis as ValueFormatter<f64>>::format(&kpps), text);
        }
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_on_the_axis(low in 1e-9f64..1e9, ratio in 1.0f64..1e9) {
            for axis in [Axis::offered(low, low * ratio), Axis::delivered(low)] {
                let ticks = axis.ticks();
                prop_assert!((1..=LABELS_MAX).contains(&ticks.len()), "{:?}", ticks);
                for tick in ticks {
                    let pixel = axis.map(&tick, (0, 800));
                    prop_assert!((0..=800).contains(&pixel), "{} at {}", tick, pixel);
                }
            }
        }
    }
}

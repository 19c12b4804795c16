//! How fast the SUT's CPU was while something was measured, by the calibrated loop.

use crate::results::Trial;
use crate::stats::median;

/// A point is marked where the SUT's speed differs by more than this from the run's median.
const TOLERANCE: f64 = 0.05;

/// The speeds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Speeds {
    fastest_ns: f64,
    usual: f64,
}

impl Speeds {
    /// Of a run's trials.
    pub fn of<'a>(trials: impl Iterator<Item = &'a Trial>) -> Self {
        Self::of_loops(trials.map(|trial| trial.sut_loop_ns))
    }

    /// Of how long the loop took in each; 0 where it was not timed.
    pub fn of_loops(loops: impl Iterator<Item = f64>) -> Self {
        let loops: Vec<f64> = loops.filter(|ns| *ns > 0.0).collect();
        let fastest_ns = loops.iter().copied().fold(f64::INFINITY, f64::min);
        Self { fastest_ns, usual: fastest_ns / median(loops) }
    }

    /// The speed against the fastest of the run, 0 to 1, of a point whose loop took so long, and
    /// whether it is to be marked.
    pub fn judge(&self, loop_ns: f64) -> (f64, bool) {
        let speed = if loop_ns > 0.0 { self.fastest_ns / loop_ns } else { 0.0 };
        (speed, (speed / self.usual - 1.0).abs() > TOLERANCE)
    }
}

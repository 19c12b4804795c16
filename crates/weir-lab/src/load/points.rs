//! From trials to what every point has.

use crate::results::Spread;
use crate::results::load::{Conditions, LoadTrial};
use crate::speed::Speeds;
use crate::stats::{median, median_of_some, spread};
use crate::trial::Flood;

/// The trials of one point, and what is known of the run.
pub(crate) struct Group<'a, K> {
    trials: Vec<&'a LoadTrial<K>>,
    speeds: Speeds,
}

/// The speeds of a run.
pub(crate) fn speeds<K>(trials: &[LoadTrial<K>]) -> Speeds {
    Speeds::of(trials.iter().map(|trial| &trial.load))
}

impl<'a, K: PartialEq> Group<'a, K> {
    /// The trials of one purpose with one flood, of a mode or setting.
    pub fn of(
        (trials, speeds): (&'a [LoadTrial<K>], Speeds),
        key: K,
        purpose: &str,
        flood: Flood,
    ) -> Self {
        let target = flood.target_pps();
        let of_it = |t: &&LoadTrial<K>| {
            t.key == key && t.load.purpose == purpose && t.load.target_pps == target
        };
        Self { trials: trials.iter().filter(of_it).collect(), speeds }
    }
}

impl<'a, K> Group<'a, K> {
    /// Median of a figure.
    pub fn median(&self, of: impl Fn(&LoadTrial<K>) -> f64) -> f64 {
        median(self.trials.iter().map(|trial| of(trial)))
    }

    /// Median of a figure where it is there.
    pub fn median_of_some(&self, of: impl Fn(&LoadTrial<K>) -> Option<f64>) -> Option<f64> {
        median_of_some(self.trials.iter().map(|trial| of(trial)))
    }

    /// A figure of each trial that has it.
    pub fn some(&self, of: impl Fn(&LoadTrial<K>) -> Option<f64>) -> Vec<f64> {
        self.trials.iter().filter_map(|trial| of(trial)).collect()
    }

    /// Median and range of a figure.
    pub fn spread(&self, of: impl Fn(&LoadTrial<K>) -> f64) -> Spread {
        spread(self.trials.iter().map(|trial| of(trial)))
    }

    /// Share of the SUT's CPU that input would need to take every packet, at its own CPU time per packet;
    /// `None` where softirq polls.
    pub fn input_need(&self) -> Option<f64> {
        self.median_of_some(|trial| Some(trial.input_ns_per_packet()? * rate(trial) / 1e9))
    }

    /// Share of the SUT's CPU that input had; `None` where softirq polls.
    pub fn input_cpu(&self) -> Option<f64> {
        self.median_of_some(|trial| {
            let taken_pps = rate(trial) - trial.load.nic_drop_pps;
            Some(trial.input_ns_per_packet()? * taken_pps.max(0.0) / 1e9)
        })
    }

    /// How fast the machine was.
    pub fn conditions(&self) -> Conditions {
        let (sut_speed, marked) = self.speeds.judge(self.median(|t| t.load.sut_loop_ns));
        Conditions {
            sut_speed,
            steal: self.median(|t| t.load.steal),
            marked,
            repeats: self.trials.len() as u32,
        }
    }
}

/// What was sent in all, packets/s.
fn rate<K>(trial: &LoadTrial<K>) -> f64 {
    trial.load.offered_pps + trial.load.bystander_offered_pps
}

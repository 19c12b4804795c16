//! A run, looked at: repeats merged into points, per arm, case and load.

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::{Case, Experiment, Search, words};
use crate::metric::{Better, METRICS, Merge, Metric, m};
use crate::run::{Load, Run, Trial};
use crate::stats::{Bracket, Spread, median, spread};

/// A point is marked where the tested CPU's speed differs by more than this from the run's median.
pub const SPEED_TOLERANCE: f64 = 0.05;
/// The ring counts as not overflowing up to this share: a hiccup of the machine is not the flood's.
const RING_LOSS_MAX: f64 = 0.005;

/// One arm, case and load.
#[derive(Clone, Debug)]
pub struct Point {
    pub arm: String,
    pub case: String,
    pub load: Load,
    pub figures: BTreeMap<&'static str, Spread>,
    pub repeats: u32,
    /// The machine was faster or slower than usual.
    pub marked: bool,
}

impl Point {
    /// A figure's merged value.
    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.spread(metric).map(|spread| spread.median)
    }

    /// The same with its range.
    pub fn spread(&self, metric: &Metric) -> Option<Spread> {
        self.figures.get(metric.id).copied()
    }
}

/// Arm, case and load.
pub type Spot<'a> = (&'a str, &'a str, Load);
/// A figure, and another that it is held against.
pub type Pair = (f64, f64);

pub struct View<'a> {
    pub experiment: &'a Experiment,
    pub run: &'a Run,
    /// The trials, with what the experiment derives.
    pub trials: Vec<Trial>,
    /// All points, in the order in which they first ran.
    pub points: Vec<Point>,
}

impl<'a> View<'a> {
    /// Merges a run's repeats.
    pub fn new(experiment: &'a Experiment, run: &'a Run) -> Self {
        let mut trials = run.trials.clone();
        if let Some(derive) = experiment.derive {
            derive(&mut trials);
        }
        let usual = median(trials.iter().filter_map(|trial| trial.get(&m::loop_ns))).unwrap_or(0.0);
        let mut points: Vec<Point> = vec![];
        for trial in &trials {
            let known = points.iter().any(|p| is_of(trial, &p.arm, &p.case, p.load));
            if !known {
                points.push(merge(&trials, trial, usual));
            }
        }
        Self { experiment, run, trials, points }
    }

    pub fn point(&self, arm: &str, case: &str, load: Load) -> Option<&Point> {
        self.points.iter().find(|p| p.arm == arm && p.case == case && p.load == load)
    }

    /// The trials of one point, in the order in which they ran.
    pub fn trials_of<'b>(
        &'b self,
        arm: &'b str,
        case: &'b str,
        load: Load,
    ) -> impl Iterator<Item = &'b Trial> {
        self.trials.iter().filter(move |trial| is_of(trial, arm, case, load))
    }

    pub fn get(&self, arm: &str, case: &str, load: Load, metric: &Metric) -> Option<f64> {
        self.point(arm, case, load)?.get(metric)
    }

    /// The arms, in the order of the columns: as declared, then others.
    pub fn arms(&self) -> Vec<&str> {
        let there = |arm: &&str| self.points.iter().any(|point| point.arm == *arm);
        let mut arms: Vec<&str> = words(self.experiment.arms).filter(there).collect();
        arms.extend(self.points.iter().map(|point| point.arm.as_str()));
        let mut known = BTreeSet::new();
        arms.retain(|arm| known.insert(*arm));
        arms
    }

    /// The cases that were run, as declared; those of searches are not among them.
    pub fn cases(&self) -> Vec<Case> {
        let ran = |case: &Case| self.points.iter().any(|point| point.case == case.name);
        (self.experiment.cases)().into_iter().filter(ran).collect()
    }

    /// The loads of a case, lowest first.
    pub fn loads(&self, case: &str) -> Vec<Load> {
        let mut loads: Vec<Load> =
            self.points.iter().filter(|p| p.case == case).map(|p| p.load).collect();
        loads.sort_by(|a, b| a.pps().total_cmp(&b.pps()));
        loads.dedup();
        loads
    }

    /// Pairs of a figure at two points: of trials of the same repeat, with its number.
    pub fn repeats(
        &self,
        one: Spot<'_>,
        other: Spot<'_>,
        figure: impl Fn(&Trial) -> Option<f64>,
    ) -> Vec<(u32, Pair)> {
        let others = || self.trials_of(other.0, other.1, other.2);
        let of_other = |repeat| figure(others().find(|t| t.repeat == repeat)?);
        let pair = |t: &Trial| Some((t.repeat, (figure(t)?, of_other(t.repeat)?)));
        self.trials_of(one.0, one.1, one.2).filter_map(pair).collect()
    }

    /// The same without the numbers.
    pub fn pairs(&self, one: Spot<'_>, other: Spot<'_>, metric: &Metric) -> Vec<Pair> {
        let repeats = self.repeats(one, other, |trial| trial.get(metric));
        repeats.into_iter().map(|(_, pair)| pair).collect()
    }

    /// The arm of these that is best at a point.
    pub fn best<'b>(
        &self,
        arms: &[&'b str],
        case: &str,
        load: Load,
        metric: &Metric,
    ) -> Option<(&'b str, f64)> {
        let all = arms.iter().filter_map(|arm| Some((*arm, self.get(arm, case, load, metric)?)));
        match metric.better {
            Better::Less => all.min_by(|a, b| a.1.total_cmp(&b.1)),
            _ => all.max_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    /// Those of these arms which a full run has at a point, and this one has not.
    pub fn without(&self, arms: &[&'static str], case: &str, load: Load) -> Vec<&'static str> {
        let is_without = |arm: &&&'static str| {
            let declared = words(self.experiment.arms).any(|other| other == **arm);
            let skipped = self.experiment.skips(arm, case, load);
            declared && !skipped && self.point(arm, case, load).is_none()
        };
        arms.iter().filter(is_without).copied().collect()
    }

    /// The arm of these, and the load of a case, at which a figure is highest.
    pub fn peak<'b>(
        &self,
        arms: &[&'b str],
        case: &str,
        metric: &Metric,
    ) -> Option<(&'b str, Load)> {
        let of = |point: &Point| {
            let arm = arms.iter().find(|arm| **arm == point.arm && point.case == case)?;
            Some((point.get(metric)?, (*arm, point.load)))
        };
        let all = self.points.iter().filter_map(of);
        all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, at)| at)
    }

    /// Whether a point was measured, and its ring did not overflow.
    pub fn ring_holds(&self, arm: &str, case: &str, load: Load) -> bool {
        let figure = |point: &Point, metric| point.get(metric).unwrap_or(0.0);
        self.point(arm, case, load).is_some_and(|point| {
            let sent = figure(point, &m::offered_pps) + figure(point, &m::light_offered_pps);
            figure(point, &m::nic_drop_pps) <= RING_LOSS_MAX * sent
        })
    }

    /// What a search found for an arm, where it tried any rate to the end.
    pub fn found(&self, search: &Search, arm: &str) -> Option<Bracket> {
        Some(search.so_far(self, arm)?.0).filter(|bracket| bracket.known().is_some())
    }
}

pub fn is_of(trial: &Trial, arm: &str, case: &str, load: Load) -> bool {
    trial.load == load && trial.case == case && trial.arm == arm
}

fn merge(trials: &[Trial], like: &Trial, usual_loop_ns: f64) -> Point {
    let of: Vec<&Trial> =
        trials.iter().filter(|t| is_of(t, &like.arm, &like.case, like.load)).collect();
    let figure = |metric: &&'static Metric| {
        let values: Vec<f64> = of.iter().filter_map(|trial| trial.get(metric)).collect();
        let whole = spread(values.iter().copied())?;
        let merged = match metric.merge {
            Merge::Median => whole.median,
            Merge::Sum => values.iter().sum(),
            Merge::Max => whole.max,
        };
        Some((metric.id, Spread { median: merged, ..whole }))
    };
    let figures: BTreeMap<_, _> = METRICS.iter().filter_map(figure).collect();
    let loop_ns = figures.get(m::loop_ns.id).map_or(0.0, |spread| spread.median);
    Point {
        arm: like.arm.clone(),
        case: like.case.clone(),
        load: like.load,
        repeats: of.len() as u32,
        marked: loop_ns > 0.0 && (usual_loop_ns / loop_ns - 1.0).abs() > SPEED_TOLERANCE,
        figures,
    }
}

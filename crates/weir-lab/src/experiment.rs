//! An experiment is data: what is asked, what is compared, at which loads, and what is wanted of it.

use std::time::Duration;

use crate::arm::{Arm, BASELINES};
use crate::error::Result;
use crate::metric::{Metric, m};
use crate::run::{Load, Trial};
use crate::scene::{Flow, Scene};
use crate::stats::{Bracket, bisect};
use crate::view::View;

/// Arms or loads, separated by commas as on the command line; a quick run leaves those with a `?` out.
pub type List = &'static str;

/// The members of a list.
pub fn words(list: List) -> impl Iterator<Item = &'static str> {
    words_of(list, false)
}

/// Those of a full run, or of a quick one.
pub fn words_of(list: List, quick: bool) -> impl Iterator<Item = &'static str> {
    let of_run = move |word: &&str| !(word.is_empty() || quick && word.ends_with('?'));
    list.split(',').filter(of_run).map(|word| word.trim_end_matches('?'))
}

/// One thing for a full run, another for a quick one.
#[derive(Clone, Copy, Debug)]
pub struct Choice<T> {
    pub full: T,
    pub quick: T,
}

impl<T: Copy> Choice<T> {
    /// The same for both.
    pub const fn both(one: T) -> Self {
        Self { full: one, quick: one }
    }

    pub fn of(&self, quick: bool) -> T {
        if quick { self.quick } else { self.full }
    }
}

/// How long trials last, and how many of each there are.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Before the window.
    pub warm_up: Duration,
    pub window: Duration,
    /// Trials of each point.
    pub repeats: u32,
}

impl Choice<Times> {
    /// Warm-up and window in milliseconds, and repeats: of a full run, and of a quick one.
    pub const fn times(full: (u64, u64, u32), quick: (u64, u64, u32)) -> Self {
        const fn times((warm_up_ms, window_ms, repeats): (u64, u64, u32)) -> Times {
            let warm_up = Duration::from_millis(warm_up_ms);
            Times { warm_up, window: Duration::from_millis(window_ms), repeats }
        }
        Self { full: times(full), quick: times(quick) }
    }
}

/// A variant of an experiment.
#[derive(Clone, Debug)]
pub struct Case {
    /// As on the command line and in results.
    pub name: String,
    /// Whether a quick run has it unasked.
    pub quick: bool,
    /// Whether a full run has it unasked.
    pub full: bool,
    /// Loads of this case, instead of the experiment's.
    pub loads: Option<List>,
    /// The case that this one is held against: whoever asks for this one gets that one too.
    pub against: Option<&'static str>,
}

impl Case {
    /// One that every run has.
    pub fn always(name: impl Into<String>) -> Self {
        Self { name: name.into(), quick: true, full: true, loads: None, against: None }
    }

    /// One that only full runs have unasked.
    pub fn full(name: impl Into<String>) -> Self {
        Self { quick: false, ..Self::always(name) }
    }

    /// One that has to be asked for.
    pub fn asked(name: impl Into<String>) -> Self {
        Self { full: false, ..Self::full(name) }
    }

    #[must_use]
    pub fn against(self, other: &'static str) -> Self {
        Self { against: Some(other), ..self }
    }

    /// With loads of its own.
    #[must_use]
    pub fn at(self, loads: List) -> Self {
        Self { loads: Some(loads), ..self }
    }
}

/// What a scene is wanted for.
#[derive(Debug)]
pub struct Ask<'a> {
    pub arm: &'a Arm,
    pub case: &'a str,
    pub load: Load,
    pub quick: bool,
    /// The run's trials so far.
    pub done: &'a [Trial],
}

impl Ask<'_> {
    /// A flood to a port at the load asked for; none without one.
    pub fn flood(&self, port: u16) -> Option<Flow> {
        (self.load != Load::Off).then(|| Flow::udp(port, self.load))
    }
}

/// A search for the highest rate that passes, after the grid.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Case whose scene is used.
    pub of: &'static str,
    /// Case under which its trials are kept.
    pub case: &'static str,
    /// For these arms.
    pub arms: List,
    pub steps: Choice<u32>,
    /// Trials by which a rate passes, or fails.
    pub majority: Choice<u32>,
    pub window_ms: Choice<u64>,
    /// Between which rates, packets/s, for an arm in case `of`; `None`: it needs no search.
    pub between: fn(&View<'_>, &str, &str) -> Option<(f64, f64)>,
    pub passes: fn(&View<'_>, &Trial) -> bool,
}

impl Search {
    /// Its trials in an arm, so far.
    pub fn trials<'a>(
        &'a self,
        view: &'a View<'_>,
        arm: &'a str,
    ) -> impl Iterator<Item = &'a Trial> {
        view.trials.iter().filter(move |trial| trial.case == self.case && trial.arm == arm)
    }

    /// What is known in an arm so far, and the next rate, if there is one; `None`: it needs no search.
    pub fn so_far(&self, view: &View<'_>, arm: &str) -> Option<(Bracket, Option<f64>)> {
        let offered = |trial: &Trial| trial.get(&m::offered_pps).unwrap_or(trial.load.pps());
        let trials = self.trials(view, arm).map(|t| (offered(t), (self.passes)(view, t)));
        let quick = view.run.head.quick;
        let (steps, majority) = (self.steps.of(quick), self.majority.of(quick));
        Some(bisect((self.between)(view, arm, self.of)?, steps, majority, trials))
    }
}

/// Which cases something is about.
#[derive(Clone, Copy, Debug)]
pub enum Cases {
    All,
    Of(&'static [&'static str]),
    Where(fn(&str) -> bool),
}

impl Cases {
    pub fn has(&self, case: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(cases) => cases.contains(&case),
            Self::Where(says) => says(case),
        }
    }
}

/// A table of the report: a row for each case and load, a column for each arm.
#[derive(Debug)]
pub struct Table {
    pub title: &'static str,
    /// The figures of a cell, one beside the other.
    pub figures: &'static [&'static Metric],
    /// Rows of these cases.
    pub cases: Cases,
}

/// The experiment's figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it shows.
    pub title: &'static str,
    /// A line for each arm, in this case, with the load sent (`offered_pps`) along the abscissa; `None`: bars for each
    /// case.
    pub case: Option<&'static str>,
    /// Along the ordinate.
    pub y: &'static Metric,
}

/// At which loads something is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    Every,
    Flooded,
    Only(Load),
    Highest,
    /// The one at which the figure is highest.
    Peak,
    /// Loads above the one at which the figure is highest.
    PastPeak,
    /// Every load but 0, while the arm's ring does not overflow; what is beyond is open where a baseline's does not.
    WhileRingHolds,
}

/// What a figure is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    Nothing,
    /// The best of these arms at the same point.
    Best(&'static [&'static str]),
    /// The same arm's at load 0.
    Unloaded,
    /// The same arm's highest over the case's loads.
    OwnPeak,
    /// The highest of these arms' over the case's loads.
    PeakOf(&'static [&'static str]),
}

/// What a figure, or a ratio, must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// This, to within a share of it.
    Within(f64, f64),
}

impl Bound {
    /// The least and the most.
    pub fn range(self) -> (f64, f64) {
        match self {
            Self::AtLeast(least) => (least, f64::INFINITY),
            Self::AtMost(most) => (f64::NEG_INFINITY, most),
            Self::Within(wanted, share) => (wanted * (1.0 - share), wanted * (1.0 + share)),
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
            Self::Within(wanted, share) => format!("{wanted:.2} within {:.0} %", share * 100.0),
        }
    }
}

/// A value and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// Pairs, or trials, that the interval rests on; 0: it is none.
    pub pairs: u32,
    /// Such as `1.2 M, recv, of niced`.
    pub place: String,
    /// The case that it is of.
    pub case: String,
    /// Arms that it is to be held against, too, and that were not measured there.
    pub without: Vec<&'static str>,
}

impl Found {
    /// What was not measured, and why.
    pub fn unknown(why: impl Into<String>) -> Self {
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        Self { low, high, ..Self::exact(f64::NAN, why) }
    }

    /// A value that has no interval, such as a count of the whole run.
    pub fn exact(value: f64, place: impl Into<String>) -> Self {
        let (place, case) = (place.into(), String::new());
        Self { value, low: value, high: value, pairs: 0, place, case, without: vec![] }
    }

    /// The same, of a case.
    #[must_use]
    pub fn of(self, case: &str) -> Self {
        Self { case: case.to_owned(), ..self }
    }
}

/// What is wanted; goals.rs judges it.
pub struct Goal {
    /// In words, without the bound.
    pub text: String,
    /// Each point's value, its interval, and where.
    pub find: Box<Find>,
    pub want: Bound,
    /// Cases that it is about: a run without any of them is not judged by it.
    pub about: Cases,
    /// The arm that it is about, if it is one: a run without it is not judged by it.
    pub arm: Option<&'static str>,
}

/// What looks for a goal's points.
type Find = dyn Fn(&View<'_>) -> Vec<Found>;

/// The baselines as goals name them.
pub const BEST: Against = Against::Best(&BASELINES);

#[derive(Debug)]
pub struct Experiment {
    /// As on the command line.
    pub name: &'static str,
    /// Paper and figure.
    pub paper: &'static str,
    /// What it asks, in one sentence.
    pub question: &'static str,
    /// What it found then, in one sentence.
    pub found: &'static str,
    /// Programs that it takes.
    pub needs: &'static [&'static str],
    /// Arms, by name; see [`Arm::parse`].
    pub arms: List,
    /// The arm that stands for weir in the sentence and in comparisons of builds.
    pub main: &'static str,
    /// The first merit in the sentence, after the arm's name: `delivers {} packets/s`.
    pub says: &'static str,
    /// Its cases, in the order of tables.
    pub cases: fn() -> Vec<Case>,
    pub loads: List,
    pub times: Choice<Times>,
    /// Points that are left out.
    pub skip: fn(arm: &Arm, case: &str, load: Load) -> bool,
    pub scene: fn(&Ask<'_>) -> Result<Scene>,
    /// Figures that are computed from several trials, or from one's others.
    pub derive: Option<fn(&mut [Trial])>,
    /// Figures of merit; the first is that of the sentence, all are judged when builds are compared.
    pub merits: &'static [&'static Metric],
    pub searches: &'static [Search],
    /// Tables, the most important first.
    pub tables: &'static [Table],
    pub figure: Figure,
    /// What is wanted.
    pub goals: fn() -> Vec<Goal>,
    /// How to read it: what a reader must know about the set-up.
    pub notes: &'static str,
}

impl Experiment {
    /// Whether points are left out of an arm by its name.
    pub fn skips(&self, arm: &str, case: &str, load: Load) -> bool {
        Arm::parse(arm).is_ok_and(|arm| (self.skip)(&arm, case, load))
    }
}

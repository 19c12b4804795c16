//! What is wanted of an experiment (experiments.md), declared beside it, and whether a run shows it.

use serde::Serialize;

use crate::arm::BASELINES;
use crate::experiment::Cases;
use crate::metric::{Better, Metric};
use crate::run::Load;
use crate::stats::{Compared, compare};
use crate::view::{RING_LOSS_MAX, View};

/// At which loads something is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// Every load.
    Every,
    /// Every load but 0.
    Flooded,
    /// This one.
    Only(Load),
    /// The highest that the case has.
    Highest,
    /// Loads above the one at which this arm's figure is highest.
    PastPeakOf(&'static str),
    /// Every load but 0, while the arm's ring does not overflow.
    WhileRingHolds,
}

/// What a figure is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// Nothing: the figure itself.
    Nothing,
    /// The best of these arms at the same point.
    Best(&'static [&'static str]),
    /// The same arm's at load 0.
    Unloaded,
    /// The same arm's highest over the case's loads.
    OwnPeak,
    /// The same arm's in this case, at load 0.
    CaseUnloaded(&'static str),
}

/// What a figure, or a ratio, must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
    /// This, to within a share of it.
    Within(f64, f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Within(wanted, share) => (value / wanted - 1.0).abs() <= share,
        }
    }

    /// As printed.
    pub fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
            Self::Within(wanted, share) => format!("{wanted:.2} within {:.0} %", share * 100.0),
        }
    }

    /// The worst end of an interval, as seen from this bound, and the best.
    fn ends(self, low: f64, high: f64) -> (f64, f64) {
        match self {
            Self::AtLeast(_) => (low, high),
            Self::AtMost(_) => (high, low),
            Self::Within(wanted, _) => {
                let worst = if high - wanted > wanted - low { high } else { low };
                (worst, wanted.clamp(low, high))
            }
        }
    }
}

/// How a goal is looked for.
#[derive(Clone, Copy)]
pub enum Find {
    /// A figure at points.
    Figure {
        /// Of this arm.
        arm: &'static str,
        /// In these cases.
        cases: Cases,
        /// At these loads.
        at: At,
        /// This figure.
        figure: &'static Metric,
        /// Divided by this.
        against: Against,
    },
    /// Otherwise: each point's value, its interval, and where.
    Other(fn(&View<'_>) -> Vec<Found>),
}

/// What is wanted.
#[derive(Clone, Copy)]
pub struct Goal {
    /// In words, without the bound.
    pub text: &'static str,
    /// How it is looked for.
    pub find: Find,
    /// The bound.
    pub want: Bound,
    /// Cases that it is about: a run without any of them is not judged by it.
    pub about: Cases,
}

/// A value and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The value.
    pub value: f64,
    /// Lower end of what it may be.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs, or trials, that it rests on.
    pub pairs: u32,
    /// Such as `1.2 M, recv, of niced`.
    pub place: String,
}

impl Found {
    /// A value that has no interval.
    pub fn exact(value: f64, place: impl Into<String>) -> Self {
        Self { value, low: value, high: value, pairs: 1, place: place.into() }
    }
}

/// What a run says of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// At every point the whole interval lies within the bound.
    Met,
    /// At some point the interval lies on both sides.
    Undecided,
    /// At some point the whole interval lies outside; or it was not measured.
    Unmet,
}

impl Verdict {
    /// As printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Undecided => "undecided",
            Self::Unmet => "NOT met",
        }
    }
}

/// A goal, looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What is wanted, in words.
    pub name: String,
    /// The bound.
    pub want: String,
    /// What was found.
    pub got: String,
    /// Whether it is met.
    pub met: bool,
    /// The same, with what noise leaves open.
    pub verdict: Verdict,
}

impl Goal {
    /// A goal about a figure of one arm.
    pub const fn figure(
        text: &'static str,
        (arm, cases, at): (&'static str, Cases, At),
        (figure, against): (&'static Metric, Against),
        want: Bound,
    ) -> Self {
        let find = Find::Figure { arm, cases, at, figure, against };
        Self { text, find, want, about: cases }
    }

    /// A goal that is looked for otherwise.
    pub const fn other(text: &'static str, find: fn(&View<'_>) -> Vec<Found>, want: Bound) -> Self {
        Self { text, find: Find::Other(find), want, about: Cases::All }
    }

    /// The same for runs that have one of these cases.
    #[must_use]
    pub const fn about(self, about: Cases) -> Self {
        Self { about, ..self }
    }

    /// What a run says of it.
    pub fn judge(&self, view: &View<'_>) -> Outcome {
        let found = match self.find {
            Find::Figure { arm, cases, at, figure, against } => {
                find(view, arm, cases, at, figure, against)
            }
            Find::Other(find) => find(view),
        };
        let worst = found.iter().min_by(|a, b| self.badness(b).total_cmp(&self.badness(a)));
        let verdicts = found.iter().map(|found| {
            let (worst, best) = self.want.ends(found.low, found.high);
            match (self.want.holds(worst), self.want.holds(best)) {
                (true, _) => Verdict::Met,
                (false, true) => Verdict::Undecided,
                (false, false) => Verdict::Unmet,
            }
        });
        let verdict = verdicts.max_by_key(|verdict| *verdict as u8).unwrap_or(Verdict::Unmet);
        let got = worst.map_or("not measured in this run".into(), |worst| {
            let Found { value, low, high, pairs, place } = worst;
            let interval = match pairs {
                0 | 1 => String::new(),
                pairs => format!(" ({low:.3} to {high:.3}, {pairs} pairs)"),
            };
            let most = if found.len() > 1 { " at worst" } else { "" };
            format!("{value:.3}{interval}{most}, {place}")
        });
        let (name, want) = (self.text.to_owned(), self.want.text());
        Outcome { name, want, got, met: verdict == Verdict::Met, verdict }
    }

    /// How far a finding is on the wrong side.
    fn badness(&self, found: &Found) -> f64 {
        match self.want {
            Bound::AtLeast(_) => -found.value,
            Bound::AtMost(_) => found.value,
            Bound::Within(wanted, _) => (found.value / wanted - 1.0).abs(),
        }
    }
}

fn wanted_at(view: &View<'_>, arm: &str, case: &str, at: At, figure: &Metric) -> Vec<Load> {
    let loads = view.loads(case);
    let above = |arm: &str| {
        let figures =
            loads.iter().filter_map(|load| Some((*load, view.get(arm, case, *load, figure)?)));
        figures.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(f64::INFINITY, |(load, _)| load.pps())
    };
    let holds = |load: &Load| {
        view.point(arm, case, *load).is_some_and(|point| view.ring_loss(point) <= RING_LOSS_MAX)
    };
    match at {
        At::Every => loads,
        At::Flooded => loads.into_iter().filter(|load| *load != Load::Off).collect(),
        At::Only(only) => loads.into_iter().filter(|load| *load == only).collect(),
        At::Highest => loads.last().copied().into_iter().collect(),
        At::PastPeakOf(arm) => {
            let peak = above(arm);
            loads.into_iter().filter(|load| load.pps() > peak).collect()
        }
        At::WhileRingHolds => {
            loads.into_iter().filter(|load| *load != Load::Off).take_while(holds).collect()
        }
    }
}

fn find(
    view: &View<'_>,
    arm: &str,
    cases: Cases,
    at: At,
    figure: &'static Metric,
    against: Against,
) -> Vec<Found> {
    let mut all = vec![];
    for case in view.cases().iter().filter(|case| cases.has(&case.name)) {
        let case = case.name.as_str();
        for load in wanted_at(view, arm, case, at, figure) {
            let place = place(view, case, load);
            let found = match against {
                Against::Nothing => own(view, arm, case, load, figure, 1.0),
                Against::Best(arms) => {
                    let best = view.best(arms, case, load, figure).map(|(best, _)| best);
                    let compared = best.and_then(|best| {
                        Some((best, compare(&view.pairs((arm, best), (case, load), figure))?))
                    });
                    all.extend(compared.map(|(best, compared)| {
                        of_compared(&compared, format!("{place}, of {best}"))
                    }));
                    continue;
                }
                Against::Unloaded => {
                    let unloaded = view.get(arm, case, Load::Off, figure);
                    unloaded.and_then(|whole| own(view, arm, case, load, figure, whole))
                }
                Against::OwnPeak => {
                    let peak = view.peak(arm, case, figure);
                    peak.and_then(|whole| own(view, arm, case, load, figure, whole))
                }
                Against::CaseUnloaded(other) => {
                    let whole = view.get(arm, other, Load::Off, figure);
                    whole.and_then(|whole| own(view, arm, case, load, figure, whole))
                }
            };
            all.extend(found.map(|found| Found { place, ..found }));
        }
    }
    all
}

/// Where, for a person: the case only where there are several.
pub fn place(view: &View<'_>, case: &str, load: Load) -> String {
    let several = view.cases().len() > 1;
    match (several, load) {
        (true, Load::Off) => case.to_owned(),
        (true, load) => format!("{case} at {load}"),
        (false, load) => format!("at {load}"),
    }
}

/// A comparison as a finding.
pub fn of_compared(compared: &Compared, place: String) -> Found {
    let Compared { ratio, low, high, pairs } = *compared;
    Found { value: ratio, low, high, pairs, place }
}

/// An arm's figure of a point, divided by a whole.
fn own(
    view: &View<'_>,
    arm: &str,
    case: &str,
    load: Load,
    figure: &'static Metric,
    whole: f64,
) -> Option<Found> {
    // By trials, so that noise is told; sums and maxima have none.
    let trials = view.trials_of(arm, case, load).filter_map(|trial| trial.get(figure));
    let pairs: Vec<(f64, f64)> = trials.map(|value| (value, whole)).collect();
    let merged = view.get(arm, case, load, figure)? / whole;
    let median = figure.merge == crate::metric::Merge::Median;
    match compare(&pairs).filter(|_| median && whole > 0.0) {
        Some(compared) => Some(of_compared(&compared, String::new())),
        None => Some(Found::exact(merged, "")).filter(|found| found.value.is_finite()),
    }
}

/// That no packet is in no counter: every experiment's.
fn accounted(view: &View<'_>) -> Vec<Found> {
    let ledgers: Vec<_> = view.trials.iter().filter_map(|trial| trial.ledger).collect();
    let lost: i64 = ledgers.iter().map(|ledger| ledger.unaccounted.abs()).sum();
    if ledgers.is_empty() {
        return vec![];
    }
    vec![Found::exact(lost as f64, format!("{} trials", ledgers.len()))]
}

/// What a run says of everything that is wanted of its experiment.
pub fn judge(view: &View<'_>) -> Vec<Outcome> {
    let cases = view.cases();
    let asked = |goal: &&Goal| cases.iter().any(|case| goal.about.has(&case.name));
    let mut goals: Vec<Outcome> =
        (view.experiment.goals)().iter().filter(asked).map(|goal| goal.judge(view)).collect();
    if view.trials.iter().any(|trial| trial.ledger.is_some()) {
        let all = Goal::other("packets in no counter", accounted, Bound::AtMost(0.0));
        goals.push(all.judge(view));
    }
    goals
}

/// The baselines as goals name them.
pub const BEST: Against = Against::Best(&BASELINES);

/// Whether more of a figure is worse.
pub fn less_is_better(figure: &Metric) -> bool {
    figure.better == Better::Less
}

//! Whether a run shows what is wanted of its experiment.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::arm::BASELINES;
use crate::experiment::{Against, At, Bound, Case, Cases, Found, Goal, List, words};
use crate::metric::{Merge, Metric, m};
use crate::run::{Load, Trial};
use crate::stats::rank::Design;
use crate::stats::{median, t_interval};
use crate::view::{Spot, View};

/// The chance that an interval does not hold the true ratio.
const LEVEL: f64 = 0.05;
/// Fewer pairs than these decide nothing within this share of a bound, where that is itself so near 1.
const CLOSE_PAIRS: u32 = 10;
const CLOSE: f64 = 0.03;
/// Stands for a ratio to 0, and for a time without an end: more than any bound, and still a number.
const ENDLESS: f64 = 1e6;
/// A rate was sent if this share of it was.
const SENT_MIN: f64 = 0.95;

/// What a run says of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// At every point the whole interval lies within the bound.
    Met,
    /// At some point the interval lies on both sides; or it was not measured.
    Undecided,
    /// At some point the whole interval lies outside.
    Unmet,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Undecided => "undecided",
            Self::Unmet => "NOT met",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub name: String,
    pub want: String,
    pub got: String,
    pub verdict: Verdict,
}

impl Goal {
    /// One that runs with any of these cases are judged by.
    pub fn new(
        text: impl Into<String>,
        about: Cases,
        want: Bound,
        find: impl Fn(&View<'_>) -> Vec<Found> + 'static,
    ) -> Self {
        Self { text: text.into(), find: Box::new(find), want, about, arm: None }
    }

    /// One for each of these arms, named by it.
    pub fn of_arms(
        arms: List,
        text: &str,
        about: Cases,
        want: Bound,
        find: fn(&View<'_>, &'static str) -> Vec<Found>,
    ) -> Vec<Self> {
        let of = |arm| {
            let goal =
                Self::new(format!("{arm}: {text}"), about, want, move |view| find(view, arm));
            Self { arm: Some(arm), ..goal }
        };
        words(arms).map(of).collect()
    }

    pub fn judge(&self, view: &View<'_>) -> Outcome {
        let found = (self.find)(view);
        let (least, most) = self.want.range();
        let beyond = |found: &Found| (least - found.value).max(found.value - most);
        let (unknown, known): (Vec<_>, Vec<_>) =
            found.iter().partition(|found| found.value.is_nan());
        let worst = known.iter().rev().max_by(|a, b| {
            let verdicts = verdict(self.want, a).cmp(&verdict(self.want, b));
            verdicts.then(beyond(a).total_cmp(&beyond(b)))
        });
        let (name, want) = (self.text.clone(), self.want.text());
        let unknown = unknown.first().map(|unknown| format!("not measured: {}", unknown.place));
        let Some(worst) = worst else {
            let got = unknown.unwrap_or_else(|| "not measured in this run".into());
            return Outcome { name, want, got, verdict: Verdict::Undecided };
        };
        let mut verdict = verdict(self.want, worst);
        let mut got = self.in_words(worst, verdict, known.len()) + &self.extent(view, &known);
        if let Some(unknown) = unknown.filter(|_| verdict != Verdict::Unmet) {
            verdict = Verdict::Undecided;
            got += &format!("; {unknown}");
        }
        // What was not there may have been better.
        let without: BTreeSet<_> = found.iter().flat_map(|found| &found.without).copied().collect();
        if !without.is_empty() && verdict != Verdict::Unmet {
            verdict = Verdict::Undecided;
            got += &format!("; without {}", without.into_iter().collect::<Vec<_>>().join(", "));
        }
        Outcome { name, want, got, verdict }
    }

    /// In how many of the cases that a full run judges its arm by something was found, if not in all.
    fn extent(&self, view: &View<'_>, known: &[&Found]) -> String {
        let Some(arm) = self.arm else { return String::new() };
        let judged: BTreeSet<&str> = known.iter().map(|found| found.case.as_str()).collect();
        let experiment = view.experiment;
        let is_other = |case: &&Case| {
            let loads = words(case.loads.unwrap_or(experiment.loads));
            let mut loads = loads.filter_map(|load| Load::parse(load).ok());
            case.full
                && self.about.has(&case.name)
                && !judged.contains(case.name.as_str())
                && loads.any(|load| !experiment.skips(arm, &case.name, load))
        };
        match (experiment.cases)().iter().filter(is_other).count() {
            0 => String::new(),
            others => format!("; in {} of its {} cases", judged.len(), judged.len() + others),
        }
    }

    fn in_words(&self, worst: &Found, verdict: Verdict, points: usize) -> String {
        let Found { value, low, high, pairs, place, .. } = worst;
        let needed = if is_close(self.want) { CLOSE_PAIRS } else { 2 };
        let few = verdict == Verdict::Undecided && *pairs < needed;
        let more = if few { format!("; needs {needed}") } else { String::new() };
        let interval = match pairs {
            0 => String::new(),
            1 => format!(" (1 pair{more})"),
            pairs => format!(" ({low:.3} to {high:.3}, {pairs} pairs{more})"),
        };
        let most = if points > 1 { " at worst" } else { "" };
        format!("{value:.3}{interval}{most}, {place}")
    }
}

fn is_close(want: Bound) -> bool {
    let (least, most) = want.range();
    [least, most].iter().any(|bound| (bound - 1.0).abs() < CLOSE + 1e-9)
}

fn verdict(want: Bound, Found { low, high, pairs, .. }: &Found) -> Verdict {
    let (least, most) = want.range();
    let few = is_close(want) && (1..CLOSE_PAIRS).contains(pairs);
    let (less, more) = if few { (1.0 - CLOSE, 1.0 + CLOSE) } else { (1.0, 1.0) };
    match () {
        () if *low >= least * more && *high <= most * less => Verdict::Met,
        () if *high < least * less || *low > most * more => Verdict::Unmet,
        () => Verdict::Undecided,
    }
}

fn wanted_at(view: &View<'_>, arm: &str, case: &str, at: At, figure: &Metric) -> Vec<Load> {
    let all = view.loads(case);
    let peak = view.peak(&[arm], case, figure).map_or(f64::INFINITY, |(_, load)| load.pps());
    let is_flooded = |load: &&Load| **load != Load::Off;
    let (held, _) = while_ring_holds(view, arm, case);
    let is_highest = |load: &&Load| all.last() == Some(*load);
    let is_wanted = |load: &&Load| match at {
        At::Every => true,
        At::Flooded => is_flooded(load),
        At::Only(only) => **load == only,
        At::Highest => is_highest(load),
        At::Peak => load.pps() == peak,
        // What still rises at the highest rate has lost nothing.
        At::PastPeak => load.pps() > peak || load.pps() == peak && is_highest(load),
        At::WhileRingHolds => held.contains(load),
    };
    all.iter().filter(is_wanted).copied().collect()
}

/// The loads of a flood below the first at which an arm's ring overflows; and where it overflows although a baseline's
/// holds, or at the lowest load: an arm that polls too late is not judged there, and not excused either.
pub fn while_ring_holds(view: &View<'_>, arm: &str, case: &str) -> (Vec<Load>, Option<Found>) {
    let mut all = view.loads(case);
    all.retain(|load| *load != Load::Off);
    let holds = |arm: &str, load: Load| view.ring_holds(arm, case, load);
    let held = all.iter().take_while(|load| holds(arm, **load)).count();
    let beyond = all.split_off(held);
    let overflow = |load: Load| {
        let overflows = view.point(arm, case, load).is_some() && !holds(arm, load);
        let other = BASELINES.into_iter().find(|other| holds(other, load));
        let than = other.map(|other| format!(", {other}'s does not"));
        let than = than.or_else(|| all.is_empty().then(String::new)).filter(|_| overflows)?;
        let place = place(view, case, load);
        Some(Found::unknown(format!("{place}: the ring overflows{than}")).of(case))
    };
    let overflow = beyond.into_iter().find_map(overflow);
    (all, overflow)
}

/// A figure of an arm's at points, each divided by something.
pub fn find(
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
        if at == At::WhileRingHolds {
            all.extend(while_ring_holds(view, arm, case).1);
        }
        for load in wanted_at(view, arm, case, at, figure) {
            let (spot, mut place) = ((arm, case, load), place(view, case, load));
            let whole = match against {
                Against::Nothing => {
                    all.extend(own(view, spot, figure, place).map(|found| found.of(case)));
                    continue;
                }
                Against::Best(arms) => {
                    view.best(arms, case, load, figure).map(|best| (best.0, load))
                }
                Against::Unloaded => Some((arm, Load::Off)),
                Against::OwnPeak => view.peak(&[arm], case, figure),
                Against::PeakOf(arms) => view.peak(arms, case, figure),
            };
            let Some((other, at)) = whole else { continue };
            if other != arm {
                place += &format!(", of {other}");
            }
            let without = match against {
                Against::Best(arms) | Against::PeakOf(arms) => view.without(arms, case, load),
                _ => vec![],
            };
            let found = ratio(view, spot, (other, case, at), figure, place);
            all.extend(found.map(|found| Found { without, ..found.of(case) }));
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

/// That at one of these points less than its rate was sent; a top has none.
pub fn unsent(view: &View<'_>, spots: &[Spot<'_>], place: &str, unit: &str) -> Option<Found> {
    let sent = spots.iter().find_map(|(arm, case, load)| {
        let sent = view.get(arm, case, *load, &m::offered_pps)?;
        (load.pps().is_finite() && sent < SENT_MIN * load.pps()).then_some(Load::Rate(sent))
    })?;
    Some(Found::unknown(format!("{place}: {sent} {unit} were sent")))
}

/// A figure at a point, divided by that at another.
pub fn ratio(
    view: &View<'_>,
    spot: Spot<'_>,
    other: Spot<'_>,
    figure: &Metric,
    place: String,
) -> Option<Found> {
    unsent(view, &[spot, other], &place, "packets/s").or_else(|| {
        let pairs = view.repeats(spot, other, |trial| known(trial, figure));
        let found = compare(pairs.into_iter().map(|(_, pair)| pair), place)?;
        // Each trial by itself: there is no interval.
        let is_peak = || Found::exact(found.value, format!("{}, its peak", found.place));
        Some(if spot == other { is_peak() } else { found })
    })
}

/// A trial's figure; a 99th percentile is endless if more pings are lost than lie beyond it.
fn known(trial: &Trial, figure: &Metric) -> Option<f64> {
    let endless = || {
        let (lost, sent) = (trial.get(&m::pings_lost)?, trial.get(&m::pings_sent)?);
        (*figure == m::rtt_p99_us && lost > 0.01 * sent).then_some(ENDLESS)
    };
    trial.get(figure).or_else(endless)
}

/// What pairs of figures say of the first divided by the second: the median of the ratios. `None` without a
/// pair of which one is above 0.
///
/// The interval holds the true ratio with 95 %: Tukey's of the signed-rank test, which takes six pairs at least
/// ([`Design::Pairs`]); of two to five Student's; one pair has none.
pub fn compare(
    pairs: impl IntoIterator<Item = (f64, f64)>,
    place: impl Into<String>,
) -> Option<Found> {
    let pairs = pairs.into_iter().filter(|(own, other)| *own > 0.0 || *other > 0.0);
    let ratios: Vec<f64> = pairs.map(|(own, other)| (own / other).min(ENDLESS)).collect();
    let shift = Design::Pairs.shift(&vec![0.0; ratios.len()], &ratios, LEVEL)?;
    let (low, high) = shift.interval.unwrap_or_else(|| t_interval(&ratios));
    let pairs = ratios.len() as u32;
    Some(Found { low, high, pairs, ..Found::exact(median(ratios)?, place) })
}

/// An arm's figure of a point. A sum, or a maximum, is one of the whole run, and has no interval.
fn own(
    view: &View<'_>,
    (arm, case, load): Spot<'_>,
    figure: &'static Metric,
    place: String,
) -> Option<Found> {
    unsent(view, &[(arm, case, load)], &place, "packets/s").or_else(|| {
        if figure.merge != Merge::Median {
            return Some(Found::exact(view.get(arm, case, load, figure)?, place));
        }
        let trials = view.trials_of(arm, case, load);
        compare(trials.filter_map(|trial| Some((trial.get(figure)?, 1.0))), place)
    })
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

/// That the gate discarded nothing, where nothing is overloaded.
pub fn nothing_discarded() -> Goal {
    let discarded = |view: &View<'_>| {
        let of = |trial: &Trial| match trial.ledger {
            Some(ledger) => ledger.discarded as f64,
            // Where packets are not counted to their end: in the window.
            None => {
                let per_s = trial.get(&m::discarded_pps).unwrap_or(0.0);
                per_s * trial.get(&m::window_s).unwrap_or(0.0)
            }
        };
        let sum: f64 = view.trials.iter().map(of).sum();
        vec![Found::exact(sum, format!("{} trials", view.trials.len()))]
    };
    Goal::new("packets discarded", Cases::All, Bound::AtMost(0.0), discarded)
}

/// What a run says of everything that is wanted of its experiment.
pub fn judge(view: &View<'_>) -> Vec<Outcome> {
    let (cases, arms) = (view.cases(), view.arms());
    let asked = |goal: &&Goal| {
        let has_arm = goal.arm.is_none_or(|arm| arms.contains(&arm));
        has_arm && cases.iter().any(|case| goal.about.has(&case.name))
    };
    let mut goals: Vec<Outcome> =
        (view.experiment.goals)().iter().filter(asked).map(|goal| goal.judge(view)).collect();
    if view.trials.iter().any(|trial| trial.ledger.is_some()) {
        let all = Goal::new("packets in no counter", Cases::All, Bound::AtMost(0.0), accounted);
        goals.push(all.judge(view));
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::report::made_up;

    fn of(ratios: &[f64]) -> Found {
        compare(ratios.iter().map(|ratio| (ratio * 8.0, 8.0)), "").unwrap()
    }

    #[test]
    fn an_interval_of_few_pairs_is_students_and_one_pair_decides_nothing() {
        // Of 3: the mean, and 4.303 standard errors of it.
        let few = of(&[0.96, 1.02, 1.01]);
        assert_eq!((few.value, few.pairs), (1.01, 3));
        assert!((few.low - 0.9168).abs() < 1e-4 && (few.high - 1.0765).abs() < 1e-4, "{few:?}");
        let six = of(&[0.96, 1.02, 1.01, 1.0, 1.0, 1.0]);
        assert_eq!((six.low, six.high), (0.96, 1.02));
        let mut ratios = [1.0; 10];
        ratios[4] = 0.5;
        assert_eq!(of(&ratios).low, 0.75);
        // Something where there was nothing is more than any bound, and nothing says nothing.
        assert_eq!(compare([(0.0, 0.0)], ""), None);
        assert_eq!(compare([(1.0, 0.0)], "").map(|found| found.value), Some(ENDLESS));
        for want in [Bound::AtLeast(0.97), Bound::AtMost(2.0), Bound::Within(1.0, 0.5)] {
            for ratio in [0.38, 1.0, 6.27] {
                assert_eq!(verdict(want, &of(&[ratio])), Verdict::Undecided);
            }
        }
        assert_eq!(verdict(Bound::AtMost(0.0), &Found::exact(0.0, "a count")), Verdict::Met);
    }

    #[test]
    fn nothing_is_decided_within_three_percent_by_fewer_than_ten_pairs() {
        let of_pairs = |ratio, pairs, want| verdict(want, &of(&vec![ratio; pairs]));
        let (at_least, at_most) = (Bound::AtLeast(0.97), Bound::AtMost(1.03));
        assert_eq!(of_pairs(0.975, 3, at_least), Verdict::Undecided);
        assert_eq!(of_pairs(1.05, 9, at_most), Verdict::Undecided);
        assert_eq!(of_pairs(1.0, 3, at_least), Verdict::Met);
        assert_eq!(of_pairs(0.99, 3, at_most), Verdict::Met);
        assert_eq!(
            [of_pairs(0.96, 3, at_least), of_pairs(0.96, 10, at_least)],
            [Verdict::Undecided, Verdict::Unmet]
        );
        assert_eq!(of_pairs(0.93, 3, at_least), Verdict::Unmet);
        assert_eq!(of_pairs(0.39, 3, Bound::AtLeast(0.38)), Verdict::Met);
    }

    #[test]
    fn the_best_of_some_baselines_is_not_the_best_and_some_cases_are_not_all() {
        let judged = |arms: &[&str], cases: &[&str]| {
            let mut run = made_up::overload(arms);
            run.trials.retain(|trial| cases.contains(&trial.case.as_str()));
            let found = |view: &View<'_>, arm| {
                let (at, best) = (At::Only(Load::Top), Against::Best(&["stock", "niced"]));
                find(view, arm, Cases::All, at, &m::delivered_pps, best)
            };
            let goals = Goal::of_arms("weir-native", "", Cases::All, Bound::AtLeast(0.5), found);
            goals[0].judge(&View::new(&made_up::OVERLOAD, &run))
        };
        let all = judged(&["stock", "niced", "weir-native"], &["recv", "echo"]);
        assert!(all.verdict == Verdict::Met && !all.got.contains(';'), "{all:?}");
        let some = judged(&["stock", "weir-native"], &["recv"]);
        assert_eq!(some.verdict, Verdict::Undecided);
        assert!(some.got.ends_with("; in 1 of its 2 cases; without niced"), "{some:?}");
    }

    #[test]
    fn a_case_counts_where_something_was_judged_and_where_the_arm_runs() {
        static SKIPS: Experiment = Experiment {
            skip: |arm, case, _| (arm.name.as_str(), case) == ("niced", "echo"),
            ..made_up::OVERLOAD
        };
        let judged = |arm: &'static str, without: &str| {
            let mut run = made_up::overload(&["stock", arm]);
            let trials =
                run.trials.iter_mut().filter(|trial| trial.arm == arm && trial.case == without);
            for trial in trials {
                trial.values.remove(m::delivered_pps.id);
            }
            let found = |view: &View<'_>, arm| {
                let (at, stock) = (At::Only(Load::Top), Against::Best(&["stock"]));
                find(view, arm, Cases::All, at, &m::delivered_pps, stock)
            };
            let goals = Goal::of_arms(arm, "", Cases::All, Bound::AtLeast(0.5), found);
            goals[0].judge(&View::new(&SKIPS, &run)).got
        };
        // Both ran; of echo nothing is known.
        assert!(judged("weir-native", "echo").ends_with("; in 1 of its 2 cases"));
        assert!(!judged("weir-native", "").contains("cases"));
        // It has no such case.
        assert!(!judged("niced", "echo").contains("cases"));
    }

    #[test]
    fn a_peak_divided_by_itself_has_no_interval() {
        let run = made_up::overload(&["stock", "weir"]);
        let view = View::new(&made_up::OVERLOAD, &run);
        let found = |arm, figure| {
            let (recv, top) = (Cases::Of(&["recv"]), At::Only(Load::Top));
            find(&view, arm, recv, top, figure, Against::OwnPeak).pop()
        };
        let itself = Found::exact(1.0, "recv at top, its peak").of("recv");
        assert_eq!(found("weir", &m::delivered_pps), Some(itself));
        assert_eq!(found("stock", &m::delivered_pps).unwrap().pairs, 3);
    }
}

//! `weir lab ab`: two builds or two settings of weir, in pairs of trials in random order.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::arm::{Arm, DaemonSpec, LABELS};
use crate::difference::{Compared, Part, Row, logarithm, speed_warning, together};
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::lab::{Plan, Wish};
use crate::metric::{Better, METRICS, Metric};
use crate::report;
use crate::run::Run;
use crate::stats::rank::Design;
use crate::view::View;

/// Pairs of trials at each point, unless asked otherwise: enough for ten figures of merit
/// ([`Design::needed`]).
const PAIRS: u32 = 10;

#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// As arms and results are named: `A: weir --nice 0`.
    pub name: String,
    pub daemon: DaemonSpec,
}

impl Side {
    /// Reads `EXECUTABLE [OPTIONS]`; the label is one of [`LABELS`].
    pub fn parse(label: &str, text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let options: Vec<String> = words.map(str::to_owned).collect();
        let refuse = |problem: &str, remedy: &str| {
            Err(Error::refused(format!("side {label}{text:?}: {problem}"), remedy))
        };
        if options.first().is_some_and(|word| !word.starts_with('-')) {
            return refuse(
                "options are to follow the executable",
                "leave out `run` and interfaces",
            );
        }
        let mut binary = None;
        if first != "weir" {
            let path = std::fs::canonicalize(first).unwrap_or_default();
            let there = path.metadata();
            if !there.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0) {
                let remedy =
                    "begin with its path, such as target/release/weir, or `weir`: this one";
                return refuse("there is no such executable", remedy);
            }
            binary = Some(path);
        }
        // Not the path: results are for others to read too.
        let name = format!("{label}{}", first.rsplit('/').next().unwrap_or(first));
        let name = options.iter().fold(name, |name, option| name + " " + option);
        Ok(Self { name, daemon: DaemonSpec { binary, options } })
    }
}

/// The arm of an experiment that stands for weir.
pub fn main_arm(experiment: &Experiment) -> Result<Arm> {
    Arm::parse(experiment.main).ok().filter(|arm| arm.daemon.is_some()).ok_or_else(|| {
        let problem = format!("{} has no arm that stands for weir", experiment.name);
        Error::refused(problem, "leave it out; `weir lab list` lists the others")
    })
}

/// A plan of pairs in random order; both sides are the experiment's main arm, with their executable and
/// options. An option of that arm that a side has too is the side's.
pub fn plan<'a>(
    experiment: &'a Experiment,
    sides: &[Side],
    wish: &Wish,
    seed: u64,
) -> Result<Plan<'a>> {
    let main = main_arm(experiment)?;
    let arm = |side: &Side| {
        let Side { name, daemon: DaemonSpec { binary, options } } = side.clone();
        let own = main.daemon.iter().flat_map(|daemon| without(&daemon.options, &options));
        let options = own.chain(options.iter().cloned()).collect();
        Arm { name, daemon: Some(DaemonSpec { binary, options }), ..main.clone() }
    };
    // With a number of repeats there is no budget that cuts a quick run short.
    let repeats = Some(wish.repeats.unwrap_or(PAIRS));
    let wish = Wish { arms: sides.iter().map(arm).collect(), repeats, ..wish.clone() };
    let mut plan = Plan::new(experiment, &wish)?;
    plan.random = Some(seed);
    Ok(plan)
}

/// Options, each with its values, but for those that are given otherwise.
fn without(options: &[String], given: &[String]) -> Vec<String> {
    let mut kept = true;
    let keep = |word: &&String| {
        if word.starts_with('-') {
            let name = |word: &str| word.split('=').next().map(str::to_owned);
            kept = !given.iter().any(|other| name(other) == name(word));
        }
        kept
    };
    options.iter().filter(keep).cloned().collect()
}

/// A comparison that `weir lab ab --out` has kept.
pub fn kept(path: &Path) -> Result<Compared> {
    let run = Run::read(path)?;
    let view = report::view(&run)?;
    let sides = LABELS.map(|label| view.arms().into_iter().find(|arm| arm.starts_with(label)));
    let [Some(a), Some(b)] = sides else {
        let problem = format!("{} is no comparison of builds", path.display());
        return Err(Error::refused(
            problem,
            "name what `weir lab ab --out` wrote, or a directory of runs",
        ));
    };
    Ok(together(Design::Pairs, vec![part(&view, [a, b], None)]))
}

/// What is to be said of two arms of a run.
pub fn part(view: &View<'_>, arms: [&str; 2], seed: Option<u64>) -> Part {
    let warning = speed_warning(arms.map(|arm| view.trials.iter().filter(move |t| t.arm == arm)));
    Part {
        experiment: view.experiment.name,
        sides: arms.map(|arm| arm[LABELS[0].len()..].to_owned()),
        seed,
        warnings: warning.into_iter().collect(),
        rows: metrics(view.experiment).filter_map(|metric| row(view, arms, metric)).collect(),
    }
}

/// What is compared of an experiment, and whether it is judged: the figures of merit first, then every
/// other metric of which more or less is better.
fn metrics(experiment: &Experiment) -> impl Iterator<Item = (&'static Metric, bool)> {
    let merits = experiment.merits;
    let other = |metric: &&&Metric| metric.better != Better::Neither && !merits.contains(metric);
    let others = METRICS.iter().filter(other).map(|metric| (*metric, false));
    merits.iter().map(|metric| (*metric, true)).chain(others)
}

/// A metric at all points: all pairs of a repeat make one pair, of their geometric means.
fn row(view: &View<'_>, [a, b]: [&str; 2], metric: (&'static Metric, bool)) -> Option<Row> {
    let mut repeats: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    let mut points = vec![];
    for (case, load) in view.points.iter().filter(|p| p.arm == a).map(|p| (&p.case, p.load)) {
        let pairs = view.repeats((a, case, load), (b, case, load), |trial| trial.get(metric.0));
        for (repeat, pair) in &pairs {
            repeats.entry(*repeat).or_default().push(*pair);
        }
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().map(|(_, pair)| pair).unzip();
        points.push((format!("{case}, {load}"), a, b));
    }
    points.retain(|(_, a, _)| !a.is_empty());
    if let [(at, a, b)] = points.as_slice() {
        return Row::new(metric, at.clone(), [a, b]);
    }
    let points = points.into_iter();
    let points = points.filter_map(|(at, a, b)| Row::new((metric.0, false), at, [&a, &b]));
    let mean = |pairs: &Vec<(f64, f64)>| {
        let (a, b): (Vec<f64>, Vec<f64>) =
            pairs.iter().map(|(a, b)| (logarithm(*a), logarithm(*b))).unzip();
        let of = |all: Vec<f64>| (all.iter().sum::<f64>() / all.len() as f64).exp();
        (of(a), of(b))
    };
    let (a, b): (Vec<f64>, Vec<f64>) = repeats.values().map(mean).unzip();
    Row::mean(metric, points.collect(), [&a, &b])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;
    use crate::run::Load;

    fn wish(repeats: Option<u32>) -> Wish {
        let loads = vec![Load::Rate(6e5), Load::Top];
        Wish { cases: vec!["recv".into()], loads, repeats, quick: true, ..Wish::default() }
    }

    #[test]
    fn a_side_is_an_executable_and_options() {
        let side = Side::parse("B: ", "weir  --nice 0").unwrap();
        assert_eq!((side.name.as_str(), side.daemon.binary), ("B: weir --nice 0", None));
        assert_eq!(side.daemon.options, ["--nice", "0"]);
        let shell = Side::parse("A: ", "/bin/sh --attach tc").unwrap();
        assert_eq!(shell.name, "A: sh --attach tc");
        assert!(shell.daemon.binary.unwrap().is_absolute());
        for bad in ["", "no/such/weir", "/etc/passwd", "/bin"] {
            let refused = Side::parse("A: ", bad).unwrap_err().to_string();
            assert!(refused.contains("no such executable; begin with its path"), "{refused}");
        }
        let refused = Side::parse("A: ", "weir run --nice 0").unwrap_err().to_string();
        assert!(refused.contains("leave out `run`"), "{refused}");
    }

    #[test]
    fn a_plan_is_of_ten_pairs_and_no_option_is_given_twice() {
        let experiment = experiments::by_name("udp-overload").unwrap();
        let sides =
            [Side::parse("A: ", "weir").unwrap(), Side::parse("B: ", "weir --attach=tc").unwrap()];
        let made = plan(experiment, &sides, &wish(None), 1).unwrap();
        assert_eq!((made.times.repeats, made.random, made.points.len()), (10, Some(1), 2));
        let options: Vec<_> =
            made.arms.iter().map(|arm| arm.daemon.clone().unwrap().options).collect();
        assert_eq!(options, [vec!["--attach", "native"], vec!["--attach=tc"]]);
        assert_eq!(plan(experiment, &sides, &wish(Some(3)), 1).unwrap().times.repeats, 3);
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let kept = without(&words("--attach native --nice 0 --json"), &words("--nice 5"));
        assert_eq!(kept, ["--attach", "native", "--json"]);
    }

    #[test]
    fn experiments_without_weir_are_refused() {
        for main in ["", "stock", "no-such"] {
            let experiment = Experiment {
                main,
                searches: &[],
                tables: &[],
                ..*experiments::by_name("udp-overload").unwrap()
            };
            let refused = main_arm(&experiment).unwrap_err().to_string();
            assert!(refused.contains("leave it out"), "{refused}");
        }
    }
}

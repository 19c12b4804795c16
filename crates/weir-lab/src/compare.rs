//! `weir lab compare`: two kept runs of one experiment.

use std::path::Path;

use serde_json::Value;

use crate::difference::{Compared, Part, Row, speed_warning, together};
use crate::error::{Error, Result, cannot};
use crate::report;
use crate::run::Run;
use crate::stats::rank::Design;
use crate::view::View;

/// What of a head differs between any two runs.
const OF_EVERY_RUN: [&str; 4] = ["command", "started_at", "duration_s", "memory_mib"];

pub fn files(a: &Path, b: &Path) -> Result<Compared> {
    let names = [a, b].map(|path| path.display().to_string());
    Ok(together(Design::Runs, vec![part([&Run::read(a)?, &Run::read(b)?], names)?]))
}

fn part(runs: [&Run; 2], sides: [String; 2]) -> Result<Part> {
    let [name, other] = runs.map(|run| run.head.experiment.as_str());
    if name != other {
        let problem = format!("A is a run of {name}, B of {other}");
        return Err(Error::refused(problem, "name two runs of one experiment"));
    }
    let (a, b) = (report::view(runs[0])?, report::view(runs[1])?);
    let experiment = a.experiment;
    let arms = [a.arms(), b.arms()];
    if !arms[0].iter().any(|arm| arms[1].contains(arm)) {
        let [a, b] = arms.map(|arms| arms.join(", "));
        let problem = format!("no arm is in both runs: A has {a}; B has {b}");
        return Err(Error::refused(problem, "name runs with the same arms"));
    }
    let head = |run: &Run| serde_json::to_value(&run.head).map_err(cannot("compare", name));
    let [head_a, head_b] = runs.map(head);
    let mut warnings = vec![];
    differences("", &head_a?, &head_b?, &mut warnings);
    warnings.extend(speed_warning([a.trials.iter(), b.trials.iter()]));
    // A search tries other loads in each run.
    let is_search = |case: &str| experiment.searches.iter().any(|search| search.case == case);
    let mut rows = vec![];
    for metric in experiment.merits {
        for point in a.points.iter().filter(|point| !is_search(&point.case)) {
            let of = |view: &View<'_>| -> Vec<f64> {
                let trials = view.trials_of(&point.arm, &point.case, point.load);
                trials.filter_map(|trial| trial.get(metric)).collect()
            };
            let at = format!("{}, {}, {}", point.arm, point.case, point.load);
            rows.extend(Row::new((metric, true), at, [&of(&a), &of(&b)]));
        }
    }
    Ok(Part { experiment: experiment.name, sides, seed: None, warnings, rows })
}

/// Names every leaf that is not the same.
fn differences(name: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    let (Value::Object(of_a), Value::Object(of_b)) = (a, b) else {
        if a != b {
            found.push(format!("{name} differs: {a} in A, {b} in B"));
        }
        return;
    };
    let of_b_alone = of_b.keys().filter(|key| !of_a.contains_key(*key));
    for key in of_a.keys().chain(of_b_alone).filter(|key| !OF_EVERY_RUN.contains(&key.as_str())) {
        let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        differences(&name, &a[key], &b[key], found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference::Verdict;
    use crate::metric::m;
    use crate::report::made_up;
    use crate::run::{Load, Trial};

    fn run(commit: &str, delivered: f64, trials: u32) -> Run {
        let mut head = made_up::head("udp-overload", &[]);
        (head.commit, head.started_at) = (commit.into(), commit.into());
        (head.command, head.duration_s) = (vec![commit.into()], delivered);
        head.machine.kernel = format!("6.{commit}");
        head.machine.mitigations = [("retbleed".to_owned(), commit.to_owned())].into();
        let trial = |repeat: u32| {
            let mut trial = Trial { repeat, ..Trial::of("weir", "recv", Load::Top) };
            trial.set(&m::delivered_pps, Some(delivered + f64::from(repeat)));
            trial.set(&m::late_drop_pps, Some(0.0));
            trial.set(&m::loop_ns, Some(delivered));
            trial
        };
        Run { head, trials: (0..trials).map(trial).collect() }
    }

    fn compared(a: &Run, b: &Run) -> Result<Compared> {
        Ok(together(Design::Runs, vec![part([a, b], ["a".into(), "b".into()])?]))
    }

    #[test]
    fn two_runs_differ_in_figures_and_in_what_made_them() {
        let compared = compared(&run("one", 1e5, 10), &run("two", 1.1e5, 12)).unwrap();
        let part = &compared.parts[0];
        assert_eq!(
            part.warnings,
            [
                "commit differs: \"one\" in A, \"two\" in B",
                "machine.kernel differs: \"6.one\" in A, \"6.two\" in B",
                "machine.mitigations.retbleed differs: \"one\" in A, \"two\" in B",
                "in B's trials the tested CPU took 1.10 of A's time for a loop",
            ]
        );
        assert_eq!(part.rows.len(), 1);
        assert_eq!((part.rows[0].verdict, part.rows[0].counts), (Verdict::Difference, [10, 12]));
        assert!((part.rows[0].ratio.unwrap() - 1.1).abs() < 1e-3);
        assert!(compared.conclusion.starts_with(
            "compare: a difference in udp-overload delivered_pps at weir, recv, top: B has 1.100 of A"
        ));
    }

    #[test]
    fn the_same_run_twice_shows_none_and_three_trials_are_too_few() {
        let one = run("one", 1e5, 10);
        let same = compared(&one, &one).unwrap();
        assert!(same.conclusion.starts_with("compare: no difference seen in 1 figure (10 trials"));
        assert!(same.parts[0].warnings.is_empty());
        let few = run("one", 1e5, 3);
        let few = compared(&few, &few).unwrap().conclusion;
        assert!(
            few.contains("too few trials to tell in 1 of 1: needs 5 of a point in each run"),
            "{few}"
        );
    }

    #[test]
    fn runs_with_nothing_in_common_are_refused() {
        let one = run("one", 1e5, 3);
        let mut other = one.clone();
        other.head.experiment = "another".into();
        let refused = |other: &Run| compared(&one, other).unwrap_err().to_string();
        assert!(refused(&other).contains("A is a run of udp-overload, B of another"));
        other = one.clone();
        other.trials.iter_mut().for_each(|trial| trial.arm = "stock".into());
        assert!(refused(&other).contains("A has weir; B has stock"));
    }
}

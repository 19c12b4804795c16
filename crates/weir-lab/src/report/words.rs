//! What a report says in words: one sentence, and warnings.

use crate::arm::BASELINES;
use crate::metric::{Unit, m};
use crate::report::units::figure;
use crate::run::{Head, Load, Trial};
use crate::view::{Point, View};

/// More of the tested CPU's time taken by the hypervisor is told.
const STEAL_TOLD: f64 = 0.01;
/// More packets not sent in time, of those sent, are told.
const MISSED_TOLD: f64 = 0.001;

/// One sentence: the main arm's first merit at the highest load of the first case, beside that of stock and
/// of the best baseline.
pub fn sentence(view: &View<'_>) -> String {
    let (experiment, merit) = (view.experiment, view.experiment.merits[0]);
    let Some(case) = view.cases().into_iter().next().map(|case| case.name) else {
        return "Nothing was measured.".to_owned();
    };
    let load = view.loads(&case).pop().unwrap_or(Load::Off);
    // On a host like the main arm's; stock is the first.
    let main = experiment.main.split(' ').next().unwrap_or_default();
    let host = main.find('+').map_or("", |at| &main[at..]);
    let baselines = BASELINES.map(|arm| format!("{arm}{host}"));
    let baselines = baselines.each_ref().map(String::as_str);
    let best = view.best(&baselines, &case, load, merit).map(|(arm, _)| arm);
    let mut arms = vec![experiment.main];
    arms.extend([baselines[0]].into_iter().chain(best).filter(|arm| *arm != experiment.main));
    arms.dedup();
    let told = |arm| Some((arm, figure(merit.unit, view.get(arm, &case, load, merit)?)));
    let mut told = arms.into_iter().filter_map(told);
    let Some((first, value)) = told.next() else {
        return format!("Neither {} nor a baseline was measured.", experiment.main);
    };
    let others: Vec<_> = told.collect();
    let says = experiment.says.replacen("{}", &value, 1);
    let mut text = format!("{}{first} {says}", place(view, &case, load));
    for (at, (arm, value)) in others.iter().enumerate() {
        let and = if at + 1 == others.len() { "and " } else { "" };
        let role = if Some(*arm) == best { " (the best baseline)" } else { "" };
        text += &format!(", {and}{arm}{role} {value}");
    }
    text + "."
}

/// Where the sentence's figures are from; the case only if it is not the first that is declared.
fn place(view: &View<'_>, case: &str, load: Load) -> String {
    let first = (view.experiment.cases)().first().is_some_and(|first| first.name == case);
    let load = match load {
        Load::Off => String::new(),
        Load::Top => "at the top rate, ".to_owned(),
        Load::Rate(_) => format!("at {load} packets/s, "),
    };
    if first { load.replacen('a', "A", 1) } else { format!("In case {case}, {load}") }
}

/// What to know before trusting a figure.
pub fn warnings(view: &View<'_>) -> Vec<String> {
    let above = |told: f64, of: &dyn Fn(&Point) -> Option<f64>, what: &str| {
        let found = view.points.iter().filter_map(|point| Some((of(point)?, point)));
        let found: Vec<(f64, &Point)> = found.filter(|(value, _)| *value > told).collect();
        let (worst, at) = found.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (Point { arm, case, load, .. }, worst) = (at, figure(Unit::Share, *worst));
        let (count, all) = (found.len(), view.points.len());
        Some(format!(
            "At {count} of {all} points {what}: {worst} at worst ({arm}, {case} at {load})."
        ))
    };
    let count = view.points.iter().filter(|point| point.marked).count();
    let told = |is: bool, text: &str| is.then(|| text.to_owned());
    let Head { quick, uncommitted, machine, .. } = &view.run.head;
    let steal = |point: &Point| point.get(&m::steal);
    let all = [
        (count > 0).then(|| {
            let all = view.points.len();
            format!("{count} of {all} points are marked *: the tested CPU was more than 5 % faster or slower than usual.")
        }),
        above(STEAL_TOLD, &steal, "the hypervisor took more than 1 % of the tested CPU's time"),
        above(MISSED_TOLD, &|p| missed(view, p), "the generator missed more than 0.1 % of its packets"),
        told(*quick, "This is a quick run: short windows and few repeats."),
        told(*uncommitted, "The lab was built with changes that are not committed."),
        told(machine.virtual_machine, "This is a virtual machine: its speed varies."),
        told(machine.shared_core, "The tested CPU and the generator's are threads of one core."),
    ];
    all.into_iter().flatten().collect()
}

/// Packets that the generator missed at a point, of those it sent.
fn missed(view: &View<'_>, point: &Point) -> Option<f64> {
    let sent = |trial: &Trial| {
        let rates = [&m::offered_pps, &m::light_offered_pps].map(|metric| trial.get(metric));
        rates.into_iter().flatten().sum::<f64>() * trial.get(&m::window_s).unwrap_or(0.0)
    };
    let sent: f64 = view.trials_of(&point.arm, &point.case, point.load).map(sent).sum();
    point.get(&m::missed).filter(|_| sent > 0.0).map(|missed| missed / sent)
}

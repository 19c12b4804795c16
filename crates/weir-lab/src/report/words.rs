//! What a report says in words: one sentence, warnings, and what made the run.

use crate::arm::BASELINES;
use crate::metric::{Unit, m};
use crate::report::units::{clean, figure};
use crate::run::{Head, Load, Trial};
use crate::view::{Point, View};

/// More of the tested CPU's time taken by the hypervisor is told.
const STEAL_TOLD: f64 = 0.01;
/// More packets not sent in time, of those sent, are told.
const MISSED_TOLD: f64 = 0.001;

/// One sentence: the main arm's first merit at the highest load of the first case, beside that of stock and
/// of the best baseline.
pub fn sentence(view: &View<'_>) -> String {
    let experiment = view.experiment;
    let merit = experiment.merits[0];
    let Some(case) = view.cases().into_iter().next().map(|case| case.name) else {
        return "Nothing was measured.".to_owned();
    };
    let load = view.loads(&case).pop().unwrap_or(Load::Off);
    let of = |arm: &'static str| Some((arm, view.get(arm, &case, load, merit)?));
    let best = view.best(&BASELINES, &case, load, merit);
    let best = best.and_then(|(arm, _)| of(BASELINES.into_iter().find(|name| *name == arm)?));
    let mut told: Vec<(&str, f64)> = of(experiment.main).into_iter().collect();
    told.extend(of("stock").into_iter().chain(best).filter(|one| one.0 != experiment.main));
    told.dedup();
    let others: Vec<String> = told
        .iter()
        .skip(1)
        .map(|(arm, value)| {
            let is_best = best.is_some_and(|best| best.0 == *arm);
            let role = if is_best { " (the best baseline)" } else { "" };
            format!("{arm}{role} {}", figure(merit.unit, *value))
        })
        .collect();
    let Some((first, value)) = told.first() else {
        return format!("Neither {} nor a baseline was measured.", experiment.main);
    };
    let says = experiment.says.replacen("{}", &figure(merit.unit, *value), 1);
    let others = match others.as_slice() {
        [] => String::new(),
        [one] => format!(", and {one}"),
        several => format!(", {}", several.join(", and ")),
    };
    format!("{}{first} {says}{others}.", at(view, &case, load))
}

/// Where the sentence's figures are from; the case only if it is not the first that is declared.
fn at(view: &View<'_>, case: &str, load: Load) -> String {
    let first = (view.experiment.cases)().first().is_some_and(|first| first.name == case);
    let case = if first { String::new() } else { format!("In case {case}, ") };
    let load = match load {
        Load::Off => return case,
        Load::Top => "at the top rate, ".to_owned(),
        load => format!("at {load} packets/s, "),
    };
    if case.is_empty() { load.replacen("at", "At", 1) } else { case + &load }
}

/// What to know before trusting a figure.
pub fn warnings(view: &View<'_>) -> Vec<String> {
    let head = &view.run.head;
    let points = view.points.len();
    let mut all = vec![];
    let marked = view.points.iter().filter(|point| point.marked).count();
    if marked > 0 {
        all.push(format!(
            "At {marked} of {points} points (*) the tested CPU was more than 5 % faster or slower than usual."
        ));
    }
    let share = |(value, point): (f64, &Point)| {
        let Point { arm, case, load, .. } = point;
        format!("at most {} ({arm}, {case} at {load})", figure(Unit::Share, value))
    };
    let above = |told: f64, of: &dyn Fn(&Point) -> Option<f64>| {
        let found = view.points.iter().filter_map(|point| Some((of(point)?, point)));
        let found: Vec<(f64, &Point)> = found.filter(|(value, _)| *value > told).collect();
        let worst = found.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0));
        worst.map(|worst| format!("At {} of {points} points, {}", found.len(), share(worst)))
    };
    let steal = above(STEAL_TOLD, &|point| point.get(&m::steal));
    all.extend(
        steal.map(|at| format!("{at} of the tested CPU's time was taken by the hypervisor.")),
    );
    let missed = above(MISSED_TOLD, &|point| missed(view, point));
    all.extend(missed.map(|at| format!("{at} of the packets fell due and were not sent.")));
    let told = [
        (head.quick, "This is a quick run: short windows and few repeats."),
        (head.uncommitted, "The lab was built with changes that are not committed."),
        (head.machine.virtual_machine, "This is a virtual machine: its speed varies."),
        (
            head.machine.shared_core,
            "The tested CPU and the generator's are threads of one core, and slow each other down.",
        ),
    ];
    all.extend(told.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()));
    all
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

/// What made a run: names and values.
pub fn facts(head: &Head) -> Vec<(&'static str, String)> {
    let Head { machine, programs, .. } = head;
    let uncommitted = if head.uncommitted { ", with uncommitted changes" } else { "" };
    let quick = if head.quick { ", quick" } else { "" };
    let unknown = || "unknown".to_owned();
    let kind = if machine.virtual_machine { ", virtual machine" } else { "" };
    let core = if machine.shared_core { ", threads of one core" } else { "" };
    let list = |pairs: Vec<String>| if pairs.is_empty() { "none".into() } else { pairs.join("; ") };
    let facts = vec![
        ("Build", format!("weir {}, commit {}{uncommitted}", head.weir_version, head.commit)),
        ("Command", head.command.join(" ")),
        (
            "Run",
            format!(
                "{}, {:.0} s{quick}, windows of {} s",
                head.started_at, head.duration_s, head.window_s
            ),
        ),
        ("Traffic", head.traffic.clone()),
        (
            "Machine",
            format!(
                "Linux {}, {}, {} CPUs{kind}, {} MiB; tested on CPU {}, generator on CPU {}{core}",
                machine.kernel,
                machine.cpu_model,
                machine.cpus,
                machine.memory_mib,
                machine.sut_cpu,
                machine.generator_cpu
            ),
        ),
        (
            "Scheduling",
            format!(
                "preemption {}, timer {}, base slice {}",
                machine.preemption,
                machine.hz.map_or_else(unknown, |hz| format!("{hz} Hz")),
                machine
                    .scheduler_slice_ns
                    .map_or_else(unknown, |ns| figure(Unit::Nanos, ns as f64)),
            ),
        ),
        ("Programs", list(programs.iter().map(|(name, v)| format!("{name} {v}")).collect())),
        (
            "Mitigations",
            list(machine.mitigations.iter().map(|(name, how)| format!("{name}: {how}")).collect()),
        ),
    ];
    facts.into_iter().map(|(name, value)| (name, clean(&value))).collect()
}

//! Runs an experiment: which trials, in which order, and where they are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;

use crate::apps::OWN;
use crate::arm::{Arm, DaemonSpec};
use crate::bench::Bench;
use crate::engine;
use crate::error::{Error, Result, cannot};
use crate::experiment::{Ask, Case, Experiment, Search, Times, words_of};
use crate::host::topology::take_turn;
use crate::host::wire;
use crate::progress::{Progress, say};
use crate::run::{Head, Load, Run, SCHEMA, Trial};
use crate::scene::{Need, Scene};
use crate::stop::Stop;
use crate::store::{SEED, Store};
use crate::view::{View, is_of};
use crate::{experiments, machine, programs};

/// What a quick run's grid may take, so that the whole ends within 45 s.
const QUICK_BUDGET: Duration = Duration::from_secs(36);
/// What setting a trial up and draining it take, beside its warm-up and window, for estimates: in the median over
/// the experiments' quick runs.
const OVERHEAD: Duration = Duration::from_millis(200);

/// In place of the cases' names.
const ALL: &str = "all";

/// What was asked for on the command line; empty: the experiment's own.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Points")]
pub struct Wish {
    /// Short windows and few points; `run` without --repeats ends within 45 s for each experiment.
    #[arg(long, help_heading = None::<&str>)]
    pub quick: bool,
    #[arg(skip)]
    pub arms: Vec<Arm>,
    /// Offered rates in packets/s, such as 100k,1.5M,top [default: the experiment's].
    #[arg(long = "rates", value_name = "RATES", alias = "loads", value_delimiter = ',', value_parser = Load::parse)]
    pub loads: Vec<Load>,
    /// Length of each measured window, 0.05 to 3600 seconds [default: the experiment's].
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = parse_seconds)]
    pub window: Option<Duration>,
    /// No time before the windows, for tests of the lab that look at no figure.
    #[arg(long, hide = true)]
    pub no_warm_up: bool,
    /// Trials per point, 1 to 1000 [default: the experiment's; of `ab` 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    #[arg(long, aliases = ["kinds", "rows"], value_delimiter = ',', help = about_cases())]
    pub cases: Vec<String>,
}

/// Help of `--cases`: the cases of the experiments that are named beside it.
fn about_cases() -> String {
    let named = |e: &&&Experiment| std::env::args_os().any(|word| word == e.name);
    let about = |e: &&Experiment| format!("; {}: {}", e.name, case_names(e).join(", "));
    let those: String = experiments::ALL.iter().filter(named).map(about).collect();
    format!("These variants alone, or `all`{those}")
}

fn case_names(experiment: &Experiment) -> Vec<String> {
    (experiment.cases)().into_iter().map(|case| case.name).collect()
}

/// Refuses a case that none of these experiments has; what one does not have may be another's.
pub fn check_cases(named: &[&Experiment], wish: &Wish) -> Result<()> {
    let cases: Vec<_> = named.iter().map(|e| (e.name, case_names(e))).collect();
    let is_known = |wanted| wanted == ALL || cases.iter().any(|(_, all)| all.contains(wanted));
    let Some(unknown) = wish.cases.iter().find(|wanted| !is_known(wanted)) else { return Ok(()) };
    let lists: Vec<_> =
        cases.iter().map(|(name, all)| format!("{name}: {}", all.join(", "))).collect();
    Err(Error::refused(
        format!("there is no case {unknown:?}"),
        format!("the cases are `all`, or of {}", lists.join("; ")),
    ))
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a window is 0.05 to 3600 seconds".into()),
    }
}

pub struct Plan<'a> {
    pub experiment: &'a Experiment,
    pub arms: Vec<Arm>,
    pub points: Vec<(Case, Load)>,
    pub times: Times,
    /// The order of arms is drawn anew for each point, from this seed; `None`: it rotates.
    pub random: Option<u64>,
    quick: bool,
    budget: Option<Duration>,
}

impl<'a> Plan<'a> {
    /// What an experiment is to do, given a wish.
    pub fn new(experiment: &'a Experiment, wish: &Wish) -> Result<Self> {
        let quick = wish.quick;
        let parse =
            |text| Arm::parse(text).map_err(|why| Error::refused(why, "please report this"));
        let arms = match wish.arms.is_empty() {
            true => words_of(experiment.arms, quick).map(parse).collect::<Result<Vec<_>>>()?,
            false => wish.arms.clone(),
        };
        let all = (experiment.cases)();
        let is_asked = |case: &&Case| match wish.cases.as_slice() {
            [] if quick => case.quick,
            [] => case.full,
            // In a quick run, all that a quick run can do.
            named if named.iter().any(|one| one == ALL) => true,
            named => named.contains(&case.name),
        };
        let is_wanted = |case: &&Case| {
            let mut asked = all.iter().filter(is_asked);
            asked.any(|one| one.name == case.name || one.against == Some(&*case.name))
        };
        let cases: Vec<&Case> = all.iter().filter(is_wanted).collect();
        if cases.is_empty() {
            return Err(Error::refused(
                format!("{} has no case {:?}", experiment.name, wish.cases.join(",")),
                format!("its cases are {}", case_names(experiment).join(", ")),
            ));
        }
        let (mut points, mut has_rates) = (vec![], false);
        for case in cases {
            let own = words_of(case.loads.unwrap_or(experiment.loads), quick);
            let mut loads: Vec<Load> = own.filter_map(|text| Load::parse(text).ok()).collect();
            // A case without a flood has none to choose.
            let is_flooded = loads.iter().any(|load| matches!(load, Load::Rate(_)));
            has_rates |= is_flooded;
            if !wish.loads.is_empty() && is_flooded {
                let unloaded = loads.first() == Some(&Load::Off);
                loads.clone_from(&wish.loads);
                if unloaded && !loads.contains(&Load::Off) {
                    loads.insert(0, Load::Off);
                }
            }
            loads.sort_by(|a, b| a.pps().total_cmp(&b.pps()));
            loads.dedup();
            points.extend(loads.into_iter().map(|load| (case.clone(), load)));
        }
        if !wish.loads.is_empty() && !has_rates {
            let problem = format!("{} has no --rates", experiment.name);
            return Err(Error::refused(problem, "leave them, or the experiment, out"));
        }
        let Times { warm_up, window, repeats } = experiment.times.of(quick);
        let warm_up = if wish.no_warm_up { Duration::ZERO } else { warm_up };
        let window = wish.window.unwrap_or(window);
        let times = Times { warm_up, window, repeats: wish.repeats.unwrap_or(repeats) };
        let plan = Self {
            experiment,
            arms,
            points,
            times,
            random: None,
            quick,
            budget: (quick && wish.repeats.is_none()).then_some(QUICK_BUDGET),
        };
        // A scene may refuse a load.
        let made = |(arm, case, load)| plan.scene(arm, case, load).map(drop);
        plan.one_repeat(0).into_iter().try_for_each(made)?;
        Ok(plan)
    }

    /// One repeat's trials. Arms are innermost, so that a machine whose speed drifts slows all of them
    /// alike; their order rotates and the points' order turns round from one repeat to the next, so that
    /// none always follows the same one.
    fn one_repeat(&self, repeat: u32) -> Vec<(&Arm, &Case, Load)> {
        // Generators of seeds that lie close together do not draw independently.
        let seed = self.random.and_then(|seed| {
            let mut seeds = fastrand::Rng::with_seed(seed);
            std::iter::repeat_with(|| seeds.u64(..)).nth(repeat as usize)
        });
        let mut draw = seed.map(fastrand::Rng::with_seed);
        let turned = repeat as usize;
        let mut order = vec![];
        let mut points: Vec<_> = self.points.iter().collect();
        if !turned.is_multiple_of(2) {
            points.reverse();
        }
        for (position, (case, load)) in points.into_iter().enumerate() {
            let mut arms: Vec<&Arm> = self.arms.iter().collect();
            let by = (turned + position) % arms.len().max(1);
            match &mut draw {
                Some(draw) => draw.shuffle(&mut arms),
                None => arms.rotate_left(by),
            }
            arms.retain(|arm| !(self.experiment.skip)(arm, &case.name, *load));
            order.extend(arms.into_iter().map(|arm| (arm, case, *load)));
        }
        order
    }

    pub fn estimate(&self) -> Duration {
        let (window, searches) = (self.times.window, self.searches_time());
        let trial = |(arm, case, load): (&Arm, &Case, Load)| self.trial(arm, case, load, window);
        let one: Duration = self.one_repeat(0).into_iter().map(trial).sum();
        let fit =
            |budget: Duration| budget.saturating_sub(searches).as_nanos() / one.as_nanos().max(1);
        let repeats = self.budget.map_or(u128::MAX, fit).clamp(1, self.times.repeats.into());
        one * repeats as u32 + searches
    }

    fn searches_time(&self) -> Duration {
        let of = |search: &Search| -> Duration {
            let window = Duration::from_millis(search.window_ms.of(self.quick));
            let case = self.points.iter().map(|(case, _)| case).find(|case| case.name == search.of);
            let trials = search.steps.of(self.quick) * search.majority.of(self.quick) * 5 / 4;
            let trial = |arm| case.map(|case| self.trial(arm, case, Load::Top, window) * trials);
            self.searched(search).filter_map(trial).sum()
        };
        self.experiment.searches.iter().map(of).sum()
    }

    /// How long a trial with such a window takes.
    fn trial(&self, arm: &Arm, case: &Case, load: Load, window: Duration) -> Duration {
        let scene = self.scene(arm, case, load).unwrap_or_default();
        scene.warm_up(self.times.warm_up) + scene.window(window) + OVERHEAD
    }

    /// A trial's scene, as far as it is known before any.
    fn scene(&self, arm: &Arm, case: &Case, load: Load) -> Result<Scene> {
        let ask = Ask { arm, case: &case.name, load, quick: self.quick, done: &[] };
        (self.experiment.scene)(&ask)
    }

    /// The programs that it takes: the experiment's, and those that make its hosts and wires.
    pub fn programs(&self) -> BTreeSet<&'static str> {
        let mut programs: BTreeSet<_> = self.experiment.needs.iter().copied().collect();
        for (arm, case, load) in self.one_repeat(0) {
            programs.extend(wire::tools(arm.nat, &self.scene(arm, case, load).unwrap_or_default()));
        }
        programs
    }

    /// What its scenes need of an arm's host.
    fn needs(&self, arm: &Arm) -> Vec<Need> {
        let own = self.one_repeat(0).into_iter().filter(|(other, ..)| other.name == arm.name);
        own.flat_map(|(_, case, load)| self.scene(arm, case, load).unwrap_or_default().needs)
            .collect()
    }

    fn searched<'b>(&'b self, search: &'b Search) -> impl Iterator<Item = &'b Arm> {
        let there = self.points.iter().any(|(case, _)| case.name == search.of);
        let is_named = |arm: &&Arm| words_of(search.arms, self.quick).any(|name| name == arm.name);
        self.arms.iter().filter(move |arm| there && is_named(arm))
    }

    /// What tells a run of this plan from another, so that a run that was stopped goes on only as it began.
    fn identity(&self, head: &Head) -> Result<String> {
        let paths = self.arms.iter().flat_map(|arm| &arm.daemon).map(DaemonSpec::path);
        let paths: BTreeSet<PathBuf> = paths.chain([OWN.into()]).collect();
        // Numbers that tell a file's contents from another's.
        let contents = |path: &PathBuf| -> Result<u64> {
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(path).map_err(cannot("read", path.display()))?);
            Ok(hasher.finish())
        };
        let executables = paths.iter().map(contents).collect::<Result<Vec<_>>>()?;
        let arms: Vec<_> = self.arms.iter().map(|arm| (&arm.name, &arm.daemon)).collect();
        let points: Vec<_> = self.points.iter().map(|(case, load)| (&case.name, load)).collect();
        let Self { times, random, quick, .. } = self;
        let Head { experiment, programs, machine, .. } = head;
        let made = format!("{experiment} {executables:?} {programs:?} {machine:?}");
        let seed = random.map(|seed| format!("{SEED}{seed}")).unwrap_or_default();
        Ok(format!("{made} {arms:?} {points:?} {times:?} {quick}{seed}"))
    }
}

/// A plan under way.
struct Going<'a> {
    plan: &'a Plan<'a>,
    bench: Bench,
    run: Run,
    store: &'a mut Store,
    stop: &'a Stop,
    progress: Progress,
}

/// Runs a plan. Trials that the store has from an earlier run of the same plan are not run again.
pub fn run(plan: &Plan<'_>, store: &mut Store, stop: &Stop) -> Result<Run> {
    let experiment = plan.experiment;
    let programs = programs::versions(experiment.needs)?;
    let turn = take_turn(stop)?;
    let cpus = machine::choose_cpus()?;
    let head = Head {
        schema: SCHEMA,
        experiment: experiment.name.to_owned(),
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("WEIR_COMMIT").to_owned(),
        uncommitted: env!("WEIR_UNCOMMITTED") == "true",
        // Without the path of the executable.
        command: std::iter::once("weir".to_owned()).chain(std::env::args().skip(1)).collect(),
        started_at: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        duration_s: 0.0,
        quick: plan.quick,
        window_s: plan.times.window.as_secs_f64(),
        programs,
        machine: machine::describe(cpus.0, cpus.1),
        setup: BTreeMap::new(),
    };
    let identity = plan.identity(&head)?;
    let mut run = Run { head, trials: vec![] };
    if store.begin(&identity, &mut run)? {
        say(format!("{0}: already measured; anew without {0}.partial", experiment.name));
        return Ok(run);
    }
    if !run.trials.is_empty() {
        say(format!("{}: going on after {} trials", experiment.name, run.trials.len()));
    }
    say(format!("{}: {}", experiment.name, experiment.question));
    let mut bench = Bench::set_up(cpus, turn)?;
    // What one case needs of a host is there for all, in the first repeat as in the last.
    plan.arms.iter().try_for_each(|arm| bench.prepare(arm, &plan.needs(arm), &[]))?;
    let whole = plan.one_repeat(0).len() * plan.times.repeats as usize;
    say(format!("{whole} trials"));
    let progress = Progress::begin(whole.saturating_sub(run.trials.len()));
    let mut going = Going { plan, bench, run, store, stop, progress };
    going.grid()?;
    experiment.searches.iter().try_for_each(|search| going.search(search))?;
    let mut run = going.run;
    let started = humantime::parse_rfc3339(&run.head.started_at).ok();
    let lasted = started.and_then(|started| started.elapsed().ok()).unwrap_or_default();
    run.head.duration_s = (lasted.as_secs_f64() * 10.0).round() / 10.0;
    Ok(run)
}

impl Going<'_> {
    /// Every point, as often as the plan and its budget have it.
    fn grid(&mut self) -> Result<()> {
        let (plan, first, reserved) = (self.plan, Instant::now(), self.plan.searches_time());
        for repeat in 0..plan.times.repeats {
            let late = |budget: Duration| {
                first.elapsed() + first.elapsed() / repeat > budget.saturating_sub(reserved)
            };
            if repeat > 0 && plan.budget.is_some_and(late) {
                break;
            }
            for (arm, case, load) in plan.one_repeat(repeat) {
                let is_it = |t: &Trial| is_of(t, &arm.name, &case.name, load) && t.repeat == repeat;
                if !self.run.trials.iter().any(is_it) {
                    self.measure((arm, &case.name, load), &case.name, (plan.times, repeat))?;
                }
            }
        }
        Ok(())
    }

    /// Halves an interval of rates for each arm, all arms in turn: each step follows from the trials so far, be they of
    /// this run or of one that was stopped.
    fn search(&mut self, search: &Search) -> Result<()> {
        let plan = self.plan;
        let window = Duration::from_millis(search.window_ms.of(plan.quick));
        let times = Times { window, ..plan.times };
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for arm in plan.searched(search) {
                let view = View::new(plan.experiment, &self.run);
                let Some((_, Some(rate))) = search.so_far(&view, &arm.name) else { continue };
                let step = search.trials(&view, &arm.name).count() as u32;
                let at = (arm, search.of, Load::Rate(rate.round()));
                self.measure(at, search.case, (times, step))?;
                is_over = false;
            }
        }
        Ok(())
    }

    /// Runs a trial, and keeps it under a case.
    fn measure(
        &mut self,
        (arm, case, load): (&Arm, &str, Load),
        kept_as: &str,
        times: (Times, u32),
    ) -> Result<()> {
        self.stop.check()?;
        self.progress.next(format_args!("{}: {kept_as}, {load}", arm.name));
        let ask = &Ask { arm, case, load, quick: self.plan.quick, done: &self.run.trials };
        let scene = (self.plan.experiment.scene)(ask)?;
        let trial = engine::trial(&mut self.bench, ask, &scene, times, self.stop)?;
        let trial = Trial { case: kept_as.to_owned(), ..trial };
        // It is described with the arm's first trial since this lab was started.
        let setups = &mut self.run.head.setup;
        if let Some(setup) = self.bench.setups.get(&arm.name)
            && setups.get(&arm.name) != Some(setup)
        {
            self.store.keep(&(&arm.name, setup))?;
            setups.insert(arm.name.clone(), setup.clone());
        }
        self.store.keep(&trial)?;
        self.run.trials.push(trial);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    fn wish(quick: bool) -> Wish {
        Wish { quick, ..Wish::default() }
    }

    #[test]
    fn every_point_meets_every_arm_as_often_as_it_is_repeated_and_none_is_always_first() {
        let experiment = experiments::by_name("udp-overload").unwrap();
        let plan = Plan::new(experiment, &wish(true)).unwrap();
        let repeats: Vec<_> = (0..4).map(|repeat| plan.one_repeat(repeat)).collect();
        for (case, load) in &plan.points {
            for arm in &plan.arms {
                for order in &repeats {
                    let times = order
                        .iter()
                        .filter(|(a, c, l)| a.name == arm.name && c.name == case.name && l == load);
                    assert_eq!(times.count(), 1, "{} {} {load}", arm.name, case.name);
                }
            }
        }
        let first: Vec<&str> = repeats.iter().map(|order| order[0].0.name.as_str()).collect();
        assert!(first.iter().any(|name| *name != first[0]), "{first:?}");
    }

    #[test]
    fn orders_of_pairs_are_as_independent_as_tosses_of_a_coin() {
        let experiment = experiments::by_name("udp-overload").unwrap();
        let mut plan = Plan::new(experiment, &wish(true)).unwrap();
        plan.arms.truncate(2);
        let mut deviation = |seed| {
            plan.random = Some(seed);
            let is_first = |repeat: &u32| plan.one_repeat(*repeat)[0].0.name == plan.arms[0].name;
            ((0..10).filter(is_first).count() as f64 - 5.0).powi(2)
        };
        // How often of ten one comes first has a variance of 10 / 4.
        let variance = (0..1000).map(&mut deviation).sum::<f64>() / 1000.0;
        assert!((2.0..3.0).contains(&variance), "{variance}");
    }

    #[test]
    fn points_are_left_out_by_what_an_arm_is_and_not_by_its_name() {
        for (experiment, arms, left_out) in [
            ("forward", ["weir-xdp --nice 0", "weir --forward xdp out0"], "slow"),
            ("gate-cost", ["bare-drop+unpinned", "touch-drop+nat"], "pass"),
        ] {
            let arms = arms.map(|arm| Arm::parse(arm).unwrap()).into();
            let experiment = experiments::by_name(experiment).unwrap();
            let plan = Plan::new(experiment, &Wish { arms, ..wish(false) }).unwrap();
            let order = plan.one_repeat(0);
            let of = |case: &Case| case.name.contains(left_out);
            assert!(!order.is_empty() && order.iter().all(|(_, case, _)| !of(case)), "{left_out}");
        }
    }

    #[test]
    fn a_run_of_another_build_or_machine_is_another_run() {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("weir");
        let experiment = experiments::by_name("udp-overload").unwrap();
        let mut plan = Plan::new(experiment, &wish(true)).unwrap();
        plan.arms.retain(|arm| arm.name == "weir");
        plan.arms[0].daemon.as_mut().unwrap().binary = Some(binary.clone());
        let mut head = made_up::head("udp-overload", &[]);
        let mut identities = vec![];
        for (build, kernel, nginx) in [
            ("one", "6.1", "1.22"),
            ("two", "6.1", "1.22"),
            ("two", "6.2", "1.22"),
            ("two", "6.2", "1.23"),
        ] {
            fs::write(&binary, build).unwrap();
            head.machine.kernel = kernel.into();
            head.programs.insert("nginx".into(), nginx.into());
            let identity = plan.identity(&head).unwrap();
            assert!(!identity.contains('\n') && !identities.contains(&identity), "{identity}");
            identities.push(identity);
        }
        head.started_at = "later".into();
        assert_eq!(plan.identity(&head).unwrap(), identities[3]);
    }

    #[test]
    fn a_plan_is_for_every_declared_arm_case_and_load() {
        for experiment in experiments::ALL {
            for quick in [true, false] {
                let plan = Plan::new(experiment, &wish(quick)).unwrap();
                let name = experiment.name;
                assert!(!plan.points.is_empty() && !plan.arms.is_empty(), "{name}");
                let estimate = plan.estimate();
                assert!(!quick || estimate <= QUICK_BUDGET, "{name}: {estimate:?}");
                let mut declared = words_of(experiment.loads, quick);
                assert!(declared.all(|load| Load::parse(load).is_ok()), "{name}");
                assert!(
                    plan.arms.iter().any(|arm| arm.name == experiment.main)
                        || experiment.main.is_empty(),
                    "{name}"
                );
            }
        }
        let mut unknown = wish(true);
        unknown.cases = vec!["no-such".into()];
        let experiment = experiments::by_name("udp-overload").unwrap();
        let refused = Plan::new(experiment, &unknown).err().unwrap().to_string();
        assert!(refused.contains("no-such") && refused.contains("its cases are"), "{refused}");
    }
}

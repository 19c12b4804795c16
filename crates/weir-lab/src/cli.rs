//! `weir lab ...`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use crate::arm::{self, Arm, DaemonSpec};
use crate::error::{Error, Result, cannot};
use crate::experiment::Experiment;
use crate::lab::{self, Plan, Wish};
use crate::run::Run;
use crate::stats::rank::Design;
use crate::stop::Stop;
use crate::store::Store;
use crate::view::View;
use crate::{ab, compare, difference, experiments, goals, programs, report, store};

/// Arguments of `weir lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

impl LabArgs {
    /// Whether it makes namespaces and loads programs, and so is root's.
    pub fn measures(&self) -> bool {
        matches!(self.command, LabCommand::Run(_) | LabCommand::Ab(_))
    }
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// List the experiments: question, paper's figure, what each needs, minutes.
    List,
    /// Run experiments in network namespaces of their own, and report.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Compare two builds of weir, or two settings: random order, pairs, and per metric the ratio with
    /// its interval.
    #[command(after_help = AB_EXAMPLES)]
    Ab(AbArgs),
    /// Compare two results of one experiment that were kept.
    Compare {
        /// A result, DIR/NAME.json of `weir lab run --out DIR`.
        a: PathBuf,
        /// Another; ratios are its figures divided by the first one's.
        b: PathBuf,
    },
    /// Write report.html and the figures of a directory of results, or print their tables.
    Report {
        /// Directory that `weir lab run --out` wrote; or DIR/ab-NAME.json of `weir lab ab --out`, which is printed.
        dir: PathBuf,
        /// Print the tables as Markdown instead.
        #[arg(long)]
        markdown: bool,
        /// Put the tables between the markers of these files instead.
        #[arg(long, value_name = "FILE", num_args = 1..)]
        into: Vec<PathBuf>,
    },
}

const RUN_EXAMPLES: &str = "Examples:
  weir lab run udp-overload --quick             before and after on this kernel, in 45 s
  weir lab run separation --cases all --out DIR  every kind of flood; DIR gets JSON, plot, report.html
  weir lab run udp-overload --arms stock,'weir --user-share 25%' --rates 400k,top
  weir lab run --all --quick --out DIR          every experiment, in 12 minutes
A run with --out that was stopped goes on when the same command is given again.";

const AB_EXAMPLES: &str = "Examples:
  weir lab ab --a weir --b 'weir --nice 0' harmless          two settings of this build
  weir lab ab --a old/weir --b new/weir udp-overload --quick  two builds";

#[derive(Debug, Args)]
struct RunArgs {
    /// What to compare, such as stock,weir; an arm that runs weir may have options of `weir run`, in quotes. `weir lab
    /// list` lists the arms [default: the experiment's].
    #[arg(long, alias = "modes", value_delimiter = ',', value_parser = Arm::parse)]
    arms: Vec<Arm>,
    /// Exit with 1 if a goal is not met, and name those that are not.
    #[arg(long)]
    check: bool,
    /// Print results as JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: WhichArgs,
}

#[derive(Debug, Args)]
struct AbArgs {
    /// One side, in quotes: an executable and options of its `weir run`; the word weir is this executable.
    #[arg(long, value_name = "SIDE")]
    a: String,
    /// The other side; the ratio is its figure divided by the first one's.
    #[arg(long, value_name = "SIDE")]
    b: String,
    /// Seed of the random order; with one, a run that was stopped can go on [default: drawn anew].
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    which: WhichArgs,
}

/// Which experiments, and how much of each.
#[derive(Debug, Args)]
struct WhichArgs {
    /// The experiments; `weir lab list` describes them.
    #[arg(value_parser = one_experiment(), required_unless_present = "all")]
    experiments: Vec<&'static Experiment>,
    /// Every experiment.
    #[arg(long, conflicts_with = "experiments")]
    all: bool,
    /// Write JSON to this directory; `run` writes plots and report.html, too.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    wish: Wish,
}

fn one_experiment() -> impl TypedValueParser<Value = &'static Experiment> {
    let names = PossibleValuesParser::new(experiments::ALL.iter().map(|one| one.name));
    names.try_map(|name| experiments::by_name(&name).ok_or("there is no such experiment"))
}

/// Says what is wrong with options of this executable's `weir run`.
pub type CheckOptions = fn(&[String]) -> std::result::Result<(), String>;

/// Runs a `weir lab` command.
pub fn run(args: LabArgs, check: CheckOptions) -> Result<ExitCode> {
    match args.command {
        LabCommand::List => print(&list()?)?,
        LabCommand::Run(args) => return run_experiments(args, check),
        LabCommand::Ab(args) => compare_builds(&args, check)?,
        LabCommand::Compare { a, b } => print(&compare::files(&a, &b)?.text())?,
        LabCommand::Report { dir, markdown: false, into } if dir.is_file() && into.is_empty() => {
            print(&ab::kept(&dir)?.text())?
        }
        LabCommand::Report { dir, markdown, into } => {
            let runs = store::read_all(&dir)?;
            if runs.is_empty() {
                return Err(Error::refused(
                    format!("there is no result in {}", dir.display()),
                    "name a directory that `weir lab run --out` wrote",
                ));
            }
            if !into.is_empty() {
                for path in report::markdown::refresh(&into, &dir)? {
                    print(&format!("wrote {}\n", path.display()))?;
                }
            } else if markdown {
                print(&report::markdown::all(&runs)?)?;
            } else {
                print(&format!("wrote {}\n", report::write(&runs, &dir)?.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl WhichArgs {
    fn experiments(&self) -> Vec<&'static Experiment> {
        let named = |experiment: &&&Experiment| {
            self.all || self.experiments.iter().any(|named| named.name == experiment.name)
        };
        experiments::ALL.iter().filter(named).copied().collect()
    }
}

/// Of the longest experiment's or arm's name.
const NAME_COLUMNS: usize = 15;

fn list() -> Result<String> {
    let mut text = String::new();
    for experiment in experiments::ALL {
        let plan = |quick| Plan::new(experiment, &Wish { quick, ..Wish::default() });
        let minutes = |quick| Ok::<_, Error>(plan(quick)?.estimate().as_secs_f64() / 60.0);
        let needs: Vec<_> = plan(false)?.programs().into_iter().collect();
        let needs = match needs.as_slice() {
            [] => String::new(),
            programs => format!("; needs {}", programs.join(", ")),
        };
        text += &format!(
            "{:NAME_COLUMNS$} {}\n{:NAME_COLUMNS$} {}{needs}; about {:.1} min quick, {:.0} min full\n",
            experiment.name,
            experiment.question,
            "",
            experiment.paper,
            minutes(true)?,
            minutes(false)?
        );
    }
    text += "\nArms:\n";
    for (name, help) in arm::known() {
        text += &format!("{name:NAME_COLUMNS$} {help}\n");
    }
    Ok(text)
}

/// What experiments are to do. Refuses what cannot be done before the measurements, not after an
/// hour of them.
fn plans(
    named: &[&'static Experiment],
    wish: &Wish,
    plan: impl Fn(&'static Experiment) -> Result<Plan<'static>>,
    check: CheckOptions,
) -> Result<Vec<Plan<'static>>> {
    lab::check_cases(named, wish)?;
    let plans = named.iter().copied().map(plan).collect::<Result<Vec<_>>>()?;
    for arm in plans.iter().flat_map(|plan| &plan.arms) {
        // As far as it is this executable that takes them.
        if let Some(DaemonSpec { binary: None, options }) = &arm.daemon {
            check(options).map_err(|why| {
                let problem = format!("arm {:?}: {why}", arm.name);
                Error::refused(problem, "`weir run --help` lists what it takes")
            })?;
        }
    }
    programs::check_installed(&plans.iter().flat_map(Plan::programs).collect())?;
    Ok(plans)
}

/// Runs plans, and keeps what they measured where that is wanted, under a prefix and their names.
/// Each run is given to `each`.
fn run_plans(
    plans: &[Plan<'_>],
    prefix: &str,
    which: &WhichArgs,
    stop: &Stop,
    mut each: impl FnMut(&Plan<'_>, Run) -> Result<()>,
) -> Result<()> {
    let name = |plan: &Plan<'_>| format!("{prefix}{}", plan.experiment.name);
    let store = |plan| Store::new(which.out.as_deref(), &name(plan));
    let mut stores: Vec<Store> = plans.iter().map(store).collect();
    for (plan, store) in plans.iter().zip(&mut stores) {
        let done = lab::run(plan, store, stop).and_then(|run| Ok((store.finish(&run)?, run)));
        let (wrote, run) = done.map_err(|error| {
            let goes_on = which.out.as_ref().map(|dir| {
                let seed = plan.random.map(|seed| format!(" with --seed {seed}"));
                let again = format!("the same command{}", seed.unwrap_or_default());
                format!("{again} goes on with the trials in {}", dir.display())
            });
            match (stop.check(), goes_on) {
                (Ok(()), Some(goes_on)) if store.is_unfinished() => {
                    Error::Unfinished(Box::new(error), goes_on)
                }
                (Ok(()), _) => error,
                // What fails because the user stops the run is reported as stopped.
                (Err(interrupted), None) => interrupted,
                (Err(_), Some(goes_on)) => Error::Stopped(goes_on),
            }
        })?;
        if let Some(path) = wrote {
            eprintln!("wrote {}", path.display());
        }
        each(plan, run)?;
    }
    stores.iter().for_each(Store::forget);
    Ok(())
}

fn run_experiments(mut args: RunArgs, check: CheckOptions) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    args.which.wish.arms = args.arms;
    let (named, wish) = (args.which.experiments(), &args.which.wish);
    let plans = plans(&named, wish, |experiment| Plan::new(experiment, wish), check)?;
    // Its report is of everything there.
    let out = args.which.out.as_deref().filter(|dir| dir.exists());
    out.map(store::read_all).transpose()?;
    let mut outcomes = vec![];
    run_plans(&plans, "", &args.which, &stop, |plan, run| {
        let view = View::new(plan.experiment, &run);
        print(&if args.json { report::json(&view)? } else { report::text(&view) })?;
        outcomes.extend(goals::judge(&view));
        Ok(())
    })?;
    if let Some(dir) = &args.which.out {
        eprintln!("wrote {}", report::write(&store::read_all(dir)?, dir)?.display());
    }
    if !args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let of = |verdict| outcomes.iter().filter(|goal| goal.verdict == verdict).count();
    let (met, unmet, open) =
        (of(goals::Verdict::Met), of(goals::Verdict::Unmet), of(goals::Verdict::Undecided));
    let mut text = String::new();
    for goal in outcomes.iter().filter(|goal| goal.verdict != goals::Verdict::Met) {
        let goals::Outcome { name, want, got, verdict, .. } = goal;
        text += &format!("{}: {name}: wanted {want}, got {got}\n", verdict.name());
    }
    // The last line is for programs.
    let text = text + &format!("goals: {met} met, {unmet} not met, {open} undecided\n");
    if args.json {
        eprint!("{text}")
    } else {
        print(&text)?
    }
    Ok(if unmet > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn compare_builds(args: &AbArgs, check: CheckOptions) -> Result<()> {
    let stop = Stop::on_signals()?;
    let [a, b] = arm::LABELS;
    let sides = [ab::Side::parse(a, &args.a)?, ab::Side::parse(b, &args.b)?];
    let seed = args.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let mut named = args.which.experiments();
    if args.which.all {
        named.retain(|experiment| ab::main_arm(experiment).is_ok());
    }
    let wish = &args.which.wish;
    let plans = plans(&named, wish, |experiment| ab::plan(experiment, &sides, wish, seed), check)?;
    let mut parts = vec![];
    run_plans(&plans, "ab-", &args.which, &stop, |plan, run| {
        let arms = sides.each_ref().map(|side| side.name.as_str());
        parts.push(ab::part(&View::new(plan.experiment, &run), arms, Some(seed)));
        Ok(())
    })?;
    print(&difference::together(Design::Pairs, parts).text())
}

/// Prints, where a reader that has gone (`| head`) is no failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(cannot("write to", "standard output")(source))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_columns() {
        let text = list().unwrap();
        for line in text.lines().filter(|line| !line.is_empty() && *line != "Arms:") {
            let (name, what) = line.split_at(NAME_COLUMNS + 1);
            assert!(name.ends_with(' ') && !what.starts_with(' '), "{line}");
        }
    }
}

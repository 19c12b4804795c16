//! `weir lab ...`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use weir_bpf::sys::caps::{self, Capability};
use weir_bpf::traffic::Lengths;

use crate::apps::udp::Reader;
use crate::arm::{self, Arm};
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::host::topology;
use crate::lab::{self, Plan, Wish};
use crate::progress::Progress;
use crate::run::Load;
use crate::scene::Traffic;
use crate::stats::rank::Design;
use crate::stop::Stop;
use crate::store::Store;
use crate::view::View;
use crate::{ab, compare, difference, experiments, goals, report, store};

/// Arguments of `weir lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
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
    /// Compare two kept runs of one experiment.
    Compare {
        /// The first result, which is divided by.
        a: PathBuf,
        /// The second.
        b: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write report.html from a directory of results; or print their tables.
    Report {
        /// Directory that `weir lab run --out` wrote.
        dir: PathBuf,
        /// Print the tables as Markdown instead.
        #[arg(long)]
        markdown: bool,
        /// Put the tables between the markers of these files instead.
        #[arg(long, value_name = "FILE", num_args = 1..)]
        into: Vec<PathBuf>,
    },
    /// Remove what labs left behind that were killed.
    Clean,
}

const RUN_EXAMPLES: &str = "Examples:
  weir lab run udp-overload --quick             before and after on this kernel, in 45 s
  weir lab run separation --kinds all --out DIR every kind of flood; DIR gets JSON, plot, report.html
  weir lab run udp-overload --arms stock,'weir --user-share 25%' --rates 400k,top
  weir lab run --all --quick --out DIR          every experiment, in 12 minutes
A run with --out that was stopped goes on when the same command is given again.";

const AB_EXAMPLES: &str = "Examples:
  weir lab ab --a weir --b 'weir --nice 0' harmless          two settings of this build
  weir lab ab --a old/weir --b new/weir udp-overload --quick two builds
A side is an executable and options of its `weir run`; the word weir is this executable. The ratio is
B's figure divided by A's.";

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Exit with 1 if a goal is not met; name those that are not.
    #[arg(long)]
    check: bool,
    /// What to compare: arms, and after one that runs weir options of `weir run` [default: the
    /// experiment's]. See `weir lab list`.
    #[arg(long, alias = "modes", value_delimiter = ',', value_parser = Arm::parse)]
    arms: Vec<Arm>,
}

#[derive(Debug, Args)]
struct AbArgs {
    /// One side: EXECUTABLE [OPTIONS of `weir run`].
    #[arg(long, value_name = "'BINARY [OPTIONS]'")]
    a: String,
    /// The other side.
    #[arg(long, value_name = "'BINARY [OPTIONS]'")]
    b: String,
    #[command(flatten)]
    which: WhichArgs,
    /// Seed of the random order [default: drawn anew]; with one, a run that was stopped can go on.
    #[arg(long)]
    seed: Option<u64>,
}

/// Which experiments, and how much of each.
#[derive(Debug, Args)]
struct WhichArgs {
    /// Experiments; `weir lab list` lists them.
    #[arg(value_parser = parse_experiment, required_unless_present = "all")]
    experiments: Vec<&'static Experiment>,
    /// Every experiment.
    #[arg(long, conflicts_with = "experiments")]
    all: bool,
    /// Short windows and few points: ends within 45 s for each experiment.
    #[arg(long)]
    quick: bool,
    /// Print results as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write JSON, plots and report.html to this directory.
    #[arg(long)]
    out: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Points")]
    points: PointArgs,
    #[command(flatten)]
    cases: CaseArgs,
    #[command(flatten, next_help_heading = "Applications and packets")]
    traffic: TrafficArgs,
}

#[derive(Debug, Args)]
struct PointArgs {
    /// Offered rates in packets/s, such as 100k,1.5M,top [default: the experiment's].
    #[arg(long, alias = "loads", value_delimiter = ',', value_parser = Load::parse)]
    rates: Vec<Load>,
    /// Length of each measured window, seconds.
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Trials per point.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
}

#[derive(Debug, Args)]
struct TrafficArgs {
    /// How the applications receive.
    #[arg(long, value_enum, default_value_t)]
    app: Reader,
    /// IPv6 instead of IPv4.
    #[arg(long)]
    ipv6: bool,
    /// UDP payload: a length of 14 to 1472 bytes, `uniform` (18 to 1472), or `dns`.
    #[arg(long, default_value = "14", value_parser = parse_lengths)]
    payload: Lengths,
    /// Receive buffer of the applications, bytes [default: the system's].
    #[arg(long, default_value_t = 0)]
    rcvbuf: usize,
}

/// What `--cases` is called for each experiment: such an option is shown with its experiment alone.
#[derive(Debug, Default)]
struct CaseArgs(Vec<(&'static str, Vec<String>)>);

/// The options that choose cases, each once, with the experiments that have it.
fn case_options() -> Vec<(&'static str, Vec<&'static Experiment>)> {
    let mut options: Vec<(&str, Vec<&Experiment>)> = vec![];
    for experiment in experiments::ALL.iter().copied().filter(|e| (e.cases)().len() > 1) {
        match options.iter_mut().find(|(option, _)| *option == experiment.case_option) {
            Some((_, of)) => of.push(experiment),
            None => options.push((experiment.case_option, vec![experiment])),
        }
    }
    options
}

impl Args for CaseArgs {
    fn augment_args(mut command: Command) -> Command {
        let given: Vec<String> = std::env::args().collect();
        for (option, of) in case_options() {
            let named: Vec<_> =
                of.iter().filter(|e| given.iter().any(|word| word == e.name)).collect();
            let about = |e: &&&Experiment| {
                let names: Vec<String> = (e.cases)().into_iter().map(|case| case.name).collect();
                format!("{}: {}", e.name, names.join(", "))
            };
            let help: Vec<String> = named.iter().map(about).collect();
            let argument = clap::Arg::new(option)
                .long(option)
                .value_delimiter(',')
                .action(clap::ArgAction::Append)
                .hide(named.is_empty())
                .help_heading("Points")
                .help(format!("These alone, or `all`. {}", help.join("; ")));
            command = command.arg(argument);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CaseArgs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let given = |(option, _): (&'static str, _)| {
            let values = matches.get_many::<String>(option)?;
            Some((option, values.cloned().collect()))
        };
        Ok(Self(case_options().into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn parse_experiment(text: &str) -> std::result::Result<&'static Experiment, String> {
    experiments::by_name(text).ok_or_else(|| {
        let names: Vec<&str> = experiments::ALL.iter().map(|e| e.name).collect();
        format!("the experiments are {}", names.join(", "))
    })
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a window is 0.05 to 3600 seconds".into()),
    }
}

fn parse_lengths(text: &str) -> std::result::Result<Lengths, String> {
    match (text, text.parse::<u16>()) {
        ("uniform", _) => Ok(Lengths::Uniform { from: 18, to: 1472 }),
        ("dns", _) => Ok(Lengths::dns()),
        (_, Ok(length)) if (14..=1472).contains(&length) => Ok(Lengths::One(length)),
        _ => Err("a payload is 14 to 1472 bytes, `uniform`, or `dns`".into()),
    }
}

/// Runs a `weir lab` command.
pub fn run(args: LabArgs) -> Result<ExitCode> {
    match args.command {
        LabCommand::List => print(&list()?)?,
        LabCommand::Run(args) => return run_experiments(&args),
        LabCommand::Ab(args) => compare_builds(&args)?,
        LabCommand::Compare { a, b, json } => {
            let compared = compare::files(&a, &b)?;
            print(&if json { compared.json()? } else { compared.text() })?;
        }
        LabCommand::Report { dir, markdown, into } => {
            let runs = store::read_all(&dir)?;
            if !into.is_empty() {
                for path in report::markdown::refresh(&into, &dir)? {
                    print(&format!("wrote {}\n", path.display()))?;
                }
            } else if markdown {
                print(&report::markdown::all(&runs)?)?;
            } else {
                print(&format!("wrote {}\n", report::write_page(&runs, &dir)?.display()))?;
            }
        }
        LabCommand::Clean => {
            check_privilege()?;
            let removed = topology::clean()?;
            for name in &removed {
                print(&format!("removed namespace {name}\n"))?;
            }
            print(&format!("{} namespaces removed\n", removed.len()))?;
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

    fn wish(&self, arms: &[Arm]) -> Wish {
        let TrafficArgs { app, ipv6, payload, rcvbuf } = &self.traffic;
        let lengths = match payload {
            // What fits into an Ethernet frame.
            Lengths::Uniform { from, to } if *ipv6 => {
                Lengths::Uniform { from: *from, to: *to.min(&1452) }
            }
            lengths => lengths.clone(),
        };
        Wish {
            arms: arms.to_vec(),
            cases: self.cases.0.iter().flat_map(|(_, cases)| cases.clone()).collect(),
            loads: self.points.rates.clone(),
            window: self.points.seconds,
            repeats: self.points.repeats,
            quick: self.quick,
            traffic: Traffic { reader: *app, ipv6: *ipv6, lengths, rcvbuf: *rcvbuf },
        }
    }

    /// An option that no named experiment has is a mistake, not a wish.
    fn refuse_unused(&self) -> Result<()> {
        let named = self.experiments();
        let refuse = |option: &str, has: &dyn Fn(&Experiment) -> bool| {
            if named.iter().any(|experiment| has(experiment)) {
                return Ok(());
            }
            let names = |all: Vec<&'static Experiment>| {
                all.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ")
            };
            let with = experiments::ALL.iter().copied().filter(|e| has(e)).collect();
            Err(Error::refused(
                format!("{} has no --{option}", names(named.clone())),
                format!("leave it out; it is for {}", names(with)),
            ))
        };
        for (option, _) in &self.cases.0 {
            refuse(option, &|e| e.case_option == *option && (e.cases)().len() > 1)?;
        }
        if !self.points.rates.is_empty() {
            refuse("rates", &|e| e.loads.full.iter().any(|load| !["0", "top"].contains(load)))?;
        }
        let TrafficArgs { app, ipv6, payload, rcvbuf } = &self.traffic;
        let usual = Traffic::default();
        for (option, given) in [
            ("app", *app != usual.reader),
            ("ipv6", *ipv6),
            ("payload", *payload != usual.lengths),
            ("rcvbuf", *rcvbuf != 0),
        ] {
            if given {
                refuse(option, &|e| e.traffic)?;
            }
        }
        Ok(())
    }
}

fn list() -> Result<String> {
    let mut text = String::new();
    for experiment in experiments::ALL {
        let minutes = |quick| -> Result<f64> {
            let wish = Wish {
                arms: vec![],
                cases: vec![],
                loads: vec![],
                window: None,
                repeats: None,
                quick,
                traffic: Traffic::default(),
            };
            Ok(Plan::new(experiment, &wish)?.estimate().as_secs_f64() / 60.0)
        };
        let needs = match experiment.needs {
            [] => String::new(),
            programs => format!("; needs {}", programs.join(", ")),
        };
        text += &format!(
            "{:14} {}\n{:14} {}{needs}; about {:.1} min quick, {:.0} min full\n",
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
        text += &format!("{name:14} {help}\n");
    }
    Ok(text)
}

fn run_experiments(args: &RunArgs) -> Result<ExitCode> {
    check_privilege()?;
    args.which.refuse_unused()?;
    let stop = Stop::on_signals()?;
    let wish = args.which.wish(&args.arms);
    let named = args.which.experiments();
    // Before the measurements, not after an hour of them.
    let plans = named.iter().map(|e| Plan::new(e, &wish)).collect::<Result<Vec<_>>>()?;
    let (mut runs, mut outcomes) = (vec![], vec![]);
    for plan in &plans {
        let progress = Progress::new(true);
        let mut store = Store::new(args.which.out.as_deref(), plan.experiment.name);
        // What fails because the user stops the run is reported as stopped.
        let ran = lab::run(plan, &mut store, &stop, &progress);
        let run = ran.or_else(|error| stop.check().and(Err(error)))?;
        if let Some(path) = store.finish(&run)? {
            eprintln!("wrote {}", path.display());
        }
        let view = View::new(plan.experiment, &run);
        if let Some(dir) = &args.which.out {
            report::write_figure(&view, dir)?;
        }
        print(&if args.which.json { report::json(&view)? } else { report::text(&view) })?;
        outcomes.extend(goals::judge(&view));
        runs.push(run);
    }
    if let Some(dir) = &args.which.out {
        eprintln!("wrote {}", report::write_page(&store::read_all(dir)?, dir)?.display());
    }
    if !args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let of = |verdict| outcomes.iter().filter(|goal| goal.verdict == verdict).count();
    let (met, unmet, open) =
        (of(goals::Verdict::Met), of(goals::Verdict::Unmet), of(goals::Verdict::Undecided));
    let mut text = String::new();
    for goal in outcomes.iter().filter(|goal| !goal.met) {
        let goals::Outcome { name, want, got, verdict, .. } = goal;
        text += &format!("{}: {name}: wanted {want}, got {got}\n", verdict.name());
    }
    // The last line is for programs.
    let text = text + &format!("goals: {met} met, {unmet} not met, {open} undecided\n");
    if args.which.json {
        eprint!("{text}")
    } else {
        print(&text)?
    }
    Ok(if unmet > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn compare_builds(args: &AbArgs) -> Result<()> {
    check_privilege()?;
    args.which.refuse_unused()?;
    let stop = Stop::on_signals()?;
    let sides = [ab::Side::parse("A", &args.a)?, ab::Side::parse("B", &args.b)?];
    let seed = args.seed.unwrap_or_else(|| u64::from(fastrand::u32(..)));
    let mut named = args.which.experiments();
    if args.which.all {
        named.retain(|experiment| ab::main_arm(experiment).is_ok());
    }
    let wish = args.which.wish(&[]);
    let plan = |experiment: &&'static Experiment| ab::plan(experiment, &sides, &wish, seed);
    let plans = named.iter().map(plan).collect::<Result<Vec<_>>>()?;
    let mut parts = vec![];
    for plan in &plans {
        let name = format!("ab-{}", plan.experiment.name);
        let mut store = Store::new(args.which.out.as_deref(), &name);
        let ran = lab::run(plan, &mut store, &stop, &Progress::new(true));
        let run = ran.or_else(|error| stop.check().and(Err(error)))?;
        if let Some(path) = store.finish(&run)? {
            eprintln!("wrote {}", path.display());
        }
        parts.push(ab::part(&View::new(plan.experiment, &run), &sides, seed));
    }
    let compared = difference::together(Design::Pairs, parts);
    print(&if args.which.json { compared.json()? } else { compared.text() })
}

/// Prints, where a reader that has gone (`| head`) is no failure.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::io("write to", "standard output", source))
        }
        _ => Ok(()),
    }
}

fn check_privilege() -> Result<()> {
    let needed = [
        Capability::NetAdmin,
        Capability::SysAdmin,
        Capability::SysNice,
        Capability::Perfmon,
        Capability::Bpf,
    ];
    let missing = caps::missing(&needed)?;
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Error::refused(
        format!("the lab makes namespaces and loads BPF programs, and lacks {missing}"),
        "run it as root",
    ))
}

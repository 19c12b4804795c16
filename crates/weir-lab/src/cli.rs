//! `weir lab ...`.

mod plans;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use weir_bpf::sys::caps::{self, Capability};

use crate::error::{Error, Result};
use crate::parity::RowSpec;
use crate::progress::Progress;
use crate::rates::{Rate, parse_rate};
use crate::results::kinds::Kind;
use crate::results::parity::{Arm, Measure};
use crate::results::{Mode, Outcome};
use crate::stop::Stop;
use crate::worker::App;
use crate::{
    accounting, gate_cost, http_syn_flood, kinds, neighbour, parity, receivers, report, rpc_mix,
    separation, topology, udp_latency, udp_overload, user_share,
};

/// LRP's payload, bytes.
const PAYLOAD: u16 = 14;

/// Arguments of `weir lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// List the experiments.
    List,
    /// Run experiments in network namespaces of their own, and report.
    Run(RunArgs),
    /// Write report.html anew from a directory of results.
    Report {
        /// Directory that `weir lab run --out` wrote.
        dir: PathBuf,
    },
    /// Remove what labs left behind that were killed.
    Clean,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Experiments; `weir lab list` lists them.
    #[arg(required = true, value_enum)]
    experiments: Vec<Name>,
    /// Modes to compare [default: the experiment's; udp-overload --quick: stock,threaded,niced,weir].
    #[arg(long, value_delimiter = ',', value_parser = parse_mode)]
    modes: Vec<Mode>,
    /// Offered rates in packets/s, such as 100k,1.5M,top.
    #[arg(long, value_delimiter = ',', value_parser = parse_rate)]
    rates: Vec<Rate>,
    /// Length of each measured window, seconds [default: 2; with --quick: 0.2].
    #[arg(long, value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Trials per point [default: 10; with --quick: 3].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Short windows and few rates: ends within a minute.
    #[arg(long)]
    quick: bool,
    /// Print the result as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write JSON, plot and report.html to this directory.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Exit with 1 if a goal is not met.
    #[arg(long)]
    check: bool,
    /// The application under test.
    #[arg(long, value_enum, default_value_t)]
    app: App,
    /// IPv6 instead of IPv4.
    #[arg(long)]
    ipv6: bool,
    /// UDP payload, bytes.
    #[arg(long, default_value_t = PAYLOAD, value_parser = clap::value_parser!(u16).range(14..=1400))]
    payload: u16,
    /// udp-overload: with a compute-bound process on the tested CPU, and without for comparison.
    #[arg(long)]
    neighbour: bool,
    /// separation: a UDP and a TCP service beside floods of these kinds, such as syn,icmp, or `all` (with
    /// --quick: closed, syn, icmp, fragments, forward, within 60 s).
    #[arg(long, value_delimiter = ',', value_parser = parse_kinds)]
    kinds: Vec<Kinds>,
    /// parity: these rows alone, such as tcp-stream (by 1 and by 1,000 flows) or udp-window-1000.
    #[arg(long, value_delimiter = ',', value_parser = parse_rows)]
    rows: Vec<Rows>,
    /// parity: these arms alone, such as threaded,tc; and the stocks that they are held against.
    #[arg(long, value_delimiter = ',', value_parser = parse_arm)]
    arms: Vec<Arm>,
    /// Receive buffer of the applications, bytes [default: the system's].
    #[arg(long, default_value_t = 0)]
    rcvbuf: usize,
}

/// The experiments that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Name {
    /// LRP fig. 3: an unmodified UDP receiver, flooded
    UdpOverload,
    /// What the gate costs per packet, against bare XDP programs
    GateCost,
    /// LRP 2.2, 3: a light flow to one UDP service while another is flooded
    Separation,
    /// MR fig. 7-1: what user processes keep of a flooded CPU
    UserShare,
    /// LRP fig. 5: nginx while SYNs flood another listener of the host
    HttpSynFlood,
    /// LRP fig. 4: round trips to a UDP echo server while another socket is flooded
    UdpLatency,
    /// LRP table 1: round trips and throughput where nothing is overloaded
    Parity,
    /// LRP table 2: a long computation beside short RPCs, where nothing is overloaded
    RpcMix,
    /// LRP 2.2: whom the kernel, and weir's meter, charge for a flood to one server
    Accounting,
    /// Two receivers of different weight, both flooded
    Receivers,
}

fn parse_mode(text: &str) -> std::result::Result<Mode, String> {
    let all = || Mode::ALL.map(Mode::name).join(", ");
    Mode::ALL
        .into_iter()
        .find(|mode| mode.name() == text)
        .ok_or_else(|| format!("the modes are {}", all()))
}

/// One kind of flood, or each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kinds {
    All,
    One(Kind),
}

fn parse_kinds(text: &str) -> std::result::Result<Kinds, String> {
    if text == "all" {
        return Ok(Kinds::All);
    }
    let one = Kind::ALL.into_iter().find(|kind| kind.name() == text).map(Kinds::One);
    one.ok_or_else(|| format!("the kinds are {}, or all", Kind::ALL.map(Kind::name).join(", ")))
}

/// One row of parity's, or both of a measure.
type Rows = Vec<RowSpec>;

fn parse_rows(text: &str) -> std::result::Result<Rows, String> {
    let is_meant = |(measure, flows): &RowSpec| {
        measure.name() == text || format!("{}-{flows}", measure.name()) == text
    };
    let rows: Rows = parity::all_rows().into_iter().filter(is_meant).collect();
    let names = || Measure::ALL.map(Measure::name).join(", ");
    let [one, many] = parity::FLOWS;
    if rows.is_empty() {
        return Err(format!("the rows are {}, or one of them with -{one} or -{many}", names()));
    }
    Ok(rows)
}

fn parse_arm(text: &str) -> std::result::Result<Arm, String> {
    let all = || Arm::ALL.map(Arm::name).join(", ");
    let one = Arm::ALL.into_iter().find(|arm| arm.name() == text);
    one.ok_or_else(|| format!("the arms are {}", all()))
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a window is 0.05 to 3600 seconds".into()),
    }
}

/// Runs a `weir lab` command.
///
/// # Errors
/// Where a measurement is not sound, the machine is not fit for it, or the user stops it.
pub fn run(args: LabArgs) -> Result<ExitCode> {
    match args.command {
        LabCommand::List => {
            for name in Name::value_variants() {
                let Some(value) = name.to_possible_value() else { continue };
                let help = value.get_help().map(ToString::to_string).unwrap_or_default();
                print(&format!("{:14} {help}\n", value.get_name()))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Run(args) => run_experiments(&args),
        LabCommand::Report { dir } => {
            let path = report::write_page(&report::read(&dir)?, &dir)?;
            print(&format!("wrote {}\n", path.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Clean => {
            check_privilege()?;
            let removed = topology::clean()?;
            for name in &removed {
                print(&format!("removed namespace {name}\n"))?;
            }
            print(&format!("{} namespaces removed\n", removed.len()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_experiments(args: &RunArgs) -> Result<ExitCode> {
    check_privilege()?;
    if let Some(dir) = &args.out {
        // Before the measurement, not after it.
        fs::create_dir_all(dir)
            .map_err(|source| Error::io("create", dir.display().to_string(), source))?;
    }
    refuse_unused(args)?;
    let stop = Stop::on_signals()?;
    let mut names = args.experiments.clone();
    names.sort();
    names.dedup();
    let mut unmet = false;
    for name in names {
        let progress = Progress::new(true);
        let outcome = match name {
            Name::UdpOverload if args.neighbour => {
                neighbour::run(&plans::neighbour(args), &stop, &progress).map(Outcome::from)
            }
            Name::UdpOverload => {
                udp_overload::run(&plans::udp_overload(args), &stop, &progress).map(Outcome::from)
            }
            Name::GateCost => {
                gate_cost::run(&plans::gate_cost(args), &stop, &progress).map(Outcome::from)
            }
            Name::Separation if !args.kinds.is_empty() => {
                let kinds = plans::kinds(args);
                kinds::run(&plans::separation_kinds(args), &kinds, &stop, &progress)
                    .map(Outcome::from)
            }
            Name::Separation => {
                separation::run(&plans::separation(args), &stop, &progress).map(Outcome::from)
            }
            Name::UserShare => {
                user_share::run(&plans::user_share(args), &stop, &progress).map(Outcome::from)
            }
            Name::HttpSynFlood => {
                http_syn_flood::run(&plans::http_syn_flood(args), &stop, &progress)
                    .map(Outcome::from)
            }
            Name::UdpLatency => {
                udp_latency::run(&plans::udp_latency(args), &stop, &progress).map(Outcome::from)
            }
            Name::Parity => {
                let (rows, arms) = plans::parity_table(args);
                parity::run(&plans::parity(args), (&rows, &arms), &stop, &progress)
                    .map(Outcome::from)
            }
            Name::Accounting => {
                accounting::run(&plans::accounting(args), &stop, &progress).map(Outcome::from)
            }
            Name::Receivers => {
                receivers::run(&plans::receivers(args), &stop, &progress).map(Outcome::from)
            }
            Name::RpcMix => {
                rpc_mix::run(&plans::rpc_mix(args), &stop, &progress).map(Outcome::from)
            }
        };
        // What fails because the user stops the run is not the user's concern.
        let experiment = outcome.or_else(|error| stop.check().and(Err(error)))?;
        present(args, &experiment)?;
        unmet |= experiment.goals().iter().any(|goal| !goal.met);
    }
    Ok(if args.check && unmet { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn present(args: &RunArgs, experiment: &Outcome) -> Result<()> {
    if let Some(dir) = &args.out {
        for path in report::write(experiment, dir)? {
            eprintln!("wrote {}", path.display());
        }
    }
    print(&if args.json {
        report::json(experiment)?
    } else {
        report::table(experiment.view()) + "\n"
    })
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
    Err(Error::refused(
        format!(
            "the lab makes namespaces and loads BPF programs, and lacks {}",
            missing.join(", ")
        ),
        "run it as root",
    ))
}

/// An option that no named experiment has is a mistake, not a wish.
fn refuse_unused(args: &RunArgs) -> Result<()> {
    let given = [
        ("--modes", !args.modes.is_empty()),
        ("--rates", !args.rates.is_empty()),
        ("--app", args.app != App::default()),
        ("--ipv6", args.ipv6),
        ("--payload", args.payload != PAYLOAD),
        ("--rcvbuf", args.rcvbuf != 0),
    ];
    let not_udp = given[2..].iter().find(|(_, given)| *given);
    if let Some((option, _)) = not_udp
        && args.experiments.iter().all(|name| *name == Name::HttpSynFlood)
    {
        return Err(Error::refused(
            format!("{} has no {option}: its flood is TCP over IPv4", http_syn_flood::NAME),
            format!("leave {option} out; it is for {}", udp_overload::NAME),
        ));
    }
    let only_rpc = args.experiments.iter().all(|name| *name == Name::RpcMix);
    // But for the modes.
    if let Some((option, _)) = given[1..].iter().find(|(_, given)| *given && only_rpc) {
        return Err(Error::refused(
            format!("{} has no {option}: its servers and requests are its own", rpc_mix::NAME),
            format!("leave {option} out; it is for {}", udp_overload::NAME),
        ));
    }
    let only_parity = args.experiments.iter().all(|name| *name == Name::Parity);
    if let Some((option, _)) = given.iter().find(|(_, given)| *given && only_parity) {
        return Err(Error::refused(
            format!("{} has no {option}: its table has rows and columns of its own", parity::NAME),
            format!("leave {option} out; it is for {}", udp_overload::NAME),
        ));
    }
    let only_costs = args.experiments.iter().all(|name| *name == Name::GateCost);
    if let Some((option, _)) = given.iter().find(|(_, given)| *given && only_costs) {
        return Err(Error::refused(
            format!("{} has no {option}: it measures all of its modes and kinds", gate_cost::NAME),
            format!("leave {option} out; it is for {}", udp_overload::NAME),
        ));
    }
    if args.neighbour && !args.experiments.contains(&Name::UdpOverload) {
        return Err(Error::refused(
            "--neighbour is an option of udp-overload",
            "leave it out; user-share has its neighbour always",
        ));
    }
    if !args.kinds.is_empty() && !args.experiments.contains(&Name::Separation) {
        return Err(Error::refused("--kinds is an option of separation", "leave it out"));
    }
    let of_parity = [("--rows", !args.rows.is_empty()), ("--arms", !args.arms.is_empty())];
    if let Some((option, _)) = of_parity.iter().find(|(_, given)| *given)
        && !args.experiments.contains(&Name::Parity)
    {
        return Err(Error::refused(format!("{option} is an option of parity"), "leave it out"));
    }
    if !args.kinds.is_empty() && args.ipv6 {
        return Err(Error::refused(
            "the kinds of flood are IPv4's: one of them is broadcast",
            "leave out --ipv6 or --kinds",
        ));
    }
    if args.ipv6 && args.experiments.contains(&Name::Accounting) {
        return Err(Error::refused(
            format!("{} has no --ipv6: its pings are IPv4's", accounting::NAME),
            "leave it out",
        ));
    }
    let foreign = |mode: &&Mode| !user_share::MODES.contains(mode);
    match args.modes.iter().find(foreign) {
        Some(mode) if args.experiments.contains(&Name::UserShare) => Err(Error::refused(
            format!("{} has no mode {mode}", user_share::NAME),
            format!("its modes are {}", user_share::MODES.map(Mode::name).join(", ")),
        )),
        _ => Ok(()),
    }
}

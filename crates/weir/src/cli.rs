//! The command line.

use std::any::TypeId;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::{Arg, Args, Parser, Subcommand};

use crate::capture::args::CaptureArgs;
use crate::choice::{interval, slice};
use crate::config::args::{ConfigArgs, SettingArgs};
use crate::doctor::DoctorArgs;
use crate::key::Key;
use crate::lazy::Group;
use crate::screening::args::ScreenArgs;
use crate::trace::args::TraceArgs;

/// Keeps a Linux host working when it receives more packets than it can use.
///
/// For hosts on which, in a flood, ksoftirqd takes a whole CPU, RcvbufErrors grows, SSH hangs and servers stop
/// answering. weir drops a packet early where the kernel would drop it late anyway, and receives in threads whose
/// priority it adjusts, so that programs get CPU time. No program changes, and when weir ends it puts everything back.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    mut_subcommands = answered_with_ranges,
    after_help = "\
To begin:
  weir doctor                          what is wrong with how this host receives? changes nothing
  sudo weir run eth0 --policy shadow   what would be discarded, and whose is it? passes everything
  sudo weir run eth0                   protect eth0; Ctrl-C puts everything back

`weir help COMMAND` has examples of each command."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A value that is no text may begin with a hyphen, so that `-1` is answered with what it may be, not as an option.
fn answered_with_ranges(command: clap::Command) -> clap::Command {
    let answer = |arg: Arg| {
        let kind = arg.get_value_parser().type_id();
        let is_text = kind == TypeId::of::<String>() || kind == TypeId::of::<PathBuf>();
        let takes = arg.get_num_args().is_none_or(|count| count.takes_values());
        let has_value = takes && !arg.is_positional() && arg.get_action().takes_values();
        if has_value && !is_text { arg.allow_hyphen_values(true) } else { arg }
    };
    command.mut_args(answer).mut_subcommands(answered_with_ranges)
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what is wrong with how this host receives, and what would help; changes nothing
    Doctor(DoctorArgs),
    /// Protect interfaces until stopped
    Run(Box<RunArgs>),
    /// Show what is protected and what the gates have seen
    Status(StatusArgs),
    /// Show where packets are going, channel by channel
    Channels(ChannelsArgs),
    /// Watch the channels and who sends what is discarded, as a live view, until Ctrl-C
    Top(TopArgs),
    /// Say what the gate makes of each packet of a capture, and why
    Explain(ExplainArgs),
    /// Write an interface's packets to a pcapng file, or count them; filters as of tcpdump
    Capture(CaptureArgs),
    /// Follow single packets through the kernel: what happens to each, when, and where they are dropped
    Trace(TraceArgs),
    /// Filter what this host forwards, by rules: a program judges new flows, the kernel the rest
    Screen(ScreenArgs),
    /// Check or write a configuration file, or show the settings in force
    Config(ConfigArgs),
    /// Put back every knob that a killed weir has left turned
    Reset(ResetArgs),
    /// Put back what the parent process has turned, when it has ended
    #[command(hide = true)]
    Guardian(GuardianArgs),
    /// Read what one user's programs ask of lazy sockets
    #[command(hide = true)]
    LazyClerk,
    /// Measure on this machine, in network namespaces of its own, what weir does in a flood
    Lab(weir_lab::cli::LabArgs),
    /// Write man pages and shell completions into a directory
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// A process of the lab's
    #[command(hide = true)]
    LabWorker(weir_lab::apps::WorkerArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  sudo weir run eth1 --policy shadow   only say what would be discarded, and whose it is
  sudo weir run eth1 --ab 60s          what weir improves or worsens: 6 pairs of one-minute slices
  sudo weir run eth1                   protect eth1; Ctrl-C puts everything back
  sudo weir run eth1 eth2 --cpus 2-3   and keep their NAPI threads on CPUs 2 and 3
  sudo weir run eth1 --user-share 70%  leave more of the CPU to processes
  sudo weir run eth1 --nice 5          a fixed priority for network input
  sudo weir run eth1 --attach tc       beside another XDP program
  sudo weir run eth1 --lazy            and let programs have lazy sockets
  sudo weir run eth1 --json | jq .     one JSON object per second
  sudo weir run                        the interfaces that the configuration file says to protect

SIGHUP makes a running weir read its configuration file again: `sudo kill -HUP PID`, with the PID that
`weir status` shows. A file with a mistake in it changes nothing.";

/// Arguments of `weir run`.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// The interfaces to protect [default: those with `protect = true` in the configuration file]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// What may also be in the configuration file.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Look at every packet at all times, so that counters and channels are complete. By default the gate sleeps, and
    /// costs next to nothing, until a queue is full or input takes more than its share of a CPU
    #[arg(long)]
    pub awake: bool,
    /// Offer lazy sockets: root's programs that use the library weir_socket, or are started with
    /// LD_PRELOAD=libweir_preload.so, may read their UDP packets from rings that the gate fills, past the kernel's IP
    /// and UDP input
    #[arg(long, help_heading = "Lazy sockets")]
    pub lazy: bool,
    /// Offer them to this group's programs, too. Whoever is in it can take memory and time from weir
    #[arg(long, value_name = "GROUP", requires = "lazy", help_heading = "Lazy sockets")]
    pub lazy_group: Option<Group>,
    /// How much memory the rings of one user may take, in MiB; root's may take four times that, and so may those of all
    /// other users together
    #[arg(long, value_name = "MIB", default_value_t = 256, requires = "lazy", help_heading = "Lazy sockets",
        value_parser = RangedI64ValueParser::<u64>::from(1..1 << 20))]
    pub lazy_memory: u64,
    /// Compare, on live traffic, slices of this length with protection and as many in shadow, in pairs. Says by how
    /// much late drops, delivery and the CPU time of receiving differ, and ends without protection; 1s to 1h
    #[arg(long, value_name = "TIME", value_parser = slice, help_heading = "Comparison",
        conflicts_with_all = ["policy", "lazy"])]
    pub ab: Option<Duration>,
    /// How many pairs of slices, 1 to 1000; a confidence interval takes at least 6
    #[arg(long, value_name = "N", default_value_t = 6, requires = "ab", help_heading = "Comparison",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pairs: u32,
    /// End with the parent process: one of the slices
    #[arg(long, hide = true)]
    pub slice: bool,
    /// Print no status line each second
    #[arg(long)]
    pub quiet: bool,
    /// Print JSON objects, one a line: `"event": "ready"` once, then `"event": "status"` each second
    #[arg(long)]
    pub json: bool,
}

/// What is wrong with options of `weir run`, in a line.
pub fn check_run_options(options: &[String]) -> Result<(), String> {
    let line = ["weir", "run"].into_iter().chain(options.iter().map(String::as_str));
    Cli::try_parse_from(line).map(drop).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").into()
    })
}

/// Arguments of `weir status`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo weir status                    what is protected in this network namespace
  sudo weir status --all-namespaces   and in all others
  sudo weir status --check            for monitoring: one line and an exit code
  sudo weir status --openmetrics      for Prometheus
  sudo weir status --json | jq '.interfaces[] | {interface, rates}'")]
pub struct StatusArgs {
    /// Print JSON; its shape has a version, `schema`
    #[arg(long)]
    pub json: bool,
    /// Show the interfaces of every network namespace, not only of this one
    #[arg(long)]
    pub all_namespaces: bool,
    /// Print one line, and exit with 0 if every interface is protected, with 1 if one is not or only in part or a wall
    /// has lost its screen, with 3 if weir does not run, with 4 if that cannot be told, as without root, with 5 if
    /// weir has reported nothing for three minutes although it could
    #[arg(long, conflicts_with = "json")]
    pub check: bool,
    /// Print OpenMetrics, for a Prometheus node exporter's textfile collector
    #[arg(long, conflicts_with_all = ["json", "check"])]
    pub openmetrics: bool,
}

/// Arguments of `weir channels`.
#[derive(Args, Debug)]
#[command(after_help = "\
A channel is where packets are going: a UDP socket, a TCP listener and its connections, an interface that
they leave by, or a kind of packet, such as icmp.

Examples:
  sudo weir channels                 those of each protected interface of this network namespace
  sudo weir channels eth1 --interval 5s
  sudo weir channels --sources       who sends what is discarded
  sudo weir channels --json | jq '.interfaces[].channels[:5]'")]
pub struct ChannelsArgs {
    /// The interface [default: each protected one of this network namespace]
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// Show who sends what is discarded, by samples that the gate takes of its discards meanwhile. Source addresses can
    /// be forged
    #[arg(long)]
    pub sources: bool,
    /// Print those senders as two sets for `nft -f -`, in a table `inet weir_sources`. weir itself bans nobody
    #[arg(long, requires = "sources", conflicts_with = "json")]
    pub nft: bool,
    /// How long to watch for the rates, up to 1h; 0: print totals only
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME")]
    pub interval: Duration,
    /// Print JSON; its shape has a version, `schema`
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir top`.
#[derive(Args, Debug)]
#[command(after_help = "\
Above, for each interface: what its gate does, which share of a CPU receiving takes, and the regime of the governor.
Below, the channels with most packets per second, as `weir channels --sources` shows them. The gate counts and samples
while this runs.

Examples:
  sudo weir top
  sudo weir top eth1 --interval 5s
  sudo weir top --count 3 > FILE     three times, one below the other")]
pub struct TopArgs {
    /// The interface [default: each protected one of this network namespace]
    #[arg(value_name = "IFACE")]
    pub interface: Option<String>,
    /// How often the view changes; rates are over this time; up to 1h
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME")]
    pub interval: Duration,
    /// End after N views [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = RangedI64ValueParser::<u64>::from(0..))]
    pub count: Option<u64>,
}

/// Arguments of `weir explain`.
#[derive(Args, Debug)]
#[command(after_help = "\
The capture's packets go through the gate one after the other, as if they came in on the interface now.
So the answer is about this host: its addresses, sockets and routes, and how full its queues are at this
moment. Nothing is sent, delivered or attached. Needs root.

Examples:
  sudo weir explain flood.pcap
  sudo tcpdump -i eth1 -c 1000 -w - | sudo weir explain - --interface eth1
  sudo weir explain flood.pcapng --json | jq 'select(.verdict == \"discard\")'")]
pub struct ExplainArgs {
    /// The capture, pcap or pcapng; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The interface that is assumed to receive the packets [default: the protected one, else the only one that is
    /// up, has an address, and can be protected]
    #[arg(long, value_name = "IFACE")]
    pub interface: Option<String>,
    /// The configuration that names the protected ports, as of `weir run` [default: /etc/weir/weir.toml, if it
    /// exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON objects, one a line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir reset`.
#[derive(Args, Debug)]
#[command(after_help = "\
Not needed in ordinary life: a weir that is stopped puts everything back itself, and when it is killed
its guardian does. If both were killed, this puts back what their state files in /run/weir list.

Examples:
  sudo weir reset         every interface of this network namespace
  sudo weir reset eth1    that one")]
pub struct ResetArgs {
    /// The interfaces [default: all of this network namespace]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
}

/// Arguments of the hidden `weir generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// The directory, which exists
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Arguments of the hidden `weir guardian`.
#[derive(Args, Debug)]
pub struct GuardianArgs {
    /// The daemon's process number
    #[arg(long, value_name = "PID")]
    pub parent: i32,
    /// The names of its files
    pub keys: Vec<Key>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use weir_bpf::units::Nice;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_negative_value_is_answered_with_the_range() {
        for (line, range) in [
            ("weir doctor --seconds -1", "1..=3600"),
            ("weir channels --interval -1", "from 0s to 1h"),
            ("weir run eth1 --ab -1s", "from 1s to 1h"),
            ("weir config show --period -5ms", "from 1ms to 1s"),
            ("weir run eth1 --user-share -5%", "from 1% to 99%"),
            ("weir capture -i eth1 -w x -c -5", "1.."),
            ("weir capture -i eth1 -w x --duration -5s", "from 1s to 1year"),
            ("weir lab run udp-overload --rates -5", "packets/s"),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(error.contains(range) && !error.contains("-- -"), "{error}");
        }
        let forgotten = Cli::try_parse_from(["weir", "run", "--config", "--quiet"]).unwrap_err();
        assert!(forgotten.to_string().contains("a value is required"), "{forgotten}");
    }

    #[test]
    fn usage_errors_are_told_from_failures() {
        for bad in [
            "weir run eth1 --policy maybe",
            "weir status --check --json",
            "weir run eth1 --nice 20",
            "weir run eth1 --nice -21",
            "weir run eth1 --cpus 3-1",
            "weir run eth1 --attach tcx",
            "weir run eth1 --napi thread",
            "weir run eth1 --user-share 50",
            "weir run eth1 --prefer both",
            "weir run eth1 --timeout 1",
            "weir run eth1 --period 2s",
            "weir run eth1 --ab 100ms",
            "weir run eth1 --ab 60s --policy on",
            "weir run eth1 --pairs 6",
            "weir config",
            "weir config show --timeout 1h",
            "weir explain",
            "weir doctor --from x --seconds 5",
            "weir capture -i eth1",
            "weir capture -w x.pcapng",
            "weir capture -i eth1 --count -w x.pcapng",
            "weir capture -i eth1 --count --rotate-size 1M",
            "weir capture -i eth1 -w x.pcapng --snaplen 0",
            "weir capture -i eth1 -w x.pcapng --buffer 1T",
            "weir screen",
            "weir screen rules.txt --in eth1",
            "weir screen rules.txt --clear eth1",
            "weir channels --interval 1",
            "weir channels --interval 2h",
            "weir channels --nft",
            "weir channels --sources --nft --json",
        ] {
            let error = Cli::try_parse_from(bad.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
        let good = "weir run eth1 eth2 --nice -5 --cpus 0-1";
        let Command::Run(args) = Cli::try_parse_from(good.split(' ')).unwrap().command else {
            panic!("not run");
        };
        let nice = args.settings.said.nice.map(|nice| nice.value);
        assert_eq!((nice, args.interfaces.len()), (Some(Some(Nice(-5))), 2));
    }

    #[test]
    fn options_of_an_arm_are_checked() {
        let check = |line: &str| {
            check_run_options(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(check("--attach native --nice -3"), Ok(()));
        let said = check("--nice 100").unwrap_err();
        assert!(said.starts_with("invalid value '100' for '--nice <N>': write a"), "{said}");
    }
}

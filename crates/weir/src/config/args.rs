//! The command line's part of the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use weir_bpf::cpulist::CpuList;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Share};

use super::layer::{Origin, Sourced};
use super::settings::Layer;
use super::value;
use crate::choice::{Attach, Forward, Napi, PolicyArg, PreferArg};

const SETTINGS: &str = "Settings, also in the configuration file";

/// Settings. Each that is given holds for every interface, whatever the file says.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingArgs {
    /// Read settings from this file; those on the command line override it [default:
    /// /etc/weir/weir.toml, if it exists]
    #[arg(long, value_name = "FILE", help_heading = SETTINGS)]
    pub config: Option<PathBuf>,
    /// The least that processes get of a CPU that they want; receiving gets at most the rest; 1% to 99%
    /// [default: 50%]
    #[arg(long, value_parser = value::user_share, value_name = "PERCENT", help_heading = SETTINGS)]
    pub user_share: Option<Share>,
    /// What receiving's share of the CPU is spent on when more packets come in than can be used
    /// [default: separation]
    #[arg(long, value_enum, value_name = "WHAT", help_heading = SETTINGS)]
    pub prefer: Option<PreferArg>,
    /// How long other processes may keep a receiving thread waiting each time, on average, before it may interrupt
    /// them; 100us to 100ms [default: 500us]
    #[arg(long, value_parser = value::timeout, value_name = "TIME", help_heading = SETTINGS)]
    pub timeout: Option<Nanos>,
    /// The time over which shares of a CPU are averaged; 1ms to 1s [default: 10ms]
    #[arg(long, value_parser = value::period, value_name = "TIME", help_heading = SETTINGS)]
    pub period: Option<Nanos>,
    /// Whether packets of heavy senders are discarded before those of light ones, at a UDP socket whose queue is
    /// full; true or false [default: false]
    #[arg(long, value_parser = value::boolean, value_name = "BOOL", help_heading = SETTINGS)]
    pub selective: Option<bool>,
    /// Give the threads that receive this fixed nice value, from -20 (first) to 19 (last), and leave the governor and
    /// its shares off; no effect where softirqs poll [default: the governor moves it]
    #[arg(
        long,
        value_parser = value::nice,
        overrides_with = "nice",
        value_name = "N",
        help_heading = SETTINGS
    )]
    pub nice: Option<i32>,
    /// Where the gate is attached [default: auto]
    #[arg(long, value_enum, value_name = "WHERE", help_heading = SETTINGS)]
    pub attach: Option<Attach>,
    /// Who polls the interface [default: threads]
    #[arg(long, value_enum, value_name = "WHO", help_heading = SETTINGS)]
    pub napi: Option<Napi>,
    /// Who forwards packets, of a router, between the interfaces that weir protects so [default: kernel]
    #[arg(long, value_enum, value_name = "WHO", help_heading = SETTINGS)]
    pub forward: Option<Forward>,
    /// Keep the threads that receive on these CPUs, such as 0-3,8; no effect where softirqs poll [default: leave them
    /// where they are]
    #[arg(long, value_name = "LIST", help_heading = SETTINGS)]
    pub cpus: Option<CpuList>,
    /// Whether packets are discarded [default: on]
    #[arg(long, value_enum, value_name = "WHAT", help_heading = SETTINGS)]
    pub policy: Option<PolicyArg>,
    /// Switch receive packet steering (RPS) off while weir runs: it moves packets to softirqs, which the governor does
    /// not control
    #[arg(long, help_heading = SETTINGS)]
    pub rps_off: bool,
}

impl SettingArgs {
    /// What the command line says, which names these interfaces.
    pub(super) fn layer(&self, interfaces: &[String]) -> Layer {
        Layer {
            user_share: said(self.user_share),
            prefer: said(self.prefer.map(Into::into)),
            timeout: said(self.timeout),
            period: said(self.period),
            selective: said(self.selective),
            nice: said(self.nice.map(|nice| Some(Nice(nice)))),
            attach: said(self.attach),
            napi: said(self.napi),
            forward: said(self.forward),
            cpus: said(self.cpus.clone().map(Some)),
            policy: said(self.policy),
            rps_off: said(self.rps_off.then_some(true)),
            protect: said((!interfaces.is_empty()).then_some(true)),
        }
    }
}

fn said<T>(value: Option<T>) -> Option<Sourced<T>> {
    value.map(|value| Sourced { value, origin: Origin::Flag })
}

/// Arguments of `weir config`.
#[derive(Args, Debug)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say whether a file is valid, and if not, name every mistake with its line
    Check(CheckArgs),
    /// Show the settings that `weir run` would use, and where each comes from
    Show(ShowArgs),
    /// Write a file for this host, with comments, from what `weir doctor` reads
    Init(InitArgs),
}

/// Arguments of `weir config init`.
#[derive(Args, Debug)]
#[command(after_help = "\
Looks at this host for a second and writes the file that the service, or `weir run` without arguments, reads. Every
interface that weir could protect is in it; the one that hands most packets to sockets is switched on. Never overwrites
a file.

Examples:
  sudo weir config init            write /etc/weir/weir.toml
  weir config init -               only print it
  sudo weir config init && sudo systemctl enable --now weir")]
pub struct InitArgs {
    /// The new file; `-` for standard output
    #[arg(value_name = "FILE", default_value = super::layer::DEFAULT_FILE)]
    pub file: PathBuf,
}

/// Arguments of `weir config check`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exits with 0 if the file is valid, with 1 if it is not or cannot be read. Changes nothing.

Examples:
  weir config check /etc/weir/weir.toml
  weir config check new.toml && sudo cp new.toml /etc/weir/weir.toml && sudo kill -HUP PID")]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE", default_value = super::layer::DEFAULT_FILE)]
    pub file: PathBuf,
}

/// Arguments of `weir config show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows what `weir run` would use with the same file and options. `weir status` shows what runs now. A setting comes from the command line, else from the interface's own section of the
file, else from above the sections, else it is weir's default.

Examples:
  weir config show                         of any interface, and of those that the file names
  weir config show eth1 --user-share 70%   of eth1, if this were given to `weir run`
  weir config show --json | jq '.interfaces[].settings.user_share'")]
pub struct ShowArgs {
    /// The interfaces [default: any, and each that the file has a section for]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON; its shape has a version, `schema`
    #[arg(long)]
    pub json: bool,
}

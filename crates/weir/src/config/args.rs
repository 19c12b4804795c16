//! The command line's part of the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use weir_bpf::cpulist::CpuList;
use weir_bpf::units::Nice;
use weir_policy::{Nanos, Share};

use super::layer::{Layer, Origin, Sourced};
use super::value::{self, PreferArg};
use crate::cli::{Attach, Forward, Napi, PolicyArg};

/// Settings. Each that is given holds for every interface, whatever the file says.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingArgs {
    /// Read settings from this file; those on the command line override it [default:
    /// /etc/weir/weir.toml, if it exists]
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub config: Option<PathBuf>,
    /// What processes get of a CPU that they want, at least; network input gets the rest at most;
    /// 1% to 99% [default: 50%]
    #[arg(long, value_parser = value::user_share, value_name = "PERCENT", help_heading = "Settings")]
    pub user_share: Option<Share>,
    /// What input's share is for when more comes in than can be used [default: separation]
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Settings")]
    pub prefer: Option<PreferArg>,
    /// How long other processes may keep input waiting at a time, on average, before it may interrupt them; 100us
    /// to 100ms [default: 500us]
    #[arg(long, value_parser = value::timeout, value_name = "TIME", help_heading = "Settings")]
    pub timeout: Option<Nanos>,
    /// Over how long shares are averaged; 1ms to 1s [default: 10ms]
    #[arg(long, value_parser = value::period, value_name = "TIME", help_heading = "Settings")]
    pub period: Option<Nanos>,
    /// Whether heavy senders are shed before light ones at a UDP socket whose queue is full [default:
    /// false]
    #[arg(long, value_parser = value::boolean, value_name = "BOOL", help_heading = "Settings")]
    pub selective: Option<bool>,
    /// Give the NAPI threads this fixed weight, from -20 (heaviest) to 19 (lightest), and leave the
    /// governor off [default: the governor moves their weight]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_parser = value::nice,
        overrides_with = "nice",
        value_name = "N",
        help_heading = "Settings"
    )]
    pub nice: Option<i32>,
    /// Where the gate goes [default: auto]
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Settings")]
    pub attach: Option<Attach>,
    /// Who polls the interface [default: threads]
    #[arg(long, value_enum, value_name = "WHO", help_heading = "Settings")]
    pub napi: Option<Napi>,
    /// Who forwards packets, of a router [default: kernel]
    #[arg(long, value_enum, value_name = "WHO", help_heading = "Settings")]
    pub forward: Option<Forward>,
    /// Keep the NAPI threads on these CPUs, such as 0-3,8 [default: leave them where they are]
    #[arg(long, value_name = "LIST", help_heading = "Settings")]
    pub cpus: Option<CpuList>,
    /// What becomes of what the gate decides [default: on]
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Settings")]
    pub policy: Option<PolicyArg>,
    /// Switch receive packet steering (RPS) off while weir runs: it takes packets to softirqs, which
    /// nothing governs
    #[arg(long, help_heading = "Settings")]
    pub rps_off: bool,
}

impl SettingArgs {
    /// What the command line says.
    pub(super) fn layer(&self) -> Layer {
        Layer {
            user_share: said(self.user_share),
            prefer: said(self.prefer.map(Into::into)),
            timeout: said(self.timeout),
            period: said(self.period),
            selective: said(self.selective),
            nice: said(self.nice.map(Nice)),
            attach: said(self.attach),
            napi: said(self.napi),
            forward: said(self.forward),
            cpus: said(self.cpus.clone()),
            policy: said(self.policy),
            rps_off: said(self.rps_off.then_some(true)),
            protect: None,
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
    /// Say whether a file is valid, and if not, everything that is wrong with it, by line
    Check(CheckArgs),
    /// Show the settings that hold, and where each comes from
    Show(ShowArgs),
    /// Write a file for this host, with comments, from what `weir doctor` reads
    Init(InitArgs),
}

/// Arguments of `weir config init`.
#[derive(Args, Debug)]
#[command(after_help = "\
Looks at this host for a second and writes a file that `weir run` without options goes by. Every interface that weir
could protect is in it; the one that receives most is switched on. Never overwrites a file.

Examples:
  sudo weir config init            write /etc/weir/weir.toml
  weir config init -               only print it
  sudo weir config init && sudo systemctl enable --now weir")]
pub struct InitArgs {
    /// The new file; `-` for standard output
    #[arg(value_name = "FILE", default_value = super::DEFAULT_FILE)]
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
    #[arg(value_name = "FILE", default_value = super::DEFAULT_FILE)]
    pub file: PathBuf,
}

/// Arguments of `weir config show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows what `weir run` would make of the same file and options; it does not look at what runs, which
`weir status` does. A setting comes from the command line, else from the interface's own section of the
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

//! The command line's part of the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::settings::{HEADING, Layer, said};

/// Settings. Each that is given holds for every interface, whatever the file says.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingArgs {
    /// Read settings from this file; those on the command line override it [default:
    /// /etc/weir/weir.toml, if it exists]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub config: Option<PathBuf>,
    /// The others.
    #[command(flatten)]
    pub said: Layer,
}

impl SettingArgs {
    /// What the command line says, which names these interfaces.
    pub(super) fn layer(&self, interfaces: &[String]) -> Layer {
        let protect = (!interfaces.is_empty()).then_some(said(true));
        Layer { protect, ..self.said.clone() }
    }
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
    Show(Box<ShowArgs>),
    /// Write a file for this host, with comments, from what `weir doctor` reads
    Init(InitArgs),
}

/// Arguments of `weir config init`.
#[derive(Args, Debug)]
#[command(after_help = "\
Looks at this host for a second and writes the file that the service, or `weir run` without arguments, reads. In it are
interfaces that weir could protect, 64 at most; the one that hands most packets to sockets is switched on. Never
overwrites a file.

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
    /// Also check that it fits this host: that the CPUs it names exist
    #[arg(long)]
    pub host: bool,
}

/// Arguments of `weir config show`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows what `weir run` would use with the same file and options; `weir status` shows what runs now. A setting comes from
the command line, else from the interface's own section of the file, else from above the sections, else it is weir's
default.

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

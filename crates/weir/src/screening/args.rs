//! Arguments of `weir screen`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::choice::{Forward, to_a_year};

/// Arguments of `weir screen`.
#[derive(Args, Debug)]
#[command(after_help = "\
Packets that the host forwards between the two interfaces' networks, in either direction, are judged by the rules: the
first packet of each flow here, the others, and replies, in the kernel. Packets for the host itself pass. SIGHUP reads
the rules again, SIGUSR1 prints counters.

RULES has one rule a line; the first that matches decides; packets that match none are dropped; # begins a comment:

    ACTION [PROTOCOL] [from NETWORKS [port PORTS]] [to NETWORKS [port PORTS]] [flags SET[/OF]] [type TYPES] [log]

ACTION is accept, drop or reject; PROTOCOL is tcp, udp, icmp, icmp6 or `proto N`; networks, ports and types are lists
with commas between them:

    accept tcp from 192.0.2.0/24 to any port 80,8000-8080
    reject udp to 2001:db8::/32 log

Examples:
  weir screen rules.txt --check
  sudo weir screen rules.txt --in eth0 --out eth1
  sudo weir screen rules.txt --explain flood.pcap
  sudo weir screen --clear eth0 --clear eth1")]
pub struct ScreenArgs {
    /// The rules
    #[arg(value_name = "RULES", required_unless_present = "clear")]
    pub rules: Option<PathBuf>,
    /// The interface of one side
    #[arg(long = "in", value_name = "IFACE", required_unless_present_any = ["check", "explain", "clear"])]
    pub inside: Option<String>,
    /// The interface of the other side
    #[arg(long = "out", value_name = "IFACE", required_unless_present_any = ["check", "explain", "clear"])]
    pub outside: Option<String>,
    /// Read the rules, say what is wrong with them, and end
    #[arg(long, conflicts_with = "explain")]
    pub check: bool,
    /// Say of each packet of a capture what the rules make of it, and end; `-` for standard input
    #[arg(long, value_name = "PCAP")]
    pub explain: Option<PathBuf>,
    /// Take away what a screen that ended has left on an interface, and end
    #[arg(long, value_name = "IFACE", conflicts_with_all = ["rules", "inside", "outside", "check", "explain"])]
    pub clear: Vec<String>,
    /// What becomes of packets while the screen does not run
    #[arg(long, value_enum, default_value_t = Fail::Closed)]
    pub fail: Fail,
    /// Where packets are dropped
    #[arg(long, value_enum, default_value_t = Place::Tc)]
    pub attach: Place,
    /// Who forwards packets of accepted flows; `xdp` needs `--attach native`
    #[arg(long, value_enum, default_value_t = Forward::Kernel)]
    pub forward: Forward,
    /// How long a flow is remembered without a packet, 1s to 1year
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = to_a_year)]
    pub idle: Duration,
    /// How many flows are remembered of each kind: established, accepted, and denied ones
    #[arg(long, value_name = "N", default_value_t = 1 << 16, value_parser = clap::value_parser!(u32).range(1024..=1 << 24))]
    pub flows: u32,
    /// Print counters this often, 1s to 1year
    #[arg(long, value_name = "TIME", value_parser = to_a_year)]
    pub stats: Option<Duration>,
    /// Print each decision, not only those of rules that end in `log`
    #[arg(long)]
    pub log: bool,
    /// Print counters and decisions as JSON objects, one a line
    #[arg(long)]
    pub json: bool,
}

/// What becomes of packets while the screen does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fail {
    /// Flows that were accepted go on, everything else is dropped
    Closed,
    /// Everything passes
    Open,
}

/// Where packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// At tc ingress, where other programs can be too
    Tc,
    /// In the driver (XDP), at the least cost
    Native,
}

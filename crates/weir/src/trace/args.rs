//! Arguments of `weir trace`.

use std::time::Duration;

use clap::Args;

use crate::choice::to_a_year;

/// Arguments of `weir trace`.
#[derive(Args, Debug)]
#[command(after_help = "\
FILTER is an expression as of tcpdump (`man pcap-filter`). Times are in microseconds from when a packet came to the
stack. What is discarded in the driver (`weir run --attach native`) never comes there. Tracing costs a
receiver at its limit about a quarter of its packets, whichever interface they come by.

Examples:
  sudo weir trace eth1 -c 3 udp port 53        the path of three packets to the process that reads them
  sudo weir trace eth1 --duration 10s --summary   where the time goes: each step's median and 99th percentile
  sudo weir trace eth1 dst host 198.51.100.7   what a router does with packets to a host
  sudo weir trace eth1 -c 100 --json tcp port 443 | jq .")]
pub struct TraceArgs {
    /// The interface that receives the packets
    #[arg(value_name = "IFACE")]
    pub interface: String,
    /// End after so many packets
    #[arg(short = 'c', long, value_name = "N",
        value_parser = clap::builder::RangedI64ValueParser::<u64>::from(1..))]
    pub packets: Option<u64>,
    /// End after so long
    #[arg(long, value_name = "TIME", value_parser = to_a_year)]
    pub duration: Option<Duration>,
    /// Follow so many packets a second at most, in tens, rounded up, on each CPU that receives some
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub rate: u32,
    /// Print only the summary, no packets
    #[arg(long)]
    pub summary: bool,
    /// Print JSON objects, one a line, the last of them `"event": "summary"`
    #[arg(long)]
    pub json: bool,
    /// Which packets, in tcpdump's words [default: all]
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

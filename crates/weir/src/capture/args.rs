//! Arguments of `weir capture`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use weir_bpf::tap::SNAPLEN_MAX;

use crate::choice::to_a_year;

/// Arguments of `weir capture`.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["write", "count"])), after_help = "\
FILTER is an expression as of tcpdump (`man pcap-filter`); it runs in the kernel, before anything is copied. Ctrl-C ends
the capture; the file is complete then.

Examples:
  sudo weir capture -i eth1 -w flood.pcapng                 tshark -r flood.pcapng reads it
  sudo weir capture -i eth1 -w head.pcapng --snaplen 96 udp port 53
  sudo weir capture -i eth1 -w - | tcpdump -n -r -          print packets as they come
  sudo weir capture -i eth1 --count 'tcp[tcpflags] & tcp-syn != 0'
  sudo weir capture -i mirror0 -w all.pcapng --attach native   a mirror port, in the driver
  sudo weir capture -i eth1 -w ring.pcapng --rotate-size 100M --keep 10")]
pub struct CaptureArgs {
    /// The interface
    #[arg(short, long, value_name = "IFACE")]
    pub interface: String,
    /// Write the packets to this file, in pcapng; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write no packets; print each second how many there were
    #[arg(long, conflicts_with_all = ["packets", "rotate_size", "rotate_time"])]
    pub count: bool,
    /// How many bytes of each packet to copy, at most
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAPLEN_MAX,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAPLEN_MAX)))]
    pub snaplen: u32,
    /// End after so many packets
    #[arg(short = 'c', long, value_name = "N",
        value_parser = clap::builder::RangedI64ValueParser::<u64>::from(1..))]
    pub packets: Option<u64>,
    /// End after so long
    #[arg(long, value_name = "TIME", value_parser = to_a_year)]
    pub duration: Option<Duration>,
    /// Which packets: those that the interface receives, those that it sends, or both
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    pub direction: Direction,
    /// Where: at a packet socket, as tcpdump, or in the interface's driver (XDP), where it costs less. There it
    /// takes received packets alone, and other hosts' frames end there if nobody else wants them
    #[arg(long, value_enum, default_value_t = Place::Socket)]
    pub attach: Place,
    /// After so many packets that match within 1 ms (250, if no number is given), take none for 1 ms, so that other
    /// processes get the CPU. With `--attach native`, other hosts' frames end in the driver meanwhile, if nobody else
    /// wants them; packets for this host always reach it
    #[arg(long, value_name = "PACKETS", num_args = 0..=1, require_equals = true, default_missing_value = "250",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub circuit_breaker: Option<u32>,
    /// Leave the interface as it is: by default it receives other hosts' packets too while the capture runs
    #[arg(short = 'p', long)]
    pub no_promiscuous: bool,
    /// Room for packets that have not been written yet, such as 64M; rounded up to a power of two
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = ring_size)]
    pub buffer: u32,
    #[command(flatten)]
    pub rotation: Rotation,
    /// Print JSON objects, one a line, the last of them `"event": "summary"`
    #[arg(long)]
    pub json: bool,
    /// Which packets, in tcpdump's words [default: all]
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// When to begin another file.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Rotation {
    /// Begin another file when one has so many bytes, such as 100M. The files are numbered and dated:
    /// FILE_00001_20261124193000.pcapng
    #[arg(long, value_name = "BYTES", value_parser = file_size, requires = "write")]
    pub rotate_size: Option<u64>,
    /// Begin another file after so long, such as 1h
    #[arg(long, value_name = "TIME", value_parser = to_a_year, requires = "write")]
    pub rotate_time: Option<Duration>,
    /// Of the files of this capture, keep the newest N, and remove the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
}

impl Rotation {
    pub fn rotates(&self) -> bool {
        self.rotate_size.is_some() || self.rotate_time.is_some()
    }
}

/// Which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Those that the interface receives
    In,
    /// Those that it sends
    Out,
    /// All
    Both,
}

/// Where packets are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// At a packet socket
    Socket,
    /// In the driver
    Native,
}

/// The kernel's bounds on a ring: a page, and what a map's number of entries can say.
const RING_MIN: u64 = 4096;
const RING_MAX: u64 = 1 << 31;
/// Room for a file's headers and one long packet.
const FILE_MIN: u64 = 100_000;

fn ring_size(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?.next_power_of_two();
    let fits = (RING_MIN..=RING_MAX).contains(&bytes);
    let bytes = u32::try_from(bytes).ok().filter(|_| fits);
    bytes.ok_or_else(|| "between 4096 bytes and 2G".into())
}

fn file_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    if bytes < FILE_MIN { Err("100k at least".into()) } else { Ok(bytes) }
}

/// A number of bytes, by thousands.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['k', 'M', 'G']);
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return Err("such as 500k, 100M or 2G".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "such as 500k, 100M or 2G".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes <= 1 << 60)
        .ok_or_else(|| "more than any file has".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_bounds() {
        assert_eq!(file_size("100M"), Ok(100_000_000));
        assert_eq!(ring_size("16M"), Ok(16_777_216));
        for bad in ["", "M", "1kM", "1.5M", "-1", "1T", "99999999999999999999", "20000000000G"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert!(file_size("99k").is_err() && ring_size("1k").is_err() && ring_size("3G").is_err());
        assert!(to_a_year("0s").is_err() && to_a_year("1").is_err() && to_a_year("1s").is_ok());
    }
}

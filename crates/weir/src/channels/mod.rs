//! `weir channels`: where packets are going.

mod look;
mod rows;
mod sockets;
mod sources;
mod table;
pub mod top;
mod watch;

use std::io::Write;

use weir_bpf::sys::caps::Capability;

use self::rows::Report;
use self::watch::Watch;
use crate::cli::ChannelsArgs;
use crate::error::{Error, Result};
use crate::out;
use crate::privilege;
use crate::status::InterfaceStatus;

/// To open another process's maps (`bpf_map_get_fd_by_id()`).
const NEEDED: [Capability; 1] = [Capability::SysAdmin];

/// Runs the command.
pub fn run(args: &ChannelsArgs) -> Result<()> {
    privilege::check_for("weir channels", &NEEDED)?;
    if args.sources && args.interval.is_zero() {
        let problem =
            "`--sources` samples what is discarded during the interval, and there is none";
        return Err(Error::refused(problem, "leave out `--interval 0`"));
    }
    let mut watch = Watch::open(args.interface.as_deref(), args.sources)?;
    let to_the_end = |time| {
        std::thread::sleep(time);
        true
    };
    match watch.report(args.interval, to_the_end)? {
        Some(report) => print(watch.running(), &report, args),
        None => Ok(()),
    }
}

fn print(running: &[InterfaceStatus], report: &Report, args: &ChannelsArgs) -> Result<()> {
    if args.nft {
        let channels = report.interfaces.iter().flat_map(|interface| &interface.channels);
        let sources = channels.filter_map(|channel| channel.sources.as_ref());
        out::print(|out| sources::write_nft(out, sources))
    } else if args.json {
        out::json(report)
    } else {
        out::print(|out| {
            for status in running {
                if let Some(silence) = status.silence() {
                    writeln!(out, "{}: {silence}\n", status.interface)?;
                }
            }
            table::write(out, report)
        })
    }
}

//! `weir doctor`: what is wrong with how this host receives, before anything is attached or changed.
//!
//! Three steps that know nothing of each other: two samples of what the kernel has counted ([`sample`], [`between`])
//! become one [`Reading`], from which [`diagnosis`] draws its findings, which [`print`] shows. A reading can be recorded
//! and diagnosed elsewhere.

mod between;
mod diagnosis;
mod print;
mod reading;
mod sample;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use serde::Serialize;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

pub use self::diagnosis::{Diagnosis, Verdict};
pub use self::print::lines;
pub use self::reading::{InterfaceReading, Reading};
use self::sample::Looker;
use crate::error::{Error, Result};
use crate::named_file::{self, New};
use crate::out;
use crate::signals;
use crate::status::SCHEMA;

/// Far more than `--record` writes: that is mostly one entry a socket.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Arguments of `weir doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Reads counters twice and compares them. It attaches nothing and changes nothing. Without root it sees less, and
says what it misses: processes of other users' sockets, what diverts packets, which XDP program is attached.

Exits with 0 if all is well, with 1 if something is wrong, and with 3 if it cannot tell.

Examples:
  weir doctor                              of this network namespace
  sudo weir doctor --seconds 10            a closer look
  sudo weir doctor --record ticket.json    everything that was read, to send to somebody
  weir doctor --from ticket.json           and what that means
  weir doctor --json | jq '.findings[] | {cause, whose, advice}'")]
pub struct DoctorArgs {
    /// The interfaces [default: all that are up, but for loopback]
    #[arg(value_name = "IFACE", conflicts_with = "from")]
    pub interfaces: Vec<String>,
    /// The time between the two looks, in seconds; 1 to 3600
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "from",
        value_parser = RangedI64ValueParser::<u64>::from(1..=3600))]
    pub seconds: u64,
    /// Print JSON; its shape has a version, `schema`
    #[arg(long)]
    pub json: bool,
    /// Also write everything that was read to this new file; Ctrl-C then ends the look early
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub record: Option<PathBuf>,
    /// Look at this recording instead of at this host
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema: u32,
    seconds: f64,
    kernel: &'a str,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// Runs the command. Needs no privilege.
///
/// # Errors
/// If an interface that was named does not exist, or a file cannot be used. What the kernel does not tell is no
/// error: the diagnosis says what was not seen.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let time = Duration::from_secs(args.seconds);
    let reading = match (&args.from, &args.record) {
        (Some(path), _) => recorded(path)?,
        (None, Some(path)) => record(path, &args.interfaces, time)?,
        (None, None) => read(&args.interfaces, time)?,
    };
    let diagnosis = Diagnosis::of(&reading);
    if args.json {
        let (seconds, kernel) = (reading.seconds, reading.kernel.as_str());
        out::json(&Printed { schema: SCHEMA, seconds, kernel, diagnosis: &diagnosis })?;
    } else {
        out::print(|out| {
            lines(&reading, &diagnosis).iter().try_for_each(|line| writeln!(out, "{line}"))
        })?;
    }
    Ok(match diagnosis.verdict {
        Verdict::Well => ExitCode::SUCCESS,
        Verdict::Wrong => ExitCode::FAILURE,
        Verdict::Unknown => ExitCode::from(3),
    })
}

/// Looks at this host for so long.
pub fn read(interfaces: &[String], time: Duration) -> Result<Reading> {
    read_while(interfaces, || std::thread::sleep(time))
}

/// The same, while something else takes its time.
pub fn read_while(interfaces: &[String], wait: impl FnOnce()) -> Result<Reading> {
    let mut looker = Looker::new(interfaces)?;
    let earlier = looker.look();
    wait();
    let later = looker.look();
    Ok(looker.reading(&earlier, &later))
}

/// Reads, and writes into a new file what was read. A signal to end brings the second look forward.
fn record(path: &Path, interfaces: &[String], time: Duration) -> Result<Reading> {
    let failed = |source| Error::file("create", path, source);
    let stop = signals::catch(&[SIGINT, SIGTERM, SIGHUP])?;
    // Before the look, which may be long. Names of processes and addresses are not for everybody, and what was recorded
    // before may be wanted still.
    let file = New::create(path, 0o600).map_err(failed)?;
    let reading = read_while(interfaces, || {
        signals::comes(&stop, time);
    })?;
    let mut text = serde_json::to_vec_pretty(&reading).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    file.fill(&text).map_err(failed)?;
    Ok(reading)
}

fn recorded(path: &Path) -> Result<Reading> {
    let failed = |source| Error::file("read", path, source);
    let text = named_file::read(path, RECORD_BYTES_MAX).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| Error::Malformed {
        path: path.into(),
        problem: error.to_string(),
        remedy: "give a file that `weir doctor --record` wrote".into(),
    })
}

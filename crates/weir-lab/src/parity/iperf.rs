//! iperf3, as Debian has it: a TCP stream between programs that are not the lab's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use weir_bpf::units::CpuId;

use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::topology::Host;
use crate::worker_process::Program;

/// Beside what it measures, it greets and reports.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(10);

/// Where iperf3 is, and which it is, such as `iperf 3.12`.
///
/// # Errors
/// Where there is none.
pub fn find() -> Result<(PathBuf, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/local/bin".into()]);
    let program = places.map(|place| place.join("iperf3")).find(|program| program.is_file());
    let Some(program) = program else {
        return Err(Error::refused(
            format!("{} needs iperf3, which is not installed", super::NAME),
            "apt-get install iperf3, or run ./setup.sh",
        ));
    };
    let output = Command::new(&program)
        .arg("--version")
        .output()
        .map_err(|source| Error::io("run", program.display().to_string(), source))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version: Vec<&str> = said.split_whitespace().take(2).collect();
    Ok((program, version.join(" ")))
}

/// Starts the server that receives, on a host.
///
/// # Errors
/// When there is no process to be had.
pub fn serve(program: &Path, host: &Host, cpu: CpuId, log: &Path) -> Result<Program> {
    let (address, log) = (host.address.1.to_string(), log.display().to_string());
    let program = program.display().to_string();
    // That it was ended is nobody's concern.
    let arguments = [&program, "-s", "-B", &address, "--logfile", &log].map(str::to_owned);
    Program::start(&host.netns_path, cpu, &arguments)
}

/// What it says in the end.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
struct End {
    sum_received: Option<Sum>,
}

#[derive(Clone, Copy, Deserialize)]
struct Sum {
    seconds: f64,
    bits_per_second: f64,
}

/// Sends for so many seconds from `netns`; Mbit/s received, and in how many seconds.
///
/// # Errors
/// When it does not get through, or the user stops it.
pub fn send(
    program: &Path,
    (netns, cpu): (&Path, CpuId),
    (server, seconds): (std::net::IpAddr, u64),
    log: &Path,
    stop: &Stop,
) -> Result<(f64, f64)> {
    let deadline = Instant::now() + PATIENCE + Duration::from_secs(seconds);
    let (server, length) = (server.to_string(), seconds.to_string());
    let log_name = log.display().to_string();
    let program = program.display().to_string();
    loop {
        // It appends.
        let _ = std::fs::remove_file(log);
        let arguments = [&program, "-c", &server, "-t", &length, "--json", "--logfile", &log_name];
        let mut client = Program::start(netns, cpu, &arguments.map(str::to_owned))?;
        while client.is_running() && Instant::now() < deadline {
            stop.sleep(STEP)?;
        }
        drop(client);
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let report: Option<Report> = serde_json::from_str(&said).ok();
        match report {
            Some(Report { end: End { sum_received: Some(sum) }, error: None }) => {
                return Ok((sum.bits_per_second / 1e6, sum.seconds));
            }
            // The server may not listen yet.
            _ if Instant::now() < deadline => stop.sleep(STEP)?,
            other => {
                let why = other.and_then(|report| report.error).unwrap_or_default();
                return Err(Error::refused(
                    "the lab's iperf3 did not get through",
                    format!("it says: {why}"),
                ));
            }
        }
    }
}

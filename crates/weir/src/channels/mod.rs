//! `weir channels`: where packets are going.

mod look;
mod rows;
mod sockets;
mod sources;
mod table;

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_bpf::samples::READ_EVERY;
use weir_bpf::sys::caps::Capability;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;

use self::look::{Gate, Look};
use self::rows::{InterfaceChannels, Report};
use self::sockets::Behind;
use self::sources::Sources;
use crate::channel_name::Namer;
use crate::cli::ChannelsArgs;
use crate::error::{Error, Result};
use crate::owners::{Owners, Ownership};
use crate::privilege;
use crate::rundir::{RUN_DIR, RunDir};
use crate::status::{InterfaceStatus, Overview, SCHEMA};

/// To open another process's maps (`bpf_map_get_fd_by_id()`).
const NEEDED: [Capability; 1] = [Capability::SysAdmin];

/// Gates that sleep count for so much longer than is asked for.
const WATCHED_LONGER: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// Without the privilege, or if the interface is not protected.
pub fn run(args: &ChannelsArgs) -> Result<()> {
    privilege::check_for("weir channels", &NEEDED)?;
    if args.sources && args.interval.is_zero() {
        let problem =
            "`--sources` samples what is discarded during the interval, and there is none";
        return Err(Error::refused(problem, "leave out `--interval 0`"));
    }
    let dir = RunDir::open(Path::new(RUN_DIR))?;
    let running = running(dir.as_ref(), args.interface.as_deref())?;
    let gates: Vec<Gate> = running.iter().map(Gate::open).collect::<Result<_>>()?;
    for gate in gates.iter().filter(|_| !args.interval.is_zero()) {
        gate.watch(args.interval + WATCHED_LONGER);
    }
    let mut sources: Option<Vec<Sources>> = match args.sources {
        true => Some(running.iter().map(Sources::open).collect::<Result<_>>()?),
        false => None,
    };
    let look = || -> Result<Vec<Look>> {
        let Some(dir) = &dir else { return Ok(Vec::new()) };
        gates.iter().zip(&running).map(|(gate, status)| gate.look(dir, status)).collect()
    };
    let mut owners = opened(Owners::open());
    let mut owned = || owners.as_mut().and_then(|owners| opened(owners.look()));
    let earlier = if args.interval.is_zero() { None } else { Some((look()?, owned())) };
    match &mut sources {
        Some(sources) => sample(&gates, sources, args.interval),
        None => std::thread::sleep(args.interval),
    }
    let (later, owned_later) = (look()?, owned());
    let (earlier, owned_earlier) = earlier.unzip();
    let behind = owned_later.map(|later_owned| {
        behind(owned_earlier.flatten(), later_owned, running.iter().zip(&later))
    });

    let namer = Namer::new(&Links::open()?)?;
    let interfaces = running.iter().zip(&later).enumerate().map(|(at, (status, later))| {
        let earlier = earlier.as_ref().and_then(|earlier| earlier.get(at));
        let sources = sources.as_ref().and_then(|sources| sources.get(at));
        InterfaceChannels::new(status, earlier, later, &namer, behind.as_ref(), sources)
    });
    let report = Report { schema: SCHEMA, interfaces: interfaces.collect() };
    print(&report, args)
}

/// Reads samples of what the gates discard, for so long.
fn sample(gates: &[Gate], sources: &mut [Sources], time: Duration) {
    let until = Instant::now() + time;
    loop {
        gates.iter().for_each(Gate::sample);
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(READ_EVERY));
        sources.iter_mut().for_each(Sources::read);
        if left <= READ_EVERY {
            return;
        }
    }
}

/// Channels can be listed without their owners.
fn opened<T>(result: weir_bpf::Result<T>) -> Option<T> {
    result.inspect_err(|error| eprintln!("weir: owners are not shown: {error}")).ok()
}

/// What is behind the channels that the gates have seen.
fn behind<'a>(
    earlier: Option<Ownership>,
    later: Ownership,
    looks: impl Iterator<Item = (&'a InterfaceStatus, &'a Look)>,
) -> Behind {
    let channels =
        looks.flat_map(|(status, look)| look.each().map(|(channel, _)| (channel, status.ifindex)));
    Behind::new(earlier, later, channels)
}

/// The protected interfaces of this network namespace, or the one that is asked for.
fn running(dir: Option<&RunDir>, named: Option<&str>) -> Result<Vec<InterfaceStatus>> {
    let overview = Overview::read(dir, Some(NetNs::current()?.inode()))?;
    let mut running: Vec<_> =
        overview.interfaces.into_iter().filter(|interface| interface.running).collect();
    if let Some(name) = named {
        running.retain(|interface| interface.interface == name);
    }
    if running.is_empty() {
        let what = named.unwrap_or("no interface of this network namespace");
        let problem = if named.is_some() { "is not protected" } else { "is protected" };
        let remedy = format!("`sudo weir run {}` protects it", named.unwrap_or("IFACE"));
        return Err(Error::refused(format!("{what} {problem}"), remedy));
    }
    Ok(running)
}

fn print(report: &Report, args: &ChannelsArgs) -> Result<()> {
    let mut out = Vec::new();
    let channels = || report.interfaces.iter().flat_map(|interface| &interface.channels);
    let written = if args.nft {
        sources::write_nft(&mut out, channels().filter_map(|channel| channel.sources.as_ref()))
    } else if args.json {
        serde_json::to_writer_pretty(&mut out, report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        table::write(&mut out, report)
    };
    match written.and_then(|()| io::stdout().lock().write_all(&out)) {
        // `weir channels | head` has seen what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|source| Error::system("write to standard output", source)),
    }
}

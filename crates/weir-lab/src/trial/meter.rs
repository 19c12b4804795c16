//! What weir's meter has charged, as its users see it: `weir channels --json`, and `weir status --json` for
//! what discarding costs, which is nobody's.

use std::time::{Duration, Instant};

use serde::Deserialize;
use weir_bpf::units::Nanos;
use weir_bpf::verdict::Verdict;

use super::snapshot::{Observer, Snapshot};
use crate::bench::{Bench, FLOODED_PORT};
use crate::error::{Error, Result};
use crate::results::Mode;
use crate::stop::Stop;
use crate::worker_process::{Daemon, ask_weir};

/// A daemon publishes its status each second.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(50);

/// Since the daemon began, which is with the trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metered {
    /// To the flooded application's channel.
    pub flooded: Nanos,
    /// To all channels.
    pub charged: Nanos,
    /// What the NAPI threads ran, by perf.
    pub input: Nanos,
    /// What discarding took; `None` where no status told.
    pub discarding: Option<Nanos>,
}

#[derive(Deserialize)]
struct Channels {
    interfaces: Vec<Interface>,
}

#[derive(Deserialize)]
struct Interface {
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    kind: String,
    port: Option<u16>,
    cpu: Option<Cpu>,
}

#[derive(Deserialize)]
struct Cpu {
    charged_ns: u64,
}

#[derive(Deserialize)]
struct Statuses {
    interfaces: Vec<Status>,
}

#[derive(Deserialize)]
struct Status {
    verdicts: Vec<Count>,
    governed: Vec<Governed>,
}

#[derive(Deserialize)]
struct Count {
    packets: u64,
}

#[derive(Deserialize)]
struct Governed {
    discarding_ns: u64,
}

/// Asks the running daemon of a mode, when every packet has ended somewhere.
pub(super) fn read(
    observer: &Observer<'_>,
    (before, after): (&Snapshot, &Snapshot),
    daemon: &Daemon,
    stop: &Stop,
) -> Result<Metered> {
    let (bench, mode) = (observer.bench, observer.mode);
    let ran = |snapshot: &Snapshot| snapshot.books.and_then(|books| books.input_ns).unwrap_or(0);
    let channels: Channels = ask(bench, mode, &["channels", "--json", "--interval", "0"])?;
    let of = |is_wanted: fn(&Channel) -> bool| {
        let all = channels.interfaces.iter().flat_map(|interface| &interface.channels);
        let charged = all.filter(|channel| is_wanted(channel)).filter_map(|c| c.cpu.as_ref());
        Nanos(charged.map(|cpu| cpu.charged_ns).sum())
    };
    Ok(Metered {
        flooded: of(|channel| channel.kind == "udp" && channel.port == Some(FLOODED_PORT)),
        charged: of(|_| true),
        input: Nanos(ran(after) - ran(before)),
        discarding: discarding(bench, mode, daemon, stop)?,
    })
}

fn ask<T: serde::de::DeserializeOwned>(bench: &Bench, mode: Mode, command: &[&str]) -> Result<T> {
    let netns = &bench.sut(mode).host.netns_path;
    let answer = ask_weir(netns, bench.generator_cpu, command)?;
    serde_json::from_value(answer).map_err(|error| {
        let object = command.join(" ");
        Error::refused(format!("`weir {object}` is not understood: {error}"), "please report this")
    })
}

/// What discarding took, as of a status that knows of all packets.
fn discarding(bench: &Bench, mode: Mode, daemon: &Daemon, stop: &Stop) -> Result<Option<Nanos>> {
    let counters = daemon.counters.counters()?;
    let discarded = counters.verdict(Verdict::Discard).packets;
    if discarded == 0 {
        return Ok(Some(Nanos(0)));
    }
    let all = discarded + counters.verdict(Verdict::Pass).packets;
    let deadline = Instant::now() + PUBLISHED_WITHIN;
    loop {
        let statuses: Statuses = ask(bench, mode, &["status", "--json"])?;
        let known =
            |status: &&Status| status.verdicts.iter().map(|v| v.packets).sum::<u64>() >= all;
        if let Some(status) = statuses.interfaces.iter().find(known) {
            return Ok(Some(Nanos(status.governed.iter().map(|input| input.discarding_ns).sum())));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        stop.sleep(STEP)?;
    }
}

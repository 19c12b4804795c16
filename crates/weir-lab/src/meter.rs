//! What weir's meter has charged, as its users see it: `weir channels --json`, and `weir status --json` for
//! what discarding costs, which is nobody's.

use std::time::{Duration, Instant};

use serde::Deserialize;
use weir_bpf::verdict::Verdict;

use crate::arm::Arm;
use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::host::process::{Daemon, ask_weir};
use crate::scene::FLOODED_PORT;
use crate::stop::Stop;

/// A daemon publishes its status each second.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(50);

/// Nanoseconds of CPU time since the daemon began, which is with the trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metered {
    /// Charged to the flooded application's channel.
    pub flooded: u64,
    pub charged: u64,
    /// What discarding took; `None` where no status told.
    pub discarding: Option<u64>,
}

#[derive(Deserialize)]
struct Interfaces<T> {
    interfaces: Vec<T>,
}

#[derive(Deserialize)]
struct Channels {
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

/// Asks the running daemon of an arm, when every packet has ended somewhere.
pub fn read(bench: &Bench, arm: &Arm, daemon: &Daemon, stop: &Stop) -> Result<Metered> {
    let all: Interfaces<Channels> = ask(bench, arm, &["channels", "--json", "--interval", "0"])?;
    let of = |is_wanted: fn(&Channel) -> bool| {
        let channels = all.interfaces.iter().flat_map(|interface| &interface.channels);
        let charged = channels.filter(|channel| is_wanted(channel)).filter_map(|c| c.cpu.as_ref());
        charged.map(|cpu| cpu.charged_ns).sum()
    };
    Ok(Metered {
        flooded: of(|channel| channel.kind == "udp" && channel.port == Some(FLOODED_PORT)),
        charged: of(|_| true),
        discarding: discarding(bench, arm, daemon, stop)?,
    })
}

fn ask<T: serde::de::DeserializeOwned>(bench: &Bench, arm: &Arm, command: &[&str]) -> Result<T> {
    let Some(spec) = &arm.daemon else {
        return Err(Error::refused("this arm runs no weir", "please report this"));
    };
    let answer = ask_weir(&bench.sut(arm).host.netns_path, bench.generator_cpu, spec, command)?;
    serde_json::from_value(answer).map_err(|error| {
        let object = command.join(" ");
        Error::refused(format!("`weir {object}` is not understood: {error}"), "please report this")
    })
}

/// What discarding took, as of a status that knows of all packets.
fn discarding(bench: &Bench, arm: &Arm, daemon: &Daemon, stop: &Stop) -> Result<Option<u64>> {
    let counters = daemon.counters.counters()?;
    let discarded = counters.verdict(Verdict::Discard).packets;
    if discarded == 0 {
        return Ok(Some(0));
    }
    let all = discarded + counters.verdict(Verdict::Pass).packets;
    let deadline = Instant::now() + PUBLISHED_WITHIN;
    loop {
        let statuses: Interfaces<Status> = ask(bench, arm, &["status", "--json"])?;
        let known =
            |status: &&Status| status.verdicts.iter().map(|v| v.packets).sum::<u64>() >= all;
        if let Some(status) = statuses.interfaces.iter().find(known) {
            return Ok(Some(status.governed.iter().map(|input| input.discarding_ns).sum()));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        stop.sleep(STEP)?;
    }
}

//! What weir's meter has charged, as its users see it: `weir channels --json`, and `weir status --json` for
//! what discarding costs, which is nobody's.

use std::time::Duration;

use serde_json::Value;
use weir_bpf::verdict::Verdict;

use crate::arm::Arm;
use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::host::process::{Daemon, ask_weir};
use crate::scene::FLOODED_PORT;
use crate::stop::{Stop, until};

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

/// Asks the running daemon of an arm, when every packet has ended somewhere.
pub fn read(bench: &Bench, arm: &Arm, daemon: &Daemon, stop: &Stop) -> Result<Metered> {
    let told = ask(bench, arm, &["channels", "--json", "--interval", "0"])?;
    let channels = list(&told, "channels")?;
    let charged = |is_wanted: fn(&Value) -> bool| {
        let wanted = channels.iter().filter(|channel| is_wanted(channel));
        wanted.filter_map(|channel| channel["cpu"]["charged_ns"].as_u64()).sum()
    };
    Ok(Metered {
        flooded: charged(|channel| channel["kind"] == "udp" && channel["port"] == FLOODED_PORT),
        charged: charged(|_| true),
        discarding: discarding(bench, arm, daemon, stop)?,
    })
}

/// What a command tells of the lab's interface.
fn ask(bench: &Bench, arm: &Arm, command: &[&str]) -> Result<Value> {
    let Some(spec) = &arm.daemon else { return Ok(Value::Null) };
    let host = &bench.sut(arm).host;
    Ok(ask_weir(&host.netns, bench.generator_cpu, spec, command)?["interfaces"][0].take())
}

fn list<'a>(told: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    let problem = || format!("weir tells of no {name}");
    told[name].as_array().ok_or_else(|| Error::refused(problem(), "please report this"))
}

/// What discarding took, as of a status that knows of all packets.
fn discarding(bench: &Bench, arm: &Arm, daemon: &Daemon, stop: &Stop) -> Result<Option<u64>> {
    let counters = daemon.counters.counters()?;
    let discarded = counters.verdict(Verdict::Discard).packets;
    if discarded == 0 {
        return Ok(Some(0));
    }
    let all = discarded + counters.verdict(Verdict::Pass).packets;
    until(PUBLISHED_WITHIN, || {
        stop.sleep(STEP)?;
        let status = ask(bench, arm, &["status", "--json"])?;
        let sum = |name, figure: &str| -> Result<u64> {
            Ok(list(&status, name)?.iter().filter_map(|one| one[figure].as_u64()).sum())
        };
        let is_known = sum("verdicts", "packets")? >= all;
        is_known.then(|| sum("governed", "discarding_ns")).transpose()
    })
}

//! What weir's meter has charged, as its users see it: `weir channels --json`, and `weir status --json` for
//! what discarding costs, which is nobody's.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use weir_bpf::verdict::Verdict;

use crate::apps::{Job, Order};
use crate::arm::Arm;
use crate::bench::Bench;
use crate::error::{Error, Result, cannot};
use crate::programs::Daemon;
use crate::reading::{Counter, Reading};
use crate::scene::FLOODED_PORT;
use crate::stop::{Stop, until};

/// A daemon publishes its status each second.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(50);

/// Reads what the running daemon of an arm has charged since it began, which is with the trial, when every packet has
/// ended somewhere.
pub fn read(
    bench: &Bench,
    arm: &Arm,
    daemon: &Daemon,
    stop: &Stop,
    reading: &mut Reading,
) -> Result<()> {
    let told = ask(bench, arm, &["channels", "--json", "--interval", "0"])?;
    let mut all = 0;
    for channel in list(&told, "channels")? {
        let charged = channel["cpu"]["charged_ns"].as_u64().unwrap_or(0);
        all += charged;
        let is_flooded = channel["kind"] == "udp" && channel["port"] == FLOODED_PORT;
        reading.add(Counter::ChargedFlooded, if is_flooded { charged } else { 0 });
    }
    reading.add(Counter::Charged, all);
    if let Some(ns) = discarding(bench, arm, daemon, stop)?.filter(|_| all > 0) {
        reading.add(Counter::Metered, all + ns);
    }
    Ok(())
}

/// What a command of weir's tells of the lab's interface.
fn ask(bench: &Bench, arm: &Arm, command: &[&str]) -> Result<Value> {
    let Some(spec) = &arm.daemon else { return Ok(Value::Null) };
    let object = format!("weir {}", command.join(" "));
    let words = command.iter().map(|word| (*word).to_owned()).collect();
    let job = Job::Program(spec.path(), "weir".into(), words);
    let order = Order::new(&bench.sut(arm).host.netns, bench.generator_cpu, job);
    let output = order.command()?.stderr(Stdio::inherit()).output();
    let output = output.map_err(cannot("run", &object))?;
    let told: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let problem = format!("`{object}` printed no JSON ({}): {error}", output.status);
        Error::refused(problem, "its own message is above")
    })?;
    Ok(told["interfaces"][0].clone())
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

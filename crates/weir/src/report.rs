//! The daemon's lines: one each second per interface, and one at the end.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};
use weir_bpf::gate::Policy;
use weir_bpf::printable::printable;
use weir_bpf::units::PacketsPerSec;
use weir_bpf::verdict::{Reason, Verdict};

use crate::cli::RunArgs;
use crate::clock;
use crate::console::Console;
use crate::interface::{Farewell, Protected, Tick};
use crate::sample::{Outcome, Rates};

/// What is printed on standard output while the daemon runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    json: bool,
    quiet: bool,
}

/// Any but the first line of `weir run --json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    interface: &'a str,
    seen: u64,
    passed: u64,
    discarded: u64,
    would_discard: u64,
    #[serde(flatten)]
    rates: Rates,
    top_discard_reason: Option<&'static str>,
}

impl Report {
    /// What the command line asks for.
    pub fn of(args: &RunArgs) -> Self {
        Self { json: args.json, quiet: args.quiet }
    }

    /// Reports which interfaces are protected at the start. Programs wait for this line, so it is printed even when
    /// quiet.
    pub fn ready(self, console: &mut Console, interfaces: &[Protected]) {
        if !self.json {
            return;
        }
        let ready = |interface: &Protected| {
            json!({
                "interface": interface.interface(),
                "attach": interface.attach(),
                "counters_map_id": interface.counters_map_id(),
            })
        };
        let interfaces: Value = interfaces.iter().map(ready).collect();
        console.event("ready", &json!({ "interfaces": interfaces }));
    }

    /// Reports one interface's last second.
    pub fn tick(self, console: &mut Console, tick: &Tick) {
        match (self.quiet, self.json) {
            (true, _) => {}
            (false, true) => console.event("status", &line(tick)),
            (false, false) => console.line(&text(&clock::time(SystemTime::now()), tick)),
        }
    }
}

fn line(tick: &Tick) -> Line<'_> {
    let outcome = Outcome::of_all(&tick.counters, tick.policy);
    Line {
        time: clock::timestamp(SystemTime::now()),
        interface: &tick.interface,
        seen: tick.counters.total().packets,
        passed: outcome.passed.packets,
        discarded: outcome.discarded.packets,
        would_discard: outcome.would_discard.packets,
        rates: tick.rates,
        top_discard_reason: tick.top_discard.map(Reason::name),
    }
}

fn text(time: &str, tick: &Tick) -> String {
    let decided = if tick.policy == Policy::Shadow { "would discard" } else { "discarded" };
    let tell = |what: &str, rate: PacketsPerSec| {
        let reason = tick.top_discard.filter(|_| what == decided);
        let reason = reason.map(|reason| format!(" ({})", reason.name())).unwrap_or_default();
        format!("{what} {:.0}/s{reason}", rate.0)
    };
    let lazy = tick.counters.verdict(Verdict::Deliver).packets > 0;
    let forwarded = tick.counters.get(Reason::Forwarded).packets > 0;
    let rates = tick.rates.told(tick.policy, (lazy, forwarded), tell).join("  ");
    format!("{time}Z {}  {rates}", printable(tick.interface.as_bytes()))
}

/// What there is to say when protection has ended.
pub fn summary(farewell: &Farewell) -> String {
    let discards = farewell.counters.discards();
    let discards: Vec<String> = discards
        .map(|(reason, counter)| format!("{} {}", counter.packets, reason.name()))
        .collect();
    let discards = if discards.is_empty() { "none".into() } else { discards.join(", ") };
    let discarded = match farewell.policy {
        Policy::Shadow => "discarded: none; would have been discarded",
        Policy::On | Policy::Off => "discarded",
    };
    let restored = &farewell.knobs.restored;
    let restored = if restored.is_empty() {
        "gate detached".into()
    } else {
        format!("{}, gate detached", restored.join(", "))
    };
    let left: String = farewell.knobs.left.iter().map(|left| format!("; {left}")).collect();
    format!(
        "{}: {} packets seen; {discarded}: {discards}; restored: {restored}{left}",
        farewell.interface,
        farewell.counters.total().packets,
    )
}

#[cfg(test)]
mod tests {
    use weir_bpf::counters::Counters;

    use super::*;

    #[test]
    fn unsent_is_said_of_the_fast_path_of_forwarding_alone() {
        let mut tick = Tick {
            trouble: None,
            loss: None,
            interface: "eth0".into(),
            rates: Rates::default(),
            top_discard: None,
            counters: Counters::default(),
            policy: Policy::On,
        };
        tick.counters.count(Reason::Forward, 60);
        let line = text("12:00:00", &tick);
        assert!(line.ends_with("UDP late drops 0/s"), "{line}");
        tick.counters.count(Reason::Forwarded, 60);
        let line = text("12:00:00", &tick);
        assert!(line.ends_with("UDP late drops 0/s  unsent 0/s"), "{line}");
    }
}

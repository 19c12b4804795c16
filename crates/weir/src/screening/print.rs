//! What `weir screen` prints.

use std::time::SystemTime;

use serde_json::{Value, json};
use weir_bpf::counters::Counter;
use weir_bpf::wall::OUTCOMES;

use super::rules::{Action, Packet};
use crate::clock;
use crate::out;
use crate::status::SCHEMA;

/// What a rule has done here, in user mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets that were judged here.
    pub asked: u64,
    /// Of those, packets that went on.
    pub released: u64,
    /// And that should have, but were not held, or had nowhere to go.
    pub lost: u64,
    /// Senders that were told.
    pub rejections: u64,
    /// What the kernel half had counted under the number when the rule came.
    pub before: Counter,
}

pub struct Printer {
    pub json: bool,
}

impl Printer {
    pub fn ready(&self, inside: &str, outside: &str, rules: usize) {
        if self.json {
            event("ready", json!({"in": inside, "out": outside, "rules": rules}));
        } else {
            out::line(format_args!(
                "screening between {inside} and {outside} by {rules} rules; Ctrl-C ends it"
            ));
        }
    }

    pub fn reloaded(&self, rules: usize) {
        if self.json {
            event("reloaded", json!({"rules": rules}));
        } else {
            out::line(format_args!("read again: {rules} rules"));
        }
    }

    /// Of a packet that came in at this interface.
    pub fn decision(&self, interface: &str, action: Action, packet: &Packet, rule: &str) {
        let (action, packet) = (action.to_string(), packet.to_string());
        if self.json {
            let what =
                json!({"interface": interface, "action": action, "packet": packet, "rule": rule});
            event("decision", what);
        } else {
            out::line(format_args!("{} {interface} {action:6} {packet} ({rule})", now()));
        }
    }

    /// Of each rule its name and packets; what became of packets; how many of the forwarded ones were lost.
    pub fn stats(
        &self,
        name: &str,
        rules: &[(String, u64, Tally)],
        outcomes: &[Counter],
        unsent: u64,
    ) {
        if self.json {
            let rules = rules.iter().map(|(rule, packets, tally)| {
                json!({"rule": rule, "packets": packets, "asked": tally.asked, "released":
                    tally.released, "lost": tally.lost, "rejections": tally.rejections})
            });
            let rules: Vec<_> = rules.collect();
            let outcomes: serde_json::Map<_, _> = OUTCOMES
                .iter()
                .zip(outcomes)
                .map(|((name, _), count)| ((*name).to_owned(), count.packets.into()))
                .collect();
            let what = json!({"rules": rules, "outcomes": outcomes, "unsent": unsent});
            return event(name, what);
        }
        out::line(format_args!("{} {name}", now()));
        out::line(format_args!("{:>12} {:>12}  rule", "packets", "judged here"));
        for (rule, packets, tally) in rules {
            out::line(format_args!("{packets:>12} {:>12}  {rule}", tally.asked));
        }
        for ((name, description), count) in OUTCOMES.iter().zip(outcomes) {
            if count.packets > 0 {
                out::line(format_args!("{:>12}  {name}: {description}", count.packets));
            }
        }
        if unsent > 0 {
            out::line(format_args!(
                "{unsent:>12}  of those forwarded were lost: the driver did not take them"
            ));
        }
    }
}

fn event(name: &str, what: Value) {
    let mut line = json!({"event": name, "schema": SCHEMA, "time": now()});
    if let (Value::Object(line), Value::Object(what)) = (&mut line, what) {
        line.extend(what);
    }
    out::line(line);
}

fn now() -> String {
    clock::timestamp(SystemTime::now())
}

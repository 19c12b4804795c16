//! What `weir screen` prints.

use std::time::SystemTime;

use serde_json::{Value, json};
use weir_bpf::counters::Counter;
use weir_bpf::wall::WallOutcome;

use super::rules::{self, Action};
use crate::clock;
use crate::console::{Console, event_line};
use crate::out::safe;
use crate::packet::Packet;

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

/// Prints it, if somebody reads; a screen waits for no reader.
pub struct Printer {
    json: bool,
    pub console: Console,
    /// Decisions that have not been printed yet.
    decisions: Vec<String>,
    /// Lines that were left out since the last that was not.
    left_out: usize,
}

impl Printer {
    /// Prints nothing yet.
    pub fn new(json: bool) -> Self {
        Self { json, console: Console::open(), decisions: Vec::new(), left_out: 0 }
    }

    pub fn ready(&mut self, inside: &str, outside: &str, rules: usize) {
        let count = rules::count(rules);
        let text = format!("screening between {inside} and {outside} by {count}; Ctrl-C ends it");
        let what = json!({"in": inside, "out": outside, "rules": rules});
        let line = if self.json { event("ready", what) } else { text };
        self.put(&[line]);
    }

    pub fn reloaded(&mut self, rules: usize) {
        let text = format!("read again: {}", rules::count(rules));
        let line = if self.json { event("reloaded", json!({"rules": rules})) } else { text };
        self.put(&[line]);
    }

    /// Of a packet that came in at this interface; printed with others.
    pub fn decision(&mut self, interface: &str, action: Action, packet: &Packet, rule: &str) {
        let (action, packet) = (action.to_string(), packet.to_string());
        self.decisions.push(if self.json {
            let what =
                json!({"interface": interface, "action": action, "packet": packet, "rule": rule});
            event("decision", what)
        } else {
            format!("{} {interface} {action:6} {packet} ({rule})", now())
        });
    }

    /// Prints the decisions.
    pub fn decided(&mut self) {
        let decisions = std::mem::take(&mut self.decisions);
        if !decisions.is_empty() {
            self.put(&decisions);
        }
    }

    /// Names of interfaces, and rules, are in them: no text of theirs moves the cursor. JSON escapes by itself.
    fn put(&mut self, lines: &[String]) {
        let text = lines.join("\n");
        let text = if self.json { text } else { safe(text.as_bytes()) };
        if !self.console.lines(&text) {
            if self.left_out == 0 {
                self.console.say("what is printed is not read: lines are left out");
            }
            self.left_out += lines.len();
        } else if self.left_out > 0 {
            let left_out = std::mem::take(&mut self.left_out);
            self.console.say(&format!("it is read again; {left_out} lines were left out"));
        }
    }

    /// Of each rule its name and packets; what became of packets; how many of the forwarded ones were lost, and how many
    /// verdicts the kernel half did not take.
    pub fn stats(
        &mut self,
        name: &'static str,
        rules: &[(String, u64, Tally)],
        outcomes: &[Counter],
        (unsent, untold): (u64, u64),
    ) {
        if self.json {
            let rules = rules.iter().map(|(rule, packets, tally)| {
                json!({"rule": rule, "packets": packets, "asked": tally.asked, "released":
                    tally.released, "lost": tally.lost, "rejections": tally.rejections})
            });
            let rules: Vec<_> = rules.collect();
            let outcomes = WallOutcome::ALL.iter().zip(outcomes);
            let outcomes: serde_json::Map<_, _> = outcomes
                .map(|(outcome, count)| (outcome.name().to_owned(), count.packets.into()))
                .collect();
            let what =
                json!({"rules": rules, "outcomes": outcomes, "unsent": unsent, "untold": untold});
            return self.put(&[event(name, what)]);
        }
        let mut lines = Vec::new();
        lines.push(format!("{} {name}", now()));
        lines.push(format!("{:>12} {:>12}  rule", "packets", "judged here"));
        for (rule, packets, tally) in rules {
            lines.push(format!("{packets:>12} {:>12}  {rule}", tally.asked));
        }
        for (outcome, count) in WallOutcome::ALL.iter().zip(outcomes) {
            if count.packets > 0 {
                let (name, description) = (outcome.name(), outcome.description());
                lines.push(format!("{:>12}  {name}: {description}", count.packets));
            }
        }
        if unsent > 0 {
            lines.push(format!(
                "{unsent:>12}  of those forwarded were lost: the driver did not take them"
            ));
        }
        if untold > 0 {
            lines.push(format!("{untold:>12}  verdicts on flows were not taken by the kernel"));
        }
        self.put(&lines);
    }
}

fn event(name: &'static str, mut what: Value) -> String {
    what["time"] = now().into();
    event_line(name, &what)
}

fn now() -> String {
    clock::timestamp(SystemTime::now())
}

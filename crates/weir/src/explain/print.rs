//! What `weir explain` prints: a line for each packet, then what they add up to.

use std::fmt::Arguments;
use std::io::{self, Write};

use serde_json::{Value, json};
use weir_bpf::counters::Counters;
use weir_bpf::explain::Explanation;
use weir_bpf::gate::Policy;
use weir_bpf::printable::printable;
use weir_bpf::verdict::Reason;

use super::capture::{Capture, Packet};
use super::seen;
use super::target::Target;
use crate::channel_name::Namer;
use crate::clock;
use crate::out::plain_json;
use crate::status::{self, ReasonCount, SCHEMA};

/// What was done with a packet.
pub enum Outcome {
    /// It went through the gate.
    Judged(Explanation),
    /// It did not: why.
    NotJudged(&'static str),
}

/// How many packets there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In the capture.
    pub packets: u64,
    /// Those that went through the gate.
    pub judged: u64,
    /// Those that were captured in part.
    pub truncated: u64,
}

/// Where the lines go.
pub struct Printer<'a, W> {
    /// The writer.
    pub out: W,
    /// Print JSON.
    pub json: bool,
    /// Channels' names.
    pub namer: &'a Namer,
}

impl<W: Write> Printer<'_, W> {
    /// The first line.
    pub fn begin(&mut self, capture: &Capture, target: &Target) -> io::Result<()> {
        let (name, format, mac) = (capture.name(), capture.format(), target.mac);
        if self.json {
            return self.line(&json!({
                "event": "capture",
                "schema": SCHEMA,
                "file": name,
                "format": format,
                "interface": target.name,
                "mac": mac.to_string(),
            }));
        }
        self.text(format_args!(
            "{name} ({format}), as if it came in on {} ({mac}) now",
            target.name
        ))?;
        self.text(format_args!(
            "{:>6}  {:<30} {:>6}  {:<8} {:<28} PACKET: REASON",
            "NUMBER", "TIME", "BYTES", "VERDICT", "CHANNEL"
        ))
    }

    /// The line of a packet, and of what the gate was given of it.
    pub fn packet(
        &mut self,
        number: u64,
        (packet, frame): (&Packet, &[u8]),
        outcome: &Outcome,
    ) -> io::Result<()> {
        if self.json {
            return self.packet_json(number, (packet, frame), outcome);
        }
        let time = packet.time.and_then(clock::precise_timestamp).unwrap_or_else(|| "-".into());
        let truncated = if is_truncated(packet) {
            format!(" (truncated: {} of {} bytes)", packet.data.len(), packet.wire_len)
        } else {
            String::new()
        };
        let (verdict, channel, why) = match outcome {
            Outcome::NotJudged(why) => ("-", "-".into(), format!("not judged: {why}")),
            Outcome::Judged(explanation) => {
                let reason = explanation.reason;
                let seen = seen::text(frame, explanation);
                let why = format!("{seen}: {}, {}", reason.name(), reason.description());
                (reason.verdict().name(), self.namer.name(&explanation.channel).name, why)
            }
        };
        self.text(format_args!(
            "{number:>6}  {time:<30} {:>6}  {verdict:<8} {channel:<28} {why}{truncated}",
            packet.wire_len
        ))
    }

    fn packet_json(
        &mut self,
        number: u64,
        (packet, frame): (&Packet, &[u8]),
        outcome: &Outcome,
    ) -> io::Result<()> {
        let (explanation, not_judged) = match outcome {
            Outcome::Judged(explanation) => (Some(explanation), None),
            Outcome::NotJudged(why) => (None, Some(*why)),
        };
        let reason = explanation.map(|explanation| explanation.reason);
        self.line(&json!({
            "event": "packet",
            "number": number,
            "time": packet.time.and_then(clock::precise_timestamp),
            "captured_bytes": packet.data.len(),
            "wire_bytes": packet.wire_len,
            "truncated": is_truncated(packet),
            "not_judged": not_judged,
            "channel": explanation.map(|explanation| self.namer.name(&explanation.channel)),
            "verdict": reason.map(|reason| reason.verdict().name()),
            "reason": reason.map(Reason::name),
            "description": reason.map(Reason::description),
            "seen": explanation.and_then(|explanation| seen::seen(frame, explanation)),
        }))
    }

    /// What the packets add up to; `error`: why the capture could not be read to its end.
    pub fn end(
        &mut self,
        totals: Totals,
        counters: &Counters,
        notes: &[String],
        error: Option<String>,
    ) -> io::Result<()> {
        let reasons = status::by_reason(counters, Policy::On)
            .into_iter()
            .filter(|each| each.counter.packets > 0);
        let verdicts = status::by_verdict(counters, Policy::On);
        let reasons: Vec<ReasonCount> = reasons.collect();
        let Totals { packets, judged, truncated } = totals;
        if self.json {
            return self.line(&json!({
                "event": "summary",
                "packets": packets,
                "judged": judged,
                "truncated": truncated,
                "verdicts": verdicts,
                "reasons": reasons,
                "notes": notes,
                "error": error,
            }));
        }
        self.text(format_args!(
            "{packets} packets: {judged} judged, {} not, {truncated} truncated by the capture",
            packets - judged
        ))?;
        for verdict in verdicts {
            self.text(format_args!("  {:<8} {:>12}", verdict.verdict, verdict.counter.packets))?;
            for reason in reasons.iter().filter(|reason| reason.verdict == verdict.verdict) {
                let ReasonCount { reason, counter, description, .. } = reason;
                self.text(format_args!("    {:>17}  {reason:<18} {description}", counter.packets))?;
            }
        }
        for note in notes {
            self.text(format_args!("note: {note}"))?;
        }
        Ok(())
    }

    /// A line for a person: names of files and interfaces move no cursor.
    fn text(&mut self, line: Arguments<'_>) -> io::Result<()> {
        writeln!(self.out, "{}", printable(line.to_string().as_bytes()))
    }

    fn line(&mut self, line: &Value) -> io::Result<()> {
        writeln!(self.out, "{}", plain_json(line.to_string()))
    }
}

/// Whether less of a packet was captured than there was.
pub fn is_truncated(packet: &Packet) -> bool {
    (packet.data.len() as u64) < u64::from(packet.wire_len)
}

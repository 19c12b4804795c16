//! What `weir trace` prints.

use std::collections::HashMap;
use std::fs;

use etherparse::LaxPacketHeaders;
use pcap_file::DataLink;
use serde_json::{Value, json};
use weir_bpf::printable::printable;
use weir_bpf::sys::link::Links;
use weir_bpf::trace::{Event, Step, drop_reasons};
use weir_bpf::units::{IfIndex, Nanos};

use super::args::TraceArgs;
use super::path::{Path, Row, Times};
use crate::clock;
use crate::console::event_line;
use crate::error::Result;
use crate::out;
use crate::packet::Packet;

/// Prints it.
pub struct Printer<'a> {
    args: &'a TraceArgs,
    links: &'a Links,
    bare: bool,
    /// Read when the first packet is dropped.
    kernel: Option<Kernel>,
}

/// The running kernel's names.
struct Kernel {
    reasons: HashMap<u32, String>,
    /// Of its functions, by address.
    functions: Vec<(u64, String)>,
}

impl Kernel {
    fn read() -> Self {
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let function = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok().filter(|at| *at != 0)?;
            let kind = fields.next()?;
            kind.eq_ignore_ascii_case("t").then_some(())?;
            Some((address, fields.next()?.to_owned()))
        };
        let mut functions: Vec<_> = symbols.lines().filter_map(function).collect();
        functions.sort();
        Self { reasons: drop_reasons(), functions }
    }

    fn reason(&self, number: u32) -> String {
        self.reasons.get(&number).cloned().unwrap_or_else(|| format!("reason {number}"))
    }

    fn function(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(at, _)| *at <= address);
        Some(&self.functions.get(after.checked_sub(1)?)?.1)
    }
}

/// Frees the parts of a datagram with it, whatever became of it, and tells of each as of a drop.
const FREES_PARTS: &str = "skb_release_data";

impl<'a> Printer<'a> {
    /// Prints nothing yet.
    pub fn new(args: &'a TraceArgs, links: &'a Links, header: DataLink) -> Self {
        let bare = header != DataLink::ETHERNET;
        Self { args, links, bare, kernel: None }
    }

    /// Packets are followed from now on.
    pub fn ready(&self) {
        let interface = &self.args.interface;
        if self.args.json {
            out::line(event_line("ready", &json!({ "interface": interface })));
        } else {
            out::say(format_args!("tracing what {interface} receives; Ctrl-C ends it"));
        }
    }

    /// Fragments that were freed with their datagram were not dropped.
    pub fn know_parts(&mut self, path: &mut Path) {
        for event in path.events.iter_mut().filter(|event| event.step == Step::Dropped) {
            let kernel = self.kernel.get_or_insert_with(Kernel::read);
            if kernel.function(event.place) == Some(FREES_PARTS) {
                event.step = Step::Consumed;
            }
        }
    }

    /// A packet's way; whether somebody still reads.
    pub fn packet(&mut self, path: &Path) -> Result<bool> {
        if self.args.summary {
            return Ok(true);
        }
        let text = if self.args.json { self.packet_json(path) } else { self.packet_text(path) };
        out::reaches(text.as_bytes())
    }

    fn packet_json(&mut self, path: &Path) -> String {
        let at = |at| since_arrival(path, at);
        let before =
            steps_before(path).map(|(step, then)| json!({"step": step.name(), "at_us": at(then)}));
        let mut steps: Vec<Value> = before.collect();
        for event in events(path) {
            steps.push(self.step_json(event, at(event.at)));
        }
        let time = clock::precise_timestamp(path.arrival.time);
        let packet = json!({"time": time, "packet": self.describe(&path.arrival.data),
            "wire_bytes": path.arrival.wire_len, "steps": steps});
        event_line("packet", &packet) + "\n"
    }

    fn packet_text(&mut self, path: &Path) -> String {
        let at = |at| since_arrival(path, at);
        let time = clock::precise_timestamp(path.arrival.time).unwrap_or_else(|| "-".into());
        let what = self.describe(&path.arrival.data);
        let mut text = format!("{time}  {what}, {} bytes\n", path.arrival.wire_len);
        for (step, then) in steps_before(path) {
            text += &format!("{:>12.1}        {}\n", at(then), step.description());
        }
        for event in events(path) {
            let step = self.step_text(event, path);
            text += &format!("{:>12.1} {:>5}  {step}\n", at(event.at), event.cpu.0);
        }
        if !path.events.iter().any(|event| event.step.is_last()) {
            text += &format!("{:>12}        nothing more was seen of it\n", "");
        }
        text
    }

    fn step_text(&mut self, event: &Event, path: &Path) -> String {
        let text = event.step.description();
        let who = format!("{} ({})", printable(event.comm.as_bytes()), event.tid);
        match event.step {
            Step::Received if path.arrival.by_softirq => format!("{text} by a softirq over {who}"),
            Step::Received => format!("{text} by {who}"),
            Step::Woken | Step::Read => format!("{text} {who}"),
            Step::Runs => format!("{who} {text}"),
            Step::Egress | Step::Sent => {
                format!("{text} {}", printable(self.interface(event).as_bytes()))
            }
            Step::Dropped => {
                let kernel = self.kernel.get_or_insert_with(Kernel::read);
                let place = kernel.function(event.place).map(|it| format!(", in {it}()"));
                format!("{text}: {}{}", kernel.reason(event.detail), place.unwrap_or_default())
            }
            Step::Consumed if event.place != 0 => format!("{text}, as part of a datagram"),
            _ => text.into(),
        }
    }

    fn step_json(&mut self, event: &Event, at_us: f64) -> Value {
        let mut step = json!({"step": event.step.name(), "at_us": at_us, "cpu": event.cpu,
            "thread": event.comm, "tid": event.tid});
        if let Step::Egress | Step::Sent = event.step {
            step["interface"] = self.interface(event).into();
        }
        if event.step == Step::Dropped {
            let kernel = self.kernel.get_or_insert_with(Kernel::read);
            step["reason"] = kernel.reason(event.detail).into();
            step["function"] = kernel.function(event.place).into();
        }
        step
    }

    fn interface(&self, event: &Event) -> String {
        let name = self.links.name(IfIndex(event.detail));
        name.unwrap_or_else(|_| format!("interface {}", event.detail))
    }

    /// What a packet is, by its headers.
    fn describe(&self, data: &[u8]) -> String {
        let headers = if self.bare {
            LaxPacketHeaders::from_ip(data).ok()
        } else {
            LaxPacketHeaders::from_ethernet(data).ok()
        };
        let packet = headers.as_ref().and_then(Packet::of_headers);
        let ethertype = data.get(12..14).filter(|_| !self.bare);
        let ethertype = ethertype.map(|it| format!("ethertype 0x{:02x}{:02x}", it[0], it[1]));
        packet.map(|it| it.to_string()).or(ethertype).unwrap_or_else(|| "no IP".into())
    }

    /// What they add up to; and what was not followed, and lost.
    pub fn summary(&self, times: &Times, (skipped, lost): (u64, u64)) -> Result<()> {
        if self.args.json {
            return out::raw(summary_json(times, skipped, lost).as_bytes());
        }
        if times.packets() == 0 {
            out::say(format_args!("no packet came by that was to be followed"));
            return Ok(());
        }
        out::raw(summary_text(times).as_bytes())?;
        if skipped > 0 {
            out::say(format_args!("{skipped} more packets were not followed (`--rate`)"));
        }
        if lost > 0 {
            out::say(format_args!("{lost} events were lost: read too late; use a lower `--rate`"));
        }
        Ok(())
    }
}

/// The steps of its poll before it was received.
fn steps_before(path: &Path) -> impl Iterator<Item = (Step, Nanos)> {
    path.steps().into_iter().take_while(|(step, _)| *step < Step::Received)
}

/// What happened to it, from when it was received.
fn events(path: &Path) -> impl Iterator<Item = &Event> {
    [&path.arrival.event].into_iter().chain(&path.events)
}

/// In microseconds.
fn since_arrival(path: &Path, at: Nanos) -> f64 {
    (at.0 as f64 - path.arrival.event.at.0 as f64) / 1e3
}

fn summary_json(times: &Times, skipped: u64, lost: u64) -> String {
    let rows = times.rows().map(|row| {
        json!({"from": row.from.name(), "to": row.to.name(), "packets": row.packets,
            "p50_us": row.p50_us, "p99_us": row.p99_us, "max_us": row.max_us})
    });
    let ends = times
        .ends()
        .map(|(step, packets)| json!({"step": step.map(|step| step.name()), "packets": packets}));
    let what = json!({"packets": times.packets(), "skipped": skipped, "lost_events": lost,
        "ends": ends.collect::<Value>(), "times": rows.collect::<Value>()});
    event_line("summary", &what) + "\n"
}

fn summary_text(times: &Times) -> String {
    let mut text = format!("{} packets; microseconds from step to step\n", times.packets());
    text += "   PACKETS        P50        P99        MAX  STEPS\n";
    for Row { from, to, packets, p50_us, p99_us, max_us } in times.rows() {
        let steps = format!("{} -> {}", from.name(), to.name());
        text += &format!("{packets:>10} {p50_us:>10.1} {p99_us:>10.1} {max_us:>10.1}  {steps}\n");
    }
    for (step, packets) in times.ends() {
        let end = step.map_or("not seen to the end", |step| step.name());
        text += &format!("{packets:>10}  {end}\n");
    }
    text
}

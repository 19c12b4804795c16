//! `weir screen --explain`: what the rules make of each packet of a capture.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::json;
use weir_bpf::parser::{Parser, SHORTEST_FRAME};
use weir_bpf::units::MacAddr;

use super::rules::{Action, ICMP, ICMPV6, Packet, Rules};
use crate::error::Result;
use crate::explain::capture::Capture;
use crate::out::or_gone;

/// Judges them one after the other, so that replies follow what they answer. Nothing is attached or sent.
pub fn run(rules: &Rules, path: &Path, json: bool) -> Result<()> {
    let mut capture = Capture::open(path)?;
    let mut parser = Parser::load()?;
    let mut accepted = HashMap::new();
    let mut out = BufWriter::new(io::stdout().lock());
    let mut number = 0_u64;
    while let Some(captured) = capture.next_packet()? {
        number += 1;
        let frame = captured.frame(MacAddr([0; 6]));
        let packet = if frame.len() < SHORTEST_FRAME {
            None
        } else {
            Packet::of(&parser.parse(&frame, frame.len())?.parsed)
        };
        let (action, packet, why) = match packet {
            None => ("-".to_owned(), "not IP, or malformed".to_owned(), String::new()),
            Some(packet) => {
                let (action, why) = judge(rules, &packet, &mut accepted);
                (action.to_string(), packet.to_string(), why)
            }
        };
        let line = if json {
            json!({"number": number, "action": action, "packet": packet, "rule": why}).to_string()
        } else {
            format!("{number:>6} {action:6} {packet} ({why})")
        };
        if !or_gone(writeln!(out, "{line}"))? {
            return Ok(());
        }
    }
    or_gone(out.flush()).map(|_| ())
}

fn judge(
    rules: &Rules,
    packet: &Packet,
    accepted: &mut HashMap<Packet, usize>,
) -> (Action, String) {
    // A flow, not a packet.
    let mut flow = Packet { tcp_flags: 0, ..*packet };
    if flow.fragment {
        flow = Packet { source_port: 0, destination_port: 0, icmp_type: 0, ..flow };
    }
    if let Some(number) = accepted.get(&flow) {
        return (Action::Accept, rules.name(*number));
    }
    if let Some(number) = answered(&flow).and_then(|flow| accepted.get(&flow)) {
        return (Action::Accept, format!("in answer to {}", rules.name(*number)));
    }
    let (action, number) = rules.decide(packet);
    if action == Action::Accept {
        accepted.insert(flow, number);
    }
    (action, rules.name(number))
}

/// The flow that one of this flow would answer, as the kernel half has it (`reverse_of()` in `bpf/wall_key.h`).
fn answered(flow: &Packet) -> Option<Packet> {
    let icmp_type = match (flow.protocol, flow.icmp_type) {
        _ if flow.fragment => return None,
        (ICMP, 0) => 8,
        (ICMPV6, 129) => 128,
        (ICMP | ICMPV6, _) => return None,
        _ => 0,
    };
    Some(Packet {
        source: flow.destination,
        destination: flow.source,
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        icmp_type,
        ..*flow
    })
}

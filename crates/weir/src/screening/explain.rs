//! `weir screen --explain`: what the rules make of each packet of a capture.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use weir_bpf::abi;
use weir_bpf::explain::PACKET_LEN_MAX;
use weir_bpf::parser::{Parse, Parsed, Parser, SHORTEST_FRAME};
use weir_bpf::printable::printable;
use weir_bpf::units::MacAddr;

use super::args::ScreenArgs;
use super::rules::{Action, Rules};
use crate::error::Result;
use crate::explain::capture::{Capture, Packet as Captured};
use crate::explain::error::FOREIGN;
use crate::out::{self, or_gone, plain_json};
use crate::packet::{ICMP, ICMPV6, Packet};
use crate::status::SCHEMA;

/// What may have IP in it that the parser does not look into; 802.1Q and 802.1ad, behind as many tags as it takes off.
const WRAPPED: [(usize, &str); 8] = [
    (0x8100, "too many VLAN tags"),
    (0x88a8, "too many VLAN tags"),
    (abi::WALL_MPLS, "MPLS"),
    (abi::WALL_MPLS_MULTICAST, "MPLS"),
    (abi::WALL_PPPOE_SESSION, "PPPoE"),
    (abi::WALL_MACSEC, "MACsec"),
    (abi::WALL_BATMAN, "batman-adv"),
    (abi::WALL_HSR, "HSR"),
];

/// Judges them one after the other, so that replies follow what they answer. Nothing is attached or sent.
pub fn run(args: &ScreenArgs, rules: &Rules, path: &Path) -> Result<()> {
    let mut capture = Capture::open(path, "weir screen RULES --explain -")?;
    // What comes in as it is captured goes out at once.
    let live = capture.len.is_none();
    let mut parser = Parser::load()?;
    let mut accepted = Accepted::new(args);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut number = 0_u64;
    while let Some(captured) = capture.next_packet()? {
        number += 1;
        accepted.now = captured.time.unwrap_or(accepted.now);
        let (action, packet, why) = match parse(&mut parser, &captured)? {
            Ok(parsed) => outcome(rules, &parsed, &mut accepted),
            Err([packet, why]) => ("-".into(), packet, why),
        };
        let line = if args.json {
            let line = json!({"schema": SCHEMA, "number": number, "action": action, "packet": packet, "rule": why});
            plain_json(line.to_string())
        } else {
            printable(format!("{number:>6} {action:6} {packet} ({why})").as_bytes())
        };
        let mut written = writeln!(out, "{line}");
        if live {
            written = written.and_then(|()| out.flush());
        }
        if !or_gone(written)? {
            return Ok(());
        }
    }
    if or_gone(out.flush())? {
        out::say(
            "a capture does not show the router's own addresses: packets to these pass, whatever the rules say",
        );
    }
    Ok(())
}

/// What there is of a packet to judge; or what it is instead, and why. What was not captured does not decide if the
/// packet is the same with zeros and with ones in its place.
fn parse(
    parser: &mut Parser,
    captured: &Captured,
) -> Result<std::result::Result<Parsed, [String; 2]>> {
    let frame = captured.frame(MacAddr([0; 6]));
    if captured.link.is_err() {
        return Ok(Err([format!("{} bytes", frame.len()), FOREIGN.into()]));
    }
    if frame.len() > PACKET_LEN_MAX {
        // For the kernel to run a program on.
        return Ok(Err([format!("{} bytes", frame.len()), "too long to be judged".into()]));
    }
    let missing = (captured.wire_len as usize).saturating_sub(captured.data.len());
    if missing == 0 {
        return Ok(Ok(parse_frame(parser, &frame)?));
    }
    let mut filled = frame.into_owned();
    let (begin, len) = (filled.len(), (filled.len() + missing).min(PACKET_LEN_MAX));
    filled.resize(len, 0);
    let parsed = parse_frame(parser, &filled)?;
    filled[begin..].fill(0xff);
    let other = parse_frame(parser, &filled)?;
    let judged = |it: &Parsed| (it.reached(), Packet::of(it), it.routed, it.ethertype);
    let is_same = judged(&parsed) == judged(&other);
    let is_read = parsed.reached() != Parse::WEIR_PARSE_MALFORMED;
    let in_part = || ["captured in part".into(), "the missing part decides".into()];
    Ok((is_same && is_read).then_some(parsed).ok_or_else(in_part))
}

fn parse_frame(parser: &mut Parser, frame: &[u8]) -> Result<Parsed> {
    if frame.len() < SHORTEST_FRAME {
        return Ok(Parsed { parse: Parse::WEIR_PARSE_MALFORMED.0, ..Parsed::default() });
    }
    Ok(parser.parse(frame, frame.len())?.parsed)
}

/// Flows that were accepted. Unlike the wall, this does not keep those that are established apart.
struct Accepted {
    flows: HashMap<Packet, Entry>,
    idle: Duration,
    /// As many as two of the wall's tables hold.
    max: usize,
    /// When the packet that is judged was captured.
    now: Duration,
    /// How often a flow was used.
    uses: u64,
}

struct Entry {
    rule: usize,
    used: Duration,
    /// The number of that use: times may be the same, or unknown.
    use_number: u64,
}

impl Accepted {
    fn new(args: &ScreenArgs) -> Self {
        let (flows, now, uses) = (HashMap::new(), Duration::ZERO, 0);
        Self { flows, idle: args.idle, max: 2 * args.flows as usize, now, uses }
    }

    /// The rule that has accepted the flow, which is used now.
    fn rule(&mut self, flow: &Packet) -> Option<usize> {
        let entry = self.flows.get_mut(flow)?;
        if self.now.saturating_sub(entry.used) >= self.idle {
            return None;
        }
        self.uses += 1;
        (entry.used, entry.use_number) = (self.now, self.uses);
        Some(entry.rule)
    }

    fn insert(&mut self, flow: Packet, rule: usize) {
        self.uses += 1;
        self.flows.insert(flow, Entry { rule, used: self.now, use_number: self.uses });
        if self.flows.len() > self.max {
            let mut uses: Vec<_> = self.flows.values().map(|entry| entry.use_number).collect();
            // Half of them go at once, since finding the oldest takes a look at all.
            let (_, oldest, _) = uses.select_nth_unstable(self.max / 2);
            self.flows.retain(|_, entry| entry.use_number > *oldest);
        }
    }
}

/// What becomes of a packet, what it is, and why, as the kernel half has it (`judge()` in `bpf/wall.bpf.c`).
fn outcome(rules: &Rules, parsed: &Parsed, accepted: &mut Accepted) -> (String, String, String) {
    const UNCLEAR: &str = "unclear: no rule is asked";
    const OWN: &str = "own: the rules are about IP";
    let so = |action: &str, packet: &str, why: &str| (action.into(), packet.into(), why.into());
    let ethertype = usize::from(parsed.ethertype);
    match (parsed.reached(), Packet::of(parsed)) {
        (Parse::WEIR_PARSE_MALFORMED, _) => so("drop", "malformed", UNCLEAR),
        (Parse::WEIR_PARSE_IPV6_CHAIN, _) => so("drop", "too many IPv6 extension headers", UNCLEAR),
        (Parse::WEIR_PARSE_ARP, _) => so("pass", "ARP", OWN),
        (_, None) => match WRAPPED.iter().find(|(each, _)| *each == ethertype) {
            Some((_, name)) => so("drop", name, UNCLEAR),
            None => so("pass", &format!("ethertype 0x{ethertype:04x}"), OWN),
        },
        (_, Some(packet)) if parsed.routed > 0 => {
            so("drop", &packet.to_string(), "unclear: source-routed")
        }
        (_, Some(packet)) => {
            let (action, why) = judge(rules, &packet, accepted);
            (action, packet.to_string(), why)
        }
    }
}

fn judge(rules: &Rules, packet: &Packet, accepted: &mut Accepted) -> (String, String) {
    let accept = Action::Accept.to_string();
    // A flow, not a packet.
    let mut flow = Packet { tcp_flags: 0, ..*packet };
    if flow.fragment {
        flow = Packet { source_port: 0, destination_port: 0, icmp_type: 0, ..flow };
    }
    if let Some(number) = accepted.rule(&flow) {
        return (accept, rules.name(number));
    }
    if let Some(number) = answered(&flow).and_then(|flow| accepted.rule(&flow)) {
        return (accept, format!("in answer to {}", rules.name(number)));
    }
    if is_for_link(packet.destination) {
        return ("pass".into(), "own: for all on the link".into());
    }
    let (action, number) = rules.decide(packet);
    if action == Action::Accept {
        accepted.insert(flow, number);
    }
    (action.to_string(), rules.name(number))
}

/// What `is_own()` in `bpf/wall_ask.h` knows without the router's addresses.
fn is_for_link(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(to) => to.is_multicast() || to == Ipv4Addr::BROADCAST,
        IpAddr::V6(to) => to.is_multicast() || to.is_unicast_link_local(),
    }
}

/// The flow that one of this flow would answer, as the kernel half has it (`reverse_of()` in `bpf/wall_key.h`).
pub(super) fn answered(flow: &Packet) -> Option<Packet> {
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

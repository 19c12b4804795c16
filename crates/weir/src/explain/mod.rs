//! `weir explain`: what the gate makes of each packet of a capture, and why.

pub mod capture;
pub mod error;
mod pcapng;
mod print;
mod seen;
mod source;
mod target;

use std::io::{self, BufWriter, Write};

use weir_bpf::channels::Channel;
use weir_bpf::counters::Counters;
use weir_bpf::explain::PACKET_LEN_MAX;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::parser::SHORTEST_FRAME;
use weir_bpf::sys::caps::Capability;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::sched;
use weir_bpf::verdict::Reason;

use self::capture::Capture;
pub use self::error::CaptureError;
use self::error::FOREIGN;
use self::print::{Outcome, Printer, Totals, is_truncated};
use self::target::Target;
use crate::channel_name::Namer;
use crate::cli::ExplainArgs;
use crate::config::Config;
use crate::config::args::SettingArgs;
use crate::error::Result;
use crate::out::or_gone;
use crate::privilege;

/// To load the gate, and to run it.
const NEEDED: [Capability; 3] = [Capability::NetAdmin, Capability::Bpf, Capability::Perfmon];

/// Runs the command.
///
/// # Errors
/// Without the privilege, or if the capture cannot be read to its end: the packets before that are
/// printed.
pub fn run(args: &ExplainArgs) -> Result<()> {
    privilege::check_for("weir explain", &NEEDED)?;
    let settings = SettingArgs { config: args.config.clone(), ..SettingArgs::default() };
    let config = Config::load(&settings, &[])?;
    let links = Links::open()?;
    let target = Target::choose(&links, args.interface.as_deref())?;
    let mut capture = Capture::open(&args.file, "weir explain -")?;
    let probe = QueueProbe::load()?;
    let mut gate = Gate::load_explaining(&probe)?;
    gate.configure(target.mac, Policy::On);
    gate.stand_for(target.ifindex)?;
    gate.set_protected_ports(config.shares().settings().protected_tcp_ports());
    gate.set_local(&LocalAddresses::read(&[target.ifindex])?)?;
    gate.set_vlans(target.vlans);
    gate.set_routes_groups(target.routes_groups);
    gate.set_translation(target.translation.clone());
    stay_on_one_cpu()?;

    let namer = Namer::new(&links)?;
    let out = BufWriter::new(io::stdout().lock());
    let mut printer = Printer { out, json: args.json, namer: &namer };
    if !or_gone(printer.begin(&capture, &target))? {
        return Ok(());
    }
    let mut session = Session::new(&gate, &target);
    let Some(read) = session.packets(&mut capture, &mut printer)? else { return Ok(()) };
    let error = read.as_ref().err().map(ToString::to_string);
    let ended = printer.end(session.totals, &session.counters, &session.notes(), error);
    if or_gone(ended.and_then(|()| printer.out.flush()))? { Ok(read?) } else { Ok(()) }
}

/// What the gate remembers of one packet for the next, it remembers per CPU.
fn stay_on_one_cpu() -> Result<()> {
    let allowed = sched::affinity(rustix::thread::gettid())?;
    match allowed.first() {
        Some(cpu) => Ok(sched::pin_current_thread(*cpu)?),
        None => Ok(()),
    }
}

/// The packets of one capture.
struct Session<'a> {
    gate: &'a Gate,
    target: &'a Target,
    totals: Totals,
    counters: Counters,
    /// Frames to one station.
    unicast: u64,
    /// Those to the interface itself.
    own: u64,
}

impl<'a> Session<'a> {
    fn new(gate: &'a Gate, target: &'a Target) -> Self {
        let (totals, counters) = (Totals::default(), Counters::default());
        Self { gate, target, totals, counters, unicast: 0, own: 0 }
    }

    /// Explains every packet, up to the first that cannot be read; `None`: nobody reads what is printed any more.
    fn packets(
        &mut self,
        capture: &mut Capture,
        printer: &mut Printer<'_, impl Write>,
    ) -> Result<Option<std::result::Result<(), CaptureError>>> {
        // What comes in as it is captured goes out at once.
        let live = capture.len.is_none();
        loop {
            let packet = match capture.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(Some(Ok(()))),
                Err(error) => return Ok(Some(Err(error))),
            };
            self.totals.packets += 1;
            self.totals.truncated += u64::from(is_truncated(&packet));
            let frame = packet.frame(self.target.mac);
            let outcome = match packet.link {
                Ok(_) => self.judge(&frame)?,
                Err(_) => Outcome::NotJudged(FOREIGN),
            };
            let printed = printer.packet(self.totals.packets, (&packet, &frame), &outcome);
            let printed = printed.and_then(|()| if live { printer.out.flush() } else { Ok(()) });
            if !or_gone(printed)? {
                return Ok(None);
            }
        }
    }

    fn judge(&mut self, frame: &[u8]) -> Result<Outcome> {
        if frame.len() < SHORTEST_FRAME {
            return Ok(Outcome::NotJudged("too short for an Ethernet header, 14 bytes"));
        }
        if frame.len() > PACKET_LEN_MAX {
            return Ok(Outcome::NotJudged("too long to be run through the gate, 65,536 bytes"));
        }
        if let Some((destination, _)) = seen::macs(frame)
            && destination.0[0] & 1 == 0
        {
            self.unicast += 1;
            self.own += u64::from(destination == self.target.mac);
        }
        let mut explanation = self.gate.explain(frame, self.target.ifindex)?;
        if !self.target.diversions.is_empty() {
            // What a gate that knows of them says. This one does not, so that it parses the packet.
            explanation.reason = Reason::Diverted;
            explanation.channel = Channel::of_kind(Reason::Diverted.kind());
        }
        self.totals.judged += 1;
        self.counters.count(explanation.reason, frame.len() as u64);
        Ok(Outcome::Judged(explanation))
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let Target { name, mac, .. } = self.target;
        if self.unicast > 0 && self.own == 0 {
            notes.push(format!(
                "no frame here is addressed to {name} ({mac}): the capture was made elsewhere, or of \
                 another interface (see --interface), so its packets are judged as other hosts'"
            ));
        }
        if self.target.discards && self.counters.get(Reason::UdpRoom).packets > 0 {
            notes.push(format!(
                "weir protects {name}, so the kernel refuses hardly anything, and only refusals show here that a UDP \
                 queue is full: where `weir channels {name}` shows discards, a queue said to have room has none"
            ));
        }
        if !self.target.diversions.is_empty() {
            notes.push(format!(
                "the gate passes everything on {name}: {}",
                self.target.diversions.join("; ")
            ));
        }
        if self.totals.truncated > 0 {
            notes.push(
                "of truncated packets the gate saw only the captured part, which looks malformed if a \
                 header says that there is more; capture whole packets (`tcpdump -s 0`)"
                    .into(),
            );
        }
        notes
    }
}

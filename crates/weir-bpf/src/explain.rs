//! What the gate makes of one packet, and why: what its parser saw, the channel, the reason.
//!
//! The packet goes through the very program that discards packets (`BPF_PROG_TEST_RUN`), which looks
//! at this host's sockets, routes and queues as they are at that moment.

use crate::channels::Channel;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::parser::{Parse, Parsed};
use crate::skeleton::gate::types;
use crate::units::IfIndex;
use crate::verdict::{Kind, Reason, Verdict};

/// Longest packet that the kernel runs a program on, in bytes: 16 of the 17 fragments of 4,096 bytes that a frame may have
/// (`MAX_SKB_FRAGS`), so that nothing depends on how long the first buffer is.
pub const PACKET_LEN_MAX: usize = 65_536;

/// What became of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// Why.
    pub reason: Reason,
    /// Where it was going.
    pub channel: Channel,
    /// What the parser saw; `None` if the packet is malformed, or passed without being parsed.
    pub parsed: Option<Parsed>,
}

impl Explanation {
    fn unparsed(reason: Reason) -> Self {
        Self { reason, channel: Channel::of_kind(reason.kind()), parsed: None }
    }

    /// What the gate does with the packet.
    pub fn verdict(&self) -> Verdict {
        self.reason.verdict()
    }
}

impl Gate {
    /// Runs a packet through a gate that was loaded by [`Gate::load_explaining`], as if it had come in on
    /// `ifindex` of the calling thread's network namespace.
    ///
    /// One thread at a time, pinned to a CPU: what the gate remembers for the next packets, it remembers
    /// per CPU.
    ///
    /// # Errors
    /// For packets that are shorter than [`SHORTEST_FRAME`](crate::parser::SHORTEST_FRAME) or longer than
    /// [`PACKET_LEN_MAX`], or when the kernel refuses the run.
    pub fn explain(&self, packet: &[u8], ifindex: IfIndex) -> Result<Explanation> {
        self.test_run(packet, ifindex)?;
        let maps = &self.skel().maps;
        let explaining = maps.rodata_data.is_some_and(|rodata| rodata.explaining);
        let said = maps.bss_data.as_deref().filter(|_| explaining).map(|bss| {
            // Judged before it was parsed.
            match (bss.interface.policy_off, bss.interface.diverted) {
                (0, 0) => explanation_of(&bss.explanation),
                (0, _) => Some(Explanation::unparsed(Reason::Diverted)),
                (_, _) => Some(Explanation::unparsed(Reason::PolicyOff)),
            }
        });
        said.flatten().ok_or_else(|| {
            Error::refused(
                "the gate did not explain a packet",
                "load it by Gate::load_explaining()",
            )
        })
    }
}

#[allow(unsafe_code)]
fn explanation_of(said: &types::weir_explanation) -> Option<Explanation> {
    let reason = Reason::of(said.reason)?;
    // SAFETY: the same structure of integers, by the name that the parser's skeleton gives it.
    let parsed: Parsed = unsafe { std::mem::transmute(said.parsed) };
    let parsed = Some(parsed).filter(|parsed| parsed.reached() != Parse::WEIR_PARSE_MALFORMED);
    let channel = channel_of(reason, parsed.as_ref(), said.egress_ifindex);
    Some(Explanation { reason, channel, parsed })
}

fn channel_of(reason: Reason, parsed: Option<&Parsed>, egress: u32) -> Channel {
    let kind = reason.kind();
    let of_kind = Channel::of_kind(kind);
    if kind == Kind::Forward {
        return Channel { egress: Some(IfIndex(egress)), ..of_kind };
    }
    if !kind.is_addressed() {
        return of_kind;
    }
    let local = parsed.and_then(|parsed| {
        let ((_, address), (source, destination)) = (parsed.addresses()?, parsed.ports()?);
        Some((address, if kind == Kind::TcpPeer { source } else { destination }))
    });
    Channel { local, ..of_kind }
}

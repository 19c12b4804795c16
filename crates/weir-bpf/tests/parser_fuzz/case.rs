//! One frame for both parsers, and what they make of it.

use std::fmt;
use std::io::{self, Write as _};

use weir_bpf::parser::{Parse, Parsed, Parser, Parsing, SHORTEST_FRAME};

use crate::reference;

/// A frame, and how many of its bytes are to be in the first buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    pub bytes: Vec<u8>,
    pub first_buffer: usize,
}

/// What the two parsers make of a case.
pub struct Outcome {
    pub bpf: Parsed,
    /// By the short way.
    pub usual: Parsed,
    pub reference: Parsed,
    /// Whether the short way is for this frame.
    pub is_usual: bool,
    /// Bytes that the kernel put into the first buffer.
    pub first_buffer: usize,
}

/// Both parsers.
pub struct Parsers {
    bpf: Parser,
    /// Whether the kernel lets the caller choose where the first buffer ends.
    splits: bool,
}

impl Parsers {
    pub fn load() -> Self {
        let mut bpf = Parser::load().expect("the tests need root");
        let splits = bpf.parse(&[0; 64], 32).is_ok();
        if !splits {
            // Not println!(): that is kept back where the test passes.
            let what = "short first buffers: this kernel has none (fe9544ed1a2e, Linux 6.18)";
            io::stderr().write_all(format!("skipped: {what}\n").as_bytes()).unwrap();
        }
        Self { bpf, splits }
    }

    pub fn judge(&mut self, case: &Case) -> Outcome {
        let wanted = if self.splits { case.first_buffer } else { case.bytes.len() };
        let Parsing { parsed, usual, first_buffer } = self.bpf.parse(&case.bytes, wanted).unwrap();
        assert!(first_buffer <= wanted);
        let reference = reference::parse(&case.bytes, first_buffer);
        let is_usual = reference::is_usual(&case.bytes, &reference);
        Outcome { bpf: parsed, usual, reference, is_usual, first_buffer }
    }
}

impl Outcome {
    pub fn agree(&self) -> bool {
        let short_agrees = match self.usual.parse {
            _ if self.is_usual => fields(&self.usual) == fields(&self.reference),
            parse => ![Parse::WEIR_PARSE_UDP.0, Parse::WEIR_PARSE_TCP.0].contains(&parse),
        };
        short_agrees && fields(&self.bpf) == fields(&self.reference)
    }

    /// Two disagreements of one kind have most likely one cause.
    fn kind(&self) -> Option<impl PartialEq + use<>> {
        (!self.agree()).then_some((self.bpf.parse, self.usual.parse, self.reference.parse))
    }
}

/// Every field, padding included: all of it is to be equal, what is void is to be 0.
fn fields(parsed: &Parsed) -> impl PartialEq {
    let Parsed {
        parse,
        ethertype,
        vlan_tags,
        family,
        protocol,
        fragment,
        routed,
        tcp_flags,
        left,
        fragment_id,
        source_port,
        destination_port,
        udp_len,
        icmp_type,
        pad,
        source,
        destination,
    } = *parsed;
    (
        (parse, ethertype, vlan_tags, family, protocol, fragment, routed, tcp_flags),
        (left, fragment_id, source_port, destination_port, udp_len, icmp_type, pad),
        (source, destination),
    )
}

/// Most parses that looking for a smaller case may take.
const MINIMISING_PARSES: u32 = 20_000;

impl Case {
    /// A case that the parsers disagree about in the same way, with bytes left out or zeroed for as
    /// long as they do.
    pub fn minimised(&self, parsers: &mut Parsers) -> Self {
        let kind = parsers.judge(self).kind();
        let mut best = self.clone();
        let mut parses = 0;
        let mut accept = |best: &mut Self, candidate: Self| {
            parses += 1;
            let better = candidate != *best
                && parses < MINIMISING_PARSES
                && parsers.judge(&candidate).kind() == kind;
            if better {
                *best = candidate;
            }
            better
        };
        loop {
            let mut improved = false;
            let whole = Self { first_buffer: best.bytes.len(), ..best.clone() };
            accept(&mut best, whole);
            for chunk in [1024, 256, 64, 16, 8, 4, 2, 1] {
                let mut at = best.bytes.len().saturating_sub(chunk);
                while at > 0 {
                    improved |= [false, true].into_iter().any(|consistent| {
                        let shorter = best.without(at, chunk, consistent);
                        shorter.is_some_and(|shorter| accept(&mut best, shorter))
                    });
                    at = at.min(best.bytes.len()).saturating_sub(chunk);
                }
            }
            for at in 0..best.bytes.len() {
                let mut zeroed = best.clone();
                zeroed.bytes[at] = 0;
                improved |= accept(&mut best, zeroed);
            }
            if !improved {
                return best;
            }
        }
    }

    /// The case without `count` bytes; if that is to be consistent, the IP header's length field is
    /// told.
    fn without(&self, at: usize, count: usize, consistent: bool) -> Option<Self> {
        let end = at + count;
        let remain = self.bytes.len().checked_sub(count)?;
        if end > self.bytes.len() || remain < SHORTEST_FRAME {
            return None;
        }
        let mut shorter = self.clone();
        if consistent {
            let field = self.ip_len_at()?;
            let old = u16::from_be_bytes([self.bytes[field], self.bytes[field + 1]]);
            let new = old.checked_sub(count as u16)?.to_be_bytes();
            shorter.bytes[field..field + 2].copy_from_slice(&new);
        }
        shorter.bytes.drain(at..end);
        // What is taken from the first buffer makes that shorter.
        shorter.first_buffer -= end.min(self.first_buffer).saturating_sub(at);
        Some(shorter)
    }

    /// Where the IP header has its length field, if there is one.
    fn ip_len_at(&self) -> Option<usize> {
        let mut ethertype_at = 12;
        loop {
            let at = match self.bytes.get(ethertype_at..ethertype_at + 2)? {
                [0x81, 0x00] | [0x88, 0xa8] => {
                    ethertype_at += 4;
                    continue;
                }
                [0x08, 0x00] => ethertype_at + 4,
                [0x86, 0xdd] => ethertype_at + 6,
                _ => return None,
            };
            return (at + 2 <= self.bytes.len()).then_some(at);
        }
    }
}

/// As in a corpus file.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first_buffer != self.bytes.len() {
            writeln!(f, "first-buffer: {}", self.first_buffer)?;
        }
        for line in self.bytes.chunks(32) {
            for byte in line {
                write!(f, "{byte:02x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

//! How long packets are, and what makes flows whose frames differ share recycled pages.

use super::spec::{FlowSpec, Lengths, RAW_LEN_MAX, Transport};
use super::{FLOWS, FRAME_LEN_MAX, refused};
use crate::error::Result;

/// Lengths that a flow's packets are drawn from: one for each value of a random byte.
const LENGTHS: usize = 256;

/// What a flow's frames have beyond the headers.
pub(super) struct Shape {
    /// Length of the longest.
    pub(super) frame_len: usize,
    /// How much of a frame is written, from its start: headers and stamp, or all of a raw one.
    pub(super) start_len: usize,
    /// A raw frame; else empty.
    pub(super) raw: Vec<u8>,
    pub(super) payloads: Payloads,
}

/// Payload lengths as the kernel half draws them.
pub(super) struct Payloads {
    pub(super) longest: u16,
    /// By less than this, at random, a payload is shorter; 0: by one of `cuts`.
    pub(super) cut_span: u32,
    cuts: [u16; LENGTHS],
}

impl Payloads {
    pub(super) fn of(spec: &FlowSpec) -> Result<Self> {
        let payloads = Self::from_lengths(lengths(spec))?;
        if usize::from(payloads.longest) > FRAME_LEN_MAX {
            return Err(refused(format!("a payload of {} bytes", payloads.longest)));
        }
        Ok(payloads)
    }

    fn from_lengths(lengths: Lengths) -> Result<Self> {
        match lengths {
            Lengths::One(longest) => Ok(Self { longest, cut_span: 1, cuts: [0; LENGTHS] }),
            Lengths::Uniform { from, to } if from <= to => {
                let cut_span = u32::from(to - from) + 1;
                Ok(Self { longest: to, cut_span, cuts: [0; LENGTHS] })
            }
            Lengths::Table(mut table) if !table.is_empty() => {
                table.sort_unstable();
                // The middle of each of as many equal parts.
                let quantile = |k: usize| table[(2 * k + 1) * table.len() / (2 * LENGTHS)];
                let longest = quantile(LENGTHS - 1);
                let cuts = std::array::from_fn(|k| longest - quantile(k));
                Ok(Self { longest, cut_span: 0, cuts })
            }
            none => Err(refused(format!("no length is among {none:?}"))),
        }
    }

    fn is_one(&self) -> bool {
        self.cut_span == 1
    }
}

/// The lengths that payloads of this transport can have.
fn lengths(spec: &FlowSpec) -> Lengths {
    match (spec.transport, &spec.lengths) {
        (Transport::TcpSyn | Transport::TcpAck | Transport::Raw, _) => Lengths::One(0),
        // A fragment that others follow ends at a multiple of 8 bytes (RFC 791, 3.1; RFC 8200, 4.5).
        (Transport::FirstFragment | Transport::LastFragment, lengths) => {
            let whole = |length: u16| length.div_ceil(8).saturating_mul(8);
            match lengths {
                Lengths::One(length) => Lengths::One(whole(*length)),
                Lengths::Uniform { from, to } => Lengths::Table((*from..=*to).map(whole).collect()),
                Lengths::Table(table) => Lengths::Table(table.iter().copied().map(whole).collect()),
            }
        }
        (_, lengths) => lengths.clone(),
    }
}

/// How much of each frame the kernel half writes anew before its headers; 0 where all frames are alike,
/// so that nothing of another can be in it.
pub(super) fn start_len(shapes: &[Shape]) -> u32 {
    let alike = |shape: &Shape| {
        let first = &shapes[0];
        let same = (shape.frame_len, shape.start_len) == (first.frame_len, first.start_len);
        same && shape.payloads.is_one() && shape.raw.is_empty()
    };
    if shapes.iter().all(alike) {
        return 0;
    }
    shapes.iter().map(|shape| shape.start_len).max().unwrap_or(0) as u32
}

/// What each flow's frames begin with before their headers are written.
pub(super) fn starts(shapes: &[Shape]) -> [[u8; RAW_LEN_MAX]; FLOWS] {
    let mut starts = [[0; RAW_LEN_MAX]; FLOWS];
    for (start, shape) in starts.iter_mut().zip(shapes) {
        start[..shape.raw.len()].copy_from_slice(&shape.raw);
    }
    starts
}

/// By how much the packets of each flow may be shorter than its longest.
pub(super) fn cuts(shapes: &[Shape]) -> [[u16; LENGTHS]; FLOWS] {
    let mut cuts = [[0; LENGTHS]; FLOWS];
    for (cuts, shape) in cuts.iter_mut().zip(shapes) {
        *cuts = shape.payloads.cuts;
    }
    cuts
}

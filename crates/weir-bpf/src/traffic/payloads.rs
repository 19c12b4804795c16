//! How long packets are.

use super::spec::{FRAME_LEN_MAX, FlowSpec, Lengths, Transport, refused};
use crate::abi::TRAFFIC_LENGTHS as LENGTHS;
use crate::error::Result;

/// Payload lengths as the kernel half draws them.
pub(super) struct Payloads {
    pub(super) longest: u16,
    /// By less than this, at random, a payload is shorter; 0: by one of `cuts`.
    pub(super) cut_span: u32,
    pub(super) cuts: [u16; LENGTHS],
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
}

/// The lengths that payloads of this transport can have.
fn lengths(spec: &FlowSpec) -> Lengths {
    match (spec.transport, &spec.lengths) {
        (
            Transport::TcpSyn | Transport::TcpAck | Transport::Solicitation { .. } | Transport::Raw,
            _,
        ) => Lengths::One(0),
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

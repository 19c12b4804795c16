//! How long packets are.

use super::spec::{FRAME_LEN_MAX, FlowSpec, Lengths, Transport, refused};
use crate::abi::TRAFFIC_LENGTHS as LENGTHS;
use crate::error::Result;
use crate::skeleton::traffic::types;

/// Writes payload lengths as the kernel half draws them: each is the longest, which is returned, less what is drawn.
pub(super) fn write(spec: &FlowSpec, flow: &mut types::weir_traffic_flow) -> Result<u16> {
    let longest = match lengths(spec) {
        Lengths::One(longest) => {
            flow.cut_span = 1;
            longest
        }
        Lengths::Uniform { from, to } if from <= to => {
            flow.cut_span = u32::from(to - from) + 1;
            to
        }
        Lengths::Table(mut table) if !table.is_empty() => {
            table.sort_unstable();
            // The middle of each of as many equal parts.
            let quantile = |k: usize| table[(2 * k + 1) * table.len() / (2 * LENGTHS)];
            let longest = quantile(LENGTHS - 1);
            flow.cuts = std::array::from_fn(|k| longest - quantile(k));
            longest
        }
        none => return Err(refused(format!("no length is among {none:?}"))),
    };
    if usize::from(longest) > FRAME_LEN_MAX {
        return Err(refused(format!("a payload of {longest} bytes")));
    }
    Ok(longest)
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

//! What several experiments share: floods by name.

use weir_bpf::traffic::{Lengths, Sources, Transport};

use crate::run::Load;
use crate::scene::{CLOSED_PORT, Flow};

/// At the top load every sort of packets but the last is sent at this rate, and the last at what the
/// generator can do beyond that.
const EACH_AT_TOP: Load = Load::Rate(1_000_000.0);

/// A flood of one of experiments.md's mixes, which the last word of a case names.
pub(super) fn mixed(flow: Flow, case: &str) -> Flow {
    match case.rsplit('-').next() {
        Some("mixed") => Flow { lengths: Lengths::Uniform { from: 18, to: 1472 }, ..flow },
        Some("dns") => Flow { lengths: Lengths::dns(), ..flow },
        Some("sources") => Flow { sources: Sources::Some(100), ..flow },
        _ => flow,
    }
}

/// Gives each sort of packets its part of a load.
pub(super) fn share_out(mut sorts: Vec<Flow>, load: Load) -> Vec<Flow> {
    let count = sorts.len();
    for (index, flow) in sorts.iter_mut().enumerate() {
        flow.load = match load {
            Load::Rate(rate) => Load::Rate(rate / count as f64),
            load if index + 1 == count => load,
            _ => EACH_AT_TOP,
        };
    }
    sorts
}

/// The same as pings.
pub(super) fn pings(flow: &Flow) -> Flow {
    Flow { transport: Transport::Echo, from_port: 1, port: 1, ..flow.clone() }
}

/// The same to a port without a socket.
pub(super) fn to_closed_port(flow: &Flow) -> Flow {
    Flow { port: CLOSED_PORT, ..flow.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_share_a_rate_and_the_last_has_the_rest_of_the_top() {
        let sorts = || vec![Flow::udp(1, Load::Top), Flow::udp(2, Load::Top)];
        let loads =
            |load| share_out(sorts(), load).iter().map(|flow| flow.load).collect::<Vec<_>>();
        assert_eq!(loads(Load::Rate(3e5)), [Load::Rate(1.5e5); 2]);
        assert_eq!(loads(Load::Top), [EACH_AT_TOP, Load::Top]);
    }
}

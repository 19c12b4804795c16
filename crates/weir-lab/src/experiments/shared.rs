//! What several experiments share: floods by name, and references measured without a flood.

use weir_bpf::traffic::{Lengths, Sources, Transport};

use crate::arm::QUIET;
use crate::experiment::Cases;
use crate::metric::m;
use crate::run::{Load, Trial};
use crate::scene::{CLOSED_PORT, Flow};
use crate::stats::median_of_some;

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

/// Whether references are measured in an arm: see [`QUIET`].
pub(super) fn is_quiet(arm: &str) -> bool {
    arm.split(' ').next().is_some_and(|name| QUIET.contains(&name))
}

/// A figure's median over the trials of these cases at load 0, in the quietest arm that has any.
pub(super) fn unloaded(
    trials: &[Trial],
    cases: Cases,
    figure: fn(&Trial) -> Option<f64>,
) -> Option<f64> {
    QUIET.iter().find_map(|quiet| {
        let is_of = |t: &&Trial| {
            let arm = t.arm.split(' ').next();
            t.load == Load::Off && arm == Some(quiet) && cases.has(&t.case)
        };
        median_of_some(trials.iter().filter(is_of).map(figure))
    })
}

/// Sets `hog_work`: the hog's passes, of those that it makes with the CPU to itself, in case `unloaded`.
pub(super) fn hog_work(trials: &mut [Trial]) {
    let alone = unloaded(trials, Cases::Of(&["unloaded"]), |trial| trial.get(&m::hog_per_s));
    for trial in trials {
        let work = trial.get(&m::hog_per_s).zip(alone).map(|(per_s, alone)| per_s / alone);
        trial.set(&m::hog_work, work);
    }
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

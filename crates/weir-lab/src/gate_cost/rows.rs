//! Which packets are measured, and in which order.

use crate::results::gate_cost::{CostMode, Kind};

/// One kind of packets in one pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpec {
    /// The packets.
    pub kind: Kind,
    /// Random bits of the source address.
    pub address_bits: u8,
    /// Random bits of the source port.
    pub port_bits: u8,
    /// Random bits of the destination port.
    pub socket_bits: u8,
}

impl RowSpec {
    /// How many sources the packets come from.
    pub fn flows(&self) -> u64 {
        1 << (self.address_bits + self.port_bits)
    }

    /// How many sockets they go to.
    pub fn sockets(&self) -> u32 {
        1 << self.socket_bits
    }
}

/// How packets are spread: random bits of source address, source port, destination port.
type Pattern = (u8, u8, u8);
const ONE_FLOW: Pattern = (0, 0, 0);
const SOME_FLOWS: Pattern = (3, 3, 0);
/// More than any table of the gate's could hold: what it remembers by source is worth nothing here.
const MANY_FLOWS: Pattern = (7, 14, 0);
const SOME_SOCKETS: Pattern = (3, 3, super::targets::SOCKET_BITS);

/// The rows of a run.
pub fn rows(quick: bool) -> Vec<RowSpec> {
    let udp4 = [ONE_FLOW, SOME_FLOWS, MANY_FLOWS, SOME_SOCKETS].map(|p| (Kind::Udp4, p));
    let other = |kind| {
        let patterns: &[Pattern] = if quick { &[SOME_FLOWS] } else { &[ONE_FLOW, SOME_FLOWS] };
        patterns.iter().map(move |pattern| (kind, *pattern))
    };
    udp4.into_iter()
        .chain([Kind::Udp6, Kind::TcpSyn4, Kind::TcpSyn6].into_iter().flat_map(other))
        .map(|(kind, (address_bits, port_bits, socket_bits))| RowSpec {
            kind,
            address_bits,
            port_bits,
            socket_bits,
        })
        .collect()
}

/// The modes of one row in one repeat: what is compared stands together in time, the gate is started
/// once, and which comes first alternates, so that a machine whose speed drifts favours neither. The
/// passing modes are neighbours: the difference of two large times is wanted, the ratio of the others.
pub fn order(repeat: u32, row: usize) -> [Vec<CostMode>; 2] {
    let bare = [CostMode::BareDrop, CostMode::TouchDrop, CostMode::BarePass];
    let gate = [CostMode::GatePass, CostMode::GateDiscard];
    if (repeat as usize + row).is_multiple_of(2) {
        [bare.into(), gate.into()]
    } else {
        [gate.into_iter().rev().collect(), bare.into_iter().rev().collect()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_there_and_the_hard_patterns_too() {
        for quick in [true, false] {
            let rows = rows(quick);
            for kind in Kind::ALL {
                assert!(rows.iter().any(|row| row.kind == kind), "{kind}");
            }
            assert!(rows.iter().any(|row| row.flows() == 1));
            assert!(rows.iter().any(|row| row.flows() == 64));
            assert!(rows.iter().any(|row| row.flows() > 1 << 20));
            assert!(rows.iter().any(|row| row.sockets() == 16));
        }
    }

    #[test]
    fn each_order_has_every_mode_once_and_pairs_are_neighbours() {
        for (repeat, row) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let order = order(repeat, row);
            for mode in CostMode::ALL {
                assert_eq!(order.iter().flatten().filter(|m| **m == mode).count(), 1, "{mode}");
            }
            let alike =
                |group: &Vec<CostMode>| group.iter().all(|mode| mode.gated() == group[0].gated());
            assert!(order.iter().all(alike), "{order:?}");
            assert!(order[0].last().unwrap().passes() && order[1][0].passes(), "{order:?}");
        }
        assert_ne!(order(0, 0)[0][0].gated(), order(1, 0)[0][0].gated());
    }
}

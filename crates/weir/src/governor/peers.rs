//! What NAPI threads on one CPU know of each other.

use std::collections::BTreeMap;
use std::sync::Mutex;

use weir_bpf::sync::lock;
use weir_bpf::units::CpuId;
use weir_policy::Governor;

/// What one governed thread does, by its last look.
#[derive(Clone, Copy, Debug)]
struct Peer {
    cpu: CpuId,
    /// Of input's share of the CPU.
    used: f64,
    tells_apart: bool,
}

/// What each governed thread does, by its number.
#[derive(Default)]
pub(super) struct Peers(Mutex<BTreeMap<u32, Peer>>);

impl Peers {
    /// What a thread does on this CPU.
    pub(super) fn note(&self, number: u32, cpu: CpuId, governor: &Governor) {
        let peer = Peer { cpu, used: governor.used(), tells_apart: governor.tells_apart() };
        lock(&self.0).insert(number, peer);
    }

    /// A thread is governed no more.
    pub(super) fn forget(&self, number: u32) {
        lock(&self.0).remove(&number);
    }

    /// Whether another thread than this one tells a flood from other channels on this CPU.
    pub(super) fn another_tells_apart(&self, cpu: CpuId, number: u32) -> bool {
        others(&lock(&self.0), cpu, number).any(|peer| peer.tells_apart)
    }

    /// What each of the other threads uses of input's share of this CPU.
    pub(super) fn used_by_others(&self, cpu: CpuId, number: u32) -> Vec<f64> {
        others(&lock(&self.0), cpu, number).map(|peer| peer.used).collect()
    }
}

fn others(peers: &BTreeMap<u32, Peer>, cpu: CpuId, number: u32) -> impl Iterator<Item = &Peer> {
    let others = peers.iter().filter(move |(other, peer)| **other != number && peer.cpu == cpu);
    others.map(|(_, peer)| peer)
}

#[cfg(test)]
mod tests {
    use weir_policy::{Nanos, Observation, Settings};

    use super::*;

    #[test]
    fn only_others_of_the_same_cpu_count() {
        let ms = Nanos::from_millis(1);
        let flooded =
            Observation { elapsed: ms, ran: ms, wasted: ms, beside: true, ..Default::default() };
        let settings = Settings::default();
        let (governor, _) = (0..9)
            .fold(Governor::default().decide(&settings, &flooded), |(governor, _), _| {
                governor.decide(&settings, &flooded)
            });
        let peers = Peers::default();
        peers.note(1, CpuId(0), &governor);
        assert!(peers.another_tells_apart(CpuId(0), 2));
        assert!(!peers.another_tells_apart(CpuId(0), 1));
        assert!(!peers.another_tells_apart(CpuId(1), 2));
        assert_eq!(peers.used_by_others(CpuId(0), 2), [governor.used()]);
        assert!(governor.used() > 0.5);
        assert_eq!(peers.used_by_others(CpuId(0), 1), [0.0; 0]);
        peers.forget(1);
        assert!(!peers.another_tells_apart(CpuId(0), 2));
    }
}

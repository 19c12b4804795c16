//! What NAPI threads on one CPU know of each other.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_bpf::units::CpuId;

/// Which governed threads tell a flood from other channels, by the thread's number, and on which CPU.
#[derive(Default)]
pub(super) struct Peers(Mutex<BTreeMap<u32, CpuId>>);

impl Peers {
    /// A thread tells a flood apart on this CPU, or, with `None`, does not.
    pub(super) fn note(&self, number: u32, apart_on: Option<CpuId>) {
        match apart_on {
            Some(cpu) => self.lock().insert(number, cpu),
            None => self.lock().remove(&number),
        };
    }

    /// Whether another thread than this one tells a flood apart on this CPU.
    pub(super) fn another_on(&self, cpu: CpuId, number: u32) -> bool {
        self.lock().iter().any(|(other, on)| *other != number && *on == cpu)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, CpuId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_others_of_the_same_cpu_count() {
        let peers = Peers::default();
        peers.note(1, Some(CpuId(0)));
        assert!(peers.another_on(CpuId(0), 2));
        assert!(!peers.another_on(CpuId(0), 1));
        assert!(!peers.another_on(CpuId(1), 2));
        peers.note(1, None);
        assert!(!peers.another_on(CpuId(0), 2));
    }
}

//! What a process weighs, in the kernel's scheduler.

use serde::Serialize;
use weir_bpf::holders::SchedClass;
use weir_bpf::units::Nice;

/// A share of the CPU in proportion to others' weights; 1,024 of a process at nice 0, in a group of the usual
/// weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Weight(pub u32);

/// `sched_prio_to_weight[]`, kernel/sched/core.c: nice -20 to 19.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];
/// `WEIGHT_IDLEPRIO`, kernel/sched/sched.h.
const IDLE: u32 = 3;

impl Weight {
    /// Of a process at nice 0.
    pub const NORMAL: Self = Self(1024);

    /// A thread's. Real-time ones have no weight, they run first: they count as the heaviest.
    pub fn of(policy: SchedClass) -> Self {
        let [heaviest, ..] = WEIGHTS;
        match policy {
            SchedClass::Fair(Nice(nice)) => {
                let at = usize::try_from(nice + 20).unwrap_or(0);
                Self(WEIGHTS[at.min(WEIGHTS.len() - 1)])
            }
            SchedClass::Idle => Self(IDLE),
            SchedClass::RealTime => Self(heaviest),
        }
    }

    /// So many times as much; no less than the least there is.
    pub fn times(self, factor: f64) -> Self {
        Self((f64::from(self.0) * factor).round().clamp(1.0, f64::from(u32::MAX)) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_kernels() {
        let of = |nice| Weight::of(SchedClass::Fair(Nice(nice))).0;
        assert_eq!([-20, 0, 1, 5, 19].map(of), [88761, 1024, 820, 335, 15]);
        assert_eq!([-99, 99].map(of), [88761, 15]);
        assert_eq!(Weight::of(SchedClass::Idle), Weight(3));
        assert_eq!(Weight::of(SchedClass::RealTime), Weight(88761));
        assert_eq!(
            [0.5, 2.0, 1e-9, 1e9].map(|by| Weight(1024).times(by).0),
            [512, 2048, 1, u32::MAX]
        );
    }
}

//! The papers' machines: one CPU whose stages cost what the papers' figures imply.
//!
//! [`router`]: the DECstation of Mogul & Ramakrishnan. [`endhost`]: the SPARCstation of Druschel & Banga.
//! Both run here, packet by packet: work at a lower level waits while there is any at a higher one.

pub mod endhost;
pub mod router;

use fastrand::Rng;

use super::packets::PacketsPerSec;
use crate::units::Nanos;

/// How many levels of priority there are: hardware interrupts, software interrupts or kernel threads,
/// processes.
const LEVELS: usize = 3;

/// A machine that is sent packets.
pub trait Machine {
    /// A packet of a flow arrives.
    fn arrive(&mut self, flow: usize);
    /// What the machine does next at a level, and for how long; `None`: nothing.
    fn begin(&mut self, level: usize, now: Nanos) -> Option<Nanos>;
    /// It has done it.
    fn end(&mut self, level: usize);
    /// When something of its own is due at the latest.
    fn alarm(&self) -> Nanos {
        Nanos(u64::MAX)
    }
    /// Packets that reached their end, by flow.
    fn delivered(&self) -> [u64; 2];
}

/// What a machine did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// What was sent, by flow.
    pub offered: [PacketsPerSec; 2],
    /// What reached its end, by flow.
    pub delivered: [PacketsPerSec; 2],
    /// The part of the time that processes had.
    pub processes: f64,
}

/// Sends two flows to a machine for so long. The sources are not paced exactly (Mogul & Ramakrishnan,
/// section 6.1): gaps between packets are 0.5 to 1.5 times the mean.
pub fn run(machine: &mut impl Machine, rates: [PacketsPerSec; 2], time: Nanos, seed: u64) -> Run {
    let mut rng = Rng::with_seed(seed);
    let gap = |rate: PacketsPerSec, rng: &mut Rng| {
        if rate.0 > 0.0 { (1e9 / rate.0 * (0.5 + rng.f64())) as u64 } else { u64::MAX }
    };
    let mut next = rates.map(|rate| gap(rate, &mut rng));
    let (mut now, mut sent, mut processes) = (0, [0u64; 2], 0);
    let mut left: [Option<u64>; LEVELS] = [None; LEVELS];
    while now < time.0 {
        for flow in 0..2 {
            while next[flow] <= now {
                machine.arrive(flow);
                sent[flow] += 1;
                next[flow] = next[flow].saturating_add(gap(rates[flow], &mut rng));
            }
        }
        let mut level = 0;
        while level < LEVELS && left[level].is_none() {
            left[level] = machine.begin(level, Nanos(now)).map(|work| work.0);
            level += usize::from(left[level].is_none());
        }
        let alarm = Some(machine.alarm().0).filter(|&at| at > now).unwrap_or(u64::MAX);
        let until = next[0].min(next[1]).min(alarm).min(time.0);
        let Some(work) = left.get(level).copied().flatten() else {
            now = until;
            continue;
        };
        let does = work.min(until - now);
        now += does;
        processes += if level == LEVELS - 1 { does } else { 0 };
        left[level] = Some(work - does).filter(|&left| left > 0);
        if left[level].is_none() {
            machine.end(level);
        }
    }
    let rate = |packets: u64| PacketsPerSec(packets as f64 * 1e9 / time.0 as f64);
    Run {
        offered: sent.map(rate),
        delivered: machine.delivered().map(rate),
        processes: processes as f64 / time.0 as f64,
    }
}
